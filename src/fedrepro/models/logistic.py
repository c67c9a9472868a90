"""Multinomial logistic regression."""

from __future__ import annotations

from fedrepro.models.dense import Dense
from fedrepro.registry import register


@register("model", "logistic", version=1, title="logistic regression")
def logistic(inputs: int, classes: int) -> Dense:
    """Softmax of an affine map: a fully connected network without hidden layers."""
    return Dense((inputs, classes))
