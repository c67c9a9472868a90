"""Whether networks trained from one start, told from their weights.

The units of a hidden layer have no order of their own: of independent starts, unit k of one network
is no more like unit k of another than like any other unit, however long both were trained and
whatever they learned. From one start each unit keeps much of where it began. So units are compared
in their places and with the places drawn at random, of which mean and variance are known exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedrepro.core.kinds import MODULE
from fedrepro.networks.matrices import layer_matrices
from fedrepro.networks.network import Network

ENOUGH = 3.0  # standard deviations of chance, which reaches them once in 700 comparisons


def resemblance(
    network: Network, one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]
) -> float | None:
    """How many sd of chance the units of two networks are more alike in their places.

    Tensors (*shape). Of each hidden layer: sum_k <a_k, b_k> of the units' weights, less their mean
    over units, over its standard deviation if units of one network change places at random; layers
    are added up and divided by the root of their number. About 0 for independent starts; of one
    start at most the units of a layer. None where no layer has units that could change places, as
    in a softmax regression, whose classes have an order, or where nobody knows the layers, as in a
    `torch.nn.Module`. Errors: FedreproError for a network with
    layers that are no matrices.
    """
    if network.kind == MODULE:
        return None
    scores = []
    for layer in layer_matrices(network)[:-1]:
        a, b = (layer.of(tensors).T.astype(np.float64) for tensors in (one, other))
        if len(a) < 2:
            continue
        products = (a - a.mean(axis=0)) @ (b - b.mean(axis=0)).T
        chance = np.sqrt((products**2).sum() / (len(a) - 1))
        scores.append(float(np.trace(products) / chance) if chance > 0 else 0.0)
    return float(sum(scores) / np.sqrt(len(scores))) if scores else None
