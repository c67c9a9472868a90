"""GEMS: what its two methods make of clients, beside what spaces do by themselves."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from contract import METHODS, allowed, made_of
from jobs import divided, stage
from problems import CLASSES, FEATURES, problem

from fedrepro.api import LocalModels
from fedrepro.core.artifacts import read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import FLOAT_BYTES
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.networks.predict import network_of
from fedrepro.papers.gems import hidden_units, softmax_spaces
from fedrepro.stages.aggregate import SharedPreparation

MODELS = components("model")
CONVEX, NEURAL = METHODS["gems_convex"], METHODS["gems_neural"]
# every client's own model predicts its own examples, so these spaces are not empty
LOOSE = {"epsilon": 0.3, "points": 40}
SMALL = {"points": 40, "clusters": 1, "epsilon_final": 0.3, "head_epochs": 3}


@pytest.fixture(scope="module")
def linear():
    return problem(hidden=())


@pytest.fixture(scope="module")
def neural():
    return problem()


@pytest.fixture(scope="module")
def near(linear):
    """Four models of all data that differ a little: their spaces have much in common."""
    noise = np.random.default_rng(0)
    tensors = {
        name: (value + 0.05 * noise.normal(size=(4, *value.shape[1:]))).astype(np.float32)
        for name, value in problem(hidden=(), count=1).models.tensors.items()
    }
    return replace(linear, models=replace(linear.models, tensors=tensors))


def made(given, item, **values):
    return made_of(item, given.models, allowed(given.info, item), values)


def only(given, client, copies=1):
    """The clients of a problem reduced to copies of one of them."""
    tensors = {k: np.repeat(v[[client]], copies, 0) for k, v in given.models.tensors.items()}
    data = given.clients.data
    own = replace(
        data, rows=[data.rows[client]] * copies, validation=[data.validation[client]] * copies
    )
    clients = replace(given.clients, data=own)
    models = LocalModels(given.models.model, given.models.shape, given.models.classes, tensors)
    return replace(given, models=models, clients=clients, info=replace(given.info, clients=clients))


def told(model):
    return model.diagnostics


def each_of(given, values):
    """Every setting for softmax regressions, what comes of it in one job, and its spaces."""
    info = allowed(given.info, CONVEX)
    costly = SharedPreparation(CONVEX.meta["prepare"], given.models, info, RngKey(0))
    for one in CONVEX.spec(values).expand():
        ready, *_ = costly(one)
        made_of_it = CONVEX.fn(given.models, info, rng=RngKey(0), **one.values, **ready)
        yield one, made_of_it, ready["prepared"]


def with_spaces(given, values):
    ((_, found, spaces),) = each_of(given, values)
    return found, spaces


# --- softmax regressions


@pytest.mark.parametrize("space", ["ball", "ellipsoid"])
@pytest.mark.parametrize("point", ["descent", "deepest"])
def test_one_client_gives_back_its_model(linear, space, point):
    own = only(linear, 2)
    found = made(own, CONVEX, space=space, point=point, **LOOSE)
    for name, value in own.models.tensors.items():
        assert np.array_equal(found.tensors[name], value)
    assert told(found)["common_point"] == told(found)["start_inside"] == 1


@pytest.mark.parametrize("space", ["ball", "ellipsoid"])
def test_where_the_mean_lies_in_all_spaces_it_is_the_average(near, space):
    found = made(near, CONVEX, space=space, epsilon=0.5, points=40)
    assert told(found)["start_inside"] == 1
    assert told(found)["descent_steps"] == 0
    assert told(found)["objective"] == 0
    for name, value in near.models.tensors.items():
        assert np.allclose(found.tensors[name][0], value.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("space", ["ball", "ellipsoid"])
def test_a_point_that_is_certified_lies_in_every_space(near, space):
    values = {"space": space, "point": "deepest", "points": 40, "epsilon": 0.5}
    found, prepared = with_spaces(near, values)
    assert told(found)["common_point"] == 1
    point = np.vstack([found.tensors["weight0"][0], found.tensors["bias0"][0]])
    for j, model in enumerate(prepared.models):
        away = np.linalg.norm((point - model.centre) / model.shape)
        assert away <= prepared.radius(j, 0.5).value + 1e-4


def test_a_centre_that_is_not_good_enough_is_recorded(linear):
    """Labels that no client predicts leave all its spaces empty."""
    data = linear.clients.data
    wrong = replace(
        data.validation_examples, targets=(data.validation_examples.targets + 1) % CLASSES
    )
    clients = replace(linear.clients, data=replace(data, validation_examples=wrong))
    found = made(replace(linear, info=replace(linear.info, clients=clients)), CONVEX, **LOOSE)
    assert told(found)["empty_spaces"] == linear.models.clients
    assert told(found)["reach"] == np.inf  # a number in every trial, or means cannot be taken
    assert told(found)["common_point"] == 0
    assert found.finite


def test_no_intersection_is_a_result(linear):
    found = made(linear, CONVEX, epsilon=1.0, points=40)
    assert told(found)["common_point"] == 0
    assert told(found)["reach"] > 1
    assert told(found)["objective"] > 0
    assert told(found)["descent_steps"] == 1000
    assert found.finite


def test_a_radius_that_reaches_the_largest_is_told(linear, caplog):
    with caplog.at_level(logging.WARNING):
        found = made(linear, CONVEX, epsilon=0.0, points=5, r_max=8.0)
    assert told(found)["capped_spaces"] == linear.models.clients
    assert "client 3 with accuracy 0 reaches r_max, 8" in caplog.text


def test_the_first_clients_accuracy_may_be_another(linear):
    one = made(linear, CONVEX, epsilon=0.5, points=40)
    two = made(linear, CONVEX, epsilon=0.5, epsilon_first=0.8, points=40)
    assert told(two)["radius"] < told(one)["radius"]


def test_published_balls_weigh_distances_by_the_centres(linear):
    plain = made(linear, CONVEX, epsilon=0.9, points=40)
    slip = made(linear, CONVEX, epsilon=0.9, points=40, as_published=True)
    assert told(plain)["radius"] == told(slip)["radius"]
    assert not np.array_equal(plain.tensors["weight0"], slip.tensors["weight0"])


def test_a_grid_of_two_clients_accuracies_computes_each_space_once(monkeypatch):
    """Figure 6: 8 x 8 settings of two clients are 16 spaces, not 128."""
    calls = {}
    for kind, name in (
        (softmax_spaces.GoodEnough, "_searched"),
        (softmax_spaces.Softmax, "right_within"),
    ):
        seen, whole = calls.setdefault(name, []), getattr(kind, name)
        monkeypatch.setattr(
            kind, name, lambda self, *key, s=seen, w=whole: s.append(key) or w(self, *key)
        )
    levels = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    values = {"epsilon": levels, "epsilon_first": levels, "points": 20}
    assert len(list(each_of(problem(hidden=(), count=2), values))) == 64
    assert sorted(calls["_searched"]) == [(j, level) for j in (0, 1) for level in levels]
    assert len(calls["right_within"]) == 2


def test_settings_that_share_spaces_get_what_they_would_alone(linear):
    for setting, together, _ in each_of(linear, {"epsilon": [0.3, 0.8], "points": 20}):
        alone = made(linear, CONVEX, **setting.values)
        assert together.diagnostics == alone.diagnostics
        assert np.array_equal(together.tensors["weight0"], alone.tensors["weight0"])


@pytest.mark.parametrize("space", ["ball", "ellipsoid"])
def test_every_model_within_a_proven_radius_is_good_enough(near, space):
    """Also the one that is moved straight against the examples; a drawn radius goes further."""
    values = {"space": space, "epsilon": 0.5, "points": 40}
    drawn = made(near, CONVEX, **values)
    found, spaces = with_spaces(near, values | {"radii": "proven"})
    assert 0 < told(found)["radius"] < told(drawn)["radius"]
    for j, model in enumerate(spaces.models):
        radius = spaces.radius(j, 0.5).value
        against = np.eye(CLASSES)[model.labels] - 1 / CLASSES
        away = -(model.with_ones.T @ against) * model.shape**2
        worst = model.centre + radius * away / np.linalg.norm(away / model.shape)
        assert model.accuracy_at(worst) >= 0.5
        further = model.centre + 40 * radius * away / np.linalg.norm(away / model.shape)
        assert model.accuracy_at(further) < 0.5


def test_the_accuracy_at_each_client_is_told(linear):
    """Of one client's own model it is that of its examples; the bar of each says who is met."""
    found = made(only(linear, 2), CONVEX, **LOOSE)
    assert told(found)["accuracy_client_1"] == with_spaces(linear, LOOSE)[1].models[2].accuracy
    strict = told(made(linear, CONVEX, epsilon=1.0, points=40))
    assert np.mean([strict[f"radius_client_{j}"] for j in range(1, 5)]) == strict["radius"]
    each = [strict[f"accuracy_client_{j}"] for j in range(1, 5)]
    assert strict["clients_met"] == sum(value >= 1.0 for value in each) < 4


