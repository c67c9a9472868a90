"""Multilayer perceptron with ReLU and a softmax output, of any depth."""

from __future__ import annotations

import math
from typing import Annotated

from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.networks.layers import Affine, Dropout, Layer, Relu
from fedrepro.networks.network import Network


@register("model", "mlp", version=1, title="multilayer perceptron")
def mlp(
    shape: tuple[int, ...],
    classes: int,
    *,
    hidden: Annotated[tuple[int, ...], Arg("units of each hidden layer", "units", least=1)] = (50,),
    dropout: Annotated[float, Arg("share of hidden units left out", least=0, most=0.95)] = 0.0,
    bias: Annotated[bool, Arg("whether layers have biases", later=True)] = True,
) -> Network:
    """Fully connected ReLU layers. Source: PFNM, section 3 (one hidden layer of 50 units).

    Dropout after every hidden layer. Source: GEMS, appendix B.4 (rate 0.5).
    """
    layers: list[Layer] = []
    for units in hidden:
        layers += [Affine(units, bias), Relu()]
        if dropout:
            layers.append(Dropout(dropout))
    return Network((math.prod(shape),), (*layers, Affine(classes, bias)))
