"""Printed values beside ours: cells, differences, verdicts, and the table that shows both."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pandas as pd
import pytest
from small_exhibits import file_of, small
from synthetic import tables_of, workplace

from fedrepro.core.artifacts import read_json
from fedrepro.core.errors import FedreproError
from fedrepro.drawings.tables import Arrangement, table_of
from fedrepro.numbers.exhibit_tables import csv_text, read_csv
from fedrepro.numbers.verdicts.printed_verdicts import (
    AGAIN,
    COLUMNS,
    PrintedValue,
    allowed_difference,
    cell_of,
    difference,
    noise,
    printed_rows,
    printed_verdict,
    read_published,
    require_cells,
    require_printed,
    same,
    usual_tolerance,
)
from fedrepro.planning.config import Config, ExhibitFile, load_exhibits, table_names
from fedrepro.planning.plan import Plan
from fedrepro.record.site.pages import paper_page
from fedrepro.record.site.report_data import read_reports
from fedrepro.stages.figures_and_pages import draw_exhibit

__all__ = ["workplace"]
ROOT = Path(__file__).parents[2]
CASES = {
    "iid": {"label": "iid, digits"},
    "skew": {"label": "skew", "partition": {"name": "shards"}},
}
METHODS = [
    {"name": "average", "label": "A"},
    {"name": "uniform_ensemble", "label": "E"},
    {"name": "local", "label": "alone", "reference": True},
]


def value(**given) -> PrintedValue:
    place = {"exhibit": "x", "cell": {"clients": "2"}, "method": "A", "where": "file, line 2"}
    number = {"metric": "accuracy", "split": "test", "value": 0.9, "sd": None, "trials": None}
    return PrintedValue(**(place | number | {"note": "", "tolerance": None} | given))


def written(path: Path, *rows: str) -> Path:
    path.write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
    return path


# ------------------------------------------------------------------------------------- reading


def test_a_row_is_read_with_its_cell_and_its_tolerance(tmp_path):
    row = 'x,"case=a, b, clients=5",A,accuracy,test,0.9,0.01,10,,5%'
    (found,) = read_published(written(tmp_path / "p.csv", row))
    assert found.cell == {"case": "a, b", "clients": "5"}
    assert (found.value, found.sd, found.trials) == (0.9, 0.01, 10)
    assert found.tolerance == pytest.approx(0.045)


def test_a_paper_without_printed_values_has_none(tmp_path):
    assert read_published(tmp_path / "none.csv") == []


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (["x,clients=5,A,acuracy,test,0.9,,,,"], "line 2: did you mean 'accuracy'"),
        (["x,clients=5,A,accuracy,tset,0.9,,,,"], "line 2: did you mean 'test'"),
        (["x,clients=5,A,accuracy,test,high,,,,"], "line 2: 'value' is 'high', not a number"),
        (["x,clients=5,A,accuracy,test,80,,,,"], "line 2: accuracy cannot be 80; it is a share of"),
        (["x,clients=5,A,accuracy,test,-0.1,,,,"], "line 2: accuracy cannot be -0.1"),
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
        read_published(written(tmp_path / "p.csv", *rows))


def test_a_file_with_other_columns_is_a_sentence(tmp_path):
    (tmp_path / "p.csv").write_text("exhibit,value\n")
    with pytest.raises(FedreproError, match="lacks cell, method"):
        read_published(tmp_path / "p.csv")


def test_a_number_that_is_printed_again_is_taken(tmp_path):
    row = "x,clients=5,A,accuracy,test,0.8,,,"
    found = read_published(written(tmp_path / "p.csv", row, f"{row}printed again in the text"))
    assert [one.note.startswith(AGAIN) for one in found] == [False, True]


def test_an_empty_cell_is_the_one_point_of_an_exhibit():
    assert cell_of("", "here") == {}


# ------------------------------------------------------------------------------------ verdicts


def judged(printed, ours, sd=0.0, trials=10) -> str:
    most = allowed_difference(printed, sd, trials, usual_tolerance(printed))
    away = difference(ours, printed.value)
    return printed_verdict(printed.metric, ours, away, most, noise(printed, sd, trials), trials)


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
        *(({"metric": "hidden_units", "value": 200.0}, [ours], word)
          for ours, word in ((190, "reproduced"), (210, "reproduced"), (211, "worse"))),
        ({"metric": "bytes_up", "value": 3.0}, [9.0], "shown"),
    ],
)  # fmt: skip
def test_a_printed_value_has_its_verdict(given, ours, word):
    assert judged(value(**given), *ours) == word


def test_a_target_that_print_never_reached_is_better_reached():
    assert printed_verdict("rounds", 90.0, -math.inf, 1.0, 0.0, 2) == "better"


# --------------------------------------------------------------------------------------- tables


def numbers_of(exhibit, accuracy: dict[str, float], sd: float = 0.0) -> pd.DataFrame:
    """The numbers of an exhibit in which each method has one accuracy everywhere."""
    same = {"metric": "accuracy", "split": "test", "sd": sd, "trials": 2, "by_trial": ""}
    rows = [
        {**point.values, "method": m.label, "mean": accuracy[m.label], "setting": m.spec.token}
        for point in exhibit.points
        for m in point.measures
    ]
    return read_csv(csv_text(pd.DataFrame(rows).assign(**same)))


def beside(exhibit, *values, stand_ins=None, sd=0.0) -> pd.DataFrame:
    numbers = numbers_of(exhibit, {"A": 0.905, "E": 0.95, "alone": 0.5}, sd)
    return printed_rows(exhibit, values, numbers, stand_ins or {})


def test_ours_stands_beside_what_is_printed_with_the_difference():
    exhibit = small(methods=METHODS)
    (row,) = beside(exhibit, value(), value(exhibit="another")).to_dict("records")
    assert (row["clients"], row["method"], row["printed"]) == (2, "A", 0.9)
    assert row["mean"] == 0.905
    assert row["difference"] == pytest.approx(0.005)
    assert (row["tolerance"], row["verdict"]) == (0.01, "reproduced")
    # 0.05 away; twice the standard error of two trials on each side is below that for the smaller
    # spread alone, by which two trials may be as far away
    words = [
        beside(exhibit, value(method="E", sd=sd, trials=2), sd=sd)["verdict"].item()
        for sd in (0.024, 0.026)
    ]
    assert words == ["undecided", "reproduced"]


def test_the_tolerance_that_was_used_stands_in_the_csv_with_the_noise():
    exhibit = small(methods=METHODS)
    numbers = numbers_of(exhibit, {"A": 0.93, "E": 0.95, "alone": 0.5}).assign(sd=0.05)
    (row,) = printed_rows(exhibit, [value(sd=0.01, trials=2)], numbers, {}).to_dict("records")
    assert row["tolerance"] == pytest.approx(2 * math.sqrt(2 * 0.01**2 / 2))
    assert row["noise"] == pytest.approx(0.05)
    assert row["verdict"] == "few trials"


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


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        *((1, 1.0, True), ("1.0", 1, True), ("1e-05", 0.00001, True), (None, "none", True)),
        (0.12345678901, "0.123456789", True),  # ten digits, as a csv has
        *(((50, 50), "50@50", True), ("50@50", 50, False), (True, 1, False), ("one", 1, False)),
    ],
)
def test_values_are_one_by_their_number_or_else_by_their_text(one, other, wanted):
    assert same(one, other) is wanted


@pytest.mark.parametrize(
    ("split", "method", "printed", "told"),
    [
        ("trials", "all", 2, "taken over"),
        ("trials", "all", 1, "taken over"),
        ("trials", "all", 3, "differs"),
        ("model.hidden", "all", 50, "taken over"),
        ("training.lr", "all", 0.5, "differs"),
        ("method.sigma2", "P", 0.1, "taken over"),
        ("method.gamma0", "P", 1, "differs"),
        ("method.passes", "P", 3, "differs"),  # it has several, and the paper one
    ],
)
def test_a_setting_of_the_paper_is_taken_over_or_differs(split, method, printed, told):
    listed = {"name": "pfnm", "label": "P", "sigma2": 0.1, "gamma0": 5.0}
    several = [{"passes": 3}, {"passes": 9}]
    methods = [listed | {"settings": several, "choose": "pooled_train"}]
    exhibit = small(methods=methods, training={"name": "adam", "lr": 0.01})
    given = value(metric="setting", split=split, method=method, value=printed)
    (row,) = printed_rows(exhibit, [given], pd.DataFrame(), {}).to_dict("records")
    assert row["verdict"] == told


@pytest.mark.parametrize(
    ("split", "method"), [("method.sigma", "P"), ("method.sigma2", "Q"), ("models.hidden", "all")]
)
def test_a_setting_of_nothing_is_a_sentence(split, method):
    exhibit = small(methods=[{"name": "pfnm", "label": "P"}])
    given = value(metric="setting", split=split, method=method, value=1)
    with pytest.raises(FedreproError, match="has no setting"):
        printed_rows(exhibit, [given], pd.DataFrame(), {})


def test_a_shown_setting_that_nothing_was_computed_for_is_not_run():
    shown = {"sigma2": [0.1, 1.0], "gamma0": [1.0, 5.0], "show": ["sigma2", "gamma0"]}
    exhibit = small(methods=[{"name": "pfnm", "label": "P", **shown}])
    numbers = numbers_of(small(methods=METHODS), {"A": 0.9, "E": 0.9, "alone": 0.5})
    given = value(cell={"clients": "2", "sigma2": "0.1", "gamma0": "1.0"}, method="P")
    empty = numbers.assign(sigma2="", gamma0="")
    (row,) = printed_rows(exhibit, [given], empty, {}).to_dict("records")
    assert row["verdict"] == "not run"


def test_a_cell_that_fits_several_points_is_a_sentence():
    with pytest.raises(FedreproError, match="fits 2 points of small/x; name more keys"):
        beside(small(methods=METHODS), value(cell={}))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"exhibit": "y"}, "unknown table 'y'"),
        ({"cell": {"clients": "3"}}, "its cell fits no point"),
        ({"cell": {"client": "2"}}, "did you mean 'clients'"),
        ({"method": "B"}, "'B' is not a method of that cell, which has A, E, alone"),
    ],
)
def test_a_printed_value_that_belongs_nowhere_is_a_sentence(change, sentence):
    with pytest.raises(FedreproError, match=sentence):
        require_cells([small(methods=METHODS)], [value(**change)])


def test_a_value_that_says_why_it_is_not_run_is_taken():
    exhibit = small(methods=METHODS)
    require_cells([exhibit], [value(cell={"clients": "3"}, note="not run: 80 hours")])


@pytest.mark.usefixtures("workplace")
def test_the_printed_values_of_the_repository_belong_to_its_tables():
    require_printed(Plan(Config(), load_exhibits(), "paper"))


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    ("end", "told"),
    [
        (",ratse: no rate", "line 2: did you mean 'rates-cnn'"),
        ('"claim: F1, check 99",', "line 2: did you mean 'F1, check 1'?"),
    ],
)
def test_an_exhibit_or_a_check_that_is_not_there_is_a_sentence(end, told, tmp_path, monkeypatch):
    row = f'table-1,"case=iid-10, fraction=0",FedAvg,rounds_to_target,,316,,1,,,{end}'
    path = written(tmp_path / "fedavg.csv", row)
    monkeypatch.setattr(
        "fedrepro.numbers.verdicts.printed_verdicts.published_file", lambda paper: path
    )
    files = {"fedavg": load_exhibits()["fedavg"]}
    with pytest.raises(FedreproError, match=re.escape(told)):
        require_printed(Plan(Config(), files, "paper"))


def about_of(exhibit, **table):
    """What a table reads of an exhibit's json."""
    methods = [{"label": m.label, "reference": m.reference} for m in exhibit.measures]
    columns = {"points": exhibit.swept, "settings": exhibit.shown}
    settings = {"drawing": {"name": "table", **table}}
    return {"methods": methods, "columns": columns, "settings": settings}


