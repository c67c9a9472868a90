"""Pixels from -0.5 to 0.5, where stored ones are brought to 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedrepro.core.registry import register
from fedrepro.data.prepared import SPLITS, Arrays


@register("feature", "centred", version=1, device="cpu")
def centred(images: Arrays) -> Mapping[str, np.ndarray]:
    """Subtract one half from each pixel. Shapes: {split: float32 (N, *shape)}.

    A half is the middle of what a pixel can be, not the mean of the data, so nothing is measured.
    """
    return {
        split: images.x[split].astype(np.float32) / np.float32(images.scale) - np.float32(0.5)
        for split in SPLITS
    }
