"""Networks side by side: one network that holds all hidden units of several, none matched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrepro.methods.matching.convolutional_units import incoming, outgoing
from fedrepro.methods.matching.networks import UnitArrays, Variances, hidden_layers
from fedrepro.methods.matching.rewards import Array, Ints, posterior_mean


def side_by_side(networks: Sequence[UnitArrays], bias: Array) -> UnitArrays:
    """Join the hidden units of all networks, connected as they were: outputs are summed.

    Weights between hidden layers are block-diagonal; `bias` (K,) is the output bias.
    """
    # loaded here: planning lists the methods, and must not wait for SciPy
    from scipy.linalg import block_diag

    blocks: list[Array] = []
    depth = hidden_layers(networks[0])
    for layer in range(depth + 1):
        weights = [network[2 * layer] for network in networks]
        if layer == 0:
            blocks.append(np.concatenate(weights, axis=1))
        elif layer < depth:
            blocks.append(block_diag(*weights))
        else:
            blocks.append(np.concatenate(weights))
        if layer < depth:
            blocks.append(np.concatenate([network[2 * layer + 1] for network in networks]))
    return (*blocks, bias)


def alone(network: UnitArrays, shares: Array, variances: Variances) -> UnitArrays:
    """Return the network's posterior means if each unit is the only member of its atom.

    `shares` (K,) are precisions of weights to a class in units of 1 / sigma2. A weight v is drawn
    to the prior: (v p + mean / sigma02) / (p + 1 / sigma02), p = 1 / sigma2 of the layer it leaves
    (of the lowest hidden layer for weights from the inputs). The output bias stays as it is.
    Source: PFNM, Proposition 1, equation (5).
    """
    noise = np.array(variances.noise(hidden_layers(network)))
    prior = 1.0 / variances.sigma02

    def drawn(value: Array, precision: Array, mean: float = 0.0) -> Array:
        return posterior_mean(value * precision + mean * prior, precision + prior)

    blocks = [drawn(network[0], 1.0 / noise[:1])]
    for layer, variance in enumerate(noise):
        layer_precision = np.full(1, 1.0 / variance)
        top = layer == len(noise) - 1
        blocks.append(drawn(network[2 * layer + 1], layer_precision, variances.bias))
        blocks.append(drawn(network[2 * layer + 2], shares / variance if top else layer_precision))
    return (*blocks, network[-1])


def strength(network: UnitArrays, layer: int) -> Array:
    """Compute each hidden unit's norm of the way in times norm of the way out: (L,).

    The way in counts the bias. The product does not change where a unit is scaled by a factor and
    its outgoing weights by the inverse, which leaves a ReLU network's outputs as they are.
    """
    way_in = np.vstack([incoming(network[2 * layer]), network[2 * layer + 1]])
    product: Array = np.linalg.norm(way_in, axis=0) * np.linalg.norm(
        outgoing(network[2 * layer + 2]), axis=1
    )
    return product


def pruned(network: UnitArrays, units: int) -> UnitArrays:
    """Keep the `units` strongest units of each hidden layer, in their order."""
    kept: list[Ints] = []
    for layer in range(hidden_layers(network)):
        order = np.argsort(-strength(network, layer), kind="stable")
        kept.append(np.sort(order[:units]))
    blocks = list(network)
    for layer, chosen in enumerate(kept):
        blocks[2 * layer] = blocks[2 * layer][:, chosen]
        blocks[2 * layer + 1] = blocks[2 * layer + 1][chosen]
        blocks[2 * layer + 2] = blocks[2 * layer + 2][chosen]
    return tuple(blocks)