def test_methods_may_go_across_and_points_down():
    exhibit = small(methods=METHODS, cases=CASES)
    numbers = numbers_of(exhibit, {"A": 0.905, "E": 0.95, "alone": 0.99})
    arranged = Arrangement(("case", "clients"), ("method",), best="row")
    table = table_of(about_of(exhibit), numbers, arranged)
    assert table.heads == (("A",), ("E",), ("alone",))
    assert [row.heads for row in table.rows] == [
        *(("iid, digits", "2"), ("iid, digits", "4"), ("skew", "2"), ("skew", "4"))
    ]
    assert [cell.best for cell in table.rows[0].cells] == [False, True, False]
    assert not any(row.soft for row in table.rows)


def test_ties_are_never_the_best():
    exhibit = small(methods=METHODS)
    numbers = numbers_of(exhibit, {"A": 0.90501, "E": 0.90502, "alone": 0.5})
    table = table_of(about_of(exhibit), numbers, Arrangement(("method",), ("clients",)))
    assert not any(cell.best for row in table.rows for cell in row.cells)
    assert [row.soft for row in table.rows] == [False, False, True]


def test_a_method_of_one_case_leaves_the_other_cells_empty():
    cases = {**CASES, "skew": {**CASES["skew"], "without": ["E"]}}
    exhibit = small(methods=METHODS, cases=cases, sweep={"partition.clients": [2]})
    numbers = numbers_of(exhibit, {"A": 0.9, "E": 0.8, "alone": 0.5})
    table = table_of(about_of(exhibit), numbers, Arrangement(("method",), ("case",)))
    ensemble = next(row for row in table.rows if row.heads == ("E",))
    assert [cell.number for cell in ensemble.cells] == ["80.00 ± 0.00", " "]


