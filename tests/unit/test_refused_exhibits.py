"""What an exhibit cannot say of methods, choices, graphs, tuning and drawing is one sentence."""

from __future__ import annotations

import pytest
from small_exhibits import file_of

from fedrepro.core.errors import FedreproError
from fedrepro.planning.config_files import Config
from fedrepro.planning.plan import Plan

ONE = {"partition.clients": [2]}
TWO = [{"name": "average", "label": "A"}, {"name": "local", "label": "B"}]


def method(name, **entry):
    return {"methods": [{"name": name, "label": "M", **entry}]}


def aside(**values):
    return {"partition": {"name": "iid", **values}}


OFF_TRAIN = {"metric": "accuracy", "split": "train"}
CHOICES = [
    ("best", "the rules of choice are pooled_train, client_train, server"),
    ({"metric": "accuracy", "split": "test"}, "no other split may be"),
    ({"metric": "matched_share", "split": "train"}, "a setting is chosen by one of accuracy"),
    ({"metric": "accuracy"}, "split"),
    (OFF_TRAIN | {"over": "mean"}, "'end' or 'half'"),
    (None, "say how one is chosen .choose: pooled_train or client_train or server"),
]
SET_ASIDE = [
    ("server", {"validation": 0}, "give it validation, a number, with validation_at: server"),
    ("public", {"validation": 20}, "give it public, a number$"),
    ("client_validation", {"validation": 20}, "a number, with validation_at: clients"),
]
PAIR = [TWO[1], {"name": "uniform_ensemble", "label": "U"}, TWO[0] | {"paired_with": "B"}]
FEW = {"paired": True, "trials": 5, "trials_of": {"A": 2}}
PAIRED = [
    ({"methods": [*PAIR[:2], TWO[0]]}, "by `paired_with` which method"),
    ({"methods": [*PAIR[:2], TWO[0] | {"paired_with": "V"}]}, "of B, U, A"),
    ({"trials_of": {"A": 2, "B": 4}}, "'B' has 4 trials where others have 5"),
    ({"paired": False}, r"'A' has 2 trials where others have 5.*paired: true"),
    ({"drawing": "accuracy-against-size"}, "not for the drawing accuracy-against-size"),
]

GOSSIP = method("gossip_sgd") | {"sweep": ONE}
GRAPHS = [
    ({}, r"works on a graph, and there is none; name one, as in graph: \{name: r"),
    ({"sweep": {"graph.weights": ["uniform"]}}, "sweeps graph.weights, which is not"),
    ({"graph": {"name": "rign"}}, "unknown graph 'rign'.*did you mean 'ring'"),
    ({"graph": {"name": "matrix", "rows": ["0_1", "1_0"]}}, "period"),
]


def race(choose="race", **entry):
    given = {"rounds": 40, "training": {"lr": [0.05, 0.1, 0.2]}, **entry, "choose": choose}
    return method("fedavg", **given)


DIGITS = {"dataset": {"name": "digits", "validation": 200}, "partition": {"name": "by_label"}}
SIZES = {**ONE, "tune.examples": [50, 100]}
TUNINGS = [
    (method("raw"), "'raw' works on the public sample alone: give it one by"),
    (method("average", tune={"lr": [0.1, 0.01]}), "several values of lr; say how"),
    (
        method("average", tune={}) | {"dataset": {"name": "digits"}},
        "'M' works on validation examples of clients, and",
    ),
    (method("downpour_sgd", tune={}), "rounds, and only one-shot models"),
    (
        method("average", training={"epochs": 3}, tune={"epochs": [5, 50]}, choose="client_train"),
        "has a parameter 'epochs' of its own, so that the tuning's is hidden",
    ),
]
HIDING = method("average", training={"lr": [0.1, 0.2]}, show=["lr"])
MILLION = {"dataset": {"name": "synthetic"}, "partition": {"name": "natural"}}
POOLED = {"methods": [{"name": "pooled", "label": "P"}], "sweep": {"partition.clients": [10**6]}}
LISTED = {"methods": TWO[:1], "drawing": {"name": "table", "rows": ["method"]}}
PATHS = {"label": "y", "methods": [TWO[0] | {"training": {"lr": [0.1, 0.2]}, "show": ["lr"]}]}

