"""What papers/pfnm/findings.md says of the record beyond the numbers that it asks for."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from findings import RECORD, ROOT, asked, told

from fedrepro.numbers.intervals import half_width
from fedrepro.numbers.tables_and_selection import read_csv

FOLDER = RECORD / "paper/pfnm"
PACK = ROOT / "src/fedrepro/papers/pfnm"
FLAT = told("pfnm")
J = (5, 10, 15, 20, 25, 30)
DEPTHS = tuple("@".join(["50"] * depth) for depth in range(1, 7))
SIGMA2 = ("0.01", "0.05", "0.1", "0.5", "1", "2", "5", "10")
EVEN, ODD = "case=homogeneous", "case=heterogeneous"
PANELS = {"a": "MNIST, homogeneous", "b": "MNIST, heterogeneous"}
PANELS |= {"c": "CIFAR-10, homogeneous", "d": "CIFAR-10, heterogeneous"}


def between(values: list[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}"


def recorded(name: str | Path) -> pd.DataFrame:
    return read_csv((name if isinstance(name, Path) else FOLDER / f"{name}.csv").read_text())


def per_trial(panel: str, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """Test accuracy with sigma2 chosen over all trials, and in each, by training accuracy."""
    words = f"trials accuracy ({{}}) of PFNM at clients={clients}, sigma2={{}}"
    train, test = (
        np.array([asked(f"pfnm/s-figure-5{panel}", words.format(split, s), 10) for s in SIGMA2])
        for split in ("train", "test")
    )
    return test[train.mean(axis=1).argmax()], test[train.argmax(axis=0), np.arange(test.shape[1])]


def choices() -> Iterator[str]:
    """sigma2 chosen over all trials and in each: a row for each panel of figure 2."""
    gains = {}
    for panel, title in PANELS.items():
        pairs = [per_trial(panel, clients) for clients in J]
        gains[panel] = np.array([each - over for over, each in pairs])
        cells = (f"{over.mean():.1f} → {each.mean():.1f}" for over, each in pairs)
        yield f"| {title} | {' | '.join(cells)} |"
    means = {panel: own.mean(axis=1) for panel, own in gains.items()}
    whole = gains["d"].mean(axis=0)
    half = half_width(whole[:, None], 0.95)[0]
    yield (
        f"PFNM is {between(means['d'])} points better on heterogeneous CIFAR-10, over all J "
        f"{whole.mean():.1f} ({whole.mean() - half:.1f} to {whole.mean() + half:.1f}), and up to "
        f"{max(means['b']):.1f} on heterogeneous MNIST"
    )
    assert max(np.abs([means["a"], means["c"]]).ravel()) < 0.15  # "makes no difference"


def dead() -> Iterator[str]:
    rows = recorded(PACK / "dead-units.csv")
    for key, words in (
        (
            "dead_everywhere",
            "{} % fire for no training example of anybody on homogeneous data, and {}",
        ),
        ("dead_at_home", "for no example of their own client, {} and {} %"),
    ):
        shares = rows[key].map(lambda text: 100 * float(np.mean([*map(float, text.split())])))
        both = (list(shares[rows["case"] == case]) for case in ("homogeneous", "heterogeneous"))
        yield words.format(*map(between, both))


def grids() -> Iterator[str]:
    choice = recorded("figure-3b.choice")
    falls = []
    for hidden in DEPTHS[1:]:
        own = choice[(choice["hidden"] == hidden) & (choice["method"] == "PFNM")]
        coarse = own[own["value"].astype(float) >= 0.01]
        best, left = (x.loc[x["criterion_mean"].idxmax(), "test_mean"] for x in (own, coarse))
        falls.append(f"{100 * (best - left):.1f}")
    said = ", ".join(falls[1:-1])
    yield f"lose {falls[0]} points there, and {said} and {falls[-1]} with three to six"
    name, two = "merging-and-posterior", "PFNM, σ² apart"
    chosen = recorded(f"{name}.choice").query("chosen == 'true' and method == @two")
    values = chosen.set_index("hidden")["value"].str.replace(", ", " and ")
    assert values[DEPTHS[0]] == "1 and 1"
    yield f"{values[DEPTHS[3]]} with four layers are"
    yield f"{values[DEPTHS[1]]} with two layers"
    one = f"range PFNM, one σ² minus {two}"
    assert asked(f"pfnm/{name}", f"{one} at hidden=50", 2) == [0, 0]
    assert asked(f"pfnm/{name}", f"range hidden_units of {one.removeprefix('range ')}", 2) == [0, 0]


def readings() -> Iterator[str]:
    known = itertools.product((10, 25), ("true", "false"))
    words = f"range PFNM at {ODD}, clients={{}}, class_weights={{}}"
    ranges = [asked("pfnm/erratum-options", words.format(*one), 2) for one in known]
    yield f"change accuracy by at most {max(most - least for least, most in ranges):.1f} points"
    level = max(map(abs, asked("pfnm/figure-2a", "range PFNM minus PFNM unmatched", 2)))
    yield f"is as good on homogeneous data at every J, to {level:.1f} points"
    yield f"any matching are as good to {level:.1f} points on homogeneous MNIST"


PARTS: tuple[Callable[[], Iterator[str]], ...] = (choices, dead, grids, readings)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_sentences_are_those_of_the_record(part):
    assert [sentence for sentence in part() if sentence not in FLAT] == []


@pytest.mark.parametrize(
    ("exhibit", "question"),
    [
        ("equal-size", f"k-means of units minus PFNM at {ODD}, units=50, clients=5"),
        *(
            ("equal-size", f"PFNM minus weight matching at {ODD}, units=50, clients={j}")
            for j in (5, 10, 25)
        ),
        ("equal-size", f"PFNM minus k-means of units at {ODD}, units=200, clients=5"),
        ("equal-size", f"PFNM minus k-means of units at {ODD}, units=400, clients=10"),
        ("equal-size-deep", f"k-means of units minus PFNM at {EVEN}, units=50"),
        *(
            ("equal-size-photographs", f"PFNM minus clients alone at {ODD}, units=50, clients={j}")
            for j in (10, 25)
        ),
        *(
            ("merging-and-posterior", f"PFNM, σ² apart minus PFNM unmatched at hidden={h}")
            for h in (DEPTHS[1], DEPTHS[3])
        ),
    ],
)
def test_what_is_not_told_apart_has_an_interval_that_holds_0(exhibit, question):
    low, high = asked(f"pfnm/{exhibit}", f"interval {question}", 2)
    assert low < 0 < high


def test_the_best_at_a_size_are_those_that_are_named():
    rivals = ("PFNM", "k-means of units", "OT fusion", "weight matching")
    for j, rival in itertools.product((5, 10, 25), rivals):
        question = f"best clients minus {rival} at {EVEN}, clients={j}, units=50"
        assert asked("pfnm/equal-size", question)[0] > 0
    sized = ("k-means of units", "OT fusion", "best clients", "clients at random")
    for j, units, case in itertools.product((5, 10, 25), (100, 200), (EVEN, ODD)):
        at = f"at {case}, clients={j}, units={units}"
        names = (*sized, "pruned concatenation")
        of = {name: asked("pfnm/equal-size-photographs", f"{name} {at}")[0] for name in names}
        if case == EVEN or j > 5:
            assert max(of, key=of.get) == ("best clients" if case == EVEN else names[-1])
    numbers = pd.read_csv(FOLDER / "equal-size-photographs.csv")
    own = numbers.query("method == 'PFNM' and metric == 'accuracy' and split == 'test'")
    assert own.query("units > 50")["units"].tolist() == [400]  # no other larger size comes out


def test_verdicts_that_changed_and_undecided_claims_are_those_of_the_table():
    now = pd.read_csv(FOLDER / "claims.csv").set_index("claim")["verdict"].to_dict()
    changed = dict(re.findall(r"\| (P\d+) \| (?:refuted|undecided|holds) \| (\w+) \|", FLAT))
    assert [*changed] == ["P6", "P9", "P10", "P11", "P18", "P22", "P23", "P24"]
    asserted = changed | {"P19": "holds", "P20": "refuted", "P21": "refuted", "P9": "undecided"}
    asserted |= {"P2a": "holds", "P2b": "refuted"}
    assert asserted.items() <= now.items()
    assert changed["P9"] == "undecided"
    part = FLAT[FLAT.index("Undecided are") : FLAT.index("; the table has")]
    ours = {claim for claim, word in now.items() if word == "undecided" and claim[0] == "P"}
    assert ours == set(re.findall(r"\bP\d+\b", part))
