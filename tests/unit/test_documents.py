"""Parts of documents that are generated from what is recorded."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedrepro.cli.documents import FROM, FROM_COUNTS, TO, documents
from fedrepro.core.artifacts import write_text
from fedrepro.core.paper_files import findings
from fedrepro.numbers.verdicts.claim_verdicts import COLUMNS
from fedrepro.record.recorded_numbers import format_like, without_links
from fedrepro.record.site.report_data import Paper

ROOT = Path(__file__).parents[2]

PAPER = Paper(
    "x",
    "X",
    "source",
    {},
    [{"verdict": "not run", "note": note} for note in ("", "printed again: table t")],
    [[dict.fromkeys(COLUMNS, "") | {"claim": "X2", "verdict": "no verdict"}]],
)


def test_a_page_leads_with_its_counts_and_a_table_has_papers_that_are_not_recorded(
    monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedrepro.cli.documents.drawn_keys", lambda *_: ["x/t"])
    read = SimpleNamespace(papers=[PAPER])
    monkeypatch.setattr("fedrepro.cli.documents.read_reports", lambda *_: read)
    head = "exhibit,cell,method,metric,split,value,sd,trials,note\n"
    write_text("config/published/y.csv", f"{head}t,,FA,accuracy,test,0.9,,,\n")
    page, table = Path("docs/findings/x.md"), Path("docs/claims.md")
    write_text(page, f"# X\n\n{FROM_COUNTS}\nold\n{TO}\n\nafter\n")
    write_text(table, f"{FROM}\nold\n{TO}\n")
    texts = documents()
    assert texts[page].splitlines()[2:] == [
        *(FROM_COUNTS, ""),
        "- 2 printed values of 1 quantity: 0 judged; 0 shown beside; 0 set-up open; 1 not run.",
        "- 1 claim: 1 no verdict.",
        *("", TO, "", "after"),
    ]
    counted = dict(line[2:].split(" | ")[:2] for line in texts[table].splitlines() if "| " in line)
    assert (counted["x"], counted["y"]) == ("2", "1")  # y is not recorded
    papers = counted.keys() - {"Paper", "---", "all"}
    assert int(counted["all"]) == sum(int(counted[paper]) for paper in papers)
    assert Path("docs/methods.md") not in texts


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
