"""What papers/pfnm/findings.md says of claims and of how they changed is what the record says."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from findings import (
    FLAT,
    RECORD,
    ROOT,
    J,
    apart,
    ends,
    interval,
    lost,
    over_clients,
    percent,
    points,
    recorded,
    trials,
)

from fedrepro.numbers.claims.published import load_claims
from fedrepro.numbers.claims.table import _numbers
from fedrepro.numbers.files import open_recorded

MNIST, CIFAR = "MNIST, heterogeneous", "CIFAR-10, heterogeneous"
CLAIMS = ROOT / "src/fedrepro/papers/pfnm/claims.yaml"


def nearly_as_good(exhibit: str) -> float:
    """The share of all units within 0.0025 of the best training accuracy, from ten clients on."""
    rows = recorded(exhibit)
    rows = rows[rows["clients"] >= 10]
    good = rows[(rows["metric"] == "accuracy") & (rows["split"] == "train")]
    places = ["clients", "sigma2"]
    near = (
        good.set_index(places)["mean"].groupby("clients").transform(lambda x: x >= x.max() - 0.0025)
    )
    size = rows[rows["metric"] == "hidden_units"].set_index(places)["mean"]
    least = size[near].groupby("clients").min()
    return float(100 * (least / (50 * least.index)).mean())


def claims() -> Iterator[str]:
    rows = list(csv.DictReader(io.StringIO((RECORD / "claims.csv").read_text())))
    by_check = {(r["claim"], r["at"].partition(",")[0], r["reading"]): r for r in rows}
    apart_ = trials("figure-2d", "PFNM", clients=30) - trials("figure-2d", "U-Ens", clients=30)
    apart_ = apart_ - apart("figure-2d", "PFNM", "U-Ens", clients=5)
    yield f"{points(apart_)} points ({ends(apart_)}) more is left of it"
    own = lost("figure-2d", "PFNM")
    yield f"PFNM's own loss was judged: {points(own)} points ({ends(own)})"
    (nine,) = (row for row in rows if row["claim"] == "P9")
    yield f"The interval ends {100 * (float(nine['low']) + 0.02):.2f} points inside the bound"
    a, c = lost("figure-2a", "U-Ens"), lost("figure-2c", "U-Ens")
    yield (
        f"both lose {points(a)} points ({ends(a)}) on homogeneous MNIST and {interval(c)} on "
        f"homogeneous CIFAR-10, where clients alone lose "
        f"{points(lost('figure-2c', 'clients alone'))} and PFNM {points(lost('figure-2c', 'PFNM'))}"
    )
    shares = [nearly_as_good(f"s-figure-5{p}") for p in "ab"]
    yield f"(P2a) it had {shares[0]:.0f} % on homogeneous data, which refuted it too, and"
    yield f"and {shares[1]:.0f} % on heterogeneous. But"
    sized = [
        percent("equal-size", method, case="homogeneous", clients=25, **place)
        for method, place in (
            ("PFNM", {"units": 200}),
            ("PFNM", {"units": 400}),
            ("concatenation", {}),
        )
    ]
    yield f"have {sized[0]} %, 400 have {sized[1]} and all {sized[2]}"
    finer = [
        100 * float(row["value"])
        for row in rows
        if row["claim"] == "P2a" and row["at"].startswith("finer-sigma2")
    ]
    yield (
        f"There {finer[0]:.0f} % of all units are within a quarter of a point and {finer[1]:.0f} % "
        "within half of one"
    )
    several = 100 * float(by_check["P2b", "deep-sigma2", ""]["value"])
    yield f"of the best training accuracy has {several:.0f} % of all units, which refutes it"
    weighted = over_clients("figure-2d", "W-Ens", "U-Ens")
    yield f"by {points(weighted)} points ({ends(weighted)}) on CIFAR-10"
    client = "W-Ens, share of the client"
    below = [
        -np.mean(
            [apart("ensemble-readings", client, "U-Ens", clients=j, case=case) for j in J], axis=0
        )
        for case in (CIFAR, MNIST)
    ]
    yield (
        f"the weighted ensemble is {points(below[0])} points ({ends(below[0])}) *below* the "
        f"uniform one on CIFAR-10, and {points(below[1])} below it on MNIST"
    )
    needed = {r["claim"]: float(r["trials_needed"]) for r in rows if r["trials_needed"]}
    yield f"with such a scatter about {needed['P16']:.0f} trials would decide"
    yield f"about {needed['P24']:.0f} trials would decide"


def undecided() -> Iterator[str]:
    """Intervals at 95 %, of one claim's checks after another."""
    found_claims = {claim.id: claim for claim in load_claims(CLAIMS).claims}

    def at(name: str, number: int, exhibit: str, place: str = ""):
        check = found_claims[name].all_checks[number]
        files = open_recorded(Path(RECORD.parent), f"pfnm/{exhibit}", "paper")
        found = check.statements(exhibit, {exhibit: _numbers(files)})
        return next(one for one in found if place in one.at).interval(0.95)

    falls, rises = ([at("P8", n, f"figure-2{p}") for p in "cd"] for n in (1, 0))
    one, two = (f"{-100 * i.value:.1f} # ({-100 * i.high:.1f} to {-100 * i.low:.1f}" for i in falls)
    yield f"by {one.replace('#', 'points')}, homogeneous) and {two.replace('# ', '')}, heterogen"
    one, two = (f"{100 * i.value:.1f} ({100 * i.low:.1f} to {100 * i.high:.1f})" for i in rises)
    yield f"rises to it by {one} and {two}"
    own = [at("P15", 0, f"figure-2{p}").value for p in "abcd"]
    yield f"{own[0]:.2f} and {own[1]:.2f} on MNIST (homogeneous, heterogeneous), {own[2]:.2f} and"
    yield f"and {own[3]:.2f} on CIFAR-10, where one half is"
    wider = at("P16", 0, "wider-downpour", "heterogeneous")
    yield f"the gain of {100 * wider.value:.1f} points"
    yield f"may be anything up to {100 * wider.high:.1f};"
    spread = at("P24", 2, "s-figure-5d", "J = 30")
    yield f"{100 * spread.value:.1f} points, up to {100 * spread.high:.1f}, where two"
    ours = [at("P22", 0, f"s-figure-4{p}") for p in "abcd"]
    own = [f"{100 * i.value:.2f}# ({100 * i.low:.2f} to {100 * i.high:.2f})" for i in ours[:2]]
    yield f"on MNIST, by {own[0].replace('#', ' points')} and {own[1].replace('#', '')}; on"
    own = [f"{-100 * i.value:.2f} ({-100 * i.high:.2f} to {-100 * i.low:.2f})" for i in ours[2:]]
    yield f"another's by {own[0]} and {own[1]}, which"
    corner = [at("P20", 0, "s-figure-4b", "J = 25"), at("P21", 0, "s-figure-4b", "sigma2 = 1")]
    said = [f"{100 * i.value:.1f}# ({100 * i.low:.1f} to {100 * i.high:.1f})" for i in corner]
    yield f"on MNIST by {said[0].replace('#', ' points')} and {said[1].replace('#', '')}, on"
    spread = at("P21", 0, "s-figure-4d", "sigma2 = 0.1")
    yield f"{100 * spread.value:.1f} points at sigma2 = 0.1 (up to {100 * spread.high:.1f})"


