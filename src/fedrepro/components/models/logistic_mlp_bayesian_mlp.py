"""Fully connected networks: logistic regression, perceptrons, and Bayesian perceptrons.

Blundell et al., Weight uncertainty in neural networks, ICML 2015, as P2P uses it.
"""

from __future__ import annotations

import math
from typing import Annotated

from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.networks.layers import SPREAD, Affine, Dropout, Layer, Relu, Variational
from fedrepro.networks.network import Network, dense


@register("model", "logistic", version=1, title="logistic regression")
def logistic(shape: tuple[int, ...], classes: int) -> Network:
    """Build logistic regression: softmax of an affine map, without hidden layers."""
    return dense((math.prod(shape), classes))


@register("model", "mlp", version=1, title="multilayer perceptron")
def mlp(
    shape: tuple[int, ...],
    classes: int,
    *,
    hidden: Annotated[tuple[int, ...], Arg("units of each hidden layer", "units", least=1)] = (50,),
    dropout: Annotated[float, Arg("dropout of hidden units", least=0, most=0.95)] = 0.0,
    bias: Annotated[bool, Arg("whether layers have biases", later=True)] = True,
) -> Network:
    """Build a perceptron of ReLU layers. Source: PFNM, section 3 (one hidden layer of 50 units).

    Dropout, if any, follows every hidden layer. Source: GEMS, appendix B.4 (rate 0.5).
    """
    layers: list[Layer] = []
    for units in hidden:
        layers += [Affine(units, bias), Relu()]
        if dropout:
            layers.append(Dropout(dropout))
    return Network((math.prod(shape),), (*layers, Affine(classes, bias)))


LEAST_SD, LARGEST_SD = 1e-9, 1e9  # squares and their inverses are single-precision numbers
LARGEST_START = 100.0  # its exponential is a number


@register("model", "variational_mlp", version=3, title="variational perceptron")
def variational_mlp(
    shape: tuple[int, ...],
    classes: int,
    *,
    hidden: Annotated[tuple[int, ...], Arg("units of each hidden layer", "units", least=1)] = (
        400,
    ),
    spread: Annotated[
        float | None,
        Arg(
            "initial standard deviation of a weight's Gaussian, none: softplus(-3.5), 0.02975",
            least=LEAST_SD,
            most=LARGEST_START,
        ),
    ] = None,
    prior_sd: Annotated[
        float | None,
        Arg(
            "standard deviation of the prior N(0, prior_sd²) of every weight, none: clients train "
            "without a prior",
            least=LEAST_SD,
            most=LARGEST_SD,
        ),
    ] = None,
) -> Network:
    """Build a Bayesian perceptron: mean and spread for each weight. Source: P2P, section 5.2.2.

    The paper's network is 784-400-10. `prior_sd` adds the KL divergence from the prior to every
    client's loss, counted once for all its examples; methods such as consensus replace the prior by
    their own from the second round on.
    """
    start = SPREAD if spread is None else math.log(math.expm1(spread))
    layers: list[Layer] = []
    for units in hidden:
        layers += [Variational(units, start), Relu()]
    layers.append(Variational(classes, start))
    return Network((math.prod(shape),), tuple(layers), "variational", prior_sd)
