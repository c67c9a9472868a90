"""Parts of documents that are generated from what is recorded."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pandas as pd
import pytest

from fedrepro.cli.documents import (
    FROM,
    FROM_COUNTS,
    FROM_PRINTED,
    TO,
    _with_part,
    documents,
    printed_verdicts,
    recorded_costs,
    recorded_verdicts,
)
from fedrepro.core.artifacts import write_json, write_text
from fedrepro.core.errors import FedreproError
from fedrepro.core.paper_files import findings
from fedrepro.numbers.verdicts.claims import COLUMNS
from fedrepro.record.templating import format_like, without_links

ROOT = Path(__file__).parents[2]

ROW = dict.fromkeys(COLUMNS, "")


def write_claims(path, *rows):
    """A table of claims with what is given, and nothing else."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(ROW | row for row in rows)


NICE = {"claim": "X2", "verdict": "no verdict", "says": "It is nice.", "reason": "a judgement"}


def recorded(monkeypatch, tmp_path, name, run):
    base = tmp_path / "reports/record/paper/pfnm" / name
    write_text(f"{base}.metrics.parquet", "")
    about = {"key": f"pfnm/{name}", "scale": "paper", "trials": 7, "schema": 1}
    write_json(f"{base}.json", about | {"files": {}, "run": run})
    monkeypatch.chdir(tmp_path)
    return base.parent


def test_costs_are_those_of_the_record(monkeypatch, tmp_path):
    run = {
        "cpu_seconds": {"train": 60.0, "aggregate": 90.0},
        "peak_bytes": {"train": 2**30, "aggregate": 3 * 2**29},
    }
    recorded(monkeypatch, tmp_path, "figure-1", run)
    recorded(monkeypatch, tmp_path, "figure-2", {"seconds": {"train": 1.0}})
    lines = recorded_costs().splitlines()[2:]
    assert lines[0] == "| figure-1 | 7 | 1.0 | 1.5 | – | 2.5 min | 1.50 GiB |"
    assert lines[1] == "| figure-2 | 7 | – | – | – | – | – |"


def test_a_verdict_stands_beside_the_check_that_decides_it(tmp_path):
    path = tmp_path / "claims.csv"
    wins = {"claim": "X1", "verdict": "refuted", "says": "Ours wins.", "bound": "above 0"}
    wins |= {"fixed": "before", "label": "identity", "note": "hangs on it"}
    so = {"claim": "X3", "verdict": "incomplete", "says": "It is so.", "bound": "below 1"}
    so |= {"fixed": "after"}
    write_claims(
        path,
        wins
        | {"check": "a minus b, at every point: above 0", "check_verdict": "holds"}
        | {"at": "fig, J = 5", "value": 0.25, "low": 0.2, "high": 0.3},
        wins
        | {"check": "c minus d, at every point: above 0", "check_verdict": "refuted"}
        | {"at": "fig, J = 9", "value": -0.5, "low": -0.6},
        NICE,
        so | {"check": "e, on average: below 1", "check_verdict": "holds", "at": "fig"},
        so | {"check": "f, on average: below 1", "check_verdict": "not run", "missing": "fig-2"},
    )
    lines = recorded_verdicts(path).splitlines()[2:]
    assert lines == [
        "| X1 | Ours wins. | refuted (identity) (hangs on it) | c minus d (fig, J = 9) "
        "| −0.50 (−0.60 to ?) | above 0 | before |",
        "| X2 | It is nice. | no verdict | a judgement |  |  |  |",
        "| X3 | It is so. | incomplete | f (missing: fig-2) |  | below 1 | after |",
    ]


def test_readings_that_differ_are_told_each_with_the_check_that_decides_it(tmp_path):
    path = tmp_path / "claims.csv"
    head = {"claim": "X1", "verdict": "undecided", "says": "So.", "fixed": "before"}
    one, two = (head | {"reading": name, "bound": "at least 0"} for name in ("one", "two"))
    write_claims(
        path,
        one | {"check": "a, on average: at least 0", "check_verdict": "holds", "value": 9},
        one
        | {"check": "b, on average: at least 0", "check_verdict": "refuted", "at": "fig"}
        | {"value": -0.5, "low": -0.6, "high": -0.4},
        two | {"check": "c, on average: at least 0", "check_verdict": "undecided", "at": "fig-2"},
    )
    (line,) = recorded_verdicts(path).splitlines()[2:]
    assert line == (
        "| X1 | So. | undecided | one: refuted, b (fig); two: undecided, c (fig-2) "
        "| −0.50 (−0.60 to −0.40); – | at least 0 | before |"
    )


def test_what_stands_around_a_generated_part_stays(monkeypatch, tmp_path):
    folder = recorded(monkeypatch, tmp_path, "figure-1", {"seconds": {}})
    write_claims(folder / "claims.csv", NICE)
    page = Path("docs/findings/pfnm.md")
    write_text(
        page, "before\n\n<!-- from here: fedrepro documents -->\nold\n<!-- to here -->\nafter\n"
    )
    found = documents()[page]
    assert found.startswith("before\n\n<!-- from here")
    assert found.endswith("<!-- to here -->\nafter\n")
    assert "X2" in found
    assert "old" not in found
    assert Path("docs/performance.md") not in documents()


