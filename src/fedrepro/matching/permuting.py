"""Networks of one shape, their hidden units permuted so that they agree (Git Re-Basin, 2023)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrepro.matching.assign import best_columns
from fedrepro.matching.blocks import incoming, outgoing
from fedrepro.matching.networks import UnitArrays, hidden_layers
from fedrepro.matching.rewards import Array, Ints

LEAST_GAIN = 1e-10  # of agreement, as a share of it


def in_step(
    networks: Sequence[UnitArrays], sweeps: int, rng: np.random.Generator
) -> list[UnitArrays]:
    """The networks, each with its units in the order that fits the mean of the others best.

    In a first pass each is matched to the mean of those before it; then each, in a random order, to
    the mean of all others, until none moves or for so many sweeps.
    """
    current = list(networks)
    first, *others = rng.permutation(len(current)).tolist()
    total = current[first]
    for count, j in enumerate(others, 1):
        current[j] = fitted(current[j], tuple(block / count for block in total), rng)
        total = _plus(total, current[j])
    for _ in range(sweeps if others else 0):
        moved = False
        for j in rng.permutation(len(current)).tolist():
            rest = _plus(total, tuple(-block for block in current[j]))
            now = fitted(current[j], tuple(block / (len(current) - 1) for block in rest), rng)
            moved |= now is not current[j]
            current[j], total = now, _plus(rest, now)
        if not moved:
            break
    return current


def fitted(network: UnitArrays, model: UnitArrays, rng: np.random.Generator) -> UnitArrays:
    """The network with its units in the order in which its weights agree most with the model's.

    A layer at a time, in random order, the others held as they are, until no layer gains. Each step
    is a linear assignment problem, so the sum of products of weights never falls.
    """
    while True:
        before = network
        for layer in rng.permutation(hidden_layers(network)).tolist():
            worth = agreement(model, network, layer)
            order = best_columns(worth)
            gain = worth[np.arange(len(order)), order].sum() - np.trace(worth)
            if gain > LEAST_GAIN * np.abs(worth).max():
                network = permuted(network, layer, order)
        if network is before:
            return network


def agreement(model: UnitArrays, network: UnitArrays, layer: int) -> Array:
    """Inner products of the units of a hidden layer, over weights in, bias and weights out.

    Entry (a, b) is of unit a of the model and unit b of the network, (L, L).
    """
    way_in, bias, way_out = 2 * layer, 2 * layer + 1, 2 * layer + 2
    products: Array = incoming(model[way_in]).T @ incoming(network[way_in])
    products = products + outgoing(model[way_out]) @ outgoing(network[way_out]).T
    return products + np.outer(model[bias], network[bias])


def permuted(network: UnitArrays, layer: int, order: Ints) -> UnitArrays:
    """The network with the units of a hidden layer in another order; its outputs stay."""
    blocks = list(network)
    blocks[2 * layer] = blocks[2 * layer][..., order]
    blocks[2 * layer + 1] = blocks[2 * layer + 1][order]
    blocks[2 * layer + 2] = blocks[2 * layer + 2][order]
    return tuple(blocks)


def mean_network(networks: Sequence[UnitArrays], share: Array, towards: Array) -> UnitArrays:
    """The weighted mean of each weight. share: (J,); towards: (J, K), for weights to each class."""
    means = [np.tensordot(share, np.stack(blocks), 1) for blocks in zip(*networks, strict=True)]
    tops = np.stack([network[-2] for network in networks])
    by_class = towards.reshape(len(towards), *[1] * (tops.ndim - 2), -1)
    top = (by_class * tops).sum(axis=0)
    bias = (towards * np.stack([network[-1] for network in networks])).sum(axis=0)
    return (*means[:-2], top, bias)


def _plus(one: UnitArrays, two: UnitArrays) -> UnitArrays:
    return tuple(a + b for a, b in zip(one, two, strict=True))
