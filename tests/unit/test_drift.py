"""SCAFFOLD, FedNova and FedDyn, which mend what differing clients do to federated averaging."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contract import METHODS, asked_by, states
from problems import problem
from small_exhibits import small

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.methods.drift_correction import effective_steps

LR = 0.05


@pytest.fixture(scope="module")
def given():
    """Four clients, one of them without the first class; logistic models, plain descent."""
    return descending(problem(hidden=()))


def descending(made, **settings):
    plain = {"optimiser": "sgd", "lr": LR, "momentum": 0.0, "l2": 0.0, **settings}
    clients = replace(made.clients, settings=replace(made.clients.settings, **plain))
    return replace(made, clients=clients)


def after(given, name, rounds=1, **values):
    """The states before and after each round."""
    return states(METHODS[name].fn(rounds=rounds, **values), given.clients, given.info)


def shares(given):
    return given.info.example_counts / given.info.example_counts.sum()


def alone(given, start, done=0, **values):
    """The clients' weights after plain local training in a round."""
    values = {"epochs": 1, **values}
    return given.clients.train(start, RngKey(0).at(round=done), **values)


# ------------------------------------------------------------------------------------- FedNova


def test_momentum_carries_a_step_as_far_as_so_many_without():
    for steps, momentum in ((1, 0.9), (7, 0.9), (20, 0.5), (5, 0.0)):
        speed, place = 0.0, 0.0
        for _ in range(steps):
            speed = momentum * speed + 1.0
            place += speed
        assert effective_steps(np.array([steps]), momentum)[0] == pytest.approx(place, rel=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fednova_is_fedavg_where_clients_take_equally_many_steps(given, momentum):
    own = descending(given, momentum=momentum)
    one, other = (
        after(own, name, rounds=3, fraction=1.0, steps=4)[-1]["weights"]
        for name in ("fednova", "fedavg")
    )
    for k, v in one.items():
        assert np.allclose(v, other[k], atol=1e-6)


def test_fednova_averages_what_a_step_gave(given):
    start, found = (s["weights"] for s in after(given, "fednova", fraction=1.0))
    trained = alone(given, start)
    assert len(set(trained.steps.tolist())) > 1
    whole = (shares(given) * trained.steps).sum()
    for k, y in trained.tensors.items():
        mean = sum(p * (y[j] - start[k][0]) / trained.steps[j] for j, p in enumerate(shares(given)))
        assert np.allclose(found[k][0], start[k][0] + whole * mean, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fednova_of_trained_models_is_its_first_round(given, momentum):
    own = descending(given, momentum=momentum)
    before, expected = (s["weights"] for s in after(own, "fednova", fraction=1.0))
    models = replace(own.models, tensors=alone(own, before).tensors)
    training = components("training")["sgd"].spec(
        {"epochs": 1, "batch_size": own.clients.settings.batch_size, "momentum": momentum}
    )
    info = replace(own.info, start=before, training=training)
    found = METHODS["fednova_once"].fn(models, info, rng=RngKey(0)).tensors
    assert all(np.allclose(found[k], v, atol=1e-6) for k, v in expected.items())
    stopping = components("training")["sgd"].spec({"patience": 2})
    with pytest.raises(FedreproError, match="patience 2"):
        METHODS["fednova_once"].fn(models, replace(info, training=stopping), rng=RngKey(0))


# ------------------------------------------------------------------------------------- SCAFFOLD


def test_scaffold_begins_as_fedavg_and_keeps_mean_gradients(given):
    before, first = after(given, "scaffold", fraction=1.0)
    averaged = after(given, "fedavg", fraction=1.0)[-1]["weights"]
    trained = alone(given, before["weights"])
    for k, v in first["weights"].items():
        assert np.allclose(v, averaged[k], atol=1e-6)
        own = [
            (before["weights"][k][0] - trained.tensors[k][j]) / (trained.steps[j] * LR)
            for j in range(4)
        ]
        for j in range(4):
            assert np.allclose(first["kept"][str(j)][k], own[j], atol=1e-5)
        assert np.allclose(first["control"][k][0], np.mean(own, axis=0), atol=1e-5)


def test_scaffold_corrects_every_step(given):
    """Of one step each: y = x - lr (g - c_j + c), with g as a plain step takes it."""
    _, state, found = after(given, "scaffold", rounds=2, fraction=1.0, steps=1)
    trained = alone(given, state["weights"], done=1, steps=1).tensors
    for k, x in state["weights"].items():
        own = np.stack([state["kept"][str(j)][k] for j in range(4)])
        y = trained[k] - LR * (state["control"][k] - own)
        assert np.allclose(found["weights"][k][0], np.tensordot(shares(given), y, 1), atol=1e-6)
        assert np.allclose(x, state["weights"][k])


def test_what_clients_keep_is_there_only_for_those_that_were_drawn(given):
    for name in ("scaffold", "feddyn"):
        *_, state = after(given, name, fraction=0.25, rounds=1)
        assert len(state["kept"]) == 1


# --------------------------------------------------------------------------------------- FedDyn


def test_feddyn_overshoots_in_its_first_round(given):
    """Twice the mean of the clients less the start; what predicts may be their mean."""
    made = METHODS["feddyn"].fn(rounds=1, fraction=1.0, alpha=0.1, predicts="clients")
    before, first = states(made, given.clients, given.info)
    clients = asked_by(made, given.clients)
    for k, mean in made.model(first, clients).tensors.items():
        twice = 2 * mean - before["weights"][k]
        assert np.allclose(first["weights"][k], twice, atol=1e-5)


def test_feddyn_keeps_what_its_pull_left_over(given):
    """h_j = -alpha (y_j - x) after the first round, whose y_j is that of FedProx's loss."""
    before, first = after(given, "feddyn", fraction=1.0, alpha=0.5)
    mean = after(given, "fedavg", fraction=0.25, proximal=0.5)[-1]["weights"]
    (member,) = after(given, "feddyn", fraction=0.25, alpha=0.5)[-1]["kept"]
    for k, x in before["weights"].items():
        own = first["kept"][member][k]
        assert np.allclose(own, -0.5 * (mean[k][0] - x[0]), atol=1e-5)


# --------------------------------------------------------------------------------- both, at rest


def test_corrected_methods_come_to_rest_where_the_losses_of_all_do(given):
    """With many local steps FedAvg rests elsewhere: its clients pull apart."""
    own = descending(given, batch_size=None, lr=0.2, l2=0.05)
    own = replace(own, info=replace(own.info, example_counts=np.full(4, 10)))  # equal shares

    def slope(name, **values):
        *_, state = after(own, name, rounds=150, fraction=1.0, epochs=10, **values)
        after_one = alone(own, state["weights"], steps=1).tensors
        steps = (v.mean(0) - state["weights"][k][0] for k, v in after_one.items())
        return max(float(np.abs(step).max()) for step in steps)

    rest = slope("fedavg")
    assert slope("scaffold") < 1e-3 * rest
    assert slope("feddyn", alpha=0.1) < 1e-3 * rest


# ---------------------------------------------------------------------------------------- refusal


@pytest.mark.parametrize("name", ["scaffold", "fednova"])
def test_an_optimiser_without_a_definition_is_refused(name):
    given = {"methods": [{"name": name, "rounds": 2}], "training": {"name": "adam"}}
    with pytest.raises(FedreproError, match=f"'{name}' is defined with the training sgd only"):
        small(**given)
