"""Verdicts as the workflow makes them: from drawn exhibits to a table and the page."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from synthetic import KEY, draw, plan, plausible, undrawn, workplace
from test_pages import FOLDER, Nesting

from fedrepro.core.errors import FedreproError
from fedrepro.numbers.exhibit_files import read_claims
from fedrepro.record.site.pages import claims_part, paper_page
from fedrepro.record.site.report_data import claims_of, read_reports
from fedrepro.record.site.verdicts import interval
from fedrepro.stages.reports import judge_claims

__all__ = ["undrawn", "workplace"]
pytestmark = pytest.mark.usefixtures("workplace", "undrawn")

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "src/fedrepro/papers/pfnm/claims.yaml"
LOOSE = Path("loose.yaml")  # the same for the two trials that are drawn here
OUT = Path("reports/tiny/pfnm/claims.csv")
BOTH = [KEY, "pfnm/figure-2b"]


def judged(values=plausible, exhibits=BOTH, published=LOOSE) -> dict[str, list[dict[str, str]]]:
    for key in exhibits:
        draw(plan(), key, values)
    text = PUBLISHED.read_text()
    assert "  trials: 5\n" in text
    LOOSE.write_text(text.replace("  trials: 5\n", "  trials: 2\n"))
    judge_claims(published, exhibits, Path("reports/tiny"), OUT)
    return {checks[0]["claim"]: checks for checks in claims_of(read_claims(OUT))}


def lifted(amount):
    """Plausible values in which PFNM is better than all others by so much."""

    def values(token, clients, trial, metric, split):
        found = plausible(token, clients, trial, metric, split)
        lift = metric == "accuracy" and token.startswith("pfnm")
        return found + amount if lift else found

    return values


STAND_IN = "Digits (8×8) stand in for MNIST, the paper's data."


@pytest.mark.parametrize(
    ("exhibits", "published", "claim", "wanted"),
    [
        (BOTH, LOOSE, "P1", {"verdict": "stand-in only", "note": "", "data": STAND_IN}),
        (BOTH, PUBLISHED, "P1",
         {"verdict": "incomplete", "missing": "3 more trials at figure-2a, J = 2"}),
        ([KEY], LOOSE, "P1", {"verdict": "incomplete", "missing": "figure-2b"}),
        (BOTH, LOOSE, "P18", {"verdict": "not run", "at": ""}),
        (BOTH, LOOSE, "P14", {"verdict": "no verdict"}),
    ],
)  # fmt: skip
def test_a_claim_follows_the_numbers_that_are_drawn(exhibits, published, claim, wanted):
    """Also where PFNM is better than all others: nothing is decided on two trials or stand-ins."""
    found = judged(lifted(0.3), exhibits, published)[claim][0]
    assert {key: found[key].partition(";")[0] for key in wanted} == wanted


def test_a_claim_that_depends_shows_what_decides_each_reading():
    kept = claims_of(read_claims(ROOT / "reports/record/paper/p2p/claims.csv"))
    depending = [checks for checks in kept if checks[0]["verdict"] == "depends"]
    assert depending
    for checks in depending:
        html, readings = claims_part([checks]), {row["reading"] for row in checks}
        deciding = html.rpartition("<td>")[2]
        assert all(f"<i>{reading}: " in deciding for reading in readings)
        assert deciding.count("<b>") == len(readings) > 1


def test_equal_numbers_give_equal_bytes():
    judged()
    before = OUT.read_bytes()
    judged()
    assert OUT.read_bytes() == before


def test_the_page_shows_every_claim_with_its_numbers():
    judged()
    (paper,) = read_reports(FOLDER, "tiny", [KEY]).papers
    html = paper_page(paper, "", (), frozenset())
    Nesting(html)
    assert 'id="claims"' in html
    assert "Stand-in data." in html
    assert "33 claims: " in html
    for number in ("1", "2a", "2b", *range(3, 25)):
        assert f'id="p{number}"' in html


def test_the_page_says_what_is_missing_and_which_bounds_came_late():
    judged(exhibits=[KEY])
    html = claims_part(claims_of(read_claims(OUT)))
    assert "missing: Figure 2b" in html
    assert html.count("its bound was written when first numbers were there") == 18


@pytest.mark.parametrize(
    ("column", "value"), [("by_trial", "0.5"), ("by_trial", "0.5 x"), ("trials", "3")]
)
def test_a_table_without_a_value_for_each_trial_is_a_sentence(column, value):
    judged()
    path = Path(f"reports/tiny/{KEY}.csv")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    frame.loc[0, column] = value
    frame.to_csv(path, index=False)
    with pytest.raises(FedreproError, match=r"figure-2a\.csv cannot be read"):
        judge_claims(PUBLISHED, BOTH, Path("reports/tiny"), OUT)


def test_a_page_without_claims_has_no_section_for_them():
    draw(plan())
    (paper,) = read_reports(FOLDER, "tiny", [KEY]).papers
    assert "## Claims" not in paper_page(paper, "", (), frozenset())


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("0.5 0.4 0.6 0.95", "0.50 (0.40 to 0.60)"),
        ("0.5 0.4 0.6 0.995", "0.50 (0.40 to 0.60, at 99.5 %)"),
        ("1 1 1 0.95", "1"),
        ("0.5   0.95", "0.50, error unknown"),
        (" 8000  0.95", "more than 8,000"),
        (" 8000  0.975", "more than 8,000, at 97.5 %"),
    ],
)
def test_a_value_is_shown_with_its_interval(row, text):
    row = dict(zip(("value", "low", "high", "confidence"), row.split(" "), strict=True))
    assert interval({"check": "x", "bound": "", **row}) == text
