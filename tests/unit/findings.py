"""Numbers of the record as papers/pfnm/findings.md writes them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.core.packs import findings
from fedrepro.numbers.claims.intervals import half_width
from fedrepro.numbers.summary import read_csv
from fedrepro.record.sentences import without_links

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "src/fedrepro/papers/pfnm/findings.md"


def told(paper: str) -> str:
    """All that the pages of a paper's findings say, with numbers as plain text."""
    own = [page for name, page in findings(ROOT).items() if name.split("-")[0] == paper]
    texts = [(ROOT / page).read_text() for page in own]
    return without_links("\n".join(texts))


RECORD = ROOT / "reports/record/paper/pfnm"
FLAT = " ".join(told("pfnm").split())
DEAD = ROOT / "src/fedrepro/papers/pfnm/dead-units.csv"
J = (5, 10, 15, 20, 25, 30)
DEPTHS = tuple("@".join(["50"] * depth) for depth in range(1, 7))
SIGMA2 = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10)
UNITS = {"metric": "hidden_units", "split": ""}


@cache
def recorded(name: str) -> pd.DataFrame:
    return read_csv((RECORD / f"{name}.csv").read_text())


def row(exhibit: str, method: str, **place: Any) -> pd.Series:
    """The row of one number: test accuracy if nothing else is said."""
    found = recorded(exhibit)
    wanted = {"metric": "accuracy", "split": "test", **place, "method": method}
    for key, value in wanted.items():
        own = found[key]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        found = found[np.isclose(own.astype(float), value) if number else own == value]
    assert len(found) == 1, (exhibit, wanted, len(found))
    return found.iloc[0]


def trials(exhibit: str, method: str, **place: Any) -> np.ndarray:
    return np.array(row(exhibit, method, **place)["by_trial"].split(), float)


def mean(exhibit: str, method: str, **place: Any) -> float:
    """What figures show: the paired mean where there is one."""
    found = row(exhibit, method, **place)
    paired = found.get("paired_mean")
    return float(found["mean"] if paired is None or np.isnan(paired) else paired)


def percent(exhibit: str, method: str, **place: Any) -> str:
    return f"{100 * mean(exhibit, method, **place):.1f}"


def units(exhibit: str, method: str, **place: Any) -> str:
    return f"{mean(exhibit, method, **UNITS, **place):.0f}"


def apart(exhibit: str, one: str, other: str, **place: Any) -> np.ndarray:
    """One method minus another in the trials that both have."""
    a, b = (trials(exhibit, method, **place) for method in (one, other))
    count = min(len(a), len(b))
    return a[:count] - b[:count]


def points(values: np.ndarray) -> str:
    return f"{100 * values.mean():.1f}"


def ends(values: np.ndarray) -> str:
    """The 95 % interval of a mean over trials, in points."""
    around = half_width(values[:, None], 0.95)[0]
    return f"{100 * (values.mean() - around):.1f} to {100 * (values.mean() + around):.1f}"


def interval(values: np.ndarray) -> str:
    return f"{points(values)} ({ends(values)})"


