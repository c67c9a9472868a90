"""What exhibits may say of their methods and cases, and what comes of it."""

from __future__ import annotations

import dataclasses
import json

import pandas as pd
import pytest
from small_exhibits import file_of, small

from fedrepro.core.errors import FedreproError
from fedrepro.core.evaluation_schedule import EvaluationSchedule
from fedrepro.core.metrics import MetricRow, Table
from fedrepro.core.registry import SCENARIO, components
from fedrepro.numbers.exhibit_metadata import exhibit_metadata
from fedrepro.numbers.exhibit_tables import summarise
from fedrepro.numbers.verdicts.exhibit_values import Numbers, grids
from fedrepro.planning.config import Config
from fedrepro.planning.exhibit_settings import Case, ExhibitSettings, MethodEntry
from fedrepro.planning.jobs import Scenario
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


def test_trials_of_a_method_that_is_nowhere_are_a_sentence():
    file = file_of(methods=TWO, paired=True, trials_of={"b": 3})
    with pytest.raises(
        FedreproError, match=r"unknown method 'b' in trials_of of small/x.* known are A, B"
    ):
        Plan(Config(), {"small": file}, "quick").exhibit("small/x")


# ------------------------------------------------------------------------------------ settings

PAIRS = [{"rounds": 2, "messages": "averaged"}, {"rounds": 3, "messages": "sequential"}]


def downpour(**entry):
    return [{"name": "downpour_sgd", "label": "D", "choose": "server", **entry}]


def test_settings_may_be_listed_one_by_one():
    exhibit = small(methods=downpour(settings=PAIRS), sweep={"partition.clients": [2]})
    (measure,) = exhibit.measures
    assert [(s["rounds"], s["messages"]) for s in measure.settings] == [
        (2, "averaged"),
        (3, "sequential"),
    ]
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
    with pytest.raises(FedreproError, match="lists no values of it"):
        small(
            methods=[{**entry, "settings": usual, "show": ["epochs"]}],
            sweep={"partition.clients": [2]},
        )


def test_a_one_shot_method_computes_its_listed_settings_in_one_job():
    pairs = [{"sigma2": 0.1, "gamma0": 1.0}, {"sigma2": 1.0, "gamma0": 50.0}]
    entry = {"name": "pfnm", "settings": pairs, "choose": "pooled_train"}
    exhibit = small(methods=[entry], sweep={"partition.clients": [2]})
    ((run, _),) = exhibit.trials.items()
    assert run.method.token == "pfnm+gamma0~1@50+sigma2~0.1@1+paired~2"
    assert [setting.token for setting in run.method.expand()] == [
        "pfnm+sigma2~0.1",
        "pfnm+gamma0~50",
    ]


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
    assert [s.token for s in exhibit.measures[0].settings] == [
        "pfnm;training+lr~0.1",
        "pfnm;training+lr~0.2",
    ]


def test_a_rate_is_chosen_at_each_point_by_the_rule():
    methods = downpour(training={"lr": [0.1, 0.2, 0.3]}, choose="pooled_train")
    file = file_of(methods=methods)
    made = Plan(Config(), {"small": file}, "quick")
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
            {"cases": {"one": {"label": "1", "methods": [{**TWO[0], "reference": True}]}}},
            "has another `reference` than in the other cases",
        ),
    ],
)
def test_a_mistake_in_an_entry_is_a_sentence(change, sentence):
    with pytest.raises(FedreproError, match=sentence):
        small(**change)


def test_no_method_has_a_parameter_that_an_entry_takes_for_itself():
    for item in components("method").values():
        assert not item.params.keys() & MethodEntry.model_fields.keys()


def test_a_run_is_measured_on_what_its_methods_and_choices_need():
    other = downpour(rounds=[2, 3], choose="server")
    one = made_plan(methods=downpour(rounds=2))
    assert set(one.splits.values()) == {(("test",), ())}
    both = made_plan(methods=[*downpour(rounds=2, label="E"), *other])
    for run in both.trials:
        assert both.splits[run] == (("server_validation", "test"), ())
    curve = {"metric": "accuracy", "split": "server_validation", "over": "area"}
    followed = made_plan(methods=downpour(rounds=[2, 3], choose=curve))
    wanted = (("server_validation", "test"), ("server_validation",))
    assert set(followed.splits.values()) == {wanted}


def test_when_a_run_is_measured_and_ends_is_part_of_its_path():
    long = made_plan(methods=downpour(rounds=200, measure_every="auto", until=0.9))
    assert {run.every for run in long.trials} == {EvaluationSchedule(None, 0.9)}
    other = made_plan(methods=downpour(rounds=200, measure_every="auto", until=0.8))
    files = [{at for run in one.trials for at in one.run_files(run, 1)} for one in (long, other)]
    assert files[0].isdisjoint(files[1])


def made_plan(**settings) -> Plan:
    return Plan(Config(), {"small": file_of(**settings)}, "quick")


def test_claims_know_in_which_cases_and_settings_a_method_should_be():
    shown = {"name": "pfnm", "label": "P", "training": {"lr": [0.1, 0.2]}, "show": ["lr"]}
    cases = {"usual": {"label": "usual"}, "more": {"label": "more", "methods": [shown]}}
    file = file_of(
        methods=TWO, trials=5, cases={**cases, "fewer": {"label": "fewer", "without": ["B"]}}
    )
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
    assert said["methods"][2]["training"] == {"lr": "0.1, 0.2"}
