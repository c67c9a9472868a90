"""One client holds everything: the partition of pooled training, a control."""

from __future__ import annotations

import numpy as np

from fedrepro.core.registry import register
from fedrepro.core.rng import Rng
from fedrepro.data.split import Owners, TrainingLabels


@register("partition", "pooled", version=1, title="Pooled")
def pooled(examples: TrainingLabels, rng: Rng) -> Owners:
    """Give all examples to a single client. Nothing is drawn."""
    return Owners(np.zeros(len(examples), np.int32), clients=1)
