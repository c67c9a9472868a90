"""Steps played from CUDA graphs are the steps themselves, round after round."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrepro.core.registry import read_token
from fedrepro.core.rng import Rng
from fedrepro.federation.clients import own_starts
from fedrepro.networks.predict import network_of
from fedrepro.training import blocks, recorded
from fedrepro.training.engine import average, train
from fedrepro.training.examples import Examples
from fedrepro.training.minibatches import Task
from fedrepro.training.settings import settings_of
from fedrepro.training.terms import Correction, Proximal

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here")
SIZES = [90, 61, 61, 30, 7]
CNN = "cnn+channels~3@5+hidden~7"


@pytest.fixture(autouse=True)
def _exact(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(blocks, "_kept", [])
    monkeypatch.setattr(recorded, "BEFORE", 1)


def problem(model, training, device="cuda"):
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.integers(0, 256, (sum(SIZES), 200), dtype=np.uint8))
    labels = torch.from_numpy(rng.integers(0, 4, sum(SIZES)))
    network = network_of(read_token("model", model), (2, 10, 10), 4)
    spec = read_token("training", training)
    settings = settings_of(spec.component.spec({**spec.values, "epochs": 3, "batch_size": 10}))
    rows = np.split(rng.permutation(sum(SIZES)), np.cumsum(SIZES)[:-1])
    tasks = [Task(r, Rng(0, 0, j)) for j, r in enumerate(rows)]
    start = own_starts(network, settings, [Rng(0, 0, 0)])
    return network, Examples(inputs.to(device), labels.to(device), 255.0), tasks, settings, start


def rounds(problem, terms, count=3):
    """Some trainings one after another, each from the mean of the last, with other tasks."""
    network, examples, tasks, settings, start = problem
    found = []
    for number in range(count):
        some = tasks[number % 2 :]
        reference = None
        if any(isinstance(term, Correction) for term in terms):
            reference = {
                name: np.full((len(some), *value.shape[1:]), 0.01 * number, np.float32)
                for name, value in start.items()
            }
        trained = train(network, examples, some, settings, start, terms=terms, reference=reference)
        start = {name: value.mean(0, keepdims=True) for name, value in trained.tensors.items()}
        found.append(trained)
    return found


TRAININGS = ["sgd", "sgd+momentum~0.9", "sgd+augment~crop_flip+l2~0.001+momentum~0.9", "adam"]
TERMS = [(), (Proximal(0.1),), (Correction(),)]


@pytest.mark.parametrize("terms", TERMS, ids=["plain", "proximal", "correction"])
@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("model", [CNN, "mlp+hidden~9"])
def test_a_played_step_has_the_bytes_of_the_step(model, training, terms, monkeypatch):
    if model != CNN and "crop" in training:
        pytest.skip("crops are for images")
    given = problem(model, training)
    played = rounds(given, terms)
    monkeypatch.setattr(recorded, "KINDS", ())
    monkeypatch.setattr(blocks, "_kept", [])
    for one, other in zip(played, rounds(given, terms), strict=True):
        for name, value in one.tensors.items():
            assert value.tobytes() == other.tensors[name].tobytes(), name
        assert one.loss.tobytes() == other.loss.tobytes()


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("model", [CNN, "mlp+hidden~9"])
def test_a_gpu_trains_as_the_cpu_does(model, training):
    if model != CNN and "crop" in training:
        pytest.skip("crops are for images")
    # Adam divides what is nearly zero by what is nearly zero: two orders of a sum on the CPU are as
    # far apart after three rounds (0.16) as the GPU is (0.09), and 3e-6 after one
    count = 1 if training == "adam" else 3
    one, other = (rounds(problem(model, training, device), (), count) for device in ("cuda", "cpu"))
    for name, value in one[-1].tensors.items():
        np.testing.assert_allclose(value, other[-1].tensors[name], atol=1e-3)


def test_rounds_share_their_graphs():
    network, examples, tasks, settings, start = problem(CNN, "sgd+momentum~0.9")
    for _ in range(2):
        train(network, examples, tasks, settings, start)
        ((kept, _),) = blocks._kept
        graphs = dict(kept.recorder.graphs)
    assert graphs
    train(network, examples, tasks, settings, start)
    assert blocks._kept[0][0] is kept
    assert kept.recorder.graphs == graphs


def test_another_rate_is_recorded_anew():
    network, examples, tasks, settings, start = problem(CNN, "sgd+momentum~0.9")
    found = []
    for lr in (0.1, 0.01, 0.1):
        some = [Task(task.rows, task.rng, lr=lr) for task in tasks]
        found.append(train(network, examples, some, settings, start).tensors)
    for name, value in found[0].items():
        assert value.tobytes() == found[2][name].tobytes()
        assert value.tobytes() != found[1][name].tobytes()


def test_an_average_is_added_up_where_the_models_are():
    network, examples, tasks, settings, start = problem(CNN, "sgd")
    weights = [0.1, 0.2, 0.3, 0.25, 0.15]
    whole = average(network, examples, tasks, settings, start, weights)
    trained = train(network, examples, tasks, settings, start)
    for name, value in whole.tensors.items():
        own = np.tensordot(weights, trained.tensors[name], 1)
        np.testing.assert_allclose(value[0], own, atol=1e-6)


def test_a_model_that_is_not_finite_stays_out_of_the_average():
    network, examples, tasks, settings, start = problem(CNN, "sgd")
    tasks[1] = Task(tasks[1].rows, tasks[1].rng, lr=1e30)
    with np.errstate(all="ignore"):
        whole = average(network, examples, tasks, settings, start, [0.2] * 5)
    assert whole.left_out == 1
    assert all(np.isfinite(value).all() for value in whole.tensors.values())
