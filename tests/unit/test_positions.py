"""A network that predicts after each character of a window: what is asked, and what counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plain
import pytest
import torch
from torch.nn import functional

from fedrepro.api import GlobalModel
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.networks.predict import network_of
from fedrepro.numbers.model_evaluation import EvaluationSplit, correct, measure
from fedrepro.training.examples import Examples
from fedrepro.training.federation.client_queries import evaluated, gradients_at

WINDOW, CODES, COUNT = 6, 5, 24
MODEL = components("model")["char_lstm"].spec({"embedding": 3, "units": 4, "predict": "all"})
NETWORK = network_of(MODEL, (WINDOW,), CODES)


@pytest.fixture
def split():
    rng = np.random.default_rng(2)
    inputs = rng.integers(0, CODES, (COUNT, WINDOW)).astype(np.uint8)
    labels = rng.integers(0, CODES, COUNT)
    examples = Examples(torch.from_numpy(inputs), torch.from_numpy(labels))
    rows = [np.arange(0, 5), np.arange(5, COUNT)]
    return EvaluationSplit(examples, labels, (WINDOW,), CODES, rows)


@pytest.fixture
def weights():
    found = NETWORK.initial(RngKey(1), 0.1, 0.1, "fan_in")
    return {name: 3 * value[None] for name, value in found.items()}


def literal(weights, split):
    """Logits (N, K, T) of the equations, and the character that follows at each position."""
    alone = {k: torch.from_numpy(v[0]) for k, v in weights.items()}
    x = split.examples.inputs
    after = [[*row[1:], label] for row, label in zip(x.tolist(), split.labels, strict=True)]
    return plain.lstm(alone, x, 2, all_positions=True), torch.tensor(after)


def test_accuracy_is_over_all_characters(split, weights):
    logits, after = literal(weights, split)
    right = (logits.argmax(1) == after).numpy()
    model = GlobalModel(MODEL, weights)
    assert np.array_equal(correct(model, split), right)
    numbers = {(n.metric, n.split): n.value for n in measure(model, {"train": split})}
    assert numbers["accuracy", "train"] == right.mean()
    clients = [right[rows].mean() for rows in split.rows]
    assert numbers["accuracy_clients", "train"] == pytest.approx(np.mean(clients))


def test_clients_evaluate_and_differentiate_over_all_characters(split, weights):
    logits, after = literal(weights, split)
    each = functional.cross_entropy(logits, after, reduction="none").mean(1)
    right = (logits.argmax(1) == after).double().mean(1)
    found = evaluated(NETWORK, split.examples, split.rows, weights)
    for client, rows in enumerate(split.rows):
        assert found.accuracy[0, client] == pytest.approx(float(right[rows].mean()), abs=1e-6)
        assert found.loss[0, client] == pytest.approx(float(each[rows].mean()), abs=1e-6)
    halves = np.split(np.arange(COUNT), 2)
    _, losses = gradients_at(NETWORK, split.examples, halves, weights)
    assert losses == pytest.approx([float(each[rows].mean()) for rows in halves], abs=1e-6)


def arrays_of(token: str):
    spec = parse_token("dataset", token)
    return spec.component.fn(Path(), **spec.values)


def test_speeches_are_the_same_in_all_runs_and_roles_differ():
    first, second = arrays_of("speeches"), arrays_of("speeches")
    assert np.array_equal(first.x["train"], second.x["train"])
    assert len(first.group_names) == 20
    assert "generated" in first.stand_in
    shares = np.array(
        [
            np.bincount(first.x["train"][first.group("train") == role].ravel(), minlength=30)
            for role in range(20)
        ]
    )
    shares = shares / shares.sum(1, keepdims=True)
    assert np.abs(shares[0] - shares[1]).sum() > 0.05


def test_windows_of_speeches_lie_end_to_end():
    arrays = arrays_of("speeches")
    own = arrays.group("train") == 3
    x, y = arrays.x["train"][own], arrays.y["train"][own]
    assert np.array_equal(x[1:, 0], y[:-1])  # a window begins with what the last one asked for