@pytest.mark.parametrize(("space", "numbers"), [("ball", 1), ("ellipsoid", 21)])
def test_a_client_sends_its_model_and_its_radii_once(linear, space, numbers):
    sent = made(linear, CONVEX, space=space, **LOOSE).traffic
    weights = (FEATURES + 1) * CLASSES
    assert (sent.messages_up, sent.messages_down, sent.bytes_down) == (4, 0, 0)
    assert sent.bytes_up == 4 * (weights + numbers) * FLOAT_BYTES


@pytest.mark.parametrize("item", [CONVEX, NEURAL], ids=lambda item: item.name)
def test_a_client_without_validation_examples_is_a_sentence(item, linear, neural):
    given = linear if item is CONVEX else neural
    data = replace(given.clients.data, validation=())
    info = replace(given.info, clients=replace(given.clients, data=data))
    with pytest.raises(FedreproError, match=r"validation_at: clients|validation"):
        made(replace(given, info=info), item)


# --- perceptrons


@pytest.mark.parametrize("merge", ["greedy", "tuples"])
@pytest.mark.parametrize(("epsilon", "clusters"), [(1e-6, 1), (0.05, 1), (0.05, 5), (0.5, 5)])
def test_units_are_merged_ones_and_leftovers(neural, merge, epsilon, clusters):
    values = {"merge": merge, "epsilon_hidden": epsilon, "clusters": clusters}
    found = made(neural, NEURAL, **SMALL | values)
    width = found.tensors["weight0"].shape[2]
    assert width == told(found)["merged_units"] + told(found)["leftover_units"]
    assert 0 < width <= 32


