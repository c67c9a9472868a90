"""Stage claims: what the exhibits of a paper say of its claims."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedrepro.artifacts import read_json, write_text
from fedrepro.evaluation.claims import COLUMNS, load_claims, rows
from fedrepro.exhibits.summary import csv_text, read_csv
from fedrepro.stages.common import say


def run(published: Path, exhibits: Sequence[str], reports: Path, out: Path) -> None:
    """Write the verdicts of a paper's claims; `exhibits` lie in `reports` as paper/name."""
    file = load_claims(published)
    bases = {Path(key).name: f"{reports / key}" for key in exhibits}
    numbers = {name: read_csv(Path(f"{base}.csv").read_text()) for name, base in bases.items()}
    described = {name: read_json(f"{base}.json") for name, base in bases.items()}
    stand_ins = {
        name: " ".join(filter(None, dict.fromkeys(data["stand_in"] for data in about["data"])))
        for name, about in described.items()
    }
    found = list(rows(file.claims, numbers, stand_ins))
    write_text(out, csv_text(pd.DataFrame(found, columns=list(COLUMNS))))
    counts = pd.Series({row["claim"]: row["verdict"] for row in found}).value_counts()
    say(f"{out}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
