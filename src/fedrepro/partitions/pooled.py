"""One client holds everything: the partition of pooled training, a control."""

from __future__ import annotations

import numpy as np

from fedrepro.data.split import Examples, Split
from fedrepro.registry import register
from fedrepro.rng import Rng


@register("partition", "pooled", version=1, title="Pooled")
def pooled(examples: Examples, rng: Rng) -> Split:
    """A single client holds all examples. Nothing is drawn."""
    return Split(np.zeros(len(examples), np.int32), clients=1)
