"""What exhibits may say of their methods and cases, and what comes of it."""

from __future__ import annotations

import json

import pytest
import synthetic
from small_exhibits import file_of, small
from synthetic import draw, undrawn, workplace  # noqa: F401

from fedrepro.core.checksummed_files import read_json
from fedrepro.core.registry import SCENARIO, components
from fedrepro.numbers.exhibit_files import exhibit_metadata, stand_in
from fedrepro.planning.config_files import Config
from fedrepro.planning.exhibit_config import MethodEntry
from fedrepro.planning.plan import Plan

TWO = [
    {"name": "average", "label": "A", "paired_with": "B"},
    {"name": "local", "label": "B", "trials": 5, "paired_with": "A"},
]
ONE_POINT = {"partition.clients": [2]}
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
    least = {"sweep": ONE_POINT, "methods": TWO, "paired": True}
    assert [dict(point.trials) for point in small(scale, **least | settings).points] == found


PAIRS = [{"rounds": 2, "messages": "averaged"}, {"rounds": 3, "messages": "sequential"}]


def downpour(**entry):
    return [{"name": "downpour_sgd", "label": "D", "choose": "server", **entry}]


def test_settings_may_be_listed_one_by_one_and_a_case_may_show_one_of_them():
    exhibit = small(methods=downpour(settings=PAIRS), sweep=ONE_POINT)
    (measure,) = exhibit.measures
    assert [{key: s[key] for key in PAIRS[0]} for s in measure.settings] == PAIRS
    assert set(measure.chosen) == {"messages", "rounds"}
    assert len(exhibit.trials) == 2  # a method in rounds has one for each
    pairs = [{"sigma2": 0.1, "gamma0": 1.0}, {"sigma2": 1.0, "gamma0": 50.0}]
    entry = {"name": "pfnm", "settings": pairs, "choose": "pooled_train"}
    (run,) = small(methods=[entry], sweep=ONE_POINT).trials
    assert run.method.token == "pfnm+gamma0~1@50+sigma2~0.1@1+paired~2"
    tokens = [setting.token for setting in run.method.expand()]
    assert tokens == ["pfnm+sigma2~0.1", "pfnm+gamma0~50"]
    entry = {"name": "fedavg", "label": "F", "show": ["fraction"], "choose": "server"}
    usual = [{"fraction": 0.1, "rounds": 3}, {"fraction": 0.2, "rounds": 4}]
    alone = [{**entry, "settings": [{"fraction": 0.5, "rounds": 9}]}]
    exhibit = small(
        methods=[{**entry, "settings": usual}],
        sweep=ONE_POINT,
        cases={"usual": {"label": "usual"}, "dear": {"label": "dear", "methods": alone}},
        drawing={"rows": ["case"], "columns": ["fraction"]},
    )
    shown = [[s["fraction"] for s in point.measures[0].settings] for point in exhibit.points]
    assert shown == [[0.1, 0.2], [0.5]]


def test_training_is_swept_for_one_method_and_the_others_keep_theirs():
    methods = [
        {"name": "pfnm", "label": "P", "training": {"lr": [0.1, 0.2]}, "choose": "pooled_train"},
        {"name": "average", "label": "A"},
        {"name": "average", "label": "longer", "training": {"epochs": 7}},
    ]
    exhibit = small(methods=methods, sweep=ONE_POINT, training={"epochs": 3})
    (point,) = exhibit.points
    assert [(label, run.scenario.training.token) for (label, _), run in point.runs.items()] == [
        ("P", "adam+epochs~3+lr~0.1"),
        ("P", "adam+epochs~3+lr~0.2"),
        ("A", "adam+epochs~3"),
        ("longer", "adam+epochs~7"),
    ]
    tokens = [setting.token for setting in exhibit.measures[0].settings]
    assert tokens == ["pfnm;training+lr~0.1", "pfnm;training+lr~0.2"]
    # a parameter of the procedure that a case names
    cases = {"a": {"label": "A", "training": {"name": "sgd"}}}
    own = [{"name": "average", "training": {"momentum": 0.5}}]
    (run,) = small(methods=own, cases=cases, sweep=ONE_POINT).trials
    assert run.scenario.training.token == "sgd+momentum~0.5"


def test_a_case_may_have_methods_of_its_own():
    pfnm = {"name": "pfnm", "label": "A", "sigma2": 0.5}
    cases = {
        "usual": {"label": "usual"},
        "other": {"label": "other", "methods": [pfnm, {"name": "local", "label": "C"}]},
        "fewer": {"label": "fewer", "without": ["B"]},
    }
    exhibit = small(methods=TWO, trials=5, cases=cases, sweep=ONE_POINT)
    assert [measure.label for measure in exhibit.measures] == ["A", "B", "C"]
    found = [{m.label: m.spec.token for m in point.measures} for point in exhibit.points]
    assert found == [
        {"A": "average", "B": "local"},
        {"A": "pfnm+sigma2~0.5", "B": "local", "C": "local"},
        {"A": "average"},
    ]
    assert [set(point.trials) for point in exhibit.points] == [set(one) for one in found]


def test_no_method_has_a_parameter_that_an_entry_takes_for_itself():
    for item in components("method").values():
        assert not item.params.keys() & MethodEntry.model_fields.keys()


CURVE = {"metric": "accuracy", "split": "server_validation", "over": "half"}
CHOSEN, ONE = downpour(rounds=[2, 3], choose="server"), downpour(rounds=2, label="E")


