"""Pooling in compiled code: the bytes of PyTorch's own, forth and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import max_pool2d

from fedrepro.core.registry import parse_token
from fedrepro.core.rng import Rng
from fedrepro.federation.clients import own_starts
from fedrepro.networks import layers
from fedrepro.networks.predict import network_of
from fedrepro.products.pooling import max_pooled
from fedrepro.training.engine import train
from fedrepro.training.examples import Examples
from fedrepro.training.minibatches import Task
from fedrepro.training.settings import settings_of

LAST = torch.channels_last
# few different numbers, so that windows have equal ones, and zeros of either sign
VALUES = np.array([-2, -1, -0.0, 0.0, 1, 2])


def both_ways(pool: object, x: torch.Tensor, error: torch.Tensor) -> list[bytes]:
    """What a pooling gives for x, and what it gives back for an error."""
    leaf = x.detach().requires_grad_()
    found = pool(leaf)  # type: ignore[operator]
    below = torch.autograd.grad(found, leaf, error)[0]
    return [value.detach().contiguous().numpy().tobytes() for value in (found, below)]


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(2, 9), st.integers(2, 9)),
    st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from([LAST, torch.contiguous_format]),
    st.integers(0, 2**32 - 1),
)
def test_bytes_are_those_of_pytorch(
    shape: tuple[int, ...], kind: torch.dtype, laid: torch.memory_format, seed: int
) -> None:
    numbers = np.random.default_rng(seed)
    x = torch.from_numpy(numbers.choice(VALUES, shape)).to(kind, memory_format=LAST)
    halves = (*shape[:2], shape[2] // 2, shape[3] // 2)
    error = torch.from_numpy(numbers.standard_normal(halves)).to(kind, memory_format=laid)
    wanted = both_ways(lambda leaf: max_pool2d(leaf, 2), x, error)
    assert both_ways(max_pooled, x, error) == wanted


def test_what_is_not_a_number_is_kept() -> None:
    for place in np.ndindex(2, 2):
        x = torch.zeros(1, 3, 2, 2).to(memory_format=LAST)
        x[0, 1][place] = torch.nan
        assert torch.isnan(max_pooled(x)).flatten().tolist() == [False, True, False]


@pytest.mark.bytes
def test_training_gives_the_same_bytes_by_either_pooling(monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(parse_token("model", "cnn+channels~3@6+hidden~8"), (1, 10, 10), 4)
    settings = settings_of(parse_token("training", "sgd+batch_size~5+epochs~2"))
    numbers = np.random.default_rng(0)
    images = numbers.integers(0, 256, (15, 100), dtype=np.uint8)
    labels = numbers.integers(0, 4, 15)
    examples = Examples(torch.from_numpy(images), torch.from_numpy(labels), 255.0)
    tasks = [Task(np.arange(15), Rng(0, 0, 0))]
    start = own_starts(network, settings, [task.rng for task in tasks])
    found = []
    for lanes in (layers.LANES, 1):
        monkeypatch.setattr(layers, "LANES", lanes)
        trained = train(network, examples, tasks, settings, start)
        found.append({name: value.tobytes() for name, value in trained.tensors.items()})
    assert found[0] == found[1]