PRINTED_HEAD = "exhibit,cell,method,metric,split,value,sd,trials,note,tolerance\n"


def test_every_printed_value_has_a_verdict_or_says_why_not(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    rows = "t,case=a,FA,accuracy,test,0.9,,,,\nt,case=b,FA,accuracy,test,0.8,,,,\n"
    more = "u,case=a,FA,rounds_to_target,,inf,,,not run: 9 hours,\n"
    write_text("config/published/x.csv", PRINTED_HEAD + rows + more)
    head = "case,method,mean,trials,printed,verdict,note\n"
    kept = f"{head}a,FA,0.91,2,0.9,reproduced,\nb,FA,,,0.8,not run,\n"
    write_text("reports/record/paper/x/t.printed.csv", kept)
    _, _, *lines = printed_verdicts("x").splitlines()
    assert lines == [
        "| t | case a | FA | accuracy (test) | 0.9 | 0.91 | reproduced |  |  |",
        "| t | case b | FA | accuracy (test) | 0.8 |  | not run |  |  |",
        "| u | case a | FA | rounds_to_target | not reached |  | not run |  | not run: 9 hours |",
    ]
    write_text("reports/record/paper/x/t.printed.csv", kept.replace("0.9,", "0.7,"))
    with pytest.raises(FedreproError, match="line 2: the record of t has another value"):
        printed_verdicts("x")


def test_a_page_leads_with_its_counts(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    rows = "t,,FA,accuracy,test,0.9,,,,\nu,,FA,accuracy,test,0.9,,,printed again: table t,\n"
    write_text("config/published/x.csv", PRINTED_HEAD + rows)
    path = Path("reports/record/paper/x/claims.csv")
    write_text(path, "")
    write_claims(path, NICE)
    page = Path("docs/findings/x.md")
    write_text(page, f"# X\n\n{FROM_COUNTS}\n{TO}\n\n{FROM}\n{TO}\n{FROM_PRINTED}\n{TO}\n")
    found = documents()[page].splitlines()
    assert found[4:6] == [
        "- 2 printed values of 1 quantity: 0 judged; 0 shown beside; 0 set-up open; 1 not run.",
        "- 1 claim: 1 no verdict.",
    ]


def test_an_open_set_up_is_settled_by_the_recorded_exhibit(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    head = "exhibit,cell,method,metric,split,value,sd,trials,note,tolerance,apart,set_up\n"
    open_ = '"rates, case=a: no rate is given"'
    write_text("config/published/x.csv", f"{head}t,,FA,rounds,,80,,,,,,{open_}\n")
    kept = (
        "method,metric,split,mean,trials,printed,difference,tolerance,noise,verdict,note,set_up\n"
    )
    row = f"FA,rounds,,40,2,80,-40,16,1,set-up open,,{open_}\n"
    write_text("reports/record/paper/x/t.printed.csv", kept + row)
    assert "set-up open |  | no rate is given, and rates shows" in printed_verdicts("x")
    for last, word in ((85, "another set-up"), (75, "better")):
        numbers = pd.DataFrame(
            {"case": ["a", "a", "b"], "method": "FA", "metric": "rounds", "split": ""}
            | {"mean": [40.0, last, 900.0], "trials": 2}
        )
        monkeypatch.setattr("fedrepro.cli.documents._recorded", lambda *_, own=numbers: own)
        assert f"| 80 | 40 | {word} |  | no rate is given, which" in printed_verdicts("x")


def test_parts_of_a_page_are_replaced_each_by_its_own():
    page = f"a\n{FROM}\nold\n{TO}\nb\n{FROM_PRINTED}\nold\n{TO}\nc\n"
    once = _with_part(page, FROM_PRINTED, "new numbers\n")
    twice = _with_part(once, FROM, "new verdicts\n")
    assert twice == (
        f"a\n{FROM}\n\nnew verdicts\n\n{TO}\nb\n{FROM_PRINTED}\n\nnew numbers\n\n{TO}\nc\n"
    )


def test_no_page_that_is_written_by_hand_is_long():
    """1,500 words a page of findings without tables and generated parts; README has 150 lines."""
    generated = re.compile(r"<!-- [^>]*fedrepro documents -->.*?<!-- to here -->", re.DOTALL)
    for path in findings(ROOT).values():
        text = generated.sub("", without_links(path.read_text()))
        lines = [line for line in text.splitlines() if not line.startswith("|")]
        assert sum(len(line.split()) for line in lines) <= 1500, path
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize(
    ("value", "like", "told"),
    [
        (-0.02, "0.1", "0.0"),
        (-1234.4, "−0", "−1,234"),
        (0.3, "+0.0", "+0.3"),
        (1234.0, "100", "1,234"),
    ],
)
def test_a_number_is_written_as_the_one_before_it(value, like, told):
    assert format_like(value, like) == told