def between(values: list[float], digits: int = 1) -> str:
    """From the least to the most."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def line(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def over_clients(exhibit: str, one: str, other: str) -> np.ndarray:
    return np.mean([apart(exhibit, one, other, clients=j) for j in J], axis=0)


def measured(exhibit: str, one: str, other: str) -> list[float]:
    return [100 * float(apart(exhibit, one, other, clients=j).mean()) for j in J]


def lost(exhibit: str, method: str) -> np.ndarray:
    return trials(exhibit, method, clients=5) - trials(exhibit, method, clients=30)


# ---------------------------------------------------------------------------------------- tables

RIVALS = ("PFNM unmatched", "concatenation", "U-Ens", "W-Ens", "KD", "D-SGD")


def of_clients(exhibit: str, title: str) -> list[str]:
    """Figure 2: a row for each of three numbers of clients."""
    found = []
    for clients in (5, 15, 30):
        at = {"clients": clients}
        cells = [percent(exhibit, m, **at) for m in (*RIVALS, "clients alone")]
        size = units(exhibit, "PFNM", **at)
        found.append(line(title, clients, percent(exhibit, "PFNM", **at), size, *cells))
    return found


def of_depths(exhibit: str, title: str) -> list[str]:
    """Figure 3: a row for one, two and six hidden layers."""
    found = []
    for depth in (1, 2, 6):
        at = {"hidden": DEPTHS[depth - 1]}
        cells = [percent(exhibit, m, **at) for m in RIVALS]
        size = units(exhibit, "PFNM", **at)
        found.append(line(title, depth, percent(exhibit, "PFNM", **at), size, *cells))
    return found


def of_sizes(case: str) -> list[str]:
    """matching-or-size: accuracy and units as sigma2 rises, beside what merges nothing."""
    found = []
    name = "matching-or-size"
    for clients in (5, 10, 25):
        at = {"case": case, "clients": clients}
        sized = [
            f"{percent(name, 'PFNM', **at, sigma2=s)} ({units(name, 'PFNM', **at, sigma2=s)})"
            for s in (1, 2, 5, 10)
        ]
        free = f"{percent(name, 'PFNM unmatched', **at)} ({units(name, 'PFNM unmatched', **at)})"
        figure = "figure-2a" if case == "homogeneous" else "figure-2b"
        alone = percent(figure, "clients alone", clients=clients)
        pruned = percent(name, "pruned concatenation", **at, units=50)
        average = percent(name, "parameter average", **at)
        found.append(line(case, clients, free, *sized, alone, pruned, average))
    return found


def of_sigma2() -> list[str]:
    """deep-sigma2: PFNM and unmatched for two and four layers, a row for each sigma2."""
    found = []
    for sigma2, said in ((1e-6, "0.000001"), (0.001, "0.001"), (0.01, "0.01"), (1, "1")):
        cells = [
            percent("deep-sigma2", method, case=f"{data}, heterogeneous", hidden=h, sigma2=sigma2)
            for data in ("MNIST", "CIFAR-10")
            for h in (DEPTHS[1], DEPTHS[3])
            for method in ("PFNM", "unmatched")
        ]
        found.append(line(said, *cells))
    return found


def per_trial(panel: str, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """Test accuracy with sigma2 chosen over all trials, and in each, by training accuracy."""
    grid = [{"clients": clients, "sigma2": float(s)} for s in SIGMA2]
    name = f"s-figure-5{panel}"
    train = np.array([trials(name, "PFNM", split="train", **at) for at in grid])
    test = np.array([trials(name, "PFNM", **at) for at in grid])
    return test[train.mean(axis=1).argmax()], test[train.argmax(axis=0), np.arange(test.shape[1])]


def of_choices() -> list[str]:
    """sigma2 chosen over all trials and in each: a row for each panel of figure 2."""
    titles = {
        "a": "MNIST, homogeneous",
        "b": "MNIST, heterogeneous",
        "c": "CIFAR-10, homogeneous",
        "d": "CIFAR-10, heterogeneous",
    }
    found = []
    for panel, title in titles.items():
        cells = []
        for clients in J:
            over, each = per_trial(panel, clients)
            cells.append(f"{points(over)} → {points(each)}")
        found.append(line(title, *cells))
    return found


def tables() -> list[str]:
    """All rows."""
    return [
        *of_clients("figure-2a", "MNIST, homogeneous"),
        *of_clients("figure-2b", "MNIST, heterogeneous"),
        *of_clients("figure-2c", "CIFAR-10, homogeneous"),
        *of_clients("figure-2d", "CIFAR-10, heterogeneous"),
        *of_depths("figure-3a", "MNIST, homogeneous"),
        *of_depths("figure-3b", "MNIST, heterogeneous"),
        *of_depths("figure-3c", "CIFAR-10, homogeneous"),
        *of_depths("figure-3d", "CIFAR-10, heterogeneous"),
        *of_sizes("homogeneous"),
        *of_sizes("heterogeneous"),
        *of_sigma2(),
        *of_choices(),
    ]


if __name__ == "__main__":
    print(*tables(), sep="\n")
