"""The place of peer methods: a graph beside the scenario, which all other methods are without."""

from __future__ import annotations

import pytest
from small_exhibits import file_of, small

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import SCENARIO, components
from fedrepro.numbers.exhibit_metadata import exhibit_metadata
from fedrepro.planning.config import Config
from fedrepro.planning.jobs import Jobs, TrialBlock
from fedrepro.planning.plan import Plan

GOSSIP = {"name": "gossip_sgd", "label": "gossip"}
OTHERS = [
    {"name": "fedavg", "label": "FedAvg"},
    {"name": "local", "label": "alone"},
    {"name": "pooled", "label": "pooled"},
]
TWO = {
    "ring": {"label": "ring"},
    "star": {"label": "star", "graph": {"name": "star"}},
}
SWEEP = {"partition.clients": [2, 4]}


def peers(**settings):
    given = {"graph": {"name": "ring"}, "methods": [GOSSIP, *OTHERS], "sweep": SWEEP}
    return small(**given | settings)


def files_of(exhibit, *names):
    """The files of runs of these methods."""
    found = Jobs("quick", 0)
    return {found.run(run, TrialBlock(0, 4)) for run in exhibit.runs if run.method.name in names}


def test_only_peer_methods_keep_the_graph():
    exhibit = peers(cases=TWO)
    graphs = {run.method.name: set() for run in exhibit.runs}
    for run in exhibit.runs:
        graphs[run.method.name].add(run.scenario.graph and run.scenario.graph.token)
    assert graphs.pop("gossip_sgd") == {"ring", "star"}
    assert set(map(tuple, graphs.values())) == {(None,)}
    assert len(exhibit.runs) == 2 * 2 + 2 + 2 + 1


def test_no_path_of_another_method_changes_with_a_graph():
    names = [entry["name"] for entry in OTHERS]
    without = files_of(peers(graph=None, methods=OTHERS), *names)
    assert files_of(peers(), *names) == without
    assert files_of(peers(cases=TWO), *names) == without
    assert files_of(peers(), "gossip_sgd").isdisjoint(files_of(peers(cases=TWO), *names))


def test_a_graph_may_be_swept():
    sweep = {"partition.clients": [4], "graph.weights": ["metropolis", "uniform"]}
    exhibit = peers(sweep=sweep, methods=[GOSSIP])
    assert [point.values["weights"] for point in exhibit.points] == ["metropolis", "uniform"]
    assert [run.scenario.graph.token for run in exhibit.runs] == ["ring", "ring+weights~uniform"]


def test_a_case_changes_the_graph_or_names_another():
    cases = {
        "uniform": {"label": "uniform", "graph": {"weights": "uniform"}},
        "grid": {"label": "grid", "graph": {"name": "grid"}},
    }
    exhibit = peers(cases=cases, sweep={"partition.clients": [4]}, methods=[GOSSIP])
    assert [run.scenario.graph.token for run in exhibit.runs] == ["ring+weights~uniform", "grid"]
    alone = {"grid": cases["grid"]}
    (run,) = peers(cases=alone, graph=None, sweep={"partition.clients": [4]}, methods=[GOSSIP]).runs
    assert run.scenario.graph.token == "grid"


def test_the_description_of_an_exhibit_names_the_graph():
    file = file_of(graph={"name": "ring"}, methods=[GOSSIP], sweep=SWEEP)
    plan = Plan(Config(), {"small": file}, "quick")
    found = exhibit_metadata(plan.exhibit("small/x"), plan, file, {})
    assert list(found["scenario"]) == list(SCENARIO)
    assert found["scenario"]["graph"]["name"] == "ring"
    (method,) = found["methods"]
    assert method["kind"] == "peer"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"graph": None},
            "method 'gossip_sgd' works on a graph, and there is none; name one, as in graph: "
            r"\{name: ring\}",
        ),
        (
            {"graph": None, "sweep": {"graph.weights": ["uniform"]}},
            "it sweeps graph.weights and has no graph",
        ),
        ({"graph": {"name": "rign"}}, "unknown graph 'rign'.*did you mean 'ring'"),
        ({"graph": {"name": "ring", "weight": "uniform"}}, "unknown parameter 'weight'"),
        (
            {"graph": {"name": "matrix", "rows": ["0.5_0.5", "0.5_0.5"]}},
            "for 2 nodes, and there are 4 clients",
        ),
        (
            {
                "graph": {"name": "matrix", "rows": ["0_1", "1_0"]},
                "sweep": {"partition.clients": [2]},
            },
            "periodic",
        ),
        ({"graph": {"name": "file", "csv": "nowhere"}}, "nowhere.csv is missing"),
        ({"graph": {"name": "grid", "self_loops": False}}, "add self-loops"),
    ],
)
def test_a_graph_that_does_not_fit_is_one_sentence_when_it_is_planned(settings, sentence):
    with pytest.raises(FedreproError, match=sentence) as caught:
        peers(**settings)
    assert "config/exhibits/small.yaml, x at scale quick" in str(caught.value)


def test_a_peer_method_says_which_networks_it_is_for(monkeypatch):
    """As one of beliefs over the weights is for networks that have such."""
    item = components("method")["gossip_sgd"]
    monkeypatch.setitem(item.meta, "models", frozenset({"variational_mlp"}))
    with pytest.raises(FedreproError, match="combines variational_mlp models, not 'mlp'"):
        peers()
