"""Pixels as they are, from -0.5 to 0.5, or standardised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.data.prepared import SPLITS, Arrays


@register("feature", "pixels", version=1, device="cpu")
def pixels(images: Arrays) -> Mapping[str, np.ndarray]:
    """Keep the pixels of images as the publisher stored them: {split: uint8 (N, *shape)}."""
    return images.x


@register("feature", "centred", version=1, device="cpu")
def centred(images: Arrays) -> Mapping[str, np.ndarray]:
    """Scale pixels to [0, 1] and subtract one half: {split: float32 (N, *shape)}."""
    return {
        split: images.x[split].astype(np.float32) / np.float32(images.scale) - np.float32(0.5)
        for split in SPLITS
    }


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
        Arg("mean and deviation: MNIST's, CIFAR-10's, or a half each (from -1 to 1)"),
    ] = "mnist",
) -> Mapping[str, np.ndarray]:
    """Standardise pixels, (x - m) / s by channel or with one m and s: {split: float32 (N, *shape)}.

    `of` names the data set whose published mean m and deviation s are used; "half": both are 0.5.
    """
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
