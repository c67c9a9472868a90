"""How many models train together, and how what they are is brought to the host."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrepro.core.registry import read_token
from fedrepro.networks.predict import network_of
from fedrepro.training.autograd_trainer import activations, block_size
from fedrepro.training.engine import _add_on_gpu
from fedrepro.training.loss_terms import Entropy
from fedrepro.training.optimiser_steps import Layout
from fedrepro.training.training_settings import LazyGpuTensors, Procedure, settings_of

GPU = torch.device("cuda")


def procedure(model, shape, batch_size=64, terms=()):
    spec = read_token("training", "sgd")
    settings = settings_of(spec.component.spec({**spec.values, "batch_size": batch_size}))
    return Procedure(network_of(read_token("model", model), shape, 10), settings, terms)


def test_activations_are_those_of_a_step():
    lenet = procedure("cnn+channels~6@16+hidden~120@84+padding~valid", (3, 32, 32))
    convolutions = (6 + 75) * 28**2 + (16 + 150) * 10**2
    others = 6 * 28**2 + 6 * 14**2 + 16 * 10**2 + 16 * 5**2 + 2 * (120 + 84) + 10
    assert activations(lenet) == 64 * (convolutions + others)
    assert activations(procedure("logistic", (3, 2, 1), 8)) == 8 * 10
    assert activations(procedure("logistic", (3, 2, 1), 8, [Entropy(0.1)])) == 2 * 8 * 10


@pytest.mark.parametrize("model", ["mlp+hidden~100", "cnn", "cnn+channels~6@16+hidden~120@84"])
@pytest.mark.parametrize("models", [1, 50, 2000, 100_000])
def test_a_block_fits_half_the_memory_of_a_gpu(model, models, monkeypatch):
    memory = 80 * 2**30
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, memory))
    given = procedure(model, (3, 32, 32))
    size = Layout(given.network.shapes).size
    for share in (1, 8):
        monkeypatch.setenv("FEDREPRO_GPU_JOBS", str(share))
        found = block_size(given, GPU, models)
        assert 1 <= found <= models
        held = 4 * found * (3 * size + 2 * activations(given))
        assert found == 1 or held <= memory / share / 2
        assert block_size(given, GPU, 1) == 1


def test_tensors_are_fetched_once_and_only_the_sum_of_some_models():
    class Far(dict):
        asked = 0

        def __getitem__(self, name):
            self.asked += 1
            return super().__getitem__(name)

    far = Far(a=torch.ones(2), b=torch.zeros(3))
    found = LazyGpuTensors(far)
    assert far.asked == 0
    found["a"][0] = 7
    assert found["a"].tolist() == [7, 1]
    assert far.asked == 1
    tensors = {"weight": torch.arange(6.0).reshape(3, 2)}
    tensors["weight"][1] = torch.nan
    total = {"weight": np.ones((1, 2), np.float32)}
    _add_on_gpu(total, tensors, np.array([0, 2]), np.array([0.5, 0.25]))
    assert total["weight"].tolist() == [[1 + 1, 1 + 0.5 + 1.25]]
