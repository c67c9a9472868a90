"""A model that is not finite is a result: it neither stops the others nor changes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.networks.network import dense
from fedrepro.networks.predict import network_of
from fedrepro.training.engine import average, train
from fedrepro.training.examples import Examples
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.loss_terms import Entropy
from fedrepro.training.minibatches import Task, epoch_order
from fedrepro.training.training_settings import settings_of

SIZES = [40, 9, 24, 31, 16]
CLASSES = 4


def procedure(name="sgd", **values):
    given = {"epochs": 2, "batch_size": 8, "init": "fan_in", **values}
    return settings_of(components("training")[name].spec(given))


def network(kind):
    if kind == "dense":
        return dense((64, 6, CLASSES))
    spec = components("model")["cnn"].spec({"channels": [2], "kernel": 3, "hidden": [5]})
    return network_of(spec, (8, 8), CLASSES)


def problem(dtype=torch.float32):
    rng = np.random.default_rng(1)
    count = sum(SIZES)
    examples = Examples(
        torch.tensor(rng.random((count, 64)), dtype=dtype),
        torch.tensor(rng.integers(0, CLASSES, count)),
    )
    rows = np.split(rng.permutation(count), np.cumsum(SIZES)[:-1])
    return examples, [Task(r, RngKey(0, 0, j)) for j, r in enumerate(rows)]


def starts(net, given, tasks):
    return initial_weights(net, given, [task.rng for task in tasks])


@pytest.mark.parametrize("kind", ["dense", "convolutional"])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_the_others_finish_with_the_same_bytes(kind, optimiser):
    net, given = network(kind), procedure(optimiser, lr=0.01)
    examples, tasks = problem()
    start = starts(net, given, tasks)
    well = train(net, examples, tasks, given, start, keep_gradients=True)
    assert well.checked() is well
    examples.inputs[tasks[2].rows[5]] = float("nan")
    found = train(net, examples, tasks, given, start, keep_gradients=True)
    others = [0, 1, 3, 4]
    assert found.finite.tolist() == [True, True, False, True, True]
    assert (found.failed_at >= 0).tolist() == (~found.finite).tolist()
    for name, value in found.tensors.items():
        assert np.array_equal(value[others], well.tensors[name][others])
        assert np.array_equal(found.gradients[name][others], well.gradients[name][others])
        assert np.isnan(value[2]).all()
    assert np.array_equal(found.loss[others], well.loss[others])
    assert np.isnan(found.loss[2])


def test_a_failed_model_has_the_same_bytes_in_any_company():
    net, given = network("dense"), procedure()
    examples, tasks = problem()
    examples.inputs[tasks[0].rows] = float("inf")
    start = starts(net, given, tasks)
    whole = train(net, examples, tasks, given, start)
    alone = train(net, examples, tasks[:1], given, {k: v[:1] for k, v in start.items()})
    assert alone.finite.tolist() == [False]
    assert whole.failed_at[0] == alone.failed_at[0] == 0
    for name in start:
        assert whole.tensors[name][:1].tobytes() == alone.tensors[name].tobytes()


@pytest.mark.parametrize("kind", ["dense", "convolutional"])
def test_the_step_of_failing_is_the_first_with_a_loss_that_is_not_finite(kind):
    net, given = network(kind), procedure()
    examples, tasks = problem()
    bad = epoch_order(tasks[0], 0)[8 * 3 + 2]
    examples.inputs[bad] = float("nan")
    found = train(net, examples, tasks, given, starts(net, given, tasks))
    assert found.failed_at.tolist() == [3, -1, -1, -1, -1]
    with pytest.raises(FedreproError, match="client 0 in trial 0 is not finite at step 4; lower"):
        found.checked()


def test_weights_that_leave_the_numbers_in_the_last_step_are_not_finite():
    net, given = network("dense"), procedure(lr=1e38, epochs=1, batch_size=40)
    examples, tasks = problem()
    examples.inputs.mul_(1e4)
    found = train(net, examples, tasks[:1], given, starts(net, given, tasks[:1]))
    assert found.failed_at.tolist() == [-1]
    assert found.finite.tolist() == [False]
    with pytest.raises(FedreproError, match="client 0 in trial 0 is not finite at step 2; lower"):
        found.checked()


class Poison:
    """A loss that is not a number for models whose first input is below one half."""

    additive = True

    def shapes(self, network):
        return {}

    def loss(self, look):
        return torch.where(look.x[:, 0, 0] < 0.5, float("nan"), 0.0) * look.x.sum((1, 2))


def test_a_term_that_is_not_finite_fails_its_model():
    net, given = network("dense"), procedure(epochs=1, batch_size=64)
    examples, tasks = problem()
    found = train(net, examples, tasks, given, starts(net, given, tasks), terms=[Poison()])
    firsts = [examples.inputs[epoch_order(task, 0)[0], 0] for task in tasks]
    assert found.finite.tolist() == [bool(first >= 0.5) for first in firsts]
    assert found.failed_at.tolist() == [-1 if first >= 0.5 else 0 for first in firsts]


@pytest.mark.parametrize("terms", [(), (Entropy(),)])
@pytest.mark.parametrize("kind", ["dense", "convolutional"])
def test_the_loss_is_the_mean_cross_entropy_of_the_minibatches(kind, terms):
    """With a rate of nearly zero the weights stay, so it is that of the start."""
    net, given = network(kind), procedure(lr=1e-30)
    examples, tasks = problem(torch.float64)
    start = {k: v.astype(np.float64) for k, v in starts(net, given, tasks).items()}
    found = train(net, examples, tasks, given, start, terms=terms, block=2)
    assert found.loss.dtype == np.float64
    for j, task in enumerate(tasks):
        tensors = {name: torch.from_numpy(value[j]) for name, value in start.items()}
        losses = []
        for epoch in range(given.epochs):
            order = torch.from_numpy(epoch_order(task, epoch))
            for rows in order.split(8):
                logits = net.logits(tensors, examples.inputs[rows])
                losses.append(torch.nn.functional.cross_entropy(logits, examples.targets[rows]))
        assert abs(found.loss[j] - float(torch.stack(losses).mean())) < 1e-12


def test_the_loss_of_soft_targets_is_cross_entropy_against_them():
    net, given = network("dense"), procedure(lr=1e-30, epochs=1, batch_size=64)
    examples, tasks = problem(torch.float64)
    shares = torch.softmax(torch.rand(sum(SIZES), CLASSES, dtype=torch.float64), 1)
    start = {k: v.astype(np.float64) for k, v in starts(net, given, tasks).items()}
    found = train(net, replace(examples, targets=shares), tasks, given, start)
    for j, task in enumerate(tasks):
        tensors = {name: torch.from_numpy(value[j]) for name, value in start.items()}
        logits = net.logits(tensors, examples.inputs[torch.from_numpy(task.rows)])
        wanted = torch.nn.functional.cross_entropy(logits, shares[torch.from_numpy(task.rows)])
        assert abs(found.loss[j] - float(wanted)) < 1e-12


def test_a_loss_beyond_the_smallest_probability_is_finite():
    """exp(-200) is zero in single precision; the loss of 200 is not infinite."""
    net = dense((1, 2))
    examples = Examples(torch.ones(1, 1), torch.zeros(1, dtype=torch.int64))
    start = {
        "weight0": np.array([[[0.0, 200.0]]], np.float32),
        "bias0": np.zeros((1, 2), np.float32),
    }
    given = procedure(epochs=1)
    found = train(net, examples, [Task(np.array([0]), RngKey(0, 0, 0))], given, start)
    assert found.loss.tolist() == [200.0]
    assert found.finite.all()


def test_losses_do_not_depend_on_the_block_nor_on_the_chunks(monkeypatch):
    net, given = network("dense"), procedure("adam")
    examples, tasks = problem()
    start = starts(net, given, tasks)
    whole = train(net, examples, tasks, given, start)
    monkeypatch.setattr("fedrepro.training.minibatches.CHUNK_BYTES", 3 * 8 * 8)
    cut = train(net, examples, tasks, given, start, block=1)
    assert np.array_equal(whole.loss, cut.loss)


def test_an_average_leaves_out_what_is_not_finite_and_says_so():
    net, given = network("dense"), procedure()
    examples, tasks = problem()
    weights = [0.1, 0.2, 0.3, 0.15, 0.25]
    start = {k: v[:1] for k, v in starts(net, given, tasks).items()}
    well = train(net, examples, tasks, given, start)
    examples.inputs[tasks[2].rows] = float("nan")
    found = average(net, examples, tasks, given, start, weights)
    assert found.left_out == 1
    assert found.weight == pytest.approx(0.7)
    assert found.finite.tolist() == [True, True, False, True, True]
    for name, value in found.tensors.items():
        wanted = sum(weights[j] * well.tensors[name][j] for j in (0, 1, 3, 4))
        assert np.allclose(value[0], wanted, atol=1e-6)


def test_an_average_of_nothing_is_zero_and_weighs_nothing():
    net, given = network("dense"), procedure()
    examples, tasks = problem()
    examples.inputs.fill_(float("nan"))
    start = {k: v[:1] for k, v in starts(net, given, tasks).items()}
    found = average(net, examples, tasks, given, start, [0.2] * 5)
    assert (found.weight, found.left_out) == (0.0, 5)
    assert not any(value.any() for value in found.tensors.values())
