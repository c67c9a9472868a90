"""Predictions by beliefs over weights: the mean of the softmax over draws."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from problems import CLASSES, FEATURES, problem

from fedrepro.api import GlobalModel
from fedrepro.core.rng import RngKey
from fedrepro.networks.predict import predict_belief, probabilities
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
    clients = given().clients
    tensors, examples = belief(clients, 0.5), clients.data.examples
    found = predict_belief(clients.network, tensors, examples, 4000, RngKey(0))
    assert torch.allclose(found.sum(1), torch.ones(len(found)), atol=1e-4)
    rng = np.random.default_rng(5)
    deviation = np.log1p(np.exp(0.5))
    total = np.zeros(found.shape)
    for _ in range(4000):
        w0, b0, w1, b1 = (
            tensors[name] + deviation * rng.standard_normal(tensors[name].shape)
            for name in ("weight0", "bias0", "weight1", "bias1")
        )
        logits = np.maximum(examples.inputs.numpy() @ w0 + b0, 0) @ w1 + b1
        each = np.exp(logits - logits.max(1, keepdims=True))
        total += each / each.sum(1, keepdims=True) / 4000
    # the mean of 4000 numbers within [0, 1] has a standard error of at most 0.008, twice here
    assert np.abs(found.numpy() - total).max() < 5 * 0.008 * 2**0.5


def test_draws_belong_to_their_place_and_do_not_depend_on_the_examples_asked():
    clients = given().clients
    tensors, examples = belief(clients, 1.0), clients.data.examples
    first, again, other = (
        predict_belief(clients.network, tensors, examples, 3, RngKey(0, client=c))
        for c in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_belief_without_spread_predicts_by_its_means():
    clients = given().clients
    tensors, examples = belief(clients, -60.0), clients.data.examples
    drawn = predict_belief(clients.network, tensors, examples, 3, RngKey(0))
    means = {name: value[None] for name, value in tensors.items()}
    assert torch.allclose(drawn, probabilities(clients.network, means, None, examples), atol=1e-6)


def test_controls_predict_by_draws_with_the_accuracy_of_means_beside():
    own = given()
    split, draws = split_of(own), Draws(RngKey(0), 7)
    models = [
        GlobalModel(own.clients.model, {k: v[None] for k, v in belief(own.clients, s).items()})
        for s in (1.0, 1.5)
    ]
    numbers, each = measure_alone(models, {"test": split}, draws)
    found = {n.metric: n.value for n in numbers}
    right = [
        correct(model, split, Draws(RngKey(0, client=j), 7)).mean()
        for j, model in enumerate(models)
    ]
    assert each == pytest.approx(right)
    assert found["accuracy"] == pytest.approx(np.mean(right))
    assert found["accuracy_of_means"] == pytest.approx(
        np.mean([correct(model, split).mean() for model in models])
    )
    assert found["forward_passes"] == 7
    one = {n.metric: n.value for n in measure(models[0], {"test": split}, draws)}
    assert one["accuracy"] == pytest.approx(correct(models[0], split, draws).mean())
    assert one["accuracy_of_means"] == pytest.approx(correct(models[0], split).mean())
    by_means = {n.metric: n.value for n in measure(models[0], {"test": split})}
    assert by_means["accuracy"] == one["accuracy_of_means"]
    assert by_means["forward_passes"] == 1


def test_a_mixture_of_beliefs_is_that_of_their_predictions():
    own = given()
    split, place = split_of(own), RngKey(0, trial=3)
    parts = [belief(own.clients, 0.5, seed) for seed in (1, 2)]
    weights = np.array([[0.3, 0.9, 0.5], [0.7, 0.1, 0.5]])
    model = GlobalModel(
        own.clients.model, {k: np.stack([p[k] for p in parts]) for k in parts[0]}, weights
    )
    scores = sum(
        torch.tensor(w)
        * predict_belief(own.clients.network, p, split.examples, 10, place.at(client=i))
        for i, (w, p) in enumerate(zip(weights, parts, strict=True))
    )
    right = scores.argmax(1).numpy() == own.labels
    assert np.array_equal(correct(model, split, Draws(place))[:, 0], right)


def test_networks_without_spreads_predict_as_ever():
    own = problem()
    split = split_of(own)
    model = GlobalModel(own.models.model, {k: v[[0]] for k, v in own.models.tensors.items()})
    assert measure(model, {"test": split}, Draws(RngKey(0))) == measure(model, {"test": split})
