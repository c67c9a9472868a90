"""Networks of one shape, their hidden units permuted so that they agree.

One after another (Git Re-Basin, 2023), or all to one common order at once (C²M³, 2024): there each
network p has for each hidden layer a matrix P (L, L), doubly stochastic at first and a permutation
at the end, which carries its units to common ones. So matchings from network to network that lead
back to the first one are the identity.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np

from fedrepro.methods.matching.network_arrays import UnitArrays, hidden_layers, incoming, outgoing
from fedrepro.methods.matching.pfnm_atoms import Array, Ints
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


Plan = list[Array]  # P of each hidden layer of one network
ENDS = np.linspace(0.0, 1.0, 5)  # of a line search: on a line the agreement is of fourth degree


def in_common_order(
    networks: Sequence[UnitArrays], steps: int, gain: float, units: UnitSets = CHAIN
) -> list[UnitArrays]:
    """Order each network's units in a common order.

    The agreement sum_{p<q} <P_p w_p, P_q w_q> is raised by steps of Frank and Wolfe from the units'
    own order: towards the permutations that its gradient likes best, as far as it goes up. Ends
    after `steps`, or when one raises it by less than a share `gain`.
    """
    if len(networks) == 1:
        return list(networks)
    plans = [
        [np.eye(units.width(network, layer)) for layer in range(units.layers(network))]
        for network in networks
    ]
    best = agreement(networks, plans, units)
    for _ in range(steps):
        towards = [
            [
                np.eye(len(slope))[best_columns(slope)]
                for slope in gradient(networks, plans, p, units)
            ]
            for p in range(len(networks))
        ]
        plans, value = _along(networks, plans, towards, units)
        if not value - best > gain * abs(best):
            break
        best = value
    # the nearest permutations, as orders: common unit i is own unit order[i]
    orders = [[np.argsort(best_columns(matrix)) for matrix in plan] for plan in plans]
    return [ordered(w, order, units) for w, order in zip(networks, orders, strict=True)]


def agreement(
    networks: Sequence[UnitArrays], plans: Sequence[Plan], units: UnitSets = CHAIN
) -> float:
    """Compute sum_{p<q} <P_p w_p, P_q w_q> over all weights and biases."""
    pairs = zip(networks, plans, strict=True)
    common = [permuted_network(network, plan, units) for network, plan in pairs]
    total = 0.0
    for place, blocks in enumerate(zip(*common, strict=True)):
        if place in units.uncounted:
            continue
        whole = np.sum(blocks, axis=0)
        total += float((whole**2).sum() - sum((block**2).sum() for block in blocks)) / 2
    return total


def permuted_network(network: UnitArrays, plan: Plan, units: UnitSets = CHAIN) -> UnitArrays:
    """Carry a network to the common units by its plan."""
    for layer, matrix in enumerate(plan):
        network = units.times(network, layer, matrix)
    return network


def gradient(
    networks: Sequence[UnitArrays], plans: Sequence[Plan], p: int, units: UnitSets = CHAIN
) -> Plan:
    """Compute the gradient of the agreement by the plan of network p: (L, L) of each layer."""
    others = [
        permuted_network(network, plan, units)
        for q, (network, plan) in enumerate(zip(networks, plans, strict=True))
        if q != p
    ]
    rest = tuple(np.sum(blocks, axis=0) for blocks in zip(*others, strict=True))
    network_p, slopes = networks[p], []
    for layer in range(len(plans[p])):
        # the layer itself is left as it is, the others are carried
        partial_plan = [*plans[p]]
        partial_plan[layer] = np.eye(len(partial_plan[layer]))
        slopes.append(
            units.agreement(permuted_network(network_p, partial_plan, units), rest, layer)
        )
    return slopes


def ordered(network: UnitArrays, orders: Sequence[Ints], units: UnitSets = CHAIN) -> UnitArrays:
    """Reorder the units of each hidden layer."""
    for layer, order in enumerate(orders):
        network = units.permuted(network, layer, order)
    return network


def _along(
    networks: Sequence[UnitArrays], plans: Sequence[Plan], towards: Sequence[Plan], units: UnitSets
) -> tuple[list[Plan], float]:
    """Find the best plans between two, and their agreement."""

    def between(share: float) -> list[Plan]:
        return [
            [(1 - share) * start + share * end for start, end in zip(a, b, strict=True)]
            for a, b in zip(plans, towards, strict=True)
        ]

    values = [agreement(networks, between(share), units) for share in ENDS]
    slopes = np.polynomial.Polynomial.fit(ENDS, values, len(ENDS) - 1).deriv()
    roots = slopes.roots()
    inner = roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > 0) & (roots.real < 1)]
    shares = [*ENDS, *inner]
    values += [agreement(networks, between(share), units) for share in inner]
    best = int(np.argmax(values))
    return between(float(shares[best])), float(values[best])
