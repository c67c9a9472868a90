"""Multinomial logistic regression."""

from __future__ import annotations

import math

from fedrepro.core.registry import register
from fedrepro.networks.network import Network, dense


@register("model", "logistic", version=1, title="logistic regression")
def logistic(shape: tuple[int, ...], classes: int) -> Network:
    """Softmax of an affine map: a fully connected network without hidden layers."""
    return dense((math.prod(shape), classes))
