"""Stage claims: verdicts on the claims of a paper, from its exhibits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedrepro.numbers.exhibit_files import write_claims
from fedrepro.numbers.summary import csv_text
from fedrepro.numbers.verdicts.claims import verdicts
from fedrepro.stages.common import log


def run(published: Path, exhibits: Sequence[str], reports: Path, out: Path) -> None:
    """Write the verdicts of a paper's claims; `exhibits` lie in `reports` as paper/name."""
    rows = verdicts(published, exhibits, reports)
    write_claims(out, csv_text(rows))
    counts = rows.groupby("claim")["verdict"].first().value_counts()
    log(f"{out}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
