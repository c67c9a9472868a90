"""Small pictures that a network can learn, and a VGG-16 without a download."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from unittest import mock

import numpy as np
import torch

from fedrepro.data.prepared import SPLITS, Arrays

SIZES = {"train": 90, "validation": 0, "test": 30}


def pictures(shape: tuple[int, ...] = (3, 32, 32), seed: int = 0) -> Arrays:
    """Noise with a bright third whose place is the class."""
    rng = np.random.default_rng(seed)
    y = {split: np.arange(n, dtype=np.int64) % 3 for split, n in SIZES.items()}
    x = {}
    for split in SPLITS:
        x[split] = rng.integers(0, 100, (SIZES[split], *shape), np.uint8)
        for image, label in zip(x[split], y[split], strict=True):
            third = shape[-1] // 3
            image[..., label * third : (label + 1) * third] += 100
    return Arrays(x=x, y=y, scale=255.0, shape=shape, classes=("left", "middle", "right"))


@contextlib.contextmanager
def random_vgg16() -> Iterator[None]:
    """The extractor vgg16 with random weights instead of those of ImageNet."""
    with mock.patch("fedrepro.components.features.vgg16._weights", _random_weights):
        yield


def _random_weights() -> Mapping[str, torch.Tensor]:
    from torchvision import models

    with torch.device("meta"):
        wanted = models.vgg16(init_weights=False).state_dict()
    generator = torch.Generator().manual_seed(0)
    state = {}
    for name, tensor in wanted.items():
        if name.startswith("features."):
            spread = (2 / max(1, tensor[0].numel())) ** 0.5 if tensor.dim() > 1 else 0.0
            state[name] = torch.randn(tensor.shape, generator=generator) * spread
    return state
