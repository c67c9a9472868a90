"""Printed values beside ours: cells, differences, verdicts, and the table that shows both."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from small_exhibits import file_of, small
from synthetic import ROOT, plan, workplace

from fedrepro.core.errors import FedreproError
from fedrepro.core.paper_files import claims_file, published_file
from fedrepro.drawings.exhibits.table import TableDrawing
from fedrepro.drawings.tables import table_of
from fedrepro.numbers.exhibit_files import TIMES, open_recorded
from fedrepro.numbers.tables_and_selection import csv_text, read_csv
from fedrepro.numbers.verdicts import verdicts_on_printed_values as judging
from fedrepro.numbers.verdicts.claim_verdicts import load_claims
from fedrepro.planning.config_files import Config, load_exhibits, table_names
from fedrepro.planning.plan import Plan
from fedrepro.record.record_entries_and_leaderboards import drawn_keys

__all__ = ["workplace"]
CASES = {
    "iid": {"label": "iid, digits"},
    "skew": {"label": "skew", "partition": {"name": "shards"}},
}
METHODS = [
    {"name": "average", "label": "A"},
    {"name": "uniform_ensemble", "label": "E"},
    {"name": "local", "label": "alone", "reference": True},
]


def value(**given) -> judging.PrintedValue:
    place = {"exhibit": "x", "cell": {"clients": "2"}, "method": "A", "where": "file, line 2"}
    number = {"metric": "accuracy", "split": "test", "value": 0.9, "sd": None, "trials": None}
    return judging.PrintedValue(**(place | number | {"note": "", "tolerance": None} | given))


def written(path: Path, *rows: str) -> Path:
    path.write_text("\n".join([",".join(judging.COLUMNS), *rows]) + "\n")
    return path


def test_a_row_is_read_with_its_cell_and_its_tolerance_and_one_printed_again_is_taken(tmp_path):
    row = 'x,"case=a, b, clients=5",A,accuracy,test,0.9,0.01,10,,0.045'
    (found,) = judging.read_published(written(tmp_path / "p.csv", row))
    assert found.cell == {"case": "a, b", "clients": "5"}
    assert (found.value, found.sd, found.trials, found.tolerance) == (0.9, 0.01, 10, 0.045)
    row = "x,clients=5,A,accuracy,test,0.8,,,"
    path = written(tmp_path / "p.csv", row, f"{row}printed again in the text")
    found = judging.read_published(path)
    assert [one.note.startswith(judging.AGAIN) for one in found] == [False, True]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (["x,clients=5,A,acuracy,test,0.9,,,,"], "line 2: did you mean 'accuracy'"),
        (["x,clients=5,A,accuracy,tset,0.9,,,,"], "line 2: did you mean 'test'"),
        (["x,clients=5,A,accuracy,test,high,,,,"], "line 2: 'value' is 'high', not a number"),
        (["x,clients=5,A,accuracy,test,80,,,,"], "line 2: accuracy cannot be 80; it is a share of"),
        (["x,clients=5,A,accuracy,test,-0.1,,,,"], "line 2: accuracy cannot be -0.1"),
        (["x,clients=5,A,accuracy,test,0.9,1.2,5,,"], "sd of accuracy cannot be 1.2; it is a sh"),
        (["x,clients=5,A,accuracy,test,0.9,,inf,,"], "line 2: trials of accuracy cannot be inf"),
        (["x,clients=5,A,accuracy,test,,,,,"], "line 2: 'value' is empty"),
        (["x,five clients,A,accuracy,test,0.9,,,,"], "is not of the form key=value"),
        (["x,clients=5,A,accuracy,test,0.9,,,,much"], "'tolerance' is 'much'"),
        (["x,clients=5,A,accuracy,test,0.9,,,,,fitted: by eye"], "'apart' is 'fitted: by eye'"),
        (["x,clients=5,A,accuracy,test,0.9,,,,,calibrated"], "one of calibrated, nearly fixed, re"),
        (["x,clients=5,A,accuracy,test,0.9,,,,,claim: F1"], "write it as in 'claim: C1, check 2'"),
        (["x,clients=5,A,accuracy,test,0.9,,,,,,rates"], "write an exhibit, a colon and the"),
        (["x,clients=5,A,accuracy,test,0.9,,,,,,,a friend"], "line 2"),
        (["x,clients=5,A,accuracy,test,0.8,,,,", "x,clients=5,A,accuracy,test,0.7,,,,"],
         "line 3, is of the same number as line 2"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_read_is_a_sentence(tmp_path, rows, sentence):
    with pytest.raises(FedreproError, match=sentence):
        judging.read_published(written(tmp_path / "p.csv", *rows))


def judged(printed, ours, sd=0.0, trials=10) -> str:
    most = judging.allowed_difference(printed, sd, trials, judging.usual_tolerance(printed))
    away = judging.difference(ours, printed.value)
    return judging.printed_verdict(
        printed.metric, ours, away, most, judging.noise(printed, sd, trials), trials
    )


@pytest.mark.parametrize(
    ("given", "ours", "word"),
    [
        # one point is the tolerance of accuracies
        *(({}, [0.9 + away], "reproduced") for away in (0.01, -0.01)),
        ({}, [0.92], "better"),
        ({}, [0.88], "worse"),
        ({}, [0.92, 0.04], "few trials"),  # ours scatters too much for print to be met
        ({}, [0.912, 0.007], "undecided"),  # it is as far away by chance
        ({}, [0.95, 0.005], "better"),
        ({}, [math.nan], "failed"),
        # our own scatter counts for no more than the printed one
        ({"value": 0.78, "sd": 0.015, "trials": 5}, [0.717, 0.0853, 5], "few trials"),
        ({"value": 0.78, "sd": 0.0853, "trials": 5}, [0.717, 0.015, 5], "reproduced"),
        ({"value": 0.78, "sd": 0.0853, "trials": 5}, [0.717, 0.0853, 5], "reproduced"),
        ({"value": 0.78, "trials": 5}, [0.717, 0.0853, 5], "few trials"),
        # the paper's spread widens the interval, and counts as one trial where none are named
        ({"sd": 0.05, "trials": 4}, [0.94], "reproduced"),
        ({"sd": 0.05}, [0.94], "few trials"),
        # fewer rounds are better, and those never reached are equal
        *(({"metric": "rounds", "value": 100.0}, [ours], word)
          for ours, word in ((85, "reproduced"), (120, "reproduced"), (121, "worse"),
                             (70, "better"), (math.inf, "worse"))),
        ({"metric": "rounds", "value": 100.0}, [math.inf, math.nan], "few trials"),
        ({"metric": "rounds", "value": math.inf}, [math.inf], "reproduced"),
        *(({"metric": "rounds", "value": math.inf}, [90.0, *sd], "better") for sd in ([], [7.0])),
        *(({"metric": "hidden_units", "value": 200.0}, [ours], word)
          for ours, word in ((190, "reproduced"), (210, "reproduced"), (211, "worse"))),
        ({"metric": "bytes_up", "value": 3.0}, [9.0], "shown"),
    ],
)  # fmt: skip
def test_a_printed_value_has_its_verdict(given, ours, word):
    assert judged(value(**given), *ours) == word


def numbers_of(exhibit, accuracy: dict[str, float], sd: float = 0.0) -> pd.DataFrame:
    """The numbers of an exhibit in which each method has one accuracy everywhere."""
    same = {"metric": "accuracy", "split": "test", "sd": sd, "trials": 2, "by_trial": ""}
    rows = [
        {**point.values, "method": m.label, "mean": accuracy[m.label], "setting": m.spec.token}
        for point in exhibit.points
        for m in point.measures
    ]
    return read_csv(csv_text(pd.DataFrame(rows).assign(**same)))


SAME = {"A": 0.905, "E": 0.95, "alone": 0.5}


def beside(exhibit, *values, stand_ins=None, sd=0.0) -> pd.DataFrame:
    return judging.printed_rows(exhibit, values, numbers_of(exhibit, SAME, sd), stand_ins or {})


def test_the_printed_verdicts_of_the_record_come_out_again():
    """With our numbers, differences, tolerances, noise and what is said of the set-up."""
    made, record = plan("paper"), ROOT / "reports/record"
    for key in set(drawn_keys(record, "paper")) & set(made.exhibits):
        files = open_recorded(record / "paper", key, "paper")
        if ".printed.csv" in files.suffixes:
            exhibit, tables = made.exhibit(key), {".csv", TIMES} & set(files.suffixes)
            numbers = pd.concat([files.table(suffix) for suffix in sorted(tables)])
            drawn = exhibit.settings.drawing.files(exhibit, files.about, numbers)
            assert drawn[".printed.csv"] == files.read(".printed.csv"), key


OPENED = {"set_up": "rates, clients=2: no rate is given", "apart": "calibrated: by hand"}
IN_A_CASE = [{"case": "iid", "clients": "4"}, {"case": "iid, digits", "clients": "4.0"}]
RATES = {"sweep": {"training.lr": [0.5, 1]}}
PRIORS = {"model": {"name": "variational_mlp"}, "sweep": {"model.prior_sd": [None, 0.5, 1.0]}}


@pytest.mark.parametrize(
    ("settings", "given", "stand_in", "words"),
    [
        ({}, [OPENED, OPENED | {"method": "E"}], "", ["reproduced", "set-up open"]),
        ({}, [{}], "Digits stand in for MNIST.", ["stand-in"]),
        ({}, [{"cell": {"clients": "100"}, "note": "120 hours"}, {"method": "Z"}], "",
         ["not run"] * 2),
        # a case by its key or its label; numbers by value, as a csv gives 1.0 for 1 next to 0.5,
        # and "1.0" next to none; a case's label stays a text
        ({"cases": CASES}, [{"cell": cell} for cell in IN_A_CASE], "", ["reproduced"] * 2),
        *((settings, [{"cell": {"clients": "2", key: text}} for text in texts], "",
           ["reproduced"] * len(texts))
          for settings, key, texts in (
              (RATES, "lr", ["0.5", "1", "1.0"]),
              (PRIORS, "prior_sd", ["none", "0.5", "1"]),
              ({"cases": {"a": {"label": "1.0"}, "b": {"label": "2"}}}, "case", ["1.0"]))),
    ],
)  # fmt: skip
def test_a_cell_finds_its_number_and_its_verdict(settings, given, stand_in, words):
    exhibit = small(methods=METHODS, **settings)
    found = beside(exhibit, *(value(**one) for one in given), stand_ins={"digits": stand_in})
    assert found["verdict"].tolist() == words
    assert (found["mean"].isna() == (found["verdict"] == "not run")).all()
    assert found["apart"].tolist() == [one.get("apart", "") for one in given]


@pytest.mark.parametrize(("printed", "word"), [(150, "worse"), (300, "few trials")])
def test_a_target_that_no_trial_reached_is_missed_if_all_rounds_of_print_were_run(printed, word):
    exhibit = small(methods=[{"name": "fedavg", "label": "A", "rounds": 200}])
    missed = {"metric": "rounds_to_target", "split": "", "by_trial": "inf inf", "sd": math.nan}
    numbers = numbers_of(exhibit, {"A": math.inf}).assign(**missed)
    given = value(metric="rounds_to_target", split="", value=printed)
    assert judging.printed_rows(exhibit, [given], numbers, {})["verdict"].tolist() == [word]


SETTING = {"metric": "setting", "value": 1}


@pytest.mark.parametrize(
    ("split", "method", "printed", "told"),
    [
        ("trials", "all", 1, "taken over"),
        ("trials", "all", 3, "differs"),
        ("method.sigma2", "P", 0.1, "taken over"),
        ("method.passes", "P", 3, "differs"),  # it has several, and the paper one
    ],
)
def test_a_setting_of_the_paper_is_taken_over_or_differs(split, method, printed, told):
    several = {"settings": [{"passes": 3}, {"passes": 9}], "choose": "pooled_train"}
    exhibit = small(methods=[{"name": "pfnm", "label": "P", "sigma2": 0.1, **several}])
    given = value(**SETTING | {"split": split, "method": method, "value": printed})
    assert judging.printed_rows(exhibit, [given], pd.DataFrame(), {})["verdict"].tolist() == [told]


def required(exhibit, *values):
    judging.require_cells([exhibit], values)


@pytest.mark.parametrize(
    ("call", "change", "sentence"),
    [
        (required, {"exhibit": "y"}, "unknown table 'y'"),
        (required, {"cell": {"clients": "3"}}, "which has none: it fits no point"),
        (required, {"cell": {"client": "2"}}, "did you mean 'clients'"),
        (required, {"method": "B"}, "'B' is not a method of that cell, which has A, E, alone"),
        (beside, {"cell": {}}, "fits 2 points of small/x; name more keys"),
        (beside, SETTING | {"split": "method.sigma"}, "has no setting"),
        (beside, SETTING | {"split": "method.sigma2", "method": "Q"}, "has no setting"),
        (beside, SETTING | {"split": "models.hidden", "method": "all"}, "has no setting"),
    ],
)
def test_a_printed_value_that_belongs_nowhere_is_a_sentence(call, change, sentence):
    exhibit = small(methods=METHODS)
    with pytest.raises(FedreproError, match=sentence):
        call(exhibit, value(**change))
    required(exhibit, value(cell={"clients": "3"}, note="not run: 80 hours"))


@pytest.mark.usefixtures("workplace")
def test_the_printed_values_of_the_repository_belong_to_its_tables_exhibits_and_checks():
    made = Plan(Config(), load_exhibits(), "paper")
    for paper in made.files:
        judging.require_printed(made, paper)
        for printed in judging.read_published(published_file(paper)):
            shown = printed.set_up.partition(": ")[0].partition(", ")[0]
            assert not shown or f"{paper}/{shown}" in made.exhibits, printed.where
            if check := judging.check_of(printed.apart):
                claims = {c.id: c.all_checks for c in load_claims(claims_file(paper)).claims}
                assert len(claims[check[0]]) >= check[1], printed.where


def about_of(exhibit):
    """What a table reads of an exhibit's json."""
    methods = [{"label": m.label, "reference": m.reference} for m in exhibit.measures]
    columns = {"points": exhibit.swept, "settings": exhibit.shown}
    return {"methods": methods, "columns": columns, "settings": {"drawing": {"name": "table"}}}


