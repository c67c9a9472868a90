"""What papers/pfnm/findings.md says in tables and sentences is what the record says.

Sentences are made anew from the record and looked for in the page, so that a number which the
record no longer bears out fails by name. `python tests/unit/findings.py` prints the tables.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from findings import (
    DEAD,
    DEPTHS,
    FLAT,
    RECORD,
    UNITS,
    J,
    apart,
    between,
    ends,
    interval,
    lost,
    mean,
    measured,
    over_clients,
    per_trial,
    percent,
    points,
    recorded,
    row,
    tables,
    told,
    trials,
    units,
)

from fedrepro.numbers.claims.intervals import half_width

TEXT = told("pfnm")
MNIST, CIFAR = "MNIST, heterogeneous", "CIFAR-10, heterogeneous"
SIZES = "matching-or-size"
OWN = {"homogeneous": "figure-2a", "heterogeneous": "figure-2b"}


def test_every_row_of_a_table_is_that_of_the_record():
    rows = tables()
    assert rows
    assert [row for row in rows if row not in TEXT] == []


def figure_2() -> Iterator[str]:
    behind = [-x for f in "ab" for x in measured(f"figure-2{f}", "KD", "U-Ens")]
    yield (
        f"behind its teacher by {between(behind[:6])} points on homogeneous data and by "
        f"{between(behind[6:])} on heterogeneous"
    )
    ahead = measured("figure-2b", "PFNM", "U-Ens")
    whole = over_clients("figure-2b", "PFNM", "U-Ens")
    ten = apart("figure-2b", "PFNM", "U-Ens", clients=10)
    yield f"PFNM measured {between(ahead)} points above the uniform ensemble"
    yield f"over all J {interval(whole)}; at J = 10 the interval holds 0 ({ends(ten)})"
    free = measured("figure-2b", "PFNM", "PFNM unmatched")
    whole = over_clients("figure-2b", "PFNM", "PFNM unmatched")
    yield f"It is {between(free)} above `unmatched`, over all J {interval(whole)}"
    sizes = [
        mean("figure-2b", "PFNM unmatched", clients=j, **UNITS)
        / mean("figure-2b", "PFNM", clients=j, **UNITS)
        for j in J
    ]
    yield f"which has {between(sizes)} times its units"
    weighted = [-x for x in measured("figure-2b", "PFNM", "W-Ens")]
    yield f"and {between(weighted)} below the weighted ensemble"
    level = max(abs(x) for x in measured("figure-2a", "PFNM", "PFNM unmatched"))
    yield f"homogeneous data at every J, to {level:.1f} points, and worse by {between(free)} on"


def photographs() -> Iterator[str]:
    def whole(other: str, panel: str = "d") -> np.ndarray:
        return over_clients(f"figure-2{panel}", "PFNM", other)

    yield f"PFNM is {interval(whole('PFNM unmatched'))} above `unmatched`".replace(
        " (", " points ("
    )
    alone = between(measured("figure-2d", "PFNM", "clients alone"))
    yield f"and {alone} above clients alone"
    class_share = whole("concatenation")
    yield f"by class share, {points(class_share)} points ({ends(class_share)}), "
    yield (
        f"{interval(-whole('U-Ens'))} behind the uniform ensemble and {interval(-whole('W-Ens'))} "
        "behind the weighted one"
    )
    own, uniform, alone_lost = (lost("figure-2d", m) for m in ("PFNM", "U-Ens", "clients alone"))
    yield (
        f"From 5 to 30 clients it loses {points(own)} points ({ends(own)}), the uniform ensemble "
        f"{interval(uniform)} and clients alone {points(alone_lost)}"
    )
    ensembles, free = -whole("U-Ens", "c"), -whole("PFNM unmatched", "c")
    yield (
        f"PFNM is {points(ensembles)} points ({ends(ensembles)}) behind the ensembles and "
        f"{interval(free)} behind `unmatched`"
    )
    behind = [-x for x in measured("figure-2c", "KD", "U-Ens")]
    mixed = measured("figure-2d", "KD", "U-Ens")
    yield (
        f"behind its teacher by {between(behind)} points on homogeneous data, and on heterogeneous "
        f"from {-min(mixed):.1f} behind to {max(mixed):.1f} ahead"
    )
    yield f"Training on all data reaches {percent('figure-2d', 'pooled training', clients=5)} %"
    at = {"case": CIFAR, "hidden": "50"}
    small, large = (
        [percent("deep-sigma2", m, **at, sigma2=s) for m in ("PFNM", "unmatched")]
        for s in (0.01, 1.0)
    )
    yield (
        f"one layer: PFNM {small[0]} % and `unmatched` {small[1]} at 0.01, {large[0]} and "
        f"{large[1]} at 1"
    )


def choices() -> Iterator[str]:
    gains = {p: [np.subtract(*per_trial(p, j)[::-1]) for j in J] for p in "abcd"}
    means = {p: [100 * float(x.mean()) for x in own] for p, own in gains.items()}
    whole = np.mean(gains["d"], axis=0)
    yield (
        f"PFNM is {between(means['d'])} points better on heterogeneous CIFAR-10, over all J "
        f"{interval(whole)}, and up to {max(means['b']):.1f} on heterogeneous MNIST"
    )
    assert max(abs(x) for x in means["a"] + means["c"]) < 0.15  # "makes no difference"


def sizes() -> Iterator[str]:
    for clients in (10, 25):
        own = trials(SIZES, "PFNM", case="homogeneous", clients=clients, sigma2=10.0)
        less = own - trials("figure-2a", "clients alone", clients=clients)
        said = f"not told apart ({100 * less.mean():.2f} points, " if clients == 10 else None
        yield said or f"and {-100 * less.mean():.1f} points ahead of PFNM"
    for clients in (10, 25):
        own = trials(SIZES, "PFNM", case="heterogeneous", clients=clients, sigma2=10.0)
        more = own - trials("figure-2b", "clients alone", clients=clients)
        if clients == 10:
            yield f"PFNM is {points(more)} points ({ends(more)}) ahead of the mean client at J = 10"
        else:
            yield f"and {interval(more)} at J = 25"
    cost = [
        trials(SIZES, "PFNM", case=case, clients=10, sigma2=1.0)
        - trials(SIZES, "PFNM", case=case, clients=10, sigma2=5.0)
        for case in OWN
    ]
    yield (
        f"(sigma2 = 5, J = 10) costs {points(cost[0])} points on homogeneous data, and "
        f"{points(cost[1])} on heterogeneous"
    )
    yield f"for {points(cost[0])} points on homogeneous data and {points(cost[1])} on heterogen"
    for clients, kept in ((5, 200.0), (10, 400.0)):
        for case in OWN:
            all_ = trials(SIZES, "concatenation", case=case, clients=clients)
            pruned = trials(SIZES, "pruned concatenation", case=case, clients=clients, units=kept)
            assert 100 * (all_ - pruned).mean() <= 0.1
    yield "costs no more than 0.1 points"
    merged = [
        float(units(SIZES, "PFNM unmatched", case="homogeneous", clients=j))
        - float(units(SIZES, "PFNM", case="homogeneous", clients=j, sigma2=2.0))
        for j in (5, 10)
    ]
    yield f"on homogeneous data ({merged[0]:.0f} of 250, {merged[1]:.0f} of 500)"


def dead() -> Iterator[str]:
    with DEAD.open() as file:
        rows = list(csv.DictReader(file))

    def shares(case: str, key: str) -> str:
        own = [row[key].split() for row in rows if row["case"] == case]
        assert [len(values) for values in own] == [10, 10, 10]
        return between([100 * float(np.mean([float(x) for x in values])) for values in own])

    one, other = (shares(case, "dead_everywhere") for case in OWN)
    yield f"{one} % fire for no training example of anybody on homogeneous data, and {other} %"
    one, other = (shares(case, "dead_at_home") for case in OWN)
    yield f"for no example of their own client, {one} and {other} %"


def depths() -> Iterator[str]:
    unmatched = {
        (data, hidden): trials("deep-sigma2", "unmatched", case=case, hidden=hidden, sigma2=1.0)
        - trials(figure, "U-Ens", hidden=hidden)
        for data, case, figure in (("M", MNIST, "figure-3b"), ("C", CIFAR, "figure-3d"))
        for hidden in (DEPTHS[1], DEPTHS[3])
    }
    one, two, three, four = unmatched.values()
    yield (
        f"it measured {points(one)} and {points(two)} points above the uniform ensemble on MNIST "
        f"(C = 2 and 4), {points(three)} and {points(four)} on CIFAR-10, of which the last alone "
        f"is sure ({ends(four)})"
    )
    choice = pd_choice("figure-3b")
    falls = []
    for hidden in DEPTHS[1:]:
        own = choice[(choice["hidden"] == hidden) & (choice["method"] == "PFNM")]
        best = own.loc[own["criterion_mean"].idxmax(), "test_mean"]
        coarse = own[own["value"].astype(float) >= 0.01]
        falls.append(100 * (best - coarse.loc[coarse["criterion_mean"].idxmax(), "test_mean"]))
    said = ", ".join(f"{x:.1f}" for x in falls[1:-1])
    yield f"lose {falls[0]:.1f} points there, and {said} and {falls[-1]:.1f} with three to six"
    lines = ("PFNM", "PFNM unmatched", "U-Ens", "W-Ens")
    fall = [
        points(trials("figure-3b", m, hidden=DEPTHS[0]) - trials("figure-3b", m, hidden=DEPTHS[5]))
        for m in lines
    ]
    yield (
        f"PFNM loses {fall[0]} points, `unmatched` {fall[1]}, the uniform ensemble {fall[2]} and "
        f"the weighted one {fall[3]}"
    )
    six = -apart("figure-3b", "PFNM", "U-Ens", hidden=DEPTHS[5])
    several = [-100 * apart("figure-3d", "PFNM", "U-Ens", hidden=h).mean() for h in DEPTHS[1:]]
    yield f"with six layers PFNM is {points(six)} points behind the uniform ensemble on MNIST"
    yield f"and on CIFAR-10 {between(several)} as soon as there are two"
    top = [mean(f"figure-3{p}", "PFNM, σ²/100 on top", hidden=DEPTHS[5], **UNITS) for p in "ac"]
    yield f"with fewer units (C = 6: {top[0]:.0f} and {top[1]:.0f})"
    up = trials("deep-sigma2", "unmatched", case=CIFAR, hidden=DEPTHS[1], sigma2=1.0) - trials(
        "deep-sigma2", "unmatched", case=CIFAR, hidden=DEPTHS[1], sigma2=1e-6
    )
    behind = -apart("figure-3d", "PFNM", "U-Ens", hidden=DEPTHS[1])
    yield (
        f"by {points(up)} points on CIFAR-10 with two layers ({ends(up)}), where PFNM is "
        f"{points(behind)} behind the uniform ensemble"
    )


def two_variances() -> Iterator[str]:
    name, single, two = "merging-and-posterior", "PFNM, one σ²", "PFNM, σ² apart"
    chosen = pd_choice(name)
    chosen = chosen[(chosen["chosen"] == "true") & (chosen["method"] == two)]
    values = dict(zip(chosen["hidden"], chosen["value"], strict=True))
    assert values[DEPTHS[0]] == "1, 1"
    assert not apart(name, two, single, hidden=DEPTHS[0]).any()
    gains = [apart(name, two, single, hidden=DEPTHS[at]) for at in (1, 3)]
    said = [values[DEPTHS[at]].replace(", ", " and ") for at in (1, 3)]
    yield (
        f"{said[1]} with four layers are {points(gains[1])} points ({ends(gains[1])}) above one "
        "sigma2 for both"
    )
    yield f"{said[0]} with two layers {interval(gains[0])}"
    sizes = [{mean(name, m, hidden=DEPTHS[at], **UNITS) for m in (single, two)} for at in (1, 3)]
    assert [len(size) for size in sizes] == [1, 1]
    few, many = (size.pop() for size in sizes)
    yield f"at the same {many:,.0f} and {few:,.0f} units"
    yield f"units, which are {many / 20:.0f} and {few / 10:.0f} % of all"
    level = [apart(name, two, "PFNM unmatched", hidden=DEPTHS[at]) for at in (1, 3)]
    assert all(half_width(x[:, None], 0.95)[0] > abs(x.mean()) for x in level)
    yield f"({points(level[0])} and {points(level[1])} points; both intervals hold 0)"


def pd_choice(exhibit: str):
    from fedrepro.numbers.summary import read_csv

    return read_csv((RECORD / f"{exhibit}.choice.csv").read_text())


def sensitivity() -> Iterator[str]:
    at = {"clients": 25, "sigma2": 5.0, "sigma02": 10.0}
    maps = ("s-figure-4a", "s-figure-4b")
    usual, many = (
        [(units(m, "PFNM", **at, gamma0=g), percent(m, "PFNM", **at, gamma0=g)) for m in maps]
        for g in (1.0, 50.0)
    )
    yield (
        f"the defaults leave {usual[0][0]} and {usual[1][0]} units on MNIST ({usual[0][1]} and "
        f"{usual[1][1]} % of the test data), and gamma0 = 50 leaves {many[0][0]} and {many[1][0]} "
        f"of 700 ({many[0][1]} and {many[1][1]} %)"
    )
    photographs = []
    for name in ("s-figure-4c", "s-figure-4d"):
        own = recorded(name)
        train = own[(own["metric"] == "accuracy") & (own["split"] == "train")]
        train = train[train["sigma2"] <= 1].sort_values("mean")
        assert set(train["trials"]) == {5}
        worst = train.iloc[0]
        place = {k: float(worst[k]) for k in ("sigma2", "sigma02", "gamma0")}
        assert place == {"sigma2": 1, "sigma02": 1, "gamma0": 0.001}
        assert mean(name, "PFNM", **place, **UNITS) == 50
        photographs.append([100 * train["mean"].iloc[at] for at in (0, 1, -1)])
    even, odd = photographs
    yield f"the same corner: {even[0]:.1f} % with 50 units, where every other setting has"
    yield f"{even[1]:.1f} to {even[2]:.1f} (homogeneous), and {odd[0]:.1f} % (heterogeneous)"
    yield f"others range over {odd[2] - odd[1]:.1f} points, from {odd[1]:.1f} to {odd[2]:.1f} %"
    alone = [
        (f(SIZES, "PFNM", case=case, clients=25, sigma2=2.0))
        for case in OWN
        for f in (units, percent)
    ]
    yield (
        f"sigma2 = 2 leaves {alone[0]} units with {alone[1]} %; on heterogeneous data sigma2 = 2 "
        f"leaves {alone[2]} with {alone[3]}"
    )
    for name, words in (("s-figure-4a", "(homogeneous)"), ("s-figure-4b", "(heterogeneous)")):
        own = recorded(name)
        own = own[(own["metric"] == "accuracy") & (own["split"] == "train") & (own["sigma2"] <= 1)]
        yield f"between {100 * own['mean'].min():.1f} and {100 * own['mean'].max():.1f} % {words}"


def readings() -> Iterator[str]:
    numbers = recorded("erratum-options")
    numbers = numbers[numbers["case"] == "heterogeneous"]
    test = numbers[(numbers["metric"] == "accuracy") & (numbers["split"] == "test")]
    size = numbers[numbers["metric"] == "hidden_units"]
    gains, said = [], []
    for clients in (10, 25):
        own = test[test["clients"] == clients]
        with_, without = (own[own["class_weights"] == w] for w in ("true", "false"))
        pairs = zip(with_["by_trial"], without["by_trial"], strict=True)
        gains.append([np.subtract(*(np.array(t.split(), float) for t in p)) for p in pairs])
        said.append([sorted({f"{100 * x:.1f}" for x in side["mean"]}) for side in (with_, without)])
    all_ = [100 * float(x.mean()) for own in gains for x in own]
    yield f"class share is worth {between(all_)} points on heterogeneous data"
    ten, more = ([" to ".join(side) for side in at] for at in said)
    yield f"{ten[0]} against {ten[1]} % at J = 10, and {more[0]} against {more[1]} at J = 25"
    assert min(100 * x.mean() - 100 * half_width(x[:, None], 0.95)[0] for y in gains for x in y) > 0
    widest = [max(own, key=lambda x: x.std()) for own in gains]
    yield f"the widest from {ends(widest[0])} at J = 10 and from {ends(widest[1])} at J = 25"
    uniform = [percent("figure-2b", "U-Ens", clients=j) for j in (10, 25)]
    yield f"The uniform ensemble has {uniform[0]} and {uniform[1]} % in the same trials"
    others = [
        [list(own[own["class_weights"] == w]["mean"]) for w in ("true", "false")]
        for own in (test[test["clients"] == j] for j in (10, 25))
    ]
    most = max(max(side) - min(side) for at in others for side in at)
    yield f"change accuracy by at most {100 * most:.1f} points"
    ten, more = (size[size["clients"] == j] for j in (10, 25))
    shares, none = (ten[ten["class_weights"] == w]["mean"] for w in ("true", "false"))
    yield f"go from {between(list(shares), 0)} units with class shares at J = 10, heterogeneous"
    assert set(none) == {500}
    yield f"at J = 25 they go from {between(list(more['mean']), 0)}"
    even = recorded("erratum-options")
    even = even[even["case"] == "homogeneous"]
    hits = even[(even["metric"] == "accuracy") & (even["split"] == "test")]
    (ten,), (more,) = (
        {f"{100 * x:.1f}" for x in hits[hits["clients"] == j]["mean"]} for j in (10, 25)
    )
    size = even[(even["metric"] == "hidden_units") & (even["clients"] == 10)]
    shares, none = (
        sorted({f"{x:.0f}" for x in size[size["class_weights"] == w]["mean"]})
        for w in ("true", "false")
    )
    assert set(even[(even["metric"] == "hidden_units") & (even["clients"] == 25)]["mean"]) == {700}
    yield (
        f"All eight readings have {ten} % at J = 10 ({' or '.join(shares)} units with class shares "
        f"and {' or '.join(none)} without)"
    )
    yield f"and {more} % (700 units) at J = 25."


def first_round(exhibit: str, method: str, done: float) -> list[float]:
    """Test accuracy in percent in each trial after a round."""
    found = recorded(exhibit)
    found = found[(found["method"] == method) & (found["round"] == done)]
    return [100 * float(value) for value in found["by_trial"].item().split()]


def ended(exhibit: str, method: str) -> float:
    found = recorded(exhibit)
    found = found[(found["method"] == method) & found["round"].isna()]
    found = found[(found["metric"] == "accuracy") & (found["split"] == "test")]
    return 100 * float(found["mean"].item())


def downpour() -> Iterator[str]:
    for panel, words in (("a", "(homogeneous, J = 5 to 30): {} %;"), ("b", "heterogeneous: {} %.")):
        own = [percent(f"figure-2{panel}", "D-SGD", clients=j) for j in J]
        yield words.format(", ".join(own))
    name = "s-figure-3a"
    step, averaged = "D-SGD, a step per message", "D-SGD, messages averaged"
    curve = recorded(name)
    best = 100 * curve[(curve["method"] == step) & curve["round"].notna()]["mean"].max()
    yield f"it never learns: {ended(name, step):.0f} % after 8000 rounds, {best:.0f} % at best"
    epochs, method = "s-figure-3a-epochs", "D-SGD, rounds of an epoch"
    early, last = (first_round(epochs, method, done) for done in (40, 1000))
    yield f"it has {early[0]:.1f} and {early[1]:.1f} % after 40 rounds"
    yield f"to {last[0]:.0f} and {last[1]:.0f} % after 1000"
    done = float(np.mean(first_round(name, averaged, 40)))
    yield f"{done:.1f} % after 40 rounds, past every method that communicates once (weighted"
    yield f"{ended(name, 'W-Ens'):.1f} %) by round 200, and {ended(name, averaged):.1f} % at the"


def streaming() -> Iterator[str]:
    name = "s-figure-3b"
    ours, weighted, uniform, sgd = (
        ended(name, m) for m in ("PFNM-Streaming", "W-Ens", "U-Ens", "D-SGD")
    )
    found = recorded(name)
    found = found[(found["method"] == "PFNM-Streaming") & (found["metric"] == "hidden_units")]
    size = found[found["round"].isna()]["mean"].item()
    yield (
        f"PFNM-Streaming has {ours:.1f} % with {size:.0f} units, the weighted ensemble "
        f"{weighted:.1f}, the uniform one {uniform:.1f} (150 units each, and three passes), "
        f"downpour SGD {sgd:.1f}"
    )


PARTS: tuple[Callable[[], Iterator[str]], ...] = (
    figure_2,
    photographs,
    choices,
    sizes,
    dead,
    depths,
    two_variances,
    sensitivity,
    readings,
    downpour,
    streaming,
)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_sentences_with_numbers_are_those_of_the_record(part):
    lacking = [sentence for sentence in part() if sentence not in FLAT]
    assert lacking == []


def test_a_row_of_the_record_is_one():
    assert row("figure-2a", "PFNM", clients=5)["trials"] == 10
