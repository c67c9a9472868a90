"""Adaptive hyper-parameters and representation matching in rounds, and what stays private."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from contract import METHODS, allowed, asked_by, states
from hypothesis import given as drawn_from
from hypothesis import strategies as st
from plain import mlp
from problems import problem, unwell
from small_exhibits import small

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.methods.fedavg_variants_and_base_classes import sample_clients
from fedrepro.networks.predict import network_of
from fedrepro.papers.rm.methods import adaptive_hyper_parameters as adaptive
from fedrepro.papers.rm.methods.representation_matching import RepresentationMatching
from fedrepro.planning.forecast import trained_on

LRS, STEPS = (0.02, 0.04, 0.08, 0.16, 0.32), (10, 20, 30, 40)
# between the error of the formula, of fourth order, and that of rounding
STEP = 1e-4


def search(**values):
    axes = (adaptive.GridAxis("lrs", LRS), adaptive.GridAxis("step_counts", STEPS))
    return adaptive.Search(**{"axes": axes, "rate": 0.01, "window": 5, "precision": 20.0, **values})


def gaussian(mean=(0.1, -0.2), precision=(20.0, 50.0)):
    return adaptive.DiscreteGaussian(search().points, np.array(mean), np.log(precision))


places = st.floats(-0.5, 0.5)
precisions = st.floats(adaptive.LEAST_PRECISION, adaptive.MOST_PRECISION)


def test_an_axis_lies_within_one_half_with_mean_zero():
    geometric = tuple(np.geomspace(5e-4, 0.05, 9))
    by_value = adaptive.GridAxis("lrs", geometric, "values").places
    assert by_value[[0, -1]] == pytest.approx([-0.162, 0.5], abs=1e-3)
    for positions in ("positions", "values", "log"):
        if positions != "values":
            found = adaptive.GridAxis("lrs", geometric, positions).places
            assert np.allclose(found, np.linspace(-0.5, 0.5, 9))
        found = adaptive.GridAxis("lrs", (0.3, 0.1, 0.7), positions).places
        assert abs(found.mean()) < 1e-15
        assert np.abs(found).max() == 0.5


@pytest.mark.parametrize("positions", ["positions", "values", "log"])
def test_a_place_is_read_back_in_the_values_own_units(positions):
    axis = adaptive.GridAxis("lrs", LRS, positions)
    for value, place in zip(axis.values, axis.places, strict=True):
        assert axis.real(place) == pytest.approx(value)
    middle = axis.real(axis.places[:2].mean())
    assert middle == pytest.approx(np.sqrt(0.02 * 0.04) if positions == "log" else 0.03)


@drawn_from(places, places, precisions, precisions)
def test_probabilities_are_those_of_the_formula(one, two, first, second):
    made = gaussian((one, two), (first, second))
    weights = [np.exp(-0.5 * (first * (x - one) ** 2 + second * (y - two) ** 2))
               for x, y in made.points]  # fmt: skip
    assert np.allclose(np.exp(made.log_probabilities), np.array(weights) / sum(weights), atol=1e-14)
    far = gaussian((40.0, 40.0), (200.0, 200.0))  # from the grid
    assert np.exp(far.log_probabilities).sum() == pytest.approx(1)
    assert np.isfinite(far.score(3)).all()


@drawn_from(places, places, precisions, precisions, st.integers(0, 19))
def test_scores_are_the_slopes_of_log_probabilities(one, two, first, second, point):
    made = gaussian((one, two), (first, second))

    def at(axis, by):
        moved = np.concatenate([made.mean, made.log_precision])
        moved[axis] += by
        return adaptive.DiscreteGaussian(made.points, *np.split(moved, 2)).log_probabilities[point]

    slopes = [
        (8 * (at(i, STEP) - at(i, -STEP)) - at(i, 2 * STEP) + at(i, -2 * STEP)) / (12 * STEP)
        for i in range(4)
    ]
    assert np.abs(made.score(point) - slopes).max() < 1e-8


def test_an_update_takes_each_score_where_it_was_drawn():
    """Literally eq. (7), upwards, and nothing in the first round."""
    made = search(window=2)
    state, scores, rewards = made.start(), [], []
    for t, (point, reward) in enumerate([(3, 0.4), (12, -0.2), (7, 0.1), (19, 0.3)]):
        scores.append(made.distribution(state).score(point))
        rewards.append(reward)
        before, state = state, made.after(state, point, reward)
        last = slice(max(0, t - 2), t + 1)
        excess = np.array(rewards[last]) - np.mean(rewards[last])
        moved = np.concatenate([state[k] - before[k] for k in ("mean", "log_precision")])
        assert np.allclose(moved, 0.01 * excess @ scores[last], atol=1e-14)
    assert len(state["rewards"]) == 3


@drawn_from(st.lists(st.tuples(st.integers(0, 19), st.floats(-1, 1)), min_size=5, max_size=30))
def test_the_mean_stays_in_the_grid_and_precisions_within_their_bounds(rounds):
    made = search(
        rate=30.0,
        axes=(adaptive.GridAxis("lrs", LRS, "values"), adaptive.GridAxis("step_counts", STEPS)),
    )
    state, low, high = made.start(), made.points.min(0), made.points.max(0)
    for point, reward in rounds:
        state = made.after(state, point, reward)
        assert ((low <= state["mean"]) & (state["mean"] <= high)).all()
        precision = np.exp(state["log_precision"])
        assert (precision >= adaptive.LEAST_PRECISION * (1 - 1e-12)).all()
        assert (precision <= adaptive.MOST_PRECISION * (1 + 1e-12)).all()


@pytest.mark.parametrize(
    ("before", "after", "reward"),
    [(2, 1.5, 0.25), (1, 9, -1), (2, np.nan, -1), (2, np.inf, -1), (0, 0, 0), (0, 0.1, -1)],
)
def test_a_reward_is_the_share_by_which_the_loss_fell(before, after, reward):
    assert adaptive.reward_of(before, after) == reward


NAMES = ("adaptive_fedavg", "adaptive_matching")
SMALL = {"rounds": 4, "fraction": 0.5, "lrs": (0.005, 0.01), "step_counts": (3, 6)}


def first_round(given, name, **values):
    made = METHODS[name].fn(**SMALL | values)
    clients, info = asked_by(made, given.clients), allowed(given.info, METHODS[name])
    state = made.init(clients, info, RngKey(0))
    return state, *made.round(state, clients, info, RngKey(0).at(round=0))


@pytest.mark.parametrize("name", NAMES)
def test_a_round_is_one_of_fedavg_with_the_setting_that_was_drawn(name):
    given = problem()
    before, after, report = first_round(given, name)
    told = report.metrics
    plain = {"adaptive_fedavg": "fedavg", "adaptive_matching": "representation_matching"}[name]
    at_rate = replace(given.clients.settings, lr=told["sampled_lr"])
    clients = replace(given.clients, settings=at_rate)
    made = METHODS[plain].fn(fraction=0.5, steps=int(told["sampled_steps"]))
    wanted, _ = made.round(before, clients, given.info, RngKey(0).at(round=0))
    for key, value in wanted["weights"].items():
        assert value.tobytes() == after["weights"][key].tobytes()
    assert told["mean_lr"] == pytest.approx(0.0075)
    assert told["mean_steps"] == pytest.approx(4.5)


@pytest.mark.parametrize("name", NAMES)
def test_the_reward_is_of_cross_entropy_alone_at_the_server(name):
    given = problem()
    before, after, report = first_round(given, name, entropy=1.0)
    x, labels = map(torch.from_numpy, (given.info.validation_inputs, given.info.validation_labels))
    first, second = (
        float(torch.nn.functional.cross_entropy(mlp(w, x, None, 2), labels))
        for w in (
            {k: torch.from_numpy(v[0]) for k, v in state["weights"].items()}
            for state in (before, after)
        )
    )
    assert after["loss"] == pytest.approx(second, rel=1e-5)
    assert report.metrics["reward"] == pytest.approx((first - second) / first, rel=1e-4)


def stays(before, after, report):
    """A round that came to nothing."""
    assert (report.metrics["reward"], after["loss"]) == (-1, before["loss"])
    for key, value in before["weights"].items():
        assert np.array_equal(value, after["weights"][key])


@pytest.mark.parametrize("name", NAMES)
def test_nobody_left_leaves_the_weights_and_is_worth_minus_one(name):
    stays(*first_round(unwell(problem()), name))


def test_an_aggregate_that_is_not_finite_leaves_the_weights(monkeypatch):
    def exploded(self, state, *_, **__):
        # a bias of minus infinity hides behind ReLU: the loss alone would not show it
        weights = {k: v.copy() for k, v in state["weights"].items()}
        weights["bias0"][0, 0] = -np.inf
        return {"weights": weights, "server": {}}

    monkeypatch.setattr(adaptive.AdaptiveFedAvg, "averaged", exploded)
    stays(*first_round(problem(), "adaptive_fedavg"))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"step_counts": (5,)}, "'step_counts' is an axis of a grid with the value 5 alone"),
        ({"lrs": (0.1, 0.2, 0.1)}, r"'lrs' is an axis .* twice: \[0.1, 0.2, 0.1\]; take one out"),
        ({"step_counts": (5, 5)}, "'step_counts' is an axis of a grid and lists a value twice"),
    ],
)
def test_a_grid_without_choice_is_refused(values, sentence):
    for name in NAMES:
        with pytest.raises(FedreproError, match=sentence):
            METHODS[name].fn(**values)


def test_a_forecast_counts_the_mean_of_the_steps_that_are_listed():
    method = METHODS["adaptive_fedavg"].spec({"rounds": 4, "fraction": 0.5, "step_counts": [1, 5]})
    training = components("training")["sgd"].spec({"batch_size": 10})
    assert trained_on(method, training, held=60, clients=8) == 4 * 4 * 3 * 10


MATCHED = ("representation_matching", "adaptive_matching")
GRID = {"lrs": (0.005, 0.01), "step_counts": (2, 4)}
OWN = {"adaptive_matching": GRID, "adaptive_fedavg": GRID}


def run(name, given, **values):
    made = METHODS[name].fn(**{"rounds": 6, "fraction": 0.5, **OWN.get(name, {}), **values})
    return made, states(made, given.clients, given.info)


@pytest.mark.parametrize("name", MATCHED)
def test_private_tensors_of_clients_that_are_not_drawn_keep_their_bytes(name, given):
    _, found = run(name, given)
    for done in range(6):
        chosen = sample_clients(4, 0.5, RngKey(0).at(round=done))
        before, after = found[done]["private"], found[done + 1]["private"]
        assert set(after) == set(before) | set(map(str, chosen))
        for client, tensors in before.items():
            same = [v.tobytes() == after[client][k].tobytes() for k, v in tensors.items()]
            assert all(same) if int(client) not in chosen else not all(same)


@pytest.mark.parametrize("name", MATCHED)
def test_every_client_begins_with_tensors_of_its_own_whenever_it_is_drawn(name, given):
    made, (first, *_, last) = run(name, given)
    assert first["private"] == {}
    assert set(made.model(last, given.clients).tensors) == set(given.clients.network.shapes)
    term = RepresentationMatching(1.0, "mean")
    for done in range(3):
        rng = RngKey(0).at(round=done)
        private = made.private_tensors(first, np.array([2, 0]), given.clients, rng)
        for at, client in enumerate((2, 0)):
            wanted = term.initial(given.clients.network, RngKey(0).at(client=client))
            for key, value in wanted.items():
                assert private[key][at].tobytes() == value.tobytes()
        assert not np.array_equal(*private["match0_weight"])


def test_without_a_coefficient_it_is_fedavg(given):
    _, matched = run("representation_matching", given, matching=0.0)
    _, plain = run("fedavg", given)
    for key, value in plain[-1]["weights"].items():
        assert np.allclose(matched[-1]["weights"][key], value, atol=1e-4)
    _, other = run("representation_matching", given, matching=1.0)
    assert not np.allclose(other[-1]["weights"]["weight0"], plain[-1]["weights"]["weight0"])


@pytest.mark.parametrize(
    ("model", "shape", "layer"),
    [("char_lstm", (5,), "Embedding"), ("variational_mlp", (6,), "Variational")],
)
def test_networks_that_cannot_be_matched_are_refused_when_planned_and_before_training(
    model, shape, layer, given
):
    for name in MATCHED:
        other = replace(
            given.clients, network=network_of(components("model")[model].spec(), shape, 3)
        )
        made = METHODS[name].fn()
        with pytest.raises(FedreproError, match=f"cannot give back what a layer {layer}"):
            made.init(asked_by(made, other), allowed(given.info, METHODS[name]), RngKey(0))
        with pytest.raises(FedreproError, match=f"cnn, logistic, mlp models, not '{model}'"):
            planned({"name": name}, model={"name": model})


def planned(entry, **settings):
    return small(methods=[{"label": "M", **entry}], sweep={"partition.clients": [2]}, **settings)


@pytest.mark.parametrize(
    ("name", "plain", "more"),
    [
        ("representation_matching", "fedavg", 0),
        ("adaptive_fedavg", "fedavg", 8),  # two numbers of four bytes
        ("adaptive_matching", "representation_matching", 8),
    ],
)
def test_what_matching_and_adapting_send_beside_models(name, plain, more, given):
    """Source: RM, section 4, overhead."""

    def sent(method):
        given.clients.ledger.begin()
        run(method, given, rounds=1)
        return given.clients.ledger.traffic

    ours, theirs = sent(name), sent(plain)
    assert ours.bytes_up == theirs.bytes_up
    assert ours.bytes_down - theirs.bytes_down == more * 2  # clients
