"""Predictions by beliefs over weights: the mean of the softmax over draws."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from problems import CLASSES, FEATURES, problem
from scipy.special import softmax

from fedrepro.api import GlobalModel
from fedrepro.core.rng import RngKey
from fedrepro.networks.predict import draws_of, predict_belief, probabilities
from fedrepro.numbers.model_evaluation import (
    Draws,
    EvaluationSplit,
    correct,
    measure,
    measure_alone,
)

given = partial(problem, kind="variational_mlp")


def belief(clients, spread, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: (
            np.full(shape, spread) if name.endswith("spread") else rng.normal(0, 1, shape)
        ).astype(np.float32)
        for name, shape in clients.network.shapes.items()
    }


def split_of(own):
    return EvaluationSplit(own.clients.data.examples, own.labels, (FEATURES,), CLASSES)


def test_a_prediction_is_the_mean_of_the_softmax_over_draws():
    """Of which test_peer knows the mean and the spread."""
    clients = given().clients
    tensors, examples = belief(clients, 0.5), clients.data.examples
    found = predict_belief(clients.network, tensors, examples, 50, RngKey(0))
    drawn, x = draws_of(clients.network, tensors, 50, RngKey(0)), examples.inputs.numpy()
    each = zip(*(drawn[name] for name in ("weight0", "bias0", "weight1", "bias1")), strict=True)
    scores = [softmax(np.maximum(x @ w0 + b0, 0) @ w1 + b1, axis=1) for w0, b0, w1, b1 in each]
    assert np.allclose(found.numpy(), np.mean(scores, axis=0), atol=1e-5)


def test_a_belief_without_spread_predicts_by_its_means_and_networks_as_ever():
    clients = given().clients
    tensors, examples = belief(clients, -60.0), clients.data.examples
    drawn = predict_belief(clients.network, tensors, examples, 3, RngKey(0))
    means = {name: value[None] for name, value in tensors.items()}
    assert torch.allclose(drawn, probabilities(clients.network, means, None, examples), atol=1e-6)
    own = problem()
    split = split_of(own)
    model = GlobalModel(own.models.model, {k: v[[0]] for k, v in own.models.tensors.items()})
    assert measure(model, {"test": split}, Draws(RngKey(0))) == measure(model, {"test": split})


def values_of(numbers):
    return {number.metric: number.value for number in numbers}


def test_controls_predict_by_draws_with_the_accuracy_of_means_beside():
    own = given()
    split, draws = split_of(own), Draws(RngKey(0), 7)
    models = [
        GlobalModel(own.clients.model, {k: v[None] for k, v in belief(own.clients, s).items()})
        for s in (1.0, 1.5)
    ]
    numbers, each = measure_alone(models, {"test": split}, draws)
    places = [Draws(RngKey(0, client=j), 7) for j in range(2)]
    right = [correct(m, split, place).mean() for m, place in zip(models, places, strict=True)]
    by_means = [correct(model, split).mean() for model in models]
    assert each == pytest.approx(right)
    found, one = values_of(numbers), values_of(measure(models[0], {"test": split}, draws))
    assert found["accuracy"] == pytest.approx(np.mean(right))
    assert found["accuracy_of_means"] == pytest.approx(np.mean(by_means))
    assert found["forward_passes"] == 7
    assert one["accuracy"] == pytest.approx(correct(models[0], split, draws).mean())
    assert one["accuracy_of_means"] == pytest.approx(by_means[0])
    plain = values_of(measure(models[0], {"test": split}))
    assert (plain["accuracy"], plain["forward_passes"]) == (one["accuracy_of_means"], 1)


def test_a_mixture_of_beliefs_is_that_of_their_predictions():
    own = given()
    split, place = split_of(own), RngKey(0, trial=3)
    parts = [belief(own.clients, 0.5, seed) for seed in (1, 2)]
    weights = np.array([[0.3, 0.9, 0.5], [0.7, 0.1, 0.5]])
    stacked = {k: np.stack([part[k] for part in parts]) for k in parts[0]}
    scores = sum(
        torch.tensor(w)
        * predict_belief(own.clients.network, part, split.examples, 10, place.at(client=i))
        for i, (w, part) in enumerate(zip(weights, parts, strict=True))
    )
    found = correct(GlobalModel(own.clients.model, stacked, weights), split, Draws(place))
    assert np.array_equal(found[:, 0], scores.argmax(1).numpy() == own.labels)
