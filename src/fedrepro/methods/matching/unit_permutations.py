"""Networks of one shape, their hidden units permuted so that they agree (Git Re-Basin, 2023)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np

from fedrepro.methods.matching.convolutional_units import incoming, outgoing
from fedrepro.methods.matching.networks import UnitArrays, hidden_layers
from fedrepro.methods.matching.rewards import Array, Ints
from fedrepro.methods.matching.sequential_matching import best_columns

LEAST_GAIN = 1e-10  # of agreement, as a share of it


class UnitSets(Protocol):
    """Sets of units that may be permuted, and the arrays of a network that list them."""

    @property
    def uncounted(self) -> Collection[int]:
        """Arrays that are permuted along and do not count in the agreement."""
        ...

    def layers(self, network: UnitArrays, /) -> int:
        """Count the sets of units."""
        ...

    def width(self, network: UnitArrays, layer: int, /) -> int: ...
    def agreement(self, model: UnitArrays, network: UnitArrays, layer: int, /) -> Array: ...
    def permuted(self, network: UnitArrays, layer: int, order: Ints, /) -> UnitArrays: ...
    def times(self, network: UnitArrays, layer: int, matrix: Array, /) -> UnitArrays:
        """Replace units by sums: unit b becomes sum_a M_ab unit a."""
        ...

    def rises(self, model: UnitArrays, before: UnitArrays, after: UnitArrays, /) -> bool:
        """Return whether a network agrees better after the best step of one layer."""
        ...


class Layered:
    """A chain of layers, each on the output of the one below."""

    uncounted: Collection[int] = ()

    def layers(self, network: UnitArrays) -> int:
        """Count the hidden layers."""
        return hidden_layers(network)

    def width(self, network: UnitArrays, layer: int) -> int:
        """Count the units of a hidden layer."""
        return len(network[2 * layer + 1])

    def agreement(self, model: UnitArrays, network: UnitArrays, layer: int) -> Array:
        """Compute `agreement`."""
        return layer_agreement(model, network, layer)

    def permuted(self, network: UnitArrays, layer: int, order: Ints) -> UnitArrays:
        """Compute `permuted`."""
        return permuted(network, layer, order)

    def times(self, network: UnitArrays, layer: int, matrix: Array) -> UnitArrays:
        """Replace units by sums: unit b becomes sum_a M_ab unit a."""
        blocks = list(network)
        way_in, bias, way_out = 2 * layer, 2 * layer + 1, 2 * layer + 2
        blocks[way_in] = (incoming(blocks[way_in]) @ matrix).reshape(blocks[way_in].shape)
        blocks[bias] = blocks[bias] @ matrix
        blocks[way_out] = (matrix.T @ outgoing(blocks[way_out])).reshape(blocks[way_out].shape)
        return tuple(blocks)

    def rises(self, model: UnitArrays, before: UnitArrays, after: UnitArrays) -> bool:
        """Return True, since no array has one layer's units twice."""
        return True


CHAIN = Layered()


def align_units(
    networks: Sequence[UnitArrays], sweeps: int, rng: np.random.Generator, units: UnitSets = CHAIN
) -> list[UnitArrays]:
    """Order each network's units to fit the mean of the others best.

    In a first pass each is matched to the mean of those before it; then each, in a random order, to
    the mean of all others, until none moves or for `sweeps` passes.
    """
    current = list(networks)
    first, *others = rng.permutation(len(current)).tolist()
    total = current[first]
    for count, j in enumerate(others, 1):
        current[j] = fitted(current[j], tuple(block / count for block in total), rng, units)
        total = _plus(total, current[j])
    for _ in range(sweeps if others else 0):
        moved = False
        for j in rng.permutation(len(current)).tolist():
            rest = _plus(total, tuple(-block for block in current[j]))
            others_mean = tuple(block / (len(current) - 1) for block in rest)
            now = fitted(current[j], others_mean, rng, units)
            moved |= now is not current[j]
            current[j], total = now, _plus(rest, now)
        if not moved:
            break
    return current


def fitted(
    network: UnitArrays, model: UnitArrays, rng: np.random.Generator, units: UnitSets = CHAIN
) -> UnitArrays:
    """Order a network's units so that its weights agree most with the model's.

    A layer at a time, in random order, the others held as they are, until no layer gains. Each step
    is a linear assignment problem, so the sum of products of weights never falls.
    """
    while True:
        before = network
        for layer in rng.permutation(units.layers(network)).tolist():
            worth = units.agreement(model, network, layer)
            order = best_columns(worth)
            gain = worth[np.arange(len(order)), order].sum() - np.trace(worth)
            if gain > LEAST_GAIN * np.abs(worth).max():
                after = units.permuted(network, layer, order)
                network = after if units.rises(model, network, after) else network
        if network is before:
            return network


def layer_agreement(model: UnitArrays, network: UnitArrays, layer: int) -> Array:
    """Compute inner products of a hidden layer's units, over weights in, bias and weights out.

    Entry (a, b) is of unit a of the model and unit b of the network, (L, L).
    """
    way_in, bias, way_out = 2 * layer, 2 * layer + 1, 2 * layer + 2
    products: Array = incoming(model[way_in]).T @ incoming(network[way_in])
    products = products + outgoing(model[way_out]) @ outgoing(network[way_out]).T
    return products + np.outer(model[bias], network[bias])


def permuted(network: UnitArrays, layer: int, order: Ints) -> UnitArrays:
    """Reorder the units of a hidden layer; the network's outputs stay."""
    blocks = list(network)
    blocks[2 * layer] = blocks[2 * layer][..., order]
    blocks[2 * layer + 1] = blocks[2 * layer + 1][order]
    blocks[2 * layer + 2] = blocks[2 * layer + 2][order]
    return tuple(blocks)


def mean_network(
    networks: Sequence[UnitArrays], share: Array, towards: Array | None = None
) -> UnitArrays:
    """Average weights by share (J,), those to each class by `towards` (J, K) if given."""
    stacked = [np.stack(blocks) for blocks in zip(*networks, strict=True)]
    means = tuple(np.tensordot(share, blocks, 1) for blocks in stacked)
    if towards is None:
        return means
    tops, biases = stacked[-2:]
    by_class = towards.reshape(len(towards), *[1] * (tops.ndim - 2), -1)
    return (*means[:-2], (by_class * tops).sum(axis=0), (towards * biases).sum(axis=0))


def _plus(one: UnitArrays, two: UnitArrays) -> UnitArrays:
    return tuple(a + b for a, b in zip(one, two, strict=True))
