"""The engine equals a plain loop per client, and its bytes do not depend on how work is cut."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import plain
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.networks.network import dense as network_of_sizes
from fedrepro.training.engine import train
from fedrepro.training.examples import Examples
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.flat_models import Layout
from fedrepro.training.minibatches import Task, epoch_order, schedule
from fedrepro.training.training_settings import settings_of

SIZES = [70, 7, 33, 64, 1, 32, 31]
FEATURES, CLASSES = 12, 4
RATES = [None, 0.2, 0.1, 0.05, None, 0.1, 0.3]


def procedure(name, **values):
    return settings_of(components("training")[name].spec({"epochs": 2, **values}))


ADAM = procedure("adam")
PROCEDURES = {
    "amsgrad": ADAM,
    "adam": procedure("adam", amsgrad=False, l2=0.01),
    "plain": procedure("sgd", lr=0.1),
    "sgd": procedure("sgd", l2=0.01),
    "momentum": procedure("sgd", momentum=0.9),
}


def problem(dtype=torch.float32):
    rng = np.random.default_rng(0)
    count = sum(SIZES)
    inputs = torch.tensor(rng.random((count, FEATURES)), dtype=dtype)
    labels = torch.tensor(rng.integers(0, CLASSES, count))
    rows = np.split(rng.permutation(count), np.cumsum(SIZES)[:-1])
    return Examples(inputs, labels), [Task(r, RngKey(0, 0, j)) for j, r in enumerate(rows)]


def plain_loop(dense, examples, task, given, start):
    layers = len(dense.sizes) - 1
    return plain.loop(
        lambda w, x, noise: plain.mlp(w, x, noise, layers), examples, task, given, start
    )


@pytest.mark.parametrize("hidden", [(), (5,), (8, 3, 6)])
@pytest.mark.parametrize("name", PROCEDURES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_stacked_equals_a_loop_per_client(hidden, name, dtype, tolerance):
    dense, given = network_of_sizes((FEATURES, *hidden, CLASSES)), PROCEDURES[name]
    examples, tasks = problem(dtype)
    start = initial_weights(dense, given, [task.rng for task in tasks])
    start = {
        k: v.astype(np.float64 if dtype == torch.float64 else np.float32) for k, v in start.items()
    }
    found = train(dense, examples, tasks, given, start, block=3)
    for j, task in enumerate(tasks):
        own = plain_loop(dense, examples, task, given, {k: v[j] for k, v in start.items()})
        for key, value in own.items():
            assert np.abs(found.tensors[key][j] - value).max() < tolerance, (key, j)


@pytest.mark.parametrize("name", PROCEDURES)
@pytest.mark.parametrize("hidden", [(), (50,), (17, 9)])
def test_bytes_do_not_depend_on_the_block(name, hidden):
    dense, given = network_of_sizes((FEATURES, *hidden, CLASSES)), PROCEDURES[name]
    examples, tasks = problem()
    start = initial_weights(dense, given, [task.rng for task in tasks])
    whole = train(dense, examples, tasks, given, start, keep_gradients=True, block=7)
    for size in (1, 2, 5):
        other = train(dense, examples, tasks, given, start, keep_gradients=True, block=size)
        for key in whole.tensors:
            assert np.array_equal(whole.tensors[key], other.tensors[key])
            assert np.array_equal(whole.gradients[key], other.gradients[key])


def test_descent_in_the_product_equals_descent_along_a_gradient():
    """Which is written down only for those who ask for it."""
    dense, given = network_of_sizes((FEATURES, 16, CLASSES)), PROCEDURES["plain"]
    examples, tasks = problem(torch.float64)
    tasks = [replace(task, lr=lr) for task, lr in zip(tasks, RATES, strict=True)]
    start = initial_weights(dense, given, [task.rng for task in tasks])
    start = {name: value.astype(np.float64) for name, value in start.items()}
    within = train(dense, examples, tasks, given, start, block=4)
    along = train(dense, examples, tasks, given, start, block=4, keep_gradients=True)
    assert within.gradients is None
    assert np.abs(within.loss - along.loss).max() < 1e-12
    for name, value in within.tensors.items():
        assert np.abs(value - along.tensors[name]).max() < 1e-12


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=7, unique=True))
def test_bytes_do_not_depend_on_the_company(chosen):
    dense = network_of_sizes((FEATURES, 16, CLASSES))
    examples, tasks = problem()
    start = initial_weights(dense, ADAM, [task.rng for task in tasks])
    whole = train(dense, examples, tasks, ADAM, start)
    some = train(
        dense, examples, [tasks[j] for j in chosen], ADAM,
        {k: v[chosen] for k, v in start.items()},
    )  # fmt: skip
    for key in whole.tensors:
        assert np.array_equal(whole.tensors[key][chosen], some.tensors[key])


def test_every_epoch_of_every_round_has_an_order_of_its_own():
    _, tasks = problem()
    rounds = [replace(tasks[0], rng=tasks[0].rng.at(round=r)) for r in range(4)]
    orders = {epoch_order(task, epoch).tobytes() for task in rounds for epoch in range(4)}
    assert len(orders) == 16
    assert len({epoch_order(tasks[0], epoch).tobytes() for epoch in range(16)}) == 16


def test_the_summed_gradient_is_that_of_the_data_loss():
    dense = network_of_sizes((FEATURES, CLASSES))
    given = procedure("sgd", lr=1e-9, l2=0.5, epochs=1, batch_size=1000)
    examples, tasks = problem(torch.float64)
    start = {
        k: v.astype(np.float64) for k, v in initial_weights(dense, given, [tasks[0].rng]).items()
    }
    found = train(dense, examples, tasks[:1], given, start, keep_gradients=True)
    weight = torch.tensor(start["weight0"][0], requires_grad=True)
    rows = torch.tensor(tasks[0].rows)
    out = examples.inputs[rows] @ weight + torch.tensor(start["bias0"][0])
    torch.nn.functional.cross_entropy(out, examples.targets[rows]).backward()
    assert np.abs(found.gradients["weight0"][0] - weight.grad.numpy()).max() < 1e-12
    assert found.steps.tolist() == [1]


def test_soft_targets_are_cross_entropy_against_them():
    dense = network_of_sizes((FEATURES, 5, CLASSES))
    examples, tasks = problem(torch.float64)
    shares = torch.softmax(2 * torch.nn.functional.one_hot(examples.targets, CLASSES).double(), 1)
    soft = replace(examples, targets=shares)
    start = {
        k: v.astype(np.float64) for k, v in initial_weights(dense, ADAM, [tasks[2].rng]).items()
    }
    found = train(dense, soft, tasks[2:3], ADAM, start)
    own = plain_loop(dense, soft, tasks[2], ADAM, {k: v[0] for k, v in start.items()})
    assert all(np.abs(found.tensors[k][0] - own[k]).max() < 1e-10 for k in own)


def test_a_loss_that_is_not_finite_names_client_trial_and_step():
    dense = network_of_sizes((FEATURES, 5, CLASSES))
    examples, tasks = problem()
    examples.inputs[tasks[2].rows] = float("nan")
    start = initial_weights(dense, ADAM, [task.rng for task in tasks])
    with pytest.raises(FedreproError, match="client 2 in trial 0 is not finite at step 1; lower"):
        train(dense, examples, tasks, ADAM, start).checked()


def test_a_client_without_examples_is_a_sentence():
    dense = network_of_sizes((FEATURES, CLASSES))
    examples, tasks = problem()
    empty = Task(np.empty(0, np.int64), RngKey(0, 3, 9))
    start = initial_weights(dense, ADAM, [tasks[0].rng, empty.rng])
    with pytest.raises(FedreproError, match="client 9 of trial 3 has no training examples"):
        train(dense, examples, [tasks[0], empty], ADAM, start)


def test_starts_are_each_clients_own_unless_shared():
    dense = network_of_sizes((FEATURES, 5, CLASSES))
    places = [RngKey(0, 0, 0), RngKey(0, 0, 1), RngKey(0, 1, 0)]
    own = initial_weights(dense, ADAM, places)["weight0"]
    assert not np.array_equal(own[0], own[1])
    shared = initial_weights(dense, procedure("adam", shared_init=True), places)["weight0"]
    assert np.array_equal(shared[0], shared[1])
    assert not np.array_equal(shared[0], shared[2])
    assert np.allclose(own.std(), ADAM.weight_sd, rtol=0.1)


@given(st.lists(st.integers(1, 90), min_size=1, max_size=6), st.integers(1, 40), st.integers(1, 3))
def test_a_schedule_visits_every_example_once_an_epoch(sizes, batch, epochs):
    sizes = sorted(sizes, reverse=True)
    tasks = [Task(np.arange(n) + 100 * j, RngKey(0, 0, j)) for j, n in enumerate(sizes)]
    chunks = list(schedule(tasks, batch, epochs))
    index = np.concatenate([chunk.index for chunk in chunks])
    size = np.concatenate([chunk.size for chunk in chunks])
    active = np.concatenate([chunk.active for chunk in chunks])
    counts = np.arange(batch) < size[..., None]
    for j, n in enumerate(sizes):
        own = index[:, j][counts[:, j]]
        assert sorted(own.tolist()) == sorted((np.arange(n) + 100 * j).tolist() * epochs)
        steps = -(-n // batch) * epochs
        assert size[:steps, j].all()
        assert not size[steps:, j].any()
    assert active[0] == len(sizes)
    assert (np.diff(active) <= 0).all()


@given(st.integers(1, 50), st.integers(1, 9), st.integers(1, 40))
def test_a_number_of_steps_is_the_beginning_of_whole_epochs(size, batch, steps):
    whole = Task(np.arange(size), RngKey(0, 0, 0))
    epochs = -(-steps // whole.per_epoch(batch))
    (some,) = schedule([replace(whole, steps=steps)], batch, epochs=1)
    (all_of_them,) = schedule([whole], batch, epochs)
    assert np.array_equal(some.index, all_of_them.index[:steps])
    assert np.array_equal(some.size, all_of_them.size[:steps])


def test_chunks_are_the_whole_schedule_cut(monkeypatch):
    _, tasks = problem()
    tasks = sorted(tasks, key=lambda task: -len(task.rows))
    (whole,) = schedule(tasks, 8, 3)
    monkeypatch.setattr("fedrepro.training.minibatches.CHUNK_BYTES", 5 * 8 * 8 * len(tasks))
    chunks = list(schedule(tasks, 8, 3))
    assert len(chunks) == -(-len(whole.index) // 5)
    assert np.array_equal(np.concatenate([chunk.index for chunk in chunks]), whole.index)
    assert np.array_equal(np.concatenate([chunk.size for chunk in chunks]), whole.size)
    assert [chunk.first for chunk in chunks] == list(range(0, len(whole.index), 5))


def test_stored_bytes_train_as_their_scaled_floats_do():
    examples, tasks = problem()
    stored = (examples.inputs * 255).to(torch.uint8)
    dense = network_of_sizes((FEATURES, 5, CLASSES))
    start = initial_weights(dense, ADAM, [task.rng for task in tasks])
    floats = replace(examples, inputs=stored.float() / 255)
    one = train(dense, Examples(stored, examples.targets, 255.0), tasks, ADAM, start)
    two = train(dense, floats, tasks, ADAM, start)
    assert all(np.array_equal(one.tensors[k], two.tensors[k]) for k in start)


@given(st.lists(st.integers(1, 20), min_size=2, max_size=4), st.integers(1, 3))
def test_packing_is_the_inverse_of_unpacking(sizes, models):
    layout = Layout(network_of_sizes(tuple(sizes)).shapes)
    rng = np.random.default_rng(0)
    tensors = {k: rng.random((models, *s), np.float32) for k, s in layout.shapes.items()}
    flat = layout.pack(tensors)
    assert flat.shape == (models, layout.size)
    assert layout.size % 16 == 0
    back = layout.unpack(flat)
    views = layout.views(torch.from_numpy(flat))
    for key, value in tensors.items():
        assert np.array_equal(back[key], value)
        assert np.array_equal(views[key].numpy(), value)
    assert layout.numbers == sum(v[0].size for v in tensors.values())


@pytest.mark.parametrize("name", PROCEDURES)
@pytest.mark.parametrize("block", [1, 3, 7])
@pytest.mark.parametrize("path", ["compiled", "grouped", "loop"])
def test_an_optimiser_that_remembers_goes_on_as_if_nothing_had_been(name, block, path):
    dense, given = network_of_sizes((FEATURES, 6, CLASSES)), PROCEDURES[name]
    examples, tasks = problem()
    start = initial_weights(dense, given, [task.rng for task in tasks])
    run = partial(train, dense, examples, settings=given, path=path)
    whole = run([replace(t, steps=9) for t in tasks], start=start, memory={})
    # some stop sooner than others
    halves = [(4 + j % 2, 5 - j % 2) for j in range(len(tasks))]
    early = [replace(t, steps=n) for t, (n, _) in zip(tasks, halves, strict=True)]
    late = [replace(t, steps=n, done=m) for t, (m, n) in zip(tasks, halves, strict=True)]
    first = run(early, start=start, memory={}, block=block)
    assert first.memory["steps"].tolist() == [m for m, _ in halves]
    second = run(late, start=first.tensors, memory=first.memory, block=block)
    for key, value in whole.tensors.items():
        assert np.array_equal(value, second.tensors[key]), key
    assert whole.memory.keys() == second.memory.keys()
    for key, value in whole.memory.items():
        assert np.array_equal(value, second.memory[key]), key
    assert (
        train(dense, examples, tasks[:1], given, {k: v[:1] for k, v in start.items()}).memory
        is None
    )


def test_what_goes_on_does_not_stop_early():
    dense, given = network_of_sizes((FEATURES, CLASSES)), replace(ADAM, patience=2)
    examples, tasks = problem()
    start = initial_weights(dense, given, [RngKey(0)])
    for going_on, memory in ((tasks, {}), ([replace(task, done=1) for task in tasks], None)):
        with pytest.raises(FedreproError, match="cannot stop early; leave `patience`"):
            train(dense, examples, going_on, given, start, memory=memory)
