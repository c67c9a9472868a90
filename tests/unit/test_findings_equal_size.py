"""The tables of docs/findings/pfnm.md on equal sizes are those of the record.

`python tests/unit/test_findings_equal_size.py` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from findings import between

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


EVEN, ODD, COUNTS = "homogeneous", "heterogeneous", (5, 10, 25)


def apart(name: str, case: str, units: int, one: str, two: str) -> list[float]:
    """Points of one method above another, for each number of clients."""
    numbers = recorded(name)
    pairs = ((values(numbers, case, j, m, units) for m in (one, two)) for j in COUNTS)
    return [100 * float((a - b).mean()) for a, b in pairs]


def sentences() -> Iterator[str]:
    """What is said below the tables of `equal-size`."""
    behind = [-x for x in apart("equal-size", EVEN, 50, "PFNM", "clients alone")]
    yield f"At 50 units PFNM is {between(behind)} points behind one client that merges nothing"
    ahead = apart("equal-size", ODD, 50, "PFNM", "clients alone")
    yield f"merging is worth {between(ahead, 0)} points** over one client of the same size"
    four = [f"{x:.0f}" for x in apart("equal-size", ODD, 200, "PFNM", "clients at random")]
    yield f"at 200 units {four[0]}, {four[1]} and {four[2]} points (J = 5, 10, 25) over four whole"
    kmeans = [f"{x:.0f}" for x in apart("equal-size", ODD, 50, "k-means of units", "PFNM")]
    yield f"level with it at J = 5 and {kmeans[1]} and {kmeans[2]} points ahead at J = 10 and 25"
    from_200 = [-x for x in apart("equal-size", ODD, 200, "k-means of units", "PFNM")]
    yield f"PFNM is ahead of k-means by {between(from_200, 0)} points"
    at_100 = [f"{x:.0f}" for x in apart("equal-size", ODD, 100, "PFNM", "k-means of units")]
    assert at_100[0] == at_100[1]
    yield f"at 100 by {at_100[0]} (J = 5 and 10), while at J = 25 k-means is {at_100[2][1:]} ahead"
    numbers = recorded("equal-size")
    pruned, own = (
        [_percent(values(numbers, ODD, j, m, 200)) for j in (5, 10)]
        for m in ("pruned concatenation", "PFNM")
    )
    yield f"{pruned[0]} and {pruned[1]} % at 200 units (J = 5 and 10), against {' and '.join(own)}"
    shared, alone = (
        [100 * float(values(numbers, EVEN, j, m, 50).mean()) for j in COUNTS]
        for m in ("parameter average, shared start", "parameter average")
    )
    yield f"the average has {between(shared)} % on homogeneous data, without it {between(alone, 0)}"


def of_photographs() -> Iterator[str]:
    name = "equal-size-photographs"
    numbers = recorded(name)
    even, odd = (
        [-x for x in apart(name, case, 50, "PFNM", "clients alone")] for case in (EVEN, ODD)
    )
    yield f"At 50 units PFNM is {between(even)} points behind a client that merges nothing on"
    yield f"on heterogeneous {between(odd)} behind"
    ahead = [-x for x in apart(name, ODD, 50, "PFNM", "weight matching")]
    yield f"weight matching is {between(ahead)} points ahead of PFNM"
    for units in (100, 200):
        for case, clients in places(numbers):
            assert values(numbers, case, clients, "PFNM", units) is None
    given = [at for at in places(numbers) if values(numbers, *at, "PFNM", 400) is not None]
    assert given == [(ODD, 25)]
    at_400 = [
        _percent(values(numbers, ODD, 25, m, 400))
        for m in ("PFNM", "clients at random", "pruned concatenation")
    ]
    yield f"it has {at_400[0]} %, and 400 units of whole clients {at_400[1]}, pruned {at_400[2]}."
    for case, clients in places(numbers):
        for units in (100, 200):
            own = {m: values(numbers, case, clients, m, units) for m in SIZED}
            best = max((m for m in own if own[m] is not None), key=lambda m: own[m].mean())
            if case == EVEN:
                assert best == "best clients"
            elif clients > 5:
                assert best == "pruned concatenation"
    kmeans = apart(name, ODD, 50, "k-means of units", "PFNM")
    yield f"is {-kmeans[2]:.1f} points behind it here with 25 heterogeneous clients"


@pytest.mark.parametrize("part", [sentences, of_photographs], ids=lambda part: part.__name__)
def test_sentences_are_those_of_the_record(part):
    flat = " ".join(PAGE.read_text().split())
    assert [sentence for sentence in part() if sentence not in flat] == []


if __name__ == "__main__":
    for name in EXHIBITS:
        print(name, *accuracies(recorded(name)), "", *differences(recorded(name)), sep="\n")
