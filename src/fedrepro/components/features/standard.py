"""Pixels less a mean and divided by a standard deviation that public code has for a data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.data.prepared import SPLITS, Arrays

# of pixels from 0 to 1, a channel each; FedFisher's code has those of MNIST for Fashion-MNIST too
NUMBERS = {
    "mnist": ([0.1307], [0.3081]),
    "cifar10": ([0.491, 0.482, 0.447], [0.247, 0.243, 0.262]),
    "half": ([0.5], [0.5]),
}


@register("feature", "standard", version=1, device="cpu")
def standard(
    images: Arrays,
    *,
    of: Annotated[
        Literal["mnist", "cifar10", "half"],
        Arg("whose mean and deviation: of MNIST, of CIFAR-10, or a half each (from -1 to 1)"),
    ] = "mnist",
) -> Mapping[str, np.ndarray]:
    """(x - m) / s of each channel, or one m and s for all. Shapes: {split: float32 (N, *shape)}."""
    mean, deviation = (np.array(numbers, np.float32) for numbers in NUMBERS[of])
    channels = images.shape[0] if len(images.shape) == 3 else 1
    if mean.size not in (1, channels):
        raise FedreproError(
            f"features 'standard' has numbers for {mean.size} channels with of '{of}', and the "
            f"images have {channels}: name another `of`"
        )
    over = (-1, 1, 1) if len(images.shape) == 3 else (-1,)
    scale = np.float32(images.scale)
    return {
        split: (images.x[split].astype(np.float32) / scale - mean.reshape(over))
        / deviation.reshape(over)
        for split in SPLITS
    }