AGAINST_ROUNDS = method("fedavg", rounds=6) | {"drawing": "accuracy-against-rounds"}
NINE = {f"c{k}": {"label": f"{k}", "training": {"lr": k / 9}} for k in range(1, 10)}
MAPS, SHOWN = {"drawing": "heat-maps"}, method("pfnm", show=["sigma2"], sigma2=[0.1, 1])
ONE_SHOWN = method("pfnm", show=["sigma2"], settings=[{"sigma2": 0.1}])
DOTTED = {"metric": "bytes_up", "of": "M", "along": "clients", "dots": "bytes_up"}
CLOSE = {"drawing": "accuracy-close-up", "methods": TWO}
PART = {"metric": "bytes_up", "of": "M"}
PER = [(SHOWN, {"along": "clients"}), (method("average") | {"sweep": ONE}, {"along": "round"})]
MADE = {"dataset": {"name": "synthetic", "clients": 1}, "partition": {"name": "natural"}}
TWO_SWEPT = {"partition.clients": [2, 4], "training.epochs": [1, 2]}
REFUSED = [
    *((method("downpour_sgd", rounds=[2, 3], choose=rule), told) for rule, told in CHOICES),
    *(
        (
            method("downpour_sgd", rounds=[2, 3], choose=rule) | aside(**values),
            f"'M' reads the examples of .*{told}",
        )
        for rule, values, told in SET_ASIDE
    ),
    (method("pfnm", sigma2=[0.1, 1.0], choose=OFF_TRAIN | {"over": "half"}), "has no rounds"),
    (method("scaffold") | {"training": {"name": "adam"}}, "defined with the training sgd only"),
    (method("fednova") | {"training": {"name": "adam"}}, "defined with the training sgd only"),
    (method("ties") | {"training": {"name": "adam"}}, "each client draws its own: set shared_init"),
    *(
        (method("downpour_sgd", choose="server", **entry), told)
        for entry, told in (
            ({"settings": [{"rounds": [2, 3]}]}, "lists several values"),
            ({"settings": [{"rouns": 2}]}, "did you mean 'rounds'"),
            ({"rounds": [2, 3], "messages": ["averaged", "sequential"]}, "one by one"),
        )
    ),
    ({"cases": {"one": {"label": "one", "without": ["Z"]}}}, "unknown method 'Z'"),
    (
        {"methods": TWO, "paired": True, "trials_of": {"b": 3}},
        "unknown method 'b' in trials_of of small/x.* known are A, B",
    ),
    (race() | aside(validation=0), "sets none aside: give it validation"),
    (race() | aside(validation=20, validation_at="clients"), "with validation_at: server"),
    (race(rounds=[10, 20], training={}), "run for one number of rounds"),
    (method("pfnm", sigma2=[0.1, 1.0], choose="race"), "has no rounds"),
    (
        method("downpour_streaming", choose="race", rounds=40, training={"lr": [0.1, 0.2]})
        | aside(validation=20),
        "runs for 15 rounds, and its `rounds` are something else",
    ),
    (race(until=1.0), "less than 1"),
    (race("server", until=0.9), "at rounds that test data decide"),
    (AGAINST_ROUNDS, "so its sweep has one value"),
    (AGAINST_ROUNDS | {"sweep": ONE, "cases": NINE}, "at most 8, not 9"),
    (MAPS | {"methods": TWO}, "heat maps are of one method that shows every value"),
    (MAPS | SHOWN | {"sweep": ONE}, "heat maps need two parameters that vary"),
    *((own | {"drawing": {"name": "lines", "panels": [PART | at]}}, "at one x") for own, at in PER),
    (
        method("average") | {"sweep": ONE, "drawing": {"name": "lines", "panels": [DOTTED]}},
        "its panel is of shares, which dots",
    ),
    (MAPS | ONE_SHOWN | {"sweep": ONE}, "heat maps need two parameters that vary"),
    (MADE | method("fedavg", training={"augment": "crop_flip"}), "augmented: take augment~none"),
    (method("feddf") | {"dataset": {"name": "cifar10", "features": "lite0"}}, "scaled otherwise"),
    (CLOSE | {"sweep": TWO_SWEPT}, "drawn against one swept parameter, but 2 of its sweep vary"),
    (HIDING | {"sweep": {"training.lr": [0.1]}}, "it shows 'lr', and sweeps a parameter of that"),
    (LISTED | {"cases": {"x": {"label": "x"}, "y": PATHS}}, "'lr' takes several values"),
    (MILLION | POOLED, "'P' works on all examples at once, and these clients are made when they"),
    *(
        ({"methods": TWO, "drawing": {"name": "table", **given}}, told)
        for given, told in (
            ({"rows": ["clients"]}, "'method' takes several values"),
            ({"rows": ["method", "size"]}, "has 'size' in rows or columns; what it has is method"),
            ({"rows": ["method"], "columns": ["clients", "method"]}, "has 'method' twice"),
            ({"metric": "acc"}, "the metrics are accuracy"),
            ({"metric": "seconds", "split": ""}, "'average' has no rounds"),
        )
    ),
    (
        method("fedavg", rounds=[2, 3], choose="server")
        | {"drawing": {"metric": "seconds", "split": ""}, "sweep": ONE},
        "'fedavg' has several settings",
    ),
    *((FEW | {"methods": PAIR} | settings, told) for settings, told in PAIRED),
    *((GOSSIP | settings, told) for settings, told in GRAPHS),
    *((DIGITS | {"sweep": SIZES} | settings, told) for settings, told in TUNINGS),
]


@pytest.mark.parametrize(("settings", "sentence"), REFUSED)
def test_what_an_exhibit_cannot_say_is_one_sentence_that_says_where(settings, sentence):
    with pytest.raises(FedreproError, match=sentence) as caught:
        Plan(Config(), {"small": file_of(**settings)}, "quick").exhibit("small/x")
    said = str(caught.value)
    assert "\n" not in said
    assert "config/exhibits/small.yaml, x at scale quick" in said or "small/x" in said
