"""GEMS: what its two methods make of clients, beside what spaces do by themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contract import METHODS, allowed, made_of
from problems import CLASSES, FEATURES, problem

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
SPACES = ("ball", "ellipsoid")
SMALL = {"points": 40, "clusters": 1, "epsilon_final": 0.3, "head_epochs": 3}


@pytest.fixture(scope="module")
def linear():
    return problem(hidden=())


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


def told(given, item, **values):
    """What it reports."""
    return made(given, item, **values).diagnostics


def only(given, client, copies=1):
    """The clients of a problem reduced to copies of one of them."""
    tensors = {k: np.repeat(v[[client]], copies, 0) for k, v in given.models.tensors.items()}
    rows, held = ([of[client]] * copies for of in (given.rows, given.clients.data.validation))
    clients = replace(given.clients, data=replace(given.clients.data, rows=rows, validation=held))
    models, info = replace(given.models, tensors=tensors), replace(given.info, clients=clients)
    return replace(given, models=models, clients=clients, info=info)


def each_of(given, values):
    """Every setting for softmax regressions, what comes of it in one job, and its spaces."""
    info = allowed(given.info, CONVEX)
    costly = SharedPreparation(given.models, info, RngKey(0))
    for one in CONVEX.spec(values).expand():
        ready, *_ = costly(one)
        yield (
            one,
            CONVEX.fn(given.models, info, rng=RngKey(0), **one.values, **ready),
            ready["prepared"],
        )


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("point", ["descent", "deepest"])
def test_one_client_gives_back_its_model(linear, space, point):
    own = only(linear, 2)
    found = made(own, CONVEX, space=space, point=point, **LOOSE)
    for name, value in own.models.tensors.items():
        assert np.array_equal(found.tensors[name], value)
    assert found.diagnostics["common_point"] == found.diagnostics["start_inside"] == 1


@pytest.mark.parametrize("space", SPACES)
def test_where_the_mean_lies_in_all_spaces_it_is_the_average(near, space):
    found = made(near, CONVEX, space=space, epsilon=0.5, points=40)
    said = found.diagnostics
    assert (said["start_inside"], said["descent_steps"], said["objective"]) == (1, 0, 0)
    for name, value in near.models.tensors.items():
        assert np.allclose(found.tensors[name][0], value.mean(axis=0), atol=1e-6)


def test_a_centre_that_is_not_good_enough_and_no_intersection_are_results(linear):
    """Labels that no client predicts leave all its spaces empty."""
    data = linear.clients.data
    held = data.validation_examples
    wrong = replace(held, targets=(held.targets + 1) % CLASSES)
    clients = replace(linear.clients, data=replace(data, validation_examples=wrong))
    found = made(replace(linear, info=replace(linear.info, clients=clients)), CONVEX, **LOOSE)
    said = found.diagnostics
    assert (said["empty_spaces"], said["common_point"]) == (linear.models.clients, 0)
    assert said["reach"] == np.inf  # a number in every trial, or means cannot be taken
    assert found.finite
    found = made(linear, CONVEX, epsilon=1.0, points=40)
    said = found.diagnostics
    assert (said["common_point"], said["descent_steps"]) == (0, 1000)
    assert said["reach"] > 1
    assert said["objective"] > 0
    assert found.finite


def test_the_first_clients_accuracy_may_be_another_and_published_balls_weigh_distances(linear):
    one, two = (
        told(linear, CONVEX, epsilon=0.5, points=40, **more)
        for more in ({}, {"epsilon_first": 0.8})
    )
    assert two["radius"] < one["radius"]
    plain, slip = (
        made(linear, CONVEX, epsilon=0.9, points=40, as_published=own) for own in (False, True)
    )
    assert plain.diagnostics["radius"] == slip.diagnostics["radius"]
    assert not np.array_equal(plain.tensors["weight0"], slip.tensors["weight0"])


def calls_of(monkeypatch, where, *names):
    """Names of these functions, and what they are given, as they are called."""
    calls = []
    for name in names:
        whole = getattr(where, name)
        monkeypatch.setattr(
            where, name, lambda *given, f=whole, n=name: calls.append((n, given[1:])) or f(*given)
        )
    return calls


def test_a_grid_of_two_accuracies_computes_each_space_once_and_settings_are_as_alone(
    monkeypatch, linear
):
    """Figure 6: 8 x 8 settings of two clients are 16 spaces, not 128."""
    searched = calls_of(monkeypatch, softmax_spaces.GoodEnough, "_searched")
    drawn = calls_of(monkeypatch, softmax_spaces.Softmax, "right_within")
    levels = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    values = {"epsilon": levels, "epsilon_first": levels, "points": 20}
    assert len(list(each_of(problem(hidden=(), count=2), values))) == 64
    assert sorted(key for _, key in searched) == [(j, level) for j in (0, 1) for level in levels]
    assert len(drawn) == 2
    for setting, together, _ in each_of(linear, {"epsilon": [0.3, 0.8], "points": 20}):
        alone = made(linear, CONVEX, **setting.values)
        assert together.diagnostics == alone.diagnostics
        assert np.array_equal(together.tensors["weight0"], alone.tensors["weight0"])


@pytest.mark.parametrize("space", SPACES)
def test_every_model_within_a_proven_radius_is_good_enough(near, space):
    """Also the one that is moved straight against the examples; a drawn radius goes further."""
    values = {"space": space, "epsilon": 0.5, "points": 40}
    ((_, found, spaces),) = each_of(near, values | {"radii": "proven"})
    assert 0 < found.diagnostics["radius"] < told(near, CONVEX, **values)["radius"]
    for j, model in enumerate(spaces.models):
        against = np.eye(CLASSES)[model.labels] - 1 / CLASSES
        away = -(model.with_ones.T @ against) * model.shape**2
        step = spaces.radius(j, 0.5).value * away / np.linalg.norm(away / model.shape)
        near_it, far = (model.accuracy_of(model.centre + n * step) for n in (1, 40))
        assert near_it >= 0.5 > far


def test_the_accuracy_at_each_client_is_told(linear):
    strict = told(linear, CONVEX, epsilon=1.0, points=40)
    radii, each = (
        [strict[f"{key}_client_{j}"] for j in range(1, 5)] for key in ("radius", "accuracy")
    )
    assert np.mean(radii) == strict["radius"]
    assert strict["clients_met"] == sum(value >= 1.0 for value in each) < 4


@pytest.mark.parametrize(("space", "numbers"), [("ball", 1), ("ellipsoid", 21)])
def test_a_client_sends_its_model_and_its_radii_once(linear, space, numbers):
    sent = made(linear, CONVEX, space=space, **LOOSE).traffic
    weights = (FEATURES + 1) * CLASSES
    assert (sent.messages_up, sent.messages_down, sent.bytes_down) == (4, 0, 0)
    assert sent.bytes_up == 4 * (weights + numbers) * FLOAT_BYTES


@pytest.mark.parametrize("values", [{"clusters": 8}, {"merge": "tuples"}])
def test_copies_of_a_client_merge_to_its_units(given, values):
    copies = only(given, 1, copies=3)
    own = copies.models.tensors["weight0"][0]
    found = made(copies, NEURAL, **SMALL | {"epsilon_hidden": 1e-6} | values)
    assert (found.diagnostics["merged_units"], found.diagnostics["leftover_units"]) == (8, 0)
    apart = np.linalg.norm(own[:, :, None] - found.tensors["weight0"][0][:, None], axis=0)
    assert apart.min(axis=1).max() < 1e-6


def test_random_units_are_as_many_as_merging_gave_and_the_authors_code_loses_one(given):
    values = SMALL | {"epsilon_hidden": 0.5, "clusters": 5}
    merged, drawn, untrained = (
        made(given, NEURAL, **values, units=units).tensors["weight0"][0]
        for units in ("merged", "drawn", "untrained")
    )
    assert merged.shape == drawn.shape == untrained.shape
    own = np.hstack(list(given.models.tensors["weight0"]))
    held = [{tuple(unit) for unit in layer.T} for layer in (own, merged, drawn, untrained)]
    assert held[2] <= held[0]
    assert len(held[2]) == drawn.shape[1]
    assert not held[1] >= held[2]
    assert not held[0] & held[3]

    def width(given, **more):
        found = made(given, NEURAL, **SMALL | {"epsilon_hidden": 50.0} | more)
        return found.tensors["weight0"].shape[2]

    assert width(only(given, 1)) < 8
    assert width(given, clusters=4) == 4
    assert width(given, clusters=4, as_published=True) == 3


def test_a_second_setting_of_the_same_epsilon_searches_no_ball_and_no_cluster(given, monkeypatch):
    calls = calls_of(monkeypatch, hidden_units, "k_means")
    balls = calls_of(monkeypatch, hidden_units.LayerSpaces, "_searched")
    info = allowed(given.info, NEURAL)
    costly = SharedPreparation(given.models, info, RngKey(0))
    for epsilon, clusters, wanted in (
        (0.1, 4, (4, 1)), (0.1, 5, (0, 1)), (0.2, 5, (4, 0)), (0.2, 4, (0, 0)),
    ):  # fmt: skip
        spec = NEURAL.spec(SMALL | {"epsilon_hidden": epsilon, "clusters": clusters})
        calls.clear()
        balls.clear()
        NEURAL.fn(given.models, info, rng=RngKey(0), **spec.values, **costly(spec)[0])
        assert (len(balls), len(calls)) == wanted


def test_what_comes_out_is_a_network_of_its_own_width_without_dropout(given):
    """Heads were trained without, so tuning goes on without: with it MNIST loses eight points."""
    model = MODELS["mlp"].spec({"hidden": [8], "dropout": 0.5})
    network = network_of(model, (FEATURES,), CLASSES)
    clients = replace(given.clients, model=model, network=network)
    models, info = replace(given.models, model=model), replace(given.info, clients=clients)
    given = replace(given, models=models, info=info)
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
def test_settings_that_do_not_fit_the_clients_are_a_sentence(given, values, sentence):
    with pytest.raises(FedreproError, match=sentence):
        made(given, NEURAL, **SMALL | values)


@pytest.mark.parametrize("item", [CONVEX, NEURAL], ids=lambda item: item.name)
def test_fresh_directions_give_about_the_same_spaces(item, linear, given):
    given, own, key = {
        "gems_convex": (linear, LOOSE, "radius"),
        "gems_neural": (given, SMALL, "hidden_radius"),
    }[item.name]
    shared, fresh = (told(given, item, **own, draws=draws)[key] for draws in ("shared", "fresh"))
    assert shared == pytest.approx(fresh, rel=0.2)


def test_every_hidden_layer_is_merged_and_what_is_above_trained_anew():
    found = made(problem(hidden=(8, 5)), NEURAL, **SMALL | {"epsilon_hidden": 0.01})
    shapes = [found.tensors[f"weight{layer}"].shape[1:] for layer in range(3)]
    widths = [columns for _, columns in shapes[:2]]
    assert [rows for rows, _ in shapes] == [FEATURES, *widths]
    assert found.diagnostics["merged_units"] + found.diagnostics["leftover_units"] == sum(widths)
    sent, (one, two) = found.traffic, widths
    assert (found.exchanges, sent.messages_up, sent.messages_down) == (3, 12, 8)
    # units with a radius each, of either layer, and output layers with one
    up = 8 * (FEATURES + 1) + 8 + 5 * (one + 1) + 5 + (two + 1) * CLASSES + 1
    assert sent.bytes_up == 4 * up * FLOAT_BYTES
    assert sent.bytes_down == 4 * (one * (FEATURES + 1) + two * (one + 1)) * FLOAT_BYTES
