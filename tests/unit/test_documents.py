"""Parts of documents that are generated from what is recorded."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from fedrepro.cli.documents import FROM_COUNTS, TO, counts, documents
from fedrepro.core.artifacts import write_text
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


PRINTED_HEAD = "exhibit,cell,method,metric,split,value,sd,trials,note,tolerance\n"


def test_a_record_of_other_printed_values_is_refused(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    write_text("config/published/x.csv", f"{PRINTED_HEAD}t,case=a,FA,accuracy,test,0.9,,,,\n")
    kept = "case,method,mean,trials,printed,verdict,note\na,FA,0.91,2,0.7,reproduced,\n"
    write_text("reports/record/paper/x/t.printed.csv", kept)
    claims = Path("reports/record/paper/x/claims.csv")
    write_claims(claims, NICE)
    with pytest.raises(FedreproError, match="line 2: the record of t has another value"):
        counts(claims)


def test_a_page_leads_with_its_counts(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    rows = "t,,FA,accuracy,test,0.9,,,,\nu,,FA,accuracy,test,0.9,,,printed again: table t,\n"
    write_text("config/published/x.csv", PRINTED_HEAD + rows)
    path = Path("reports/record/paper/x/claims.csv")
    write_text(path, "")
    write_claims(path, NICE)
    page = Path("docs/findings/x.md")
    write_text(page, f"# X\n\n{FROM_COUNTS}\nold\n{TO}\n\nafter\n")
    assert documents()[page].splitlines()[2:] == [
        *(FROM_COUNTS, ""),
        "- 2 printed values of 1 quantity: 0 judged; 0 shown beside; 0 set-up open; 1 not run.",
        "- 1 claim: 1 no verdict.",
        *("", TO, "", "after"),
    ]
    assert Path("docs/methods.md") not in documents()


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
    claims = Path("reports/record/paper/x/claims.csv")
    write_claims(claims, NICE)
    assert "0 judged; 0 shown beside; 1 set-up open" in counts(claims)
    write_text("reports/record/paper/x/rates.json", "{}")
    for last, word in ((85, "another set-up"), (75, "better")):
        numbers = pd.DataFrame(
            {"case": ["a", "a", "b"], "method": "FA", "metric": "rounds", "split": ""}
            | {"mean": [40.0, last, 900.0], "trials": 2}
        )
        read = SimpleNamespace(numbers=numbers)
        monkeypatch.setattr("fedrepro.cli.documents.open_recorded", lambda *_, own=read: own)
        assert word in counts(claims)


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
