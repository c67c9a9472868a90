"""The tables of docs/findings/pfnm.md on equal sizes are those of the record.

`python tests/unit/test_findings_equal_size.py` prints them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedrepro.numbers.claims.intervals import half_width
from fedrepro.numbers.summary import read_csv

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/findings/pfnm.md"
RECORD = ROOT / "reports/record/paper/pfnm"
SIZED = (
    "PFNM", "k-means of units", "OT fusion", "best clients", "clients at random",
    "pruned concatenation",
)  # fmt: skip
SINGLE = (
    "weight matching",
    "clients alone",
    "parameter average",
    "parameter average, shared start",
)
CONTRASTS = (
    (50, "PFNM", "clients alone"),
    (50, "k-means of units", "PFNM"),
    (50, "PFNM", "weight matching"),
    (200, "PFNM", "clients at random"),
    (200, "k-means of units", "PFNM"),
)
EXHIBITS = [
    name
    for name in ("equal-size", "equal-size-deep", "equal-size-photographs")
    if (RECORD / f"{name}.csv").exists()
]


def values(numbers: pd.DataFrame, case: str, clients: int, method: str, units: int):
    """Test accuracy in each trial, or None if it was left out."""
    own = numbers.query("metric == 'accuracy' and split == 'test' and case == @case")
    own = own[(own["clients"] == clients) & (own["method"] == method)]
    if method in SIZED:
        own = own[own["units"] == units]
    return np.array(own["by_trial"].item().split(), float) if len(own) else None


def places(numbers: pd.DataFrame):
    return list(numbers[["case", "clients"]].drop_duplicates().itertuples(index=False, name=None))


def accuracies(numbers: pd.DataFrame) -> list[str]:
    """A row per case, number of clients and size: mean accuracy in percent of each method."""
    rows = [_row("", "J", "units", *SIZED, *SINGLE), _row(*["---"] * (3 + len(SIZED + SINGLE)))]
    for case, clients in places(numbers):
        for units in sorted(numbers["units"].dropna().unique()):
            found = {m: values(numbers, case, clients, m, units) for m in SIZED}
            if units == 50:
                found |= {m: values(numbers, case, clients, m, units) for m in SINGLE}
            if any(own is not None for own in found.values()):
                cells = [_percent(found.get(m)) for m in (*SIZED, *SINGLE)]
                rows.append(_row(case, clients, f"{units:g}", *cells))
    return rows


def differences(numbers: pd.DataFrame) -> list[str]:
    """A row per case and number of clients: points within trials, with the 95 % interval."""
    heads = [f"{one} minus {two}, {units}" for units, one, two in CONTRASTS]
    rows = [_row("", "J", *heads), _row(*["---"] * (2 + len(heads)))]
    for case, clients in places(numbers):
        cells = []
        for units, one, two in CONTRASTS:
            both = [values(numbers, case, clients, method, units) for method in (one, two)]
            cells.append("–" if any(own is None for own in both) else _interval(both[0] - both[1]))
        rows.append(_row(case, clients, *cells))
    return rows


def _percent(own) -> str:
    return "" if own is None else f"{100 * own.mean():.1f}"


def _interval(own: np.ndarray) -> str:
    mean, half = own.mean(), half_width(own[:, None], 0.95)[0]
    return " ".join(
        (f"{100 * mean:.1f}", f"({100 * (mean - half):.1f} to {100 * (mean + half):.1f})")
    )


def _row(*cells) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def recorded(name: str) -> pd.DataFrame:
    return read_csv((RECORD / f"{name}.csv").read_text())


@pytest.mark.parametrize("table", [accuracies, differences])
@pytest.mark.parametrize("name", EXHIBITS)
def test_the_tables_are_those_of_the_record(name, table):
    text = PAGE.read_text()
    for row in table(recorded(name)):
        assert row in text


if __name__ == "__main__":
    for name in EXHIBITS:
        print(name, *accuracies(recorded(name)), "", *differences(recorded(name)), sep="\n")