def test_printed_values_and_their_notes_stand_in_their_cells():
    exhibit = small(methods=METHODS)
    numbers = numbers_of(exhibit, {"A": 0.905, "E": 0.95, "alone": 0.5})
    values = [value(sd=0.002, note="read off a plot"), value(method="E", note="read off a plot")]
    printed = read_csv(csv_text(printed_rows(exhibit, values, numbers, {})))
    table = table_of(
        about_of(exhibit), numbers, Arrangement(("method",), ("clients",)), printed=printed
    )
    first, second = (row.cells[0] for row in table.rows[:2])
    assert (first.printed, first.verdict, first.notes) == ("90.00 ± 0.20", "reproduced", (1,))
    assert (second.verdict, second.notes) == ("better", (1,))
    assert table.footnotes == ("read off a plot",)


def test_rounds_that_were_not_enough_are_no_number():
    exhibit = small(methods=METHODS[:1], sweep={"partition.clients": [2]})
    numbers = numbers_of(exhibit, {"A": math.inf}).assign(
        metric="rounds", split="", by_trial="80 80"
    )
    arranged = Arrangement(("method",), ("clients",), metric="rounds", split="")
    table = table_of(about_of(exhibit), numbers, arranged)
    assert table.rows[0].cells[0].number == "> 80"


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"rows": ["clients"]}, "'method' takes several values"),
        ({"rows": ["method", "size"]}, "has 'size' in rows or columns; what it has is method"),
        ({"rows": ["method"], "columns": ["clients", "method"]}, "has 'method' twice"),
        ({"metric": "acc"}, "the metrics are accuracy"),
    ],
)
def test_a_table_that_cannot_be_laid_out_is_a_sentence(table, sentence):
    with pytest.raises(FedreproError, match=sentence):
        small(methods=METHODS, drawing={"name": "table", **table})


