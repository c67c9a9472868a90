"""The pixels themselves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedrepro.core.registry import register
from fedrepro.data.prepared import Arrays


@register("feature", "pixels", version=1, device="cpu")
def pixels(images: Arrays) -> Mapping[str, np.ndarray]:
    """Keep the pixels as the publisher stored them: no features at all.

    Shapes: {split: uint8 (N, *shape)}.
    """
    return images.x
