"""Multilayer perceptron whose weights are independent normal distributions.

Blundell et al., Weight uncertainty in neural networks, ICML 2015, as P2P uses it.
"""

from __future__ import annotations

import math
from typing import Annotated

from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.networks.layers import Layer, Relu, Variational
from fedrepro.networks.network import Network


@register("model", "variational_mlp", version=2, title="variational perceptron")
def variational_mlp(
    shape: tuple[int, ...],
    classes: int,
    *,
    hidden: Annotated[tuple[int, ...], Arg("units of each hidden layer", "units", least=1)] = (
        400,
    ),
) -> Network:
    """Two tensors per weight, mean and spread. Source: P2P, section 5.2.2 (784-400-10)."""
    layers: list[Layer] = []
    for units in hidden:
        layers += [Variational(units), Relu()]
    return Network((math.prod(shape),), (*layers, Variational(classes)), "variational")
