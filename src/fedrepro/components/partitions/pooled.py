"""One client holds everything: the partition of pooled training, a control."""

from __future__ import annotations

import numpy as np

from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.data.assignment import Assignment, TrainingLabels


@register("partition", "pooled", version=1, title="Pooled")
def pooled(examples: TrainingLabels, rng: RngKey) -> Assignment:
    """Give all examples to a single client. Nothing is drawn."""
    return Assignment(np.zeros(len(examples), np.int32), clients=1)
