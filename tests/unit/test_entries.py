"""What exhibits may say of their methods and cases, and what comes of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pandas as pd
import pytest
import synthetic
from small_exhibits import file_of, small
from synthetic import draw, plan, undrawn, workplace  # noqa: F401

from fedrepro.core.errors import FedreproError
from fedrepro.core.evaluation_schedule import EvaluationSchedule
from fedrepro.core.metrics import MetricRow, Table
from fedrepro.core.registry import SCENARIO, components
from fedrepro.numbers.exhibit_metadata import exhibit_metadata, stand_in
from fedrepro.numbers.exhibit_tables import summarise
from fedrepro.numbers.verdicts.claim_numbers import Numbers, grids
from fedrepro.planning.config import Config
from fedrepro.planning.exhibit_config import Case, ExhibitSettings, MethodEntry
from fedrepro.planning.jobs import Jobs, Scenario, TrialBlock
from fedrepro.planning.plan import Plan

TWO = [
    {"name": "average", "label": "A", "paired_with": "B"},
    {"name": "local", "label": "B", "trials": 5, "paired_with": "A"},
]
CASES = {"one": {"label": "one"}, "two": {"label": "two"}}


def test_the_kinds_of_a_scenario_are_one_list():
    assert tuple(field.name for field in dataclasses.fields(Scenario)) == SCENARIO
    for entry in (Case, ExhibitSettings):
        assert [key for key in entry.model_fields if key in SCENARIO] == list(SCENARIO)


def trials(scale="quick", **settings) -> list[dict[str, int]]:
    """Trials of each method, by label, at each point."""
    least = {"sweep": {"partition.clients": [2]}, "methods": TWO, "paired": True}
    found = small(scale, **least | settings)
    return [dict(point.trials) for point in found.points]


AT = {"paper": {"trials": 9, "trials_of": {"B": 3}}}
BY_CASE = {"one": {"label": "one", "trials": 4}, "two": {"label": "two", "trials_of": {"A": 7}}}


@pytest.mark.parametrize(
    ("scale", "settings", "found"),
    [
        ("quick", {}, [{"A": 2, "B": 5}]),
        ("paper", {"at": AT}, [{"A": 9, "B": 3}]),
        ("quick", {"at": AT}, [{"A": 2, "B": 5}]),
        ("quick", {"cases": BY_CASE}, [{"A": 4, "B": 5}, {"A": 7, "B": 5}]),
    ],
)
def test_trials_of_a_method_are_of_the_exhibit_a_scale_a_case_or_its_own(scale, settings, found):
    assert trials(scale, **settings) == found


# ------------------------------------------------------------------------------------ settings

PAIRS = [{"rounds": 2, "messages": "averaged"}, {"rounds": 3, "messages": "sequential"}]


def downpour(**entry):
    return [{"name": "downpour_sgd", "label": "D", "choose": "server", **entry}]


def test_settings_may_be_listed_one_by_one():
    exhibit = small(methods=downpour(settings=PAIRS), sweep={"partition.clients": [2]})
    (measure,) = exhibit.measures
    told = [(s["rounds"], s["messages"]) for s in measure.settings]
    assert told == [tuple(one.values()) for one in PAIRS]
    assert set(measure.chosen) == {"messages", "rounds"}
    assert len(exhibit.runs) == 2  # a method in rounds has one for each


def test_a_case_may_have_one_setting_of_what_is_shown():
    usual = [{"fraction": 0.1, "rounds": 3}, {"fraction": 0.2, "rounds": 4}]
    entry = {"name": "fedavg", "label": "F", "show": ["fraction"], "choose": "server"}
    alone = [{**entry, "settings": [{"fraction": 0.5, "rounds": 9}]}]
    exhibit = small(
        methods=[{**entry, "settings": usual}],
        sweep={"partition.clients": [2]},
        cases={"usual": {"label": "usual"}, "dear": {"label": "dear", "methods": alone}},
        drawing={"rows": ["case"], "columns": ["fraction"]},
    )
    shown = [[s["fraction"] for s in point.measures[0].settings] for point in exhibit.points]
    assert shown == [[0.1, 0.2], [0.5]]


def test_a_one_shot_method_computes_its_listed_settings_in_one_job():
    pairs = [{"sigma2": 0.1, "gamma0": 1.0}, {"sigma2": 1.0, "gamma0": 50.0}]
    entry = {"name": "pfnm", "settings": pairs, "choose": "pooled_train"}
    exhibit = small(methods=[entry], sweep={"partition.clients": [2]})
    ((run, _),) = exhibit.trials.items()
    assert run.method.token == "pfnm+gamma0~1@50+sigma2~0.1@1+paired~2"
    tokens = ["pfnm+sigma2~0.1", "pfnm+gamma0~50"]
    assert [setting.token for setting in run.method.expand()] == tokens


def test_training_is_swept_for_one_method_and_the_others_keep_theirs():
    methods = [
        {"name": "pfnm", "label": "P", "training": {"lr": [0.1, 0.2]}, "choose": "pooled_train"},
        {"name": "average", "label": "A"},
        {"name": "average", "label": "longer", "training": {"epochs": 7}},
    ]
    exhibit = small(methods=methods, sweep={"partition.clients": [2]}, training={"epochs": 3})
    (point,) = exhibit.points
    trained: dict[str, list[str]] = {}
    for (label, _), run in point.runs.items():
        trained.setdefault(label, []).append(run.scenario.training.token)
    assert trained == {
        "P": ["adam+epochs~3+lr~0.1", "adam+epochs~3+lr~0.2"],
        "A": ["adam+epochs~3"],
        "longer": ["adam+epochs~7"],
    }
    tokens = [setting.token for setting in exhibit.measures[0].settings]
    assert tokens == ["pfnm;training+lr~0.1", "pfnm;training+lr~0.2"]


def test_a_rate_is_chosen_at_each_point_by_the_rule():
    methods = downpour(training={"lr": [0.1, 0.2, 0.3]}, choose="pooled_train")
    made = made_plan(methods=methods)
    best = {2: "lr~0.2", 4: "lr~0.3"}
    tables = {}
    for run, count in made.exhibit("small/x").trials.items():
        rate = run.scenario.training.token.partition("+")[2]
        wanted = best[run.scenario.clients]
        table = Table(run.scenario.specs)
        for trial in range(count):
            table.add([MetricRow(trial, run.method, "accuracy", float(rate == wanted), "train")])
        tables[run] = table.arrow()
    found = summarise(made.exhibit("small/x"), tables)
    chosen = found.choice[found.choice["chosen"] == "true"]
    assert chosen["setting"].tolist() == [f"downpour_sgd;training+{best[j]}" for j in (2, 4)]
    assert chosen["parameter"].tolist() == ["lr", "lr"]
    assert len(found.choice) == 6
    assert found.numbers["setting"].tolist() == chosen["setting"].tolist()


def test_a_case_may_have_methods_of_its_own():
    pfnm = {"name": "pfnm", "label": "A", "sigma2": 0.5}
    cases = {
        "usual": {"label": "usual"},
        "other": {"label": "other", "methods": [pfnm, {"name": "local", "label": "C"}]},
        "fewer": {"label": "fewer", "without": ["B"]},
    }
    exhibit = small(methods=TWO, trials=5, cases=cases, sweep={"partition.clients": [2]})
    assert [measure.label for measure in exhibit.measures] == ["A", "B", "C"]
    found = [{m.label: m.spec.token for m in point.measures} for point in exhibit.points]
    assert found == [
        {"A": "average", "B": "local"},
        {"A": "pfnm+sigma2~0.5", "B": "local", "C": "local"},
        {"A": "average"},
    ]
    assert [set(point.trials) for point in exhibit.points] == [set(one) for one in found]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"methods": downpour(settings=[{"rounds": 2}, {"rounds": 2}])}, "lists a setting twice"),
        ({"methods": downpour(settings=[{"rounds": [2, 3]}])}, "lists several values"),
        ({"methods": downpour(settings=[{"rouns": 2}])}, "did you mean 'rounds'"),
        ({"methods": downpour(settings=PAIRS, show=["epochs"])}, "lists no values of it"),
        ({"methods": downpour(settings=PAIRS, choose=None)}, "say how one is chosen"),
        ({"methods": downpour(training={"lr": [0.1, 0.2]}, choose=None)}, "say how one is chosen"),
        ({"methods": downpour(training={"lr": [0.1, 0.1]})}, "lists a value twice"),
        ({"methods": downpour(training={"speed": 3})}, "unknown parameter 'speed'"),
        ({"methods": downpour(rounds=[2, 3], messages=["averaged", "sequential"])}, "one by one"),
        (
            {
                "methods": downpour(training={"lr": 0.2}),
                "sweep": {"partition.clients": [2], "training.lr": [0.1, 0.3]},
            },
            "sets the training's lr, which the exhibit sweeps",
        ),
        ({"cases": {"one": {"label": "one", "without": ["Z"]}}}, "unknown method 'Z'"),
        (
            {"methods": TWO, "paired": True, "trials_of": {"b": 3}},
            "unknown method 'b' in trials_of of small/x.* known are A, B",
        ),
        (
            {"cases": {"one": {"label": "1", "methods": [{**TWO[0], "reference": True}]}}},
            "has another `reference` than in the other cases",
        ),
    ],
)
def test_a_mistake_in_an_entry_is_a_sentence(change, sentence):
    with pytest.raises(FedreproError, match=sentence):
        made_plan(**change).exhibit("small/x")


def test_no_method_has_a_parameter_that_an_entry_takes_for_itself():
    for item in components("method").values():
        assert not item.params.keys() & MethodEntry.model_fields.keys()


def test_a_run_is_measured_on_what_its_methods_and_choices_need():
    other = downpour(rounds=[2, 3], choose="server")
    one = made_plan(methods=downpour(rounds=2))
    assert set(one.splits.values()) == {(("test",), ())}
    both = made_plan(methods=[*downpour(rounds=2, label="E"), *other])
    for run in both.splits:
        assert both.splits[run] == (("server_validation", "test"), ())
    curve = {"metric": "accuracy", "split": "server_validation", "over": "area"}
    followed = made_plan(methods=downpour(rounds=[2, 3], choose=curve))
    wanted = (("server_validation", "test"), ("server_validation",))
    assert set(followed.splits.values()) == {wanted}


def test_when_a_run_is_measured_and_ends_is_part_of_its_path():
    long = made_plan(methods=downpour(rounds=200, measure_every="auto", until=0.9))
    assert {run.every for run in long.splits} == {EvaluationSchedule(None, 0.9)}
    other = made_plan(methods=downpour(rounds=200, measure_every="auto", until=0.8))
    files = [{at for run in one.splits for at in one.run_files(run, 1)} for one in (long, other)]
    assert files[0].isdisjoint(files[1])


def made_plan(**settings) -> Plan:
    return Plan(Config(), {"small": file_of(**settings)}, "quick")


def test_claims_know_in_which_cases_and_settings_a_method_should_be():
    shown = {"name": "pfnm", "label": "P", "training": {"lr": [0.1, 0.2]}, "show": ["lr"]}
    cases = {"usual": {"label": "usual"}, "more": {"label": "more", "methods": [shown]}}
    cases["fewer"] = {"label": "fewer", "without": ["B"]}
    file = file_of(methods=TWO, trials=5, paired=True, trials_of={"B": 3}, cases=cases)
    made = Plan(Config(), {"small": file}, "quick")
    said = json.loads(json.dumps(exhibit_metadata(made.exhibit("small/x"), made, file, {})))
    found = grids(said)
    assert {label: grid["case"] for label, grid in found.items()} == {
        "A": ["usual", "more", "fewer"],
        "B": ["usual", "more"],
        "P": ["more"],
    }
    assert found["P"]["lr"] == [0.1, 0.2]
    assert Numbers.described(pd.DataFrame(), said).every == {"A": 1, "B": 1, "P": 1}
    assert [method["trials"] for method in said["methods"]] == [5, 3, 5]
    assert said["trials"] == 5
    assert said["methods"][2]["training"] == {"lr": "0.1, 0.2"}


# ------------------------------------------------------------------------- graphs of peer methods

GOSSIP = {"name": "gossip_sgd", "label": "gossip"}
OTHERS = [{"name": name, "label": name} for name in ("fedavg", "local", "pooled")]
RINGS = {"ring": {"label": "ring"}, "star": {"label": "star", "graph": {"name": "star"}}}
SWEEP = {"partition.clients": [2, 4]}
HALVES = {"name": "matrix", "rows": ["0.5_0.5", "0.5_0.5"]}
SWAPPED = {"name": "matrix", "rows": ["0_1", "1_0"]}
BY_WEIGHTS = {"graph.weights": ["uniform"]}


def peers(**settings):
    given = {"graph": {"name": "ring"}, "methods": [GOSSIP, *OTHERS], "sweep": SWEEP}
    return small(**given | settings)


def files_of(exhibit, *names):
    """The files of runs of these methods."""
    found = Jobs("quick", 0)
    return {found.run(run, TrialBlock(0, 4)) for run in exhibit.runs if run.method.name in names}


def test_only_peer_methods_keep_the_graph():
    exhibit = peers(cases=RINGS)
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
    assert files_of(peers(cases=RINGS), *names) == without
    assert files_of(peers(), "gossip_sgd").isdisjoint(files_of(peers(cases=RINGS), *names))


def test_a_graph_may_be_swept_and_a_case_changes_it_or_names_another():
    sweep = {"partition.clients": [4], "graph.weights": ["metropolis", "uniform"]}
    exhibit = peers(sweep=sweep, methods=[GOSSIP])
    assert [point.values["weights"] for point in exhibit.points] == ["metropolis", "uniform"]
    assert [run.scenario.graph.token for run in exhibit.runs] == ["ring", "ring+weights~uniform"]
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
        ({"graph": None}, r"works on a graph, and there is none; name one, as in graph: \{name: r"),
        ({"graph": None, "sweep": BY_WEIGHTS}, "sweeps graph.weights and has no"),
        ({"graph": {"name": "rign"}}, "unknown graph 'rign'.*did you mean 'ring'"),
        ({"graph": {"name": "ring", "weight": "uniform"}}, "unknown parameter 'weight'"),
        ({"graph": HALVES}, "for 2 nodes, and there are 4 clients"),
        ({"graph": SWAPPED, "sweep": {"partition.clients": [2]}}, "period"),
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


# ----------------------------------------------------------------- what an exhibit says of itself

DATA = components("dataset")


def of(name):
    return DATA[name].spec()


def sentences(quick, paper, **more):
    """What is said of digits, shapes and mnist where `quick` stands for `paper`; cases by name."""
    file = file_of(sweep={"partition.clients": [2]}, at={"quick": quick, "paper": paper}, **more)
    shown = Plan(Config(), {"small": file}, "quick").exhibit("small/x")
    return {name: stand_in(shown, file, of(name)) for name in ("digits", "shapes", "mnist")}


def test_data_that_a_case_of_the_paper_has_stand_in_for_nothing():
    same = {"dataset": {"name": "digits"}}
    assert set(sentences(same, same).values()) == {""}


def test_each_case_stands_in_for_its_own_data_set():
    quick = {"cases": {"a": {"dataset": {"name": "digits"}}, "b": {"dataset": {"name": "shapes"}}}}
    paper = {"cases": {"a": {"dataset": {"name": "mnist"}}, "b": {"dataset": {"name": "cifar10"}}}}
    found = sentences(quick, paper, cases={"a": {"label": "A"}, "b": {"label": "B"}})
    assert found["digits"].endswith("stand in for MNIST, the paper's data.")
    assert found["shapes"].endswith("stand in for CIFAR-10, the paper's data.")
    assert "MNIST" not in found["shapes"]
    assert found["mnist"] == ""


def test_a_case_that_the_paper_does_not_have_is_passed_over():
    quick = {"cases": {"a": {"label": "A"}, "b": {"label": "B"}}}
    paper = {"cases": {"a": {"label": "A", "dataset": {"name": "mnist"}}}}
    found = sentences(quick, paper)
    assert found["digits"].endswith("stand in for MNIST, the paper's data.")


REDUCED = "Digits from photographs reduced to 4×4 pixels."


@pytest.mark.parametrize(
    ("plans", "sentence"),
    [
        (plan, f"Digits (8×8) stand in for MNIST, the paper's data. {REDUCED}"),
        (lambda: plan("paper", granularity={"trials_per_job": 10}), REDUCED),
    ],
)
@pytest.mark.usefixtures("workplace", "undrawn")
def test_an_exhibit_names_other_data_and_their_reduced_form(monkeypatch, plans, sentence):
    monkeypatch.setattr(synthetic, "SOURCE", {**synthetic.SOURCE, "stand_in": REDUCED})
    about = json.loads(Path(f"{draw(plans())}.json").read_text())
    assert about["data"][0]["stand_in"] == sentence