def arrangement(*rows, columns, **options):
    return TableDrawing(rows=list(rows), columns=columns, sizes=False, **options)


def test_methods_may_go_across_and_points_down():
    exhibit = small(methods=METHODS, cases=CASES)
    numbers = numbers_of(exhibit, {"A": 0.905, "E": 0.95, "alone": 0.99})
    arranged = arrangement("case", "clients", columns=["method"], best="row")
    table = table_of(about_of(exhibit), numbers, arranged)
    assert table.heads == (("A",), ("E",), ("alone",))
    assert [row.heads for row in table.rows] == [
        *(("iid, digits", "2"), ("iid, digits", "4"), ("skew", "2"), ("skew", "4"))
    ]
    assert [cell.best for cell in table.rows[0].cells] == [False, True, False]
    assert not any(row.soft for row in table.rows)


def test_ties_are_never_the_best_and_a_method_of_one_case_leaves_the_other_cells_empty():
    exhibit = small(methods=METHODS)
    numbers = numbers_of(exhibit, {"A": 0.90501, "E": 0.90502, "alone": 0.5})
    table = table_of(about_of(exhibit), numbers, arrangement("method", columns=["clients"]))
    assert not any(cell.best for row in table.rows for cell in row.cells)
    assert [row.soft for row in table.rows] == [False, False, True]
    cases = {**CASES, "skew": {**CASES["skew"], "without": ["E"]}}
    exhibit = small(methods=METHODS, cases=cases, sweep={"partition.clients": [2]})
    arranged = arrangement("method", columns=["case"])
    _, ensemble, _ = table_of(about_of(exhibit), numbers_of(exhibit, SAME), arranged).rows
    assert [cell.number for cell in ensemble.cells] == ["95.00 ± 0.00", " "]
    exhibit = small(methods=METHODS[:1], sweep={"partition.clients": [2]})
    numbers = numbers_of(exhibit, {"A": math.inf})
    numbers = numbers.assign(metric="rounds", split="", by_trial="80 80")
    arranged = arrangement("method", columns=["clients"], metric="rounds", split="")
    assert table_of(about_of(exhibit), numbers, arranged).rows[0].cells[0].number == "> 80"


def test_printed_values_and_their_notes_stand_in_the_cells_of_tables():
    exhibit, note = small(methods=METHODS), "read off a plot"
    found = beside(exhibit, value(sd=0.002, note=note), value(method="E", note=note))
    arranged = arrangement("method", columns=["clients"])
    about, printed = about_of(exhibit), read_csv(csv_text(found))
    table = table_of(about, numbers_of(exhibit, SAME), arranged, printed=printed)
    first, second = (row.cells[0] for row in table.rows[:2])
    assert (first.printed, first.verdict, first.notes) == ("90.00 ± 0.20", "reproduced", (1,))
    assert (second.verdict, second.notes, table.footnotes) == ("better", (1,), (note,))
    both = table_names({"small": file_of(at={"paper": {"drawing": "accuracy-and-size"}})})
    assert both == {"tiny/small": ["x"], "quick/small": ["x"]}