def test_copies_of_a_client_merge_to_its_units(neural):
    copies = only(neural, 1, copies=3)
    own = copies.models.tensors["weight0"][0]
    for values in ({"clusters": 8}, {"merge": "tuples"}):
        found = made(copies, NEURAL, **SMALL | {"epsilon_hidden": 1e-6} | values)
        assert told(found)["merged_units"] == 8
        assert told(found)["leftover_units"] == 0
        units = found.tensors["weight0"][0]
        apart = np.linalg.norm(own[:, :, None] - units[:, None], axis=0)
        assert apart.min(axis=1).max() < 1e-6


def test_random_units_are_as_many_as_merging_gave(neural):
    values = SMALL | {"epsilon_hidden": 0.5, "clusters": 5}
    merged, drawn, untrained = (
        made(neural, NEURAL, **values, units=units).tensors["weight0"][0]
        for units in ("merged", "drawn", "untrained")
    )
    assert merged.shape == drawn.shape == untrained.shape
    own = np.hstack(list(neural.models.tensors["weight0"]))
    held = [{tuple(unit) for unit in layer.T} for layer in (own, merged, drawn, untrained)]
    assert held[2] <= held[0]
    assert len(held[2]) == drawn.shape[1]
    assert not held[1] >= held[2]
    assert not held[0] & held[3]


def test_units_merge_where_much_is_allowed_and_the_authors_code_loses_one(neural):
    found = made(only(neural, 1), NEURAL, **SMALL | {"epsilon_hidden": 50.0})
    assert told(found)["merged_units"] == 1
    assert found.tensors["weight0"].shape[2] < 8
    values = SMALL | {"epsilon_hidden": 50.0, "clusters": 4}
    assert made(neural, NEURAL, **values).tensors["weight0"].shape[2] == 4
    lost = made(neural, NEURAL, **values, as_published=True)
    assert lost.tensors["weight0"].shape[2] == 3


def test_a_second_setting_of_the_same_epsilon_searches_no_ball_and_no_cluster(neural, monkeypatch):
    calls = []
    for name in ("balls", "k_means"):
        whole = getattr(hidden_units, name)
        monkeypatch.setattr(
            hidden_units, name, lambda *given, f=whole, n=name: calls.append(n) or f(*given)
        )
    info = allowed(neural.info, NEURAL)
    costly = SharedPreparation(NEURAL.meta["prepare"], neural.models, info, RngKey(0))

    def of(**values):
        spec = NEURAL.spec(SMALL | values)
        calls.clear()
        NEURAL.fn(neural.models, info, rng=RngKey(0), **spec.values, **costly(spec)[0])
        return sorted(calls)

    assert of(epsilon_hidden=0.1, clusters=4) == ["balls"] * 4 + ["k_means"]
    assert of(epsilon_hidden=0.1, clusters=5) == ["k_means"]
    assert of(epsilon_hidden=0.2, clusters=5) == ["balls"] * 4
    assert of(epsilon_hidden=0.2, clusters=4) == []


