"""What pages of findings say, and numbers of the record for what no link can ask."""

from __future__ import annotations

from pathlib import Path

from fedrepro.core.paper_files import findings
from fedrepro.record.numbers_in_pages import filled, without_links

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "reports/record"
NUMBER = "0.0000000000"


def told(paper: str) -> str:
    """All that the pages of a paper's findings say, in one line, with numbers as plain text."""
    own = [page for name, page in findings(ROOT).items() if name.split("-")[0] == paper]
    return " ".join(without_links("\n".join((ROOT / page).read_text() for page in own)).split())


def asked(exhibit: str, question: str, count: int = 1) -> list[float]:
    """The answer to a question as pages ask it; exhibit: `pfnm/figure-2a`."""
    link = f'[{" ".join([NUMBER] * count)}](reports/record/paper/{exhibit}.csv "{question}")'
    return [float(text.replace(",", "")) for text in without_links(filled(link, RECORD)).split()]
