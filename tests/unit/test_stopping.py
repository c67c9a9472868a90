"""Early stopping equals a plain loop, model by model, whatever the models are trained with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import plain
import pytest
import torch

from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.networks.predict import network_of
from fedrepro.training.engine import average, train
from fedrepro.training.examples import Examples
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.minibatches import Task
from fedrepro.training.training_settings import settings_of

SIZES = [70, 7, 33, 64, 1, 32, 31]
FEATURES, CLASSES, EPOCHS = 12, 4, 25


def settings(name="adam", **values):
    given = {"epochs": EPOCHS, "batch_size": 8, "patience": 2, **values}
    return settings_of(components("training")[name].spec(given))


def problem(dtype=torch.float32, spread=0.6):
    """Blobs that overlap, so that running accuracy rises and then wavers."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, sum(SIZES))
    inputs = np.eye(CLASSES, FEATURES)[labels] + spread * rng.standard_normal(
        (len(labels), FEATURES)
    )
    rows = np.split(rng.permutation(len(labels)), np.cumsum(SIZES)[:-1])
    examples = Examples(torch.tensor(inputs, dtype=dtype), torch.tensor(labels))
    return examples, [Task(r, RngKey(0, 0, j)) for j, r in enumerate(rows)]


def started(network, given, tasks, dtype=np.float32):
    start = initial_weights(network, given, [task.rng for task in tasks])
    return {name: value.astype(dtype) for name, value in start.items()}


def network(token):
    return network_of(parse_token("model", token), (FEATURES,), CLASSES)


@pytest.mark.parametrize("token", ["logistic", "mlp+hidden~8", "mlp+dropout~0.5+hidden~8"])
@pytest.mark.parametrize("procedure", ["adam", "sgd"])
@pytest.mark.parametrize("patience", [1, 3])
def test_it_equals_a_plain_loop(token, procedure, patience):
    net, given = network(token), settings(procedure, patience=patience)
    examples, tasks = problem(torch.float64)
    start = started(net, given, tasks, np.float64)
    found = train(net, examples, tasks, given, start, block=3)
    layers, rate = len(net.sizes) - 1, net.dropout
    for j, task in enumerate(tasks):
        own = plain.loop(
            lambda w, x, noise: plain.mlp(w, x, noise, layers, rate),
            examples,
            task,
            given,
            {k: v[j] for k, v in start.items()},
            random=rate > 0,
        )
        for key, value in own.items():
            assert np.abs(found.tensors[key][j] - value).max() < 1e-10, (key, j)


@pytest.mark.parametrize("batch_size", [8, None])
@pytest.mark.parametrize("token", ["mlp+hidden~8", "mlp+dropout~0.5+hidden~17@9", "logistic"])
def test_bytes_do_not_depend_on_the_block(token, batch_size):
    net, given = network(token), settings(batch_size=batch_size)
    examples, tasks = problem()
    start = started(net, given, tasks)
    whole = train(net, examples, tasks, given, start, block=7, keep_gradients=True)
    for size in (1, 2, 5):
        other = train(net, examples, tasks, given, start, block=size, keep_gradients=True)
        assert np.array_equal(whole.steps, other.steps)
        assert np.array_equal(whole.loss, other.loss)
        for key in whole.tensors:
            assert np.array_equal(whole.tensors[key], other.tensors[key])
            assert np.array_equal(whole.gradients[key], other.gradients[key])


@pytest.mark.parametrize("path", ["compiled", "grouped", "loop"])
def test_a_model_that_stopped_is_one_that_was_to_take_so_many_steps(path):
    """Of its tensors, its mean loss and its summed gradients alike."""
    net, given = network("mlp+hidden~8"), settings()
    examples, tasks = problem()
    start = started(net, given, tasks)
    found = train(net, examples, tasks, given, start, keep_gradients=True, path=path)
    planned = np.array([task.total(8, EPOCHS) for task in tasks])
    assert (found.steps < planned).any()
    assert len(set(found.steps // [task.per_epoch(8) for task in tasks])) > 2
    counted = [replace(task, steps=int(n)) for task, n in zip(tasks, found.steps, strict=True)]
    never = replace(given, patience=0)
    again = train(net, examples, counted, never, start, keep_gradients=True, path=path)
    assert np.array_equal(found.loss, again.loss)
    for key in found.tensors:
        assert np.array_equal(found.tensors[key], again.tensors[key])
        assert np.array_equal(found.gradients[key], again.gradients[key])


def test_without_patience_all_steps_are_taken():
    net, given = network("logistic"), settings(patience=0)
    examples, tasks = problem()
    found = train(net, examples, tasks, given, started(net, given, tasks))
    assert found.steps.tolist() == [task.total(8, EPOCHS) for task in tasks]


def test_an_average_is_of_models_as_they_stopped():
    net, given = network("mlp+hidden~8"), settings()
    examples, tasks = problem()
    start, share = started(net, given, tasks), 1 / len(tasks)
    each = train(net, examples, tasks, given, start).tensors
    found = average(net, examples, tasks, given, start, [share] * len(tasks)).tensors
    for key, value in each.items():
        assert np.allclose(found[key][0], value.mean(0), atol=1e-6)


def test_chunks_may_end_anywhere(monkeypatch):
    """An epoch that is cut by memory's limits counts as one."""
    net, given = network("logistic"), settings()
    examples, tasks = problem()
    start = started(net, given, tasks)
    whole = train(net, examples, tasks, given, start)
    monkeypatch.setattr("fedrepro.training.minibatches.CHUNK_BYTES", 8 * len(tasks) * 8 * 5)
    small = train(net, examples, tasks, given, start)
    assert np.array_equal(whole.steps, small.steps)
    assert all(np.array_equal(whole.tensors[k], small.tensors[k]) for k in whole.tensors)


def test_a_diverging_model_does_not_keep_the_others():
    net, given = network("mlp+hidden~8"), settings()
    examples, tasks = problem()
    start = started(net, given, tasks)
    broken = {k: v.copy() for k, v in start.items()}
    broken["weight0"][3] = np.inf
    well, found = (train(net, examples, tasks, given, s) for s in (start, broken))
    assert found.finite.tolist() == [j != 3 for j in range(len(tasks))]
    for key in well.tensors:
        others = np.arange(len(tasks)) != 3
        assert np.array_equal(well.tensors[key][others], found.tensors[key][others])


def test_glorot_starts_have_the_spread_of_their_fans():
    made = network_of(parse_token("model", "mlp+hidden~200"), (400,), 10)
    drawn = made.initial(RngKey(0), 0.1, 0.0, "glorot")
    limit = np.sqrt(6 / 600)
    assert np.abs(drawn["weight0"]).max() <= limit
    assert drawn["weight0"].std() == pytest.approx(limit / np.sqrt(3), rel=0.02)
    assert not drawn["bias0"].any()
    image = network_of(parse_token("model", "cnn+channels~16+hidden~8"), (3, 8, 8), 10)
    kernels = image.initial(RngKey(0), 0.1, 0.0, "glorot")["weight0"]
    reference = torch.empty(kernels.shape)
    torch.nn.init.xavier_uniform_(reference, generator=torch.Generator().manual_seed(0))
    assert np.abs(kernels).max() == pytest.approx(float(reference.abs().max()), rel=0.01)
