"""The tables of papers/pfnm/findings.md on equal sizes are those of the record.

`python tests/unit/test_findings_equal_size.py` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from findings import between, told

from fedrepro.numbers.claims.intervals import half_width
from fedrepro.numbers.summary import read_csv

ROOT = Path(__file__).parents[3]
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
    text = told("pfnm")
    for row in table(recorded(name)):
        assert row in text


EVEN, ODD, COUNTS = "homogeneous", "heterogeneous", (5, 10, 25)


def apart(name: str, case: str, units: int, one: str, two: str) -> list[float]:
    """Points of one method above another, for each number of clients."""
    numbers = recorded(name)
    pairs = ((values(numbers, case, j, m, units) for m in (one, two)) for j in COUNTS)
    return [100 * float((a - b).mean()) for a, b in pairs]


def within(numbers, case: str, clients: int, units: int, one: str, two: str):
    """One method above another within trials: the mean, and half of its 95 % interval."""
    own = values(numbers, case, clients, one, units) - values(numbers, case, clients, two, units)
    return float(own.mean()), float(half_width(own[:, None], 0.95)[0])


def of_two_layers() -> Iterator[str]:
    """What is said below the tables of `equal-size-deep`."""
    numbers = recorded("equal-size-deep")

    def ahead(case: str, method: str, units: int = 50, of: str = "PFNM") -> str:
        return f"{abs(100 * within(numbers, case, 10, units, method, of)[0]):.0f}"

    kmeans, matching, pruned = (
        ahead(ODD, m) for m in ("k-means of units", "weight matching", "pruned concatenation")
    )
    yield f"k-means of units is {kmeans} points ahead of it, weight matching {matching} and pruning"
    yield f"pruning by norm {pruned}."
    own, half = within(numbers, EVEN, 10, 50, "weight matching", "clients alone")
    yield (
        f"weight matching is {ahead(EVEN, 'weight matching')} ahead and {100 * own:.1f} above a "
        f"client ({100 * (own - half):.1f} to {100 * (own + half):.1f})"
    )
    own, half = within(numbers, EVEN, 10, 50, "k-means of units", "PFNM")
    assert abs(own) < half
    more = [ahead(EVEN, "k-means of units", units) for units in (100, 200)]
    yield f"at 50 units and {more[0]} and {more[1]} points ahead at 100 and 200"
    few, many = (ahead(EVEN, "pruned concatenation", units) for units in (50, 200))
    yield f"pruning is {few} behind at 50 and {many} ahead at 200"


def sentences() -> Iterator[str]:
    """What is said below the tables of `equal-size`."""
    behind = [-x for x in apart("equal-size", EVEN, 50, "PFNM", "clients alone")]
    yield f"At 50 units PFNM is {between(behind)} points behind one client that merges nothing"
    ahead = apart("equal-size", ODD, 50, "PFNM", "clients alone")
    yield f"merging is worth {between(ahead, 0)} points** over one client of the same size"
    four = [f"{x:.0f}" for x in apart("equal-size", ODD, 200, "PFNM", "clients at random")]
    yield f"at 200 units {four[0]}, {four[1]} and {four[2]} points (J = 5, 10, 25) over four whole"
    kmeans = [f"{x:.0f}" for x in apart("equal-size", ODD, 50, "k-means of units", "PFNM")]
    yield f"k-means of units is {kmeans[1]} and {kmeans[2]} points ahead of it at J = 10 and 25"
    from_200 = [-x for x in apart("equal-size", ODD, 200, "k-means of units", "PFNM")]
    yield f"by {between(from_200, 0)} at 200 (with J = 5 the interval holds 0)"
    at_100 = [f"{x:.0f}" for x in apart("equal-size", ODD, 100, "PFNM", "k-means of units")]
    assert at_100[0] == at_100[1]
    yield (
        f"ahead of k-means by {at_100[0]} points at 100 units with J = 5 and 10, where at J = 25 "
        f"k-means is {at_100[2][1:]} ahead"
    )
    two = apart("equal-size", EVEN, 100, "PFNM", "clients at random")
    yield f"at 100 {-min(two):.1f} behind to {max(two):.1f} ahead of two whole clients"
    numbers = recorded("equal-size")
    assert values(numbers, ODD, 5, "PFNM", 400) is None
    ten, more = (within(numbers, ODD, j, 400, "PFNM", "k-means of units") for j in COUNTS[1:])
    yield f"by {100 * more[0]:.1f} at 400 with J = 25"
    five = within(numbers, ODD, 5, 200, "PFNM", "k-means of units")
    told = [within(numbers, ODD, j, 50, "weight matching", "PFNM") for j in COUNTS]
    kmeans_5 = within(numbers, ODD, 5, 50, "k-means of units", "PFNM")
    assert all(abs(mean) < half for mean, half in (*told, kmeans_5, five, ten))
    best, shared = (
        [100 * float(values(numbers, EVEN, j, m, 50).mean()) for j in COUNTS]
        for m in ("best clients", "parameter average, shared start")
    )
    assert [f"{x:.1f}" for x in (best[2], shared[2])] == ["92.7", "92.7"]
    for m in ("PFNM", "k-means of units", "OT fusion", "weight matching"):
        own = (100 * values(numbers, EVEN, j, m, 50).mean() for j in COUNTS)
        assert all(x < y for x, y in zip(own, best, strict=True))
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
    yield f"PFNM is {between(even)} points behind a client that merges nothing on homogeneous data"
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
    yield f"PFNM has {at_400[0]} %, and 400 units of whole clients {at_400[1]}, pruned {at_400[2]}."
    whole, left = (
        within(numbers, ODD, 25, 400, "PFNM", m)
        for m in ("clients at random", "pruned concatenation")
    )
    said = [
        (f"{100 * x:.1f}", f"({100 * (x - half):.1f} to {100 * (x + half):.1f})")
        for x, half in (whole, left)
    ]
    yield f"These are {' '.join(said[0])} and {said[1][0]} points {said[1][1]} behind"
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


@pytest.mark.parametrize(
    "part", [sentences, of_two_layers, of_photographs], ids=lambda part: part.__name__
)
def test_sentences_are_those_of_the_record(part):
    flat = " ".join(told("pfnm").split())
    assert [sentence for sentence in part() if sentence not in flat] == []


if __name__ == "__main__":
    for name in EXHIBITS:
        print(name, *accuracies(recorded(name)), "", *differences(recorded(name)), sep="\n")
