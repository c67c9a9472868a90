"""What papers/p2p/findings.md says is what the configuration, the formulas and the record say."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from findings import told

from fedrepro.core.artifacts import read_json
from fedrepro.core.registry import components
from fedrepro.core.rng import Rng
from fedrepro.graphs.made import weights_of
from fedrepro.graphs.spectrum import stationary
from fedrepro.numbers.printed import read_published
from fedrepro.planning.config import Config, load_exhibits
from fedrepro.planning.plan import Plan

ROOT = Path(__file__).parents[3]
RECORD = ROOT / "reports/record/paper/p2p"
FLAT = " ".join(told("p2p").split())
FILES = {"p2p": load_exhibits()["p2p"]}


def settings() -> Iterator[str]:
    """The settings of the main table."""
    exhibit = Plan(Config(), FILES, "paper").exhibit("p2p/table-accuracy")
    (run,) = {r for r in exhibit.points[0].runs.values() if r.every}
    assert run.scenario is not None
    training, model, rounds = run.scenario.training, run.scenario.model, run.method["rounds"]
    assert (training.name, training["amsgrad"]) == ("adam", False)
    yield f"Adam, {training['lr']:g}, without AMSGrad"
    steps = run.method["steps"]
    yield f"{training['batch_size']} examples, {steps} minibatches between exchanges"
    whole_batches = 30_000 // training["batch_size"]
    epochs = rounds * steps / whole_batches
    assert epochs == training["epochs"]
    yield f"{epochs:g} of half of the data: {rounds:,} exchanges"
    yield f"| spread at the start | {model['spread']:g} |"
    yield f"N(0, {model['prior_sd']:g}) in the first round"
    assert exhibit.settings.last_rounds == 5
    assert int(str(run.every)) * steps == whole_batches
    yield "the mean of the last five measured rounds, one an epoch"
    assert run.method["divergence"] == 1


def theorem() -> Iterator[str]:
    spec = components("method")["finite_beliefs"].spec({"steps": 60, "repeats": 500})
    found = spec.component.fn(rng=Rng(0), **spec.values).ended
    yield (
        f"it asks for {found['bound_printed']:,.0f} samples as printed and for "
        f"{found['bound_corrected']:,.0f} as mended"
    )
    graph = components("graph")["matrix"].spec({"rows": ["0.9_0.1", "0.6_0.4"]})
    one, other = stationary(weights_of(graph, 2, Rng(0)))
    assert (one, other) == pytest.approx((6 / 7, 1 / 7))
    yield "with v = (6/7, 1/7) node 2's data count for a seventh"


@pytest.mark.parametrize("sentence", [*settings(), *theorem()])
def test_a_sentence_is_that_of_the_configuration_and_the_formulas(sentence):
    assert sentence in FLAT


# ----------------------------------------------------------------------------------- the record

MATRICES = ("regression, W 0.9/0.1", "case (a) and (b), W 0.25/0.75", "unbalanced, W 0.45/0.55")


@cache
def numbers(exhibit: str) -> pd.DataFrame:
    return pd.read_csv(RECORD / f"{exhibit}.csv")


def of(exhibit: str, **place) -> pd.DataFrame:
    """The rows of a recorded exhibit at a place."""
    rows = numbers(exhibit)
    for key, value in place.items():
        rows = rows[rows[key].isna()] if value is None else rows[rows[key] == value]
    return rows


def recorded(*names: str) -> bool:
    return all((RECORD / f"{name}.run.json").exists() for name in names)


def regression() -> Iterator[str]:
    """After the last sample: errors, and the variance that nodes believe in."""
    if not recorded("figure-1a", "figure-1b"):
        return
    done = numbers("figure-1a")["round"].max()
    alone, together = (of(figure, round=done) for figure in ("figure-1a", "figure-1b"))
    yield f"squared error after {done:.0f} samples, the last"

    def number(rows: pd.DataFrame, method: str, metric: str = "squared_error") -> str:
        own = rows[(rows["method"] == method) & (rows["metric"] == metric)]
        return f"{own['mean'].item():.3f}"

    one, two, central = "node 1", "node 2", "central node"
    yield f"{number(alone, one)} and {number(alone, two)} alone"
    yield f"{number(together, one)} and {number(together, two)} together"
    yield f"{number(together, central)} for the central node"
    believed = [number(r, n, "believed_variance") for r in (alone, together) for n in (one, two)]
    yield f"alone they believe {believed[0]} and {believed[1]}"
    yield f"together {believed[2]} and {believed[3]}"


def samples() -> Iterator[str]:
    """How many samples nodes need on the matrices of the paper, and on graphs."""
    if not recorded("theorem-1"):
        return
    rows = of("theorem-1", round=None, metric="samples_needed")
    needed = {(row["case"], row["nodes"]): row["mean"] for row in rows.to_dict("records")}
    three = [needed[case, 2] for case in MATRICES]
    yield f"after {min(three):.0f} to {max(three):.0f} samples on the three matrices"
    titles = {"complete": "complete graph", "ring": "ring", "star": "star, whose hub counts little"}
    for case, title in titles.items():
        few, more, many = (f"{needed[case, n]:.0f}" for n in (4, 16, 64))
        yield f"| {title} | {few} | {more} | {many} |"
    bounds = of("theorem-1", round=None, case="ring", nodes=64).set_index("metric")["mean"]
    more = bounds["bound_printed"] / bounds["bound_corrected"]
    yield f"asks for {round(more, -1):.0f} times as many as the mended one"
    errors = of("theorem-1", round=None)
    at_bounds = errors[errors["metric"].str.startswith("error_at")]
    assert set(at_bounds["case"]) == set(MATRICES)
    assert (at_bounds["mean"] == 0).all()
    yield "at both bounds no repeat of 10,000 was wrong"


@pytest.mark.parametrize("sentence", [*regression(), *samples()])
def test_a_sentence_is_that_of_the_record(sentence):
    assert sentence in FLAT


def last(figure: str, method: str, metric: str = "accuracy", split: str = "test") -> float:
    """What a method ended with, the mean over trials."""
    rows = pd.read_csv(RECORD / f"{figure}.csv")
    at = (rows["method"] == method) & (rows["metric"] == metric) & (rows["split"] == split)
    (value,) = rows[at & rows["round"].isna()]["mean"] if "round" in rows else rows[at]["mean"]
    return float(value)


def case_a() -> Iterator[str]:
    def percent(method: str) -> str:
        return f"{100 * last('figure-3a', method):.1f}"

    def confused(figure: str, belief: str, split: str) -> str:
        return f"{100 * last(figure, belief, 'confusion', split):.0f} %"

    alone = percent("node 1 alone"), percent("node 2 alone")
    yield f"Alone the nodes have {alone[0]} (44.9) and {alone[1]} (48.2)"
    yield f"one with all data {percent('all data')} (88.3)"
    yield f"node 1 has {percent('node 1')} (83) and node 2 has {percent('node 2')} (67)"
    yield f"after it they have {percent('node 1, after')} and {percent('node 2, after')}"
    six, four = "6 as 0, 2, 3 or 4", "0, 2, 3 or 4 as 6"
    yield f"node 1 takes {confused('figure-4a', 'before', six)} of class 6"
    yield f"right on {confused('figure-4a', 'before', 'other than 6 right')} of all others"
    yield f"node 2 takes {confused('figure-4b', 'before', four)} of 0, 2, 3 and 4"
    yield f"node 1 takes {confused('figure-4a', 'after', four)} of the four for 6"
    yield f"node 2 {confused('figure-4b', 'after', six)} of 6 for one of them"
    scatter = [100 * last("figure-3a", f"node {n}", "accuracy_scatter") for n in (2, 1)]
    yield f"node 2 scatter by {scatter[0]:.1f} points, those of node 1 by {scatter[1]:.1f}"
    for node in ("node 1", "node 2"):
        low, high = (last("figure-3a", node, f"spread_{q}") for q in ("q05", "q95"))
        yield f"end between {low:.4f} and {high:.4f} at both nodes"


def printed(case: str) -> dict[str, float]:
    """What the paper has of a case, in percent, by method."""
    return {
        value.method: 100 * value.value
        for value in read_published(ROOT / "src/fedrepro/papers/p2p/published.csv")
        if value.cell.get("case") == case
    }


PRINTED = printed("unbalanced")


def test_what_counts_as_reproduced_is_said():
    found = pd.read_csv(RECORD / "table-accuracy.printed.csv")
    words = found["apart"].str.partition(": ")[0].value_counts().to_dict()
    assert words == {"calibrated": 12, "nearly fixed": 5}
    assert "twelve are calibrated, and five, of nodes alone," in FLAT
    good = found[found["verdict"] == "reproduced"]
    left = (good["tolerance"] - good["difference"].abs()).sort_values()
    at = good.loc[left.index[0]]
    assert (at["case"], at["method"]) == ("i.i.d.", "node 2")
    assert f"within its point by {left.iloc[0]:.5f}, node 2 with i.i.d. halves" in FLAT


def unbalanced() -> Iterator[str]:
    def percent(method: str) -> float:
        return 100 * last("figure-2", method)

    alone, own = (
        [f"{percent(name):.1f} ({PRINTED[name]:.1f})" for name in names]
        for names in (("node 1 alone", "node 2 alone"), ("node 1", "node 2"))
    )
    yield f"Alone the nodes have {alone[0]} and {alone[1]}, with each other {own[0]} and {own[1]}"
    yield f"{percent('node 1, after'):.1f} and {percent('node 2, after'):.1f} by the one after it"
    yield f"with two classes gains {percent('node 2') - percent('node 2 alone'):.0f} points"
    yield f"is {percent('all data') - percent('node 1'):.1f} points below one node with all data"
    assert abs(percent("node 1") - PRINTED["node 1"]) < 1
    below = PRINTED["node 2"] - percent("node 2")
    above = percent("node 2, after") - PRINTED["node 2"]
    yield f"node 2 is {below:.1f} below it before an exchange and {above:.1f} above it after"


def of_case(label: str, method: str, metric: str = "accuracy") -> float:
    """A number of the main table, in percent."""
    rows = of("table-accuracy", case=label, method=method, metric=metric, split="test")
    return float(100 * rows["mean"].item())


def beside(label: str, case: str, *methods: str) -> list[str]:
    """Ours and what is printed, in brackets."""
    theirs = printed(case)
    return [f"{of_case(label, name):.1f} ({theirs[name]:.1f})" for name in methods]


NODES, ALONE = ("node 1", "node 2"), ("node 1 alone", "node 2 alone")


def case_b() -> Iterator[str]:
    label, theirs = "case (b)", printed("b")
    alone, own = beside(label, "b", *ALONE), beside(label, "b", *NODES)
    yield f"Alone the nodes have {alone[0]} and {alone[1]}, with each other {own[0]} and {own[1]}"
    assert all(abs(of_case(label, name) - theirs[name]) < 1 for name in (*ALONE, *NODES))
    after = [of_case(label, f"{node}, after") for node in NODES]
    yield f"after an exchange {after[0]:.1f} and {after[1]:.1f}"
    below = of_case(label, "all data") - of_case(label, "node 1")
    yield f"Node 1 is {below:.1f} points below one node with all data"
    right = [100 * last(f, "before", "confusion", "0, 2, 3, 4 or 6 right") for f in FIGURES_B]
    yield f"node 1 has {right[0]:.0f} % right and node 2, which has none of them, {right[1]:.0f} %"
    scatter = [of_case(label, node, "accuracy_scatter") for node in NODES]
    yield f"single ones scatter by {scatter[0]:.1f} and {scatter[1]:.1f} points"


FIGURES_B = ("figure-4c", "figure-4d")


def halves() -> Iterator[str]:
    label, theirs = "i.i.d.", printed("iid")
    alone, own = beside(label, "iid", *ALONE), beside(label, "iid", *NODES)
    (data,) = beside(label, "iid", "all data")
    yield (
        f"nodes alone have {alone[0]} and {alone[1]}, with each other {own[0]} and {own[1]}, and "
        f"one with all data {data}"
    )
    below = {f"{of_case(label, 'all data') - of_case(label, node):.1f}" for node in NODES}
    yield f"both nodes stay {below.pop()} points below one node with all data"
    assert not below
    (gain,) = {f"{theirs[n] - theirs[a]:.1f}" for n, a in zip(NODES, ALONE, strict=True)}
    yield f"In print it gives each node {gain} points"


def all_cases() -> Iterator[str]:
    def lost(label: str) -> list[float]:
        return [of_case(label, "all data") - of_case(label, node) for node in NODES]

    little = [*lost("i.i.d."), *lost("case (b)")]
    yield f"{min(little):.1f} to {max(little):.1f} points; in the unbalanced case"
    one, other = lost("unbalanced")
    yield f"the nodes lose {one:.1f} and {other:.1f}"
    after = [
        of_case("case (a)", "all data") - of_case("case (a)", f"{node}, after") for node in NODES
    ]
    (one, other), (own, second) = lost("case (a)"), after
    yield f"lose {one:.1f} and {other:.1f} points before an exchange, and {own:.1f}"
    yield f"and {own:.1f} and {second:.1f} after it"


def lead() -> Iterator[str]:
    places = (("case (b)", "b"), ("unbalanced", "unbalanced"), ("case (a)", "a"))
    said = []
    for label, case in places:
        theirs, own = printed(case), [of_case(label, node) for node in NODES]
        said.append((own, [theirs[node] for node in NODES]))
        near = [of_case(label, n) - theirs[n] for n in ALONE]
        assert max(map(abs, near)) < 1
    (b, of_b), (u, of_u), (a, of_a) = said
    yield f"reach {b[0]:.1f} and {b[1]:.1f} % in case (b) (printed {of_b[0]:.1f}, {of_b[1]:.1f})"
    yield f"{u[0]:.1f} and {u[1]:.1f} with unbalanced classes ({of_u[0]:.1f}, {of_u[1]:.1f})"
    yield f"{a[0]:.1f} and {a[1]:.1f} in case (a) ({of_a[0]:.1f}, {of_a[1]:.1f})"
    after = [of_case("case (a)", f"{node}, after") for node in NODES]
    yield f"1 leads by {a[0] - a[1]:.1f} points, as printed"
    yield f"after it node 2 does, by {after[1] - after[0]:.1f}"


CASES = (lead, case_a, unbalanced, case_b, halves, all_cases)


@pytest.mark.parametrize("sentence", [sentence for part in CASES for sentence in part()])
def test_what_is_said_of_a_case_is_in_the_record(sentence):
    assert sentence in FLAT


# --------------------------------------------------------------------------- settings, and interval


def checked(exhibit: str, method: str, split: str, **place) -> float:
    """A number of a table of settings, in percent."""
    rows = of(exhibit, method=method, metric="accuracy", split=split, **place)
    return float(100 * rows["mean"].item())


def validated(case: str, node: int) -> float:
    return checked("defaults", f"node {node}", "server_validation", case=case)


def settings_checked() -> Iterator[str]:
    """On validation examples, one setting at a time."""
    theirs = printed("a")
    one, other = (theirs[node] for node in NODES)
    yield f"Printed, on test examples, are {one:.1f} and {other:.1f} in case (a)"
    for case in dict.fromkeys(pd.read_csv(RECORD / "defaults.csv")["case"]):
        yield f"| {case} | {validated(case, 1):.1f} | {validated(case, 2):.1f} |"
    for at, node in enumerate(NODES, start=1):
        usual = printed("unbalanced")[node]
        short, long = (validated(f"unbalanced: {n} epochs", at) for n in (20, 80))
        assert short < usual < long
    fast, usual = "case (a): step size 0.002", "case (a): defaults"
    fell = [validated(usual, node) - validated(fast, node) for node in (1, 2)]
    yield f"node 2 falls by {fell[1]:.0f} points where it doubles"
    yield f"to within {validated(fast, 2) - theirs['node 2']:.1f} points of print"
    yield f"while node 1 loses {fell[0]:.1f}"
    more = of_case("case (a)", "node 2") - theirs["node 2"]
    yield f"is enough for our node 2 to be better than printed by {more:.0f} points there"


def spreads_checked() -> Iterator[str]:
    def mean(method: str, spread: float, divergence: float) -> float:
        place = {"spread": spread, "divergence": divergence}
        return checked("settings", method, "server_validation", **place)

    beliefs, plain = "consensus of beliefs", "plain means"
    sizes = (0.007, 0.015, 0.03)
    half, usual, twice = (mean(beliefs, spread, 1.0) for spread in sizes)
    yield f"{usual:.1f}, {half:.1f} and {twice:.1f} as mean of both nodes"
    cost = [mean(beliefs, spread, 1.0) - mean(beliefs, spread, 0.1) for spread in sizes]
    yield f"weighs a tenth costs {min(cost):.1f} to {max(cost):.1f} points"
    apart = [
        abs(mean(beliefs, spread, weight) - mean(plain, spread, weight))
        for spread in sizes
        for weight in (1.0, 0.1)
    ]
    assert max(apart) < 0.8
    yield "come within 0.8 points of consensus in every setting"


INTERVALS = {"1 minibatch": "1", "3 minibatches": "3", "10 minibatches": "10", "an epoch": ""}


def intervals() -> Iterator[str]:
    def before(case: str, node: str = "node 1") -> float:
        return checked("interval", node, "test", case=case)

    for words, short in INTERVALS.items():
        cells = []
        for case in ("case (a)", "unbalanced"):
            one, other = (before(f"{case}, {words}", node) for node in NODES)
            cells.append(f"{one:.1f} and {other:.1f}")
        sent = of("interval-bytes", case=f"case (a), {words}", metric="bytes_up")["mean"].item()
        yield f"| {short or 'an epoch, 234'} | {' | '.join(cells)} | {sent / 1e9:.2f} |"
    often, rare = "unbalanced, 3 minibatches", "unbalanced, 10 minibatches"
    fell = sorted(before(often, node) - before(rare, node) for node in NODES)
    yield f"in the unbalanced case by {fell[0]:.0f} to {fell[1]:.0f} points"
    after = [f"{node}, after" for node in NODES]
    fell = sorted(before(often, node) - before(rare, node) for node in after)
    yield f"believe after it falls there by {fell[0]:.0f} to {fell[1]:.0f}"
    often, rare = (f"case (a), {n} minibatches" for n in (3, 10))
    fell = [before(often, node) - before(rare, node) for node in (*NODES, *after)]
    yield f"before it by {fell[0]:.1f} and {fell[1]:.1f} points at nodes 1 and 2"
    yield f"after it by {fell[2]:.1f} and {fell[3]:.1f}"
    for case in ("case (a)", "unbalanced"):
        for node in NODES:
            assert before(f"{case}, 3 minibatches", node) > before(f"{case}, 1 minibatch", node)


@pytest.mark.parametrize("sentence", [*settings_checked(), *spreads_checked(), *intervals()])
def test_what_is_said_of_settings_is_in_the_record(sentence):
    assert sentence in FLAT


SHAPES = ("complete", "ring", "star", "grid", "small world")
CONSENSUS = "consensus of beliefs"


def on(shape: str, nodes: int, metric: str = "accuracy", method: str = CONSENSUS) -> float | None:
    """A number at the end of a run of `graphs`, None where there was none."""
    place = {"case": f"{shape}, {nodes} nodes", "method": method, "metric": metric, "round": None}
    rows = of("graphs", **place)
    return rows["mean"].item() if len(rows) else None


def graphs() -> Iterator[str]:
    def of_all(nodes: int) -> list[float]:
        return [100 * on(shape, nodes) for shape in SHAPES]

    four, many = (100 * on("complete", nodes) for nodes in (4, 64))
    yield f"they end below four, at {100 * on('complete', 2):.1f} %"
    yield f"on the complete graph 4 nodes end at {four:.1f} %, 64 at {many:.1f}"
    least = [100 * on("complete", nodes, "accuracy_worst") for nodes in (4, 64)]
    yield f"loses more, from {least[0]:.1f} to {least[1]:.1f}"
    apart = [f"{max(of_all(nodes)) - min(of_all(nodes)):.1f}" for nodes in (4, 8, 16)]
    yield f"the worst of five are {apart[0]}, {apart[1]} and {apart[2]} points apart"
    behind = [100 * (on("complete", nodes) - on("star", nodes)) for nodes in (32, 64)]
    yield f"by {behind[0]:.1f} points of the complete graph, and by {behind[1]:.1f} with 64"
    for nodes in (32, 64):
        others = [100 * on(shape, nodes) for shape in SHAPES if shape != "star"]
        assert max(others) - min(others) < 0.65
    yield "the other four stay within 0.6 of each other"
    sent = [on(shape, 64, "bytes_up") / 1e9 for shape in ("ring", "complete")]
    yield f"64 nodes send {sent[0]:.0f} GB and end at {100 * on('ring', 64):.1f} %"
    yield f"on the complete graph {sent[1]:.0f} GB and {many:.1f}."
    gaps = [on(shape, 64, "spectral_gap") for shape in ("ring", "star")]
    assert gaps[1] / gaps[0] == pytest.approx(5, abs=0.2)
    yield f"a fifth of the star's ({gaps[0]:.4f} and {gaps[1]:.4f})"
    yield f"the ring is {100 * (on('ring', 64) - on('star', 64)):.1f} points better"
    named = components("graph")
    star, ring = (weights_of(named[name].spec(), 64, Rng(0)) for name in ("star", "ring"))
    assert star[1, 0] == pytest.approx(1 / 64)
    assert ring[1, 0] == pytest.approx(1 / 3)
    assert on("star", 64, "rounds") == 59
    yield "there are 59 exchanges"
    sizes = (2, 4, 8, 16, 32, 64)
    both = [
        100 * (ahead - behind)
        for shape in SHAPES
        for nodes in sizes
        if (behind := on(shape, nodes, method="gossip SGD")) is not None
        and (ahead := on(shape, nodes)) is not None
    ]
    assert len(both) == 9
    yield f"is {min(both):.1f} to {max(both):.1f} points behind consensus"
    spreads = [on("complete", n, f"spread_{q}") for n in (2, 64) for q in ("q05", "q95")]
    yield f"between {spreads[0]:.4f} and {spreads[1]:.4f} with 2 nodes"
    yield f"between {spreads[2]:.4f} and {spreads[3]:.4f} with 64"


@pytest.mark.parametrize("sentence", [*graphs()])
def test_what_is_said_of_larger_graphs_is_in_the_record(sentence):
    assert sentence in FLAT


def test_the_hours_are_those_of_the_record():
    """The figures of nodes on two graphs are drawn from runs of the table."""
    files = (
        "table-accuracy",
        "defaults",
        "settings",
        "interval",
        "graphs",
        "theorem-1",
        "figure-1a",
    )
    spent = [read_json(RECORD / f"{name}.run.json")["cpu_seconds"].values() for name in files]
    hours = sum(map(sum, spent)) / 3600
    assert f"All exhibits together took {hours:.1f} hours of one core" in FLAT