def test_a_name_may_be_a_table_at_one_scale_and_a_figure_at_another():
    names = table_names(load_exhibits())
    assert sorted(names["paper/pfnm"]) == [
        "deep-sigma2",
        "erratum-options",
        "merging-and-posterior",
    ]
    both = table_names({"small": file_of(at={"paper": {"drawing": "accuracy-and-size"}})})
    assert both == {"tiny/small": ["x"], "quick/small": ["x"]}


@pytest.mark.usefixtures("workplace")
def test_the_stage_writes_a_table_and_the_page_shows_it(monkeypatch, tmp_path):
    file: ExhibitFile = file_of(methods=METHODS, place="table 1")
    row = "x,clients=2,A,accuracy,test,0.93,,,as printed,"
    published = written(tmp_path / "published.csv", row)
    where = "fedrepro.drawings.exhibits.table.published_file"
    monkeypatch.setattr(where, lambda paper: published)
    made = Plan(Config(), {"small": file}, "paper")
    tables_of(made, "small/x")
    draw_exhibit("small/x", made, Path(made.exhibit_file("small/x", "")))
    base = made.exhibit_file("small/x", "")
    assert set(read_json(f"{base}.json")["files"]) == {
        *(".html", ".printed.csv", ".csv", ".choice.csv", ".metrics.parquet")
    }
    text = Path(f"{base}.html").read_text()
    assert "printed 93.00: reproduced" in text
    assert "as printed" in text
    printed = read_csv(Path(f"{base}.printed.csv").read_text())
    assert printed["verdict"].tolist() == ["reproduced"]
    (paper,) = read_reports(Path(base).parents[1], "paper", ["small/x"]).papers
    html = paper_page(paper)
    assert "printed 93.00" in html
    assert "1 printed value: 1 judged (1 reproduced); 0 shown beside" in html
