"""One client holds everything: the partition of pooled training, a control."""

from __future__ import annotations

import numpy as np

from fedrepro.data.membership import Split
from fedrepro.registry import register
from fedrepro.rng import Rng


@register("partition", "pooled", version=1, title="Pooled")
def pooled(labels: np.ndarray, classes: int, rng: Rng) -> Split:
    """A single client holds all examples. Nothing is drawn.

    Shapes: labels int64 (N,).
    """
    return Split(np.zeros(labels.size, np.int32), clients=1)
