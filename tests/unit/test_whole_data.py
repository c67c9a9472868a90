"""Steps on all of a client's examples, in pieces; rates and steps of each client."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedrepro.core.errors import FedreproError
from fedrepro.core.portable_ops.aligned_buffers import PAD
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.networks.network import dense
from fedrepro.networks.predict import network_of
from fedrepro.training.compiled_trainer import CompiledTrainer
from fedrepro.training.engine import train
from fedrepro.training.examples import Examples
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.loss_terms import Entropy, GaussianPrior
from fedrepro.training.minibatches import Task, epoch_order, schedule
from fedrepro.training.training_settings import Procedure, settings_of

SIZES = [40, 9, 24, 1, 16, 33]
FEATURES, CLASSES = 64, 4
OPTIMISERS = {
    "sgd": ("sgd", {"lr": 0.1}),
    "momentum": ("sgd", {"lr": 0.05, "momentum": 0.9, "l2": 0.01}),
    "adam": ("adam", {"lr": 0.01}),
}


def procedure(name="sgd", **values):
    token, own = OPTIMISERS[name]
    given = {"epochs": 3, "batch_size": None, "init": "fan_in", **own, **values}
    return settings_of(components("training")[token].spec(given))


def network(kind):
    tokens = {
        "dropout": "mlp+dropout~0.5+hidden~6",
        "convolutional": "cnn+channels~2+hidden~5+kernel~3",
        "variational": "variational_mlp+hidden~5",
    }
    if kind == "dense":
        return dense((FEATURES, 6, CLASSES))
    return network_of(parse_token("model", tokens[kind]), (8, 8), CLASSES)


def problem(dtype=torch.float32):
    rng = np.random.default_rng(1)
    count = sum(SIZES)
    examples = Examples(
        torch.tensor(rng.random((count, FEATURES)), dtype=dtype),
        torch.tensor(rng.integers(0, CLASSES, count)),
    )
    rows = np.split(rng.permutation(count), np.cumsum(SIZES)[:-1])
    return examples, [Task(r, RngKey(0, 0, j)) for j, r in enumerate(rows)]


def starts(net, given, tasks):
    return initial_weights(net, given, [task.rng for task in tasks])


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr("fedrepro.training.training_settings.PIECE_ROWS", 7)


KINDS = ["dense", "dropout", "convolutional", "variational"]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kind", ["dense", "convolutional"])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_step_is_one_on_the_gradient_of_all_examples(kind, optimiser):
    """As a minibatch of all of them is."""
    net, given = network(kind), procedure(optimiser)
    examples, tasks = problem(torch.float64)
    start = {k: v.astype(np.float64) for k, v in starts(net, given, tasks).items()}
    found = train(net, examples, tasks, given, start, keep_gradients=True)
    assert found.steps.tolist() == [3] * len(tasks)
    for j, task in enumerate(tasks):
        own = {name: value[j : j + 1] for name, value in start.items()}
        large = replace(given, batch_size=len(task.rows))
        alone = train(net, examples, [task], large, own, keep_gradients=True)
        assert abs(alone.loss[0] - found.loss[j]) < 1e-12
        for name in start:
            assert np.abs(alone.tensors[name] - found.tensors[name][j]).max() < 1e-10
            assert np.abs(alone.gradients[name] - found.gradients[name][j]).max() < 1e-10


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_bytes_do_not_depend_on_the_company(kind, optimiser):
    """Clients with other numbers of examples, steps and rates in the block change nothing."""
    net, given = network(kind), procedure(optimiser)
    examples, tasks = problem()
    own = [(1, None), (6, 0.02), (4, 0.02), (2, None), (6, None), (5, 0.003)]
    tasks = [replace(t, steps=s, lr=lr) for t, (s, lr) in zip(tasks, own, strict=True)]
    start = starts(net, given, tasks)
    whole = train(net, examples, tasks, given, start)
    assert whole.steps.tolist() == [steps for steps, _ in own]
    pair = train(net, examples, tasks[1:3], given, {k: v[1:3] for k, v in start.items()})
    for name, value in whole.tensors.items():
        assert np.array_equal(value[1:3], pair.tensors[name])
    for j, task in enumerate(tasks):
        alone = train(net, examples, [task], given, {k: v[j : j + 1] for k, v in start.items()})
        assert alone.loss[0] == whole.loss[j]
        for name, value in whole.tensors.items():
            assert np.array_equal(value[j : j + 1], alone.tensors[name]), (name, j)


@pytest.mark.parametrize("terms", [(), (Entropy(1.3),)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_bytes_of_minibatches_do_not_depend_on_steps_and_rates_of_others(kind, optimiser, terms):
    net, given = network(kind), procedure(optimiser, batch_size=8)
    examples, tasks = problem()
    own = [(1, None), (9, 0.02), (4, 0.02), (2, None), (13, None), (5, 0.003)]
    tasks = [replace(t, steps=s, lr=lr) for t, (s, lr) in zip(tasks, own, strict=True)]
    start = starts(net, given, tasks)
    whole = train(net, examples, tasks, given, start, terms=terms)
    for j, task in enumerate(tasks):
        alone = train(
            net, examples, [task], given, {k: v[j : j + 1] for k, v in start.items()}, terms=terms
        )
        assert alone.loss[0] == whole.loss[j]
        for name, value in whole.tensors.items():
            assert np.array_equal(value[j : j + 1], alone.tensors[name]), (name, j)


@pytest.mark.usefixtures("small_pieces")
def test_terms_over_examples_are_summed_over_pieces():
    net, given = network("dense"), procedure()
    examples, tasks = problem(torch.float64)
    start = {k: v.astype(np.float64) for k, v in starts(net, given, tasks).items()}
    term = Entropy(1.3, 0.7)
    found = train(net, examples, tasks, given, start, terms=[term])
    large = replace(given, batch_size=64)
    other = train(net, examples, tasks, large, start, terms=[term])
    for name in start:
        assert np.abs(found.tensors[name] - other.tensors[name]).max() < 1e-10


@pytest.mark.parametrize("term", [Entropy(over="minibatch"), GaussianPrior(0.1)])
def test_a_term_that_looks_at_a_whole_minibatch_is_refused(term):
    net, given = network("variational"), procedure()
    examples, tasks = problem()
    with pytest.raises(FedreproError, match=r"cannot be computed in pieces .* give a batch_size"):
        train(net, examples, tasks, given, starts(net, given, tasks), terms=[term])


def test_memory_of_a_step_does_not_grow_with_the_examples():
    """No more rows are gathered at once than a piece has, however many a client holds."""
    examples, _ = problem()
    trainer = CompiledTrainer(Procedure(network("dense"), procedure(epochs=1)), examples, False)
    assert len(trainer.room.x) == 128 * examples.inputs.shape[1] + PAD


def test_steps_beyond_an_epoch_have_an_order_of_their_own_in_each():
    _, tasks = problem()
    task = replace(tasks[0], steps=15)  # five minibatches an epoch
    (chunk,) = schedule([task], 8, epochs=1)
    visited = chunk.index[:, 0].reshape(3, 40)
    for epoch, rows in enumerate(visited):
        assert np.array_equal(rows, epoch_order(task, epoch))
    assert len({rows.tobytes() for rows in visited}) == 3
    assert chunk.epoch[:, 0].tolist() == [0] * 5 + [1] * 5 + [2] * 5


def test_a_rate_for_all_is_that_of_the_settings():
    net, examples, tasks = network("dense"), *problem()
    start = starts(net, procedure(), tasks)
    one = train(net, examples, tasks, procedure(lr=0.03, batch_size=8), start)
    own = [replace(task, lr=0.03) for task in tasks]
    two = train(net, examples, own, procedure(batch_size=8), start)
    assert all(np.array_equal(one.tensors[name], two.tensors[name]) for name in start)


def test_no_steps_are_a_sentence():
    net, given = network("dense"), procedure()
    examples, tasks = problem()
    none = [replace(tasks[1], steps=0)]
    with pytest.raises(FedreproError, match="client 1 of trial 0 is to take 0 steps; give it"):
        train(net, examples, none, given, starts(net, given, none))


def test_a_token_asks_for_whole_data():
    spec = parse_token("training", "sgd+batch_size~none")
    assert settings_of(spec).batch_size is None
    assert settings_of(components("training")["sgd"].spec({"batch_size": None})).batch_size is None