def test_what_comes_out_is_a_network_of_its_own_width_without_dropout():
    """Heads were trained without, so tuning goes on without: with it MNIST loses eight points."""
    given = problem()
    model = MODELS["mlp"].spec({"hidden": [8], "dropout": 0.5})
    clients = replace(given.clients, model=model, network=network_of(model, (FEATURES,), CLASSES))
    given = replace(
        given, models=replace(given.models, model=model), info=replace(given.info, clients=clients)
    )
    found = made(given, NEURAL, **SMALL | {"epsilon_hidden": 0.05})
    width = found.tensors["weight0"].shape[2]
    assert found.model == MODELS["mlp"].spec({"hidden": [width]})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"clusters": 33}, "33 clusters are more than the 32 units"),
        ({"as_published": True}, "set clusters to 2 or more"),
        ({"head_lr": 1e38}, "diverged; lower head_lr"),
    ],
)
def test_settings_that_do_not_fit_the_clients_are_a_sentence(neural, values, sentence):
    with pytest.raises(FedreproError, match=sentence):
        made(neural, NEURAL, **SMALL | values)


def test_units_and_output_layers_are_two_exchanges(neural):
    found = made(neural, NEURAL, **SMALL | {"epsilon_hidden": 0.05})
    width = found.tensors["weight0"].shape[2]
    layer, head = width * (FEATURES + 1), (width + 1) * CLASSES
    assert found.exchanges == 2
    assert (found.traffic.messages_up, found.traffic.messages_down) == (8, 4)
    assert found.traffic.bytes_up == 4 * (8 * (FEATURES + 1) + 8 + head + 1) * FLOAT_BYTES
    assert found.traffic.bytes_down == 4 * layer * FLOAT_BYTES


@pytest.mark.parametrize("name", ["gems_convex", "gems_neural"])
def test_fresh_directions_give_about_the_same_spaces(name, linear, neural):
    given, own = (linear, LOOSE) if name == "gems_convex" else (neural, SMALL)
    found = [told(made(given, METHODS[name], **own, draws=draws)) for draws in ("shared", "fresh")]
    key = "radius" if name == "gems_convex" else "hidden_radius"
    assert found[0][key] == pytest.approx(found[1][key], rel=0.2)


def test_every_hidden_layer_is_merged_and_what_is_above_trained_anew():
    found = made(problem(hidden=(8, 5)), NEURAL, **SMALL | {"epsilon_hidden": 0.01})
    shapes = [found.tensors[f"weight{layer}"].shape[1:] for layer in range(3)]
    assert [rows for rows, _ in shapes] == [FEATURES, *(columns for _, columns in shapes[:2])]
    units = told(found)["merged_units"] + told(found)["leftover_units"]
    assert units == sum(columns for _, columns in shapes[:2])
    assert found.exchanges == 3
    assert (found.traffic.messages_up, found.traffic.messages_down) == (12, 8)


# --- in a job


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Runs a method in a job, digits of two clients with half of the classes each."""
    folder = tmp_path_factory.mktemp("gems")
    made = divided(folder, "label_lists+validation~200+validation_at~clients", trials="0")

    def run(model, method, *words):
        own = [*made, "--model", model, "--training", "adam+epochs~3"]
        local, out, times = (folder / f"{model}-{name}" for name in ("local", "m", "t"))
        if not local.exists():
            places = ["--out", local, "--timings", times]
            assert stage("train", *own, "--clients", "0-1", *places) == 0
        places = ["--local", local, "--out", out, "--timings", times]
        assert stage("aggregate", *own, "--method", method, *places, *words) == 0
        return read_table(out, "metrics").to_pandas()

    return run


def told_of(frame, name):
    return frame[(frame["metric"] == name) & (frame["phase"] == "final")]["value"].tolist()


def test_a_job_records_the_spaces_and_what_was_sent(job):
    frame = job("mlp+hidden~6", "gems_neural+epsilon_final~0.3+epsilon_hidden~0.001@0.1+points~20")
    assert told_of(frame, "rounds") == [2, 2]
    assert told_of(frame, "messages") == [6, 6]
    assert len(told_of(frame, "common_point")) == 2
    merged, left = (np.array(told_of(frame, f"{name}_units")) for name in ("merged", "leftover"))
    assert told_of(frame, "hidden_units") == (merged + left).tolist()


def test_what_gems_makes_of_a_job_is_tuned(job):
    tune = ["--tune", "tune+examples~150+layers~last"]
    frame = job("mlp+hidden~6", "gems_neural+epsilon_final~0.3+points~20", *tune)
    tuned = frame[(frame["phase"] == "tuned") & (frame["metric"] == "accuracy")]["value"]
    assert tuned.mean() > told_of(frame, "accuracy")[0]
