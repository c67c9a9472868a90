"""DENSE: what must hold of it whatever the data, and that what it makes is what it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from contract import METHODS, allowed, call, made_of
from problems import CLASSES, FEATURES, problem

from fedrepro.core.rng import RngKey
from fedrepro.methods.distillation import (
    BETAS,
    _Generator,
    _mean_logits,
    adam,
    divergence,
)
from fedrepro.networks.predict import network_of, probabilities
from fedrepro.training.examples import Examples

FEW = {"epochs": 2, "generator_steps": 3, "batch_size": 16, "latent": 8, "generator_units": 8}


@pytest.fixture(scope="module")
def given():
    return problem(shared_init=True)


def with_models(given, tensors):
    clients = replace(given.clients, own=tensors)
    info = replace(given.info, clients=clients)
    return replace(given, models=replace(given.models, tensors=tensors), clients=clients, info=info)


def test_a_student_that_is_the_ensemble_stays_where_it_is(given):
    """Of equal clients the average predicts what all together do: nothing is left to learn."""
    same = {k: np.repeat(v[:1], len(v), axis=0) for k, v in given.models.tensors.items()}
    made = call("dense", with_models(given, same), **FEW)
    assert all(np.allclose(made.tensors[k], v[:1], atol=1e-4) for k, v in same.items())
    assert made.diagnostics["student_gap"] == pytest.approx(0, abs=1e-9)


def test_the_divergence_is_that_of_its_definition_and_no_less_than_nothing():
    generator = torch.Generator().manual_seed(0)
    one, other = torch.randn(2, 5, CLASSES, generator=generator)
    for temperature in (1.0, 20.0):
        p, q = (torch.softmax(z / temperature, 1).double() for z in (one, other))
        wanted = float((p * (p / q).log()).sum(1).mean())
        found = float(divergence(one, other, temperature))
        assert found == pytest.approx(wanted, rel=1e-3)
        assert found > 0
    assert float(divergence(one, one + 3.0)) == pytest.approx(0, abs=1e-6)


def test_the_ensemble_is_the_mean_of_logits(given):
    network = network_of(given.models.model, (FEATURES,), CLASSES)
    x = torch.from_numpy(given.inputs[:7])
    each = [
        network.logits({k: torch.from_numpy(v[j]) for k, v in given.models.tensors.items()}, x)
        for j in range(given.models.clients)
    ]
    found = _mean_logits(network, given.models.tensors, "cpu")(x)
    assert torch.allclose(found, torch.stack(each).mean(0), atol=1e-5)


def test_made_inputs_are_of_their_classes_to_the_ensemble_and_lie_between_0_and_1(given):
    """The more steps, the lower the cross-entropy of what is kept."""
    network = network_of(given.models.model, (FEATURES,), CLASSES)
    ensemble = _mean_logits(network, given.models.tensors, "cpu")
    losses = []
    for steps in (1, 100):
        own = _Generator(network, 16, 16, 32, RngKey(0).at(round=0), "cpu")
        made, loss = own.made(ensemble, ensemble, steps, 0.01, 0.0)
        assert made.shape == (32, FEATURES)
        assert 0 <= float(made.min()) <= float(made.max()) <= 1
        entropy = torch.nn.functional.cross_entropy(ensemble(made), own.labels)
        assert float(entropy) == pytest.approx(loss, abs=1e-5)
        losses.append(loss)
    assert losses[1] < losses[0] / 2


def test_of_a_single_client_the_student_learns_that_client(given):
    """Distillation without data: from a fresh start it comes to predict what one model does."""
    one = {k: v[:1] for k, v in given.models.tensors.items()}
    own = with_models(given, one)
    own = replace(own, info=replace(own.info, example_counts=own.info.example_counts[:1]))
    item = METHODS["dense"]
    info = allowed(own.info, item)
    inputs = torch.from_numpy(np.random.default_rng(0).random((200, FEATURES), np.float32))
    network = network_of(own.models.model, (FEATURES,), CLASSES)

    def apart(made) -> float:
        examples = Examples(inputs, torch.zeros(len(inputs)))
        scores = [
            probabilities(network, tensors, None, examples) for tensors in (one, made.tensors)
        ]
        return float((scores[0] - scores[1]).abs().mean())

    values = {"start": "fresh", "lr": 0.1, "temperature": 1.0, "generator_lr": 0.02}
    values = {**FEW, **values, "generator_steps": 20, "batch_size": 64}
    short = made_of(item, own.models, info, {**values, "epochs": 1})
    long = made_of(item, own.models, info, {**values, "epochs": 20})
    assert apart(long) < apart(short) / 2
    assert long.diagnostics["student_gap"] < short.diagnostics["student_gap"] / 2


def test_the_steps_of_the_generator_are_those_of_adam():
    """By its formulas, in double precision; the first step is the sign of the slope."""
    slopes = np.random.default_rng(0).normal(size=(5, 7))
    kept = torch.zeros(7), torch.zeros(7)
    found = [adam(*kept, torch.from_numpy(g).float(), t) for t, g in enumerate(slopes, 1)]
    assert np.allclose(found[0], np.sign(slopes[0]), atol=1e-4)
    one, two = BETAS
    for t in range(1, 6):
        mean = sum((1 - one) * one ** (t - 1 - k) * slopes[k] for k in range(t)) / (1 - one**t)
        square = sum((1 - two) * two ** (t - 1 - k) * slopes[k] ** 2 for k in range(t))
        assert np.allclose(found[t - 1], mean / np.sqrt(square / (1 - two**t)), atol=1e-4)


def test_it_may_also_start_afresh(given):
    average = call("average", given).tensors
    fresh = call("dense", given, start="fresh", **FEW).tensors
    begun = call("dense", given, **FEW).tensors
    far = [sum(float(np.abs(m[k] - average[k]).sum()) for k in average) for m in (fresh, begun)]
    assert far[1] < far[0]