@pytest.mark.parametrize("part", [claims, undecided], ids=lambda part: part.__name__)
def test_sentences_on_claims_are_those_of_the_record(part):
    lacking = [sentence for sentence in part() if sentence not in FLAT]
    assert lacking == []


def test_verdicts_that_are_said_to_have_changed_are_those_of_the_table():
    with (RECORD / "claims.csv").open() as file:
        now = {row["claim"]: row["verdict"] for row in csv.DictReader(file)}
    told = re.findall(r"\*\*(P\w+), (?:undecided|refuted)?,? ?(?:is )?now (\w+ ?\w*)\.\*\*", FLAT)
    assert [claim for claim, _ in told] == ["P9", "P10", "P11", "P18", "P22"]
    for claim, words in told:
        assert now[claim] == words.split()[-1]
    assert [now[f"P{n}"] for n in (19, 20, 21)] == ["holds", "refuted", "refuted"]
    assert (now["P2a"], now["P2b"]) == ("holds", "refuted")


def test_undecided_claims_are_listed():
    with (RECORD / "claims.csv").open() as file:
        undecided = {row["claim"] for row in csv.DictReader(file) if row["verdict"] == "undecided"}
    part = FLAT[FLAT.index("Undecided are") : FLAT.index("## How much of PFNM")]
    ours = {claim for claim in undecided if claim.startswith("P")}
    assert ours == set(re.findall(r"\bP\d+\b", part)) - {"P23"}
