"""Units of many networks matched to one common order at once (cycle-consistent matching).

Each network p has for each hidden layer a matrix P (L, L), doubly stochastic at first and a
permutation at the end, which carries its units to common ones. So matchings from network to network
that lead back to the first one are the identity.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrepro.methods.matching.networks import UnitArrays
from fedrepro.methods.matching.rewards import Array, Ints
from fedrepro.methods.matching.sequential_matching import best_columns
from fedrepro.methods.matching.unit_permutations import CHAIN, UnitSets

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