@pytest.mark.parametrize(
    ("methods", "splits"),
    [
        (ONE, (("test",), ())),
        ([*ONE, *CHOSEN], (("server_validation", "test"), ())),
        (downpour(rounds=[2, 3], choose=CURVE),
         (("server_validation", "test"), ("server_validation",))),
    ],
)  # fmt: skip
def test_a_run_is_measured_on_what_its_methods_and_choices_need(methods, splits):
    assert set(made_plan(methods=methods).splits.values()) == {splits}


def made_plan(**settings) -> Plan:
    return Plan(Config(), {"small": file_of(**settings)}, "quick")


def test_the_json_of_an_exhibit_has_its_cases_and_the_trials_of_each_method():
    cases = {"usual": {"label": "usual"}, "fewer": {"label": "fewer", "without": ["B"]}}
    said = metadata(methods=TWO, trials=5, paired=True, trials_of={"B": 3}, cases=cases)
    assert [method["trials"] for method in said["methods"]] == [5, 3]
    assert (said["trials"], said["cases"]) == (5, ["usual", "fewer"])


def metadata(**settings):
    """What an exhibit's json says of it."""
    file = file_of(**settings)
    made = Plan(Config(), {"small": file}, "quick")
    return json.loads(json.dumps(exhibit_metadata(made.exhibit("small/x"), made, {})))


GOSSIP = {"name": "gossip_sgd", "label": "gossip"}
OTHERS = [{"name": name, "label": name} for name in ("fedavg", "local", "pooled")]
RINGS = {"ring": {"label": "ring"}, "star": {"label": "star", "graph": {"name": "star"}}}
SWEEP = {"partition.clients": [2, 4]}


def peers(**settings):
    given = {"graph": {"name": "ring"}, "methods": [GOSSIP, *OTHERS], "sweep": SWEEP}
    return small(**given | settings)


def test_only_peer_methods_keep_the_graph_which_the_description_names():
    runs = peers(cases=RINGS).trials
    graphs = {(run.method.name, run.scenario.graph and run.scenario.graph.token) for run in runs}
    plain = {(entry["name"], None) for entry in OTHERS}
    assert graphs == {("gossip_sgd", "ring"), ("gossip_sgd", "star")} | plain
    assert len(runs) == 2 * 2 + 2 + 2 + 1
    found = metadata(graph={"name": "ring"}, methods=[GOSSIP], sweep=SWEEP)
    assert sorted(found["scenario"]) == sorted(SCENARIO)
    assert found["scenario"]["graph"]["name"] == "ring"
    assert [method["kind"] for method in found["methods"]] == ["peer"]


def test_a_graph_may_be_swept_and_a_case_changes_it_or_names_another():
    def graphs(**settings):
        exhibit = peers(**{"methods": [GOSSIP], "sweep": four} | settings)
        return exhibit, [run.scenario.graph.token for run in exhibit.trials]

    four = {"partition.clients": [4]}
    exhibit, found = graphs(sweep=four | {"graph.weights": ["metropolis", "uniform"]})
    assert [point.values["weights"] for point in exhibit.points] == ["metropolis", "uniform"]
    assert found == ["ring", "ring+weights~uniform"]
    cases = {
        "uniform": {"label": "uniform", "graph": {"weights": "uniform"}},
        "grid": {"label": "grid", "graph": {"name": "grid"}},
    }
    assert graphs(cases=cases)[1] == ["ring+weights~uniform", "grid"]
    assert graphs(cases={"grid": cases["grid"]}, graph=None)[1] == ["grid"]


def sentences(quick, paper, **more):
    """What is said of digits, shapes and mnist where `quick` stands for `paper`; cases by name."""
    file = file_of(sweep=ONE_POINT, at={"quick": quick, "paper": paper}, **more)
    shown = Plan(Config(), {"small": file}, "quick").exhibit("small/x")
    sets = components("dataset")
    return {
        name: stand_in(shown, file, sets[name].spec()) for name in ("digits", "shapes", "mnist")
    }


def test_data_of_the_paper_stand_in_for_nothing_and_each_case_for_its_own():
    same = {"dataset": {"name": "digits"}}
    assert set(sentences(same, same).values()) == {""}
    # One that the paper does not have is passed over.
    names = {"a": ("digits", "mnist"), "b": ("shapes", "cifar10"), "c": ("digits",)}
    quick, paper = (
        {
            case: {"label": case, "dataset": {"name": own[at]}}
            for case, own in names.items()
            if own[at:]
        }
        for at in (0, 1)
    )
    found = sentences({"cases": quick}, {"cases": paper})
    assert found["digits"].endswith("stand in for MNIST, the paper's data.")
    assert found["shapes"].endswith("stand in for CIFAR-10, the paper's data.")
    assert "MNIST" not in found["shapes"]
    assert found["mnist"] == ""


REDUCED = "Digits from photographs reduced to 4×4 pixels."


@pytest.mark.parametrize(
    ("paper", "sentence"),
    [
        ("mnist", f"Digits (8×8) stand in for MNIST, the paper's data. {REDUCED}"),
        ("digits", REDUCED),
    ],
)
@pytest.mark.usefixtures("workplace", "undrawn")
def test_an_exhibit_names_other_data_and_their_reduced_form(monkeypatch, paper, sentence):
    monkeypatch.setattr(synthetic, "SOURCE", {**synthetic.SOURCE, "stand_in": REDUCED})
    made = made_plan(sweep=ONE_POINT, at={"paper": {"dataset": {"name": paper}}})
    about = read_json(f"{draw(made, 'small/x')}.json")
    assert about["data"][0]["stand_in"] == sentence
