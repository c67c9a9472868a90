"""What papers/p2p/findings.md says of configuration, formulas and record beyond what it asks."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest
from findings import RECORD, asked, told

from fedrepro.core.artifacts import read_json
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.planning.config import Config, load_exhibits
from fedrepro.planning.plan import Plan
from fedrepro.training.mixing_matrices import stationary, weights_of

FOLDER = RECORD / "paper/p2p"
FLAT = told("p2p")


def settings() -> Iterator[str]:
    """The settings of the main table."""
    files = {"p2p": load_exhibits()["p2p"]}
    exhibit = Plan(Config(), files, "paper").exhibit("p2p/table-accuracy")
    (run,) = {r for r in exhibit.points[0].runs.values() if r.every}
    assert run.scenario is not None
    training, model, rounds = run.scenario.training, run.scenario.model, run.method["rounds"]
    assert (training.name, training["amsgrad"]) == ("adam", False)
    yield f"Adam, {training['lr']:g}, without AMSGrad"
    steps = run.method["steps"]
    yield f"{training['batch_size']} examples, {steps} minibatches between exchanges"
    whole_batches = 30_000 // training["batch_size"]
    assert rounds * steps / whole_batches == training["epochs"]
    yield f"{training['epochs']} of half of the data: {rounds:,} exchanges"
    yield f"| spread at the start | {model['spread']:g} |"
    yield f"N(0, {model['prior_sd']:g}) in the first round"
    assert exhibit.settings.last_rounds == 5
    assert int(str(run.every)) * steps == whole_batches
    yield "the mean of the last five measured rounds, one an epoch"
    assert run.method["divergence"] == 1


def recorded() -> Iterator[str]:
    graph = components("graph")["matrix"].spec({"rows": ["0.9_0.1", "0.6_0.4"]})
    assert stationary(weights_of(graph, 2, RngKey(0))) == pytest.approx((6 / 7, 1 / 7))
    yield "with v = (6/7, 1/7) node 2's data count for a seventh"
    made = {
        name: weights_of(components("graph")[name].spec(), 64, RngKey(0))
        for name in ("star", "ring")
    }
    assert (made["star"][1, 0], made["ring"][1, 0]) == pytest.approx((1 / 64, 1 / 3))
    yield "hears its hub with a weight of 1/64, a node of the ring each neighbour with a third"
    for bound in ("printed", "corrected"):
        assert asked("p2p/theorem-1", f"most error_at_{bound} of Algorithm 1") == [0]
    yield "at both bounds no repeat of 10,000 was wrong"
    found = pd.read_csv(FOLDER / "table-accuracy.printed.csv")
    words = found["apart"].str.partition(": ")[0].value_counts().to_dict()
    assert words == {"calibrated": 12, "nearly fixed": 5}
    yield "twelve are calibrated, and five, of nodes alone,"
    good = found[found["verdict"] == "reproduced"]
    assert (good["case"] == "case (b)").sum() == 4  # "all within a point of print"
    left = (good["tolerance"] - good["difference"].abs()).sort_values()
    at = good.loc[left.index[0]]
    assert (at["case"], at["method"]) == ("i.i.d.", "node 2")
    yield f"within its point by {left.iloc[0]:.5f}, node 2 with i.i.d. halves"
    rows = pd.read_csv(FOLDER / "graphs.csv").query("metric == 'accuracy' and round.isna()")
    both = rows.pivot(index="case", columns="method", values="mean").dropna()
    behind = 100 * (both["consensus of beliefs"] - both["gossip SGD"])
    yield f"is {behind.min():.1f} to {behind.max():.1f} points behind consensus wherever both are"
    files = "table-accuracy defaults settings interval graphs theorem-1 figure-1a"
    files += " spreads-iid spreads-a spreads-b spreads-unbalanced"
    spent = [read_json(FOLDER / f"{name}.json")["run"]["cpu_seconds"] for name in files.split()]
    hours = sum(sum(own.values()) for own in spent) / 3600
    yield f"All exhibits together took at most {hours:.1f} hours of one core"


@pytest.mark.parametrize("sentence", [*settings(), *recorded()])
def test_a_sentence_is_that_of_the_configuration_and_the_record(sentence):
    assert sentence in FLAT


@pytest.mark.parametrize("node", ["node 1", "node 2"])
def test_what_is_said_of_epochs_and_of_the_interval_is_so(node):
    checked = f"accuracy (server_validation) of {node} at case=unbalanced:"
    short, long = (asked("p2p/defaults", f"{checked} {n} epochs")[0] for n in (20, 80))
    (printed,) = asked("p2p/table-accuracy.printed", f"{node} at case=unbalanced")
    assert short < printed < long
    for case in ("case (a)", "unbalanced"):
        often, rare = (f"{node} at case={case}, {n}" for n in ("3 minibatches", "1 minibatch"))
        assert asked("p2p/interval", f"{often} minus {rare}")[0] > 0
