"""Units of many networks matched to one common order at once (cycle-consistent matching).

Each network p has for each hidden layer a matrix P (L, L), doubly stochastic on the way and a
permutation at the end, which carries its units to common ones. Whoever goes from one network to
another by way of these comes back to where the way began.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrepro.matching.assign import best_columns
from fedrepro.matching.blocks import incoming, outgoing
from fedrepro.matching.networks import UnitArrays, hidden_layers
from fedrepro.matching.permuting import permuted
from fedrepro.matching.rewards import Array, Ints

Plan = list[Array]  # P of each hidden layer of one network
ENDS = np.linspace(0.0, 1.0, 5)  # of a line search: on a line the agreement is of fourth degree


def in_common_order(networks: Sequence[UnitArrays], steps: int, gain: float) -> list[UnitArrays]:
    """The networks, each with its units in the common order.

    The agreement sum_{p<q} <P_p w_p, P_q w_q> is raised by steps of Frank and Wolfe from the units'
    own order: towards the permutations that its gradient likes best, as far as it goes up. Ends
    after so many steps, or when one raises it by less than this share.
    """
    if len(networks) == 1:
        return list(networks)
    plans = [[np.eye(len(network[2 * k + 1])) for k in _layers(network)] for network in networks]
    best = agreement(networks, plans)
    for _ in range(steps):
        towards = [
            [_permutation(best_columns(slope)) for slope in gradient(networks, plans, p)]
            for p in range(len(networks))
        ]
        plans, value = _along(networks, plans, towards)
        if not value - best > gain * abs(best):
            break
        best = value
    return [ordered(w, _ended(p)) for w, p in zip(networks, plans, strict=True)]


def agreement(networks: Sequence[UnitArrays], plans: Sequence[Plan]) -> float:
    """sum_{p<q} <P_p w_p, P_q w_q> over all weights and biases."""
    common = [carried(network, plan) for network, plan in zip(networks, plans, strict=True)]
    total = 0.0
    for blocks in zip(*common, strict=True):
        whole = np.sum(blocks, axis=0)
        total += float((whole**2).sum() - sum((block**2).sum() for block in blocks)) / 2
    return total


def carried(network: UnitArrays, plan: Plan) -> UnitArrays:
    """The network over the common units: sums of its own by its plan."""
    blocks = list(network)
    for layer, matrix in enumerate(plan):
        way_in, bias, way_out = 2 * layer, 2 * layer + 1, 2 * layer + 2
        blocks[way_in] = (incoming(blocks[way_in]) @ matrix).reshape(blocks[way_in].shape)
        blocks[bias] = blocks[bias] @ matrix
        blocks[way_out] = (matrix.T @ outgoing(blocks[way_out])).reshape(blocks[way_out].shape)
    return tuple(blocks)


def gradient(networks: Sequence[UnitArrays], plans: Sequence[Plan], p: int) -> Plan:
    """The gradient of the agreement by the plan of network p: (L, L) of each layer."""
    others = [
        carried(network, plan)
        for q, (network, plan) in enumerate(zip(networks, plans, strict=True))
        if q != p
    ]
    rest = tuple(np.sum(blocks, axis=0) for blocks in zip(*others, strict=True))
    network_p, slopes = networks[p], []
    for layer in range(len(plans[p])):
        # the layer itself is left as it is, those beside it are carried
        partial_plan = [*plans[p]]
        partial_plan[layer] = np.eye(len(partial_plan[layer]))
        arrays = carried(network_p, partial_plan)
        way_in, bias, way_out = 2 * layer, 2 * layer + 1, 2 * layer + 2
        slope = incoming(arrays[way_in]).T @ incoming(rest[way_in])
        slope = slope + np.outer(arrays[bias], rest[bias])
        slopes.append(slope + outgoing(arrays[way_out]) @ outgoing(rest[way_out]).T)
    return slopes


def ordered(network: UnitArrays, orders: Sequence[Ints]) -> UnitArrays:
    """The network with the units of each hidden layer in this order."""
    for layer, order in enumerate(orders):
        network = permuted(network, layer, order)
    return network


def _along(
    networks: Sequence[UnitArrays], plans: Sequence[Plan], towards: Sequence[Plan]
) -> tuple[list[Plan], float]:
    """The best plans between two, and their agreement."""

    def between(share: float) -> list[Plan]:
        return [
            [(1 - share) * start + share * end for start, end in zip(a, b, strict=True)]
            for a, b in zip(plans, towards, strict=True)
        ]

    values = [agreement(networks, between(share)) for share in ENDS]
    slopes = np.polynomial.Polynomial.fit(ENDS, values, len(ENDS) - 1).deriv()
    roots = slopes.roots()
    inner = roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > 0) & (roots.real < 1)]
    shares = [*ENDS, *inner]
    values += [agreement(networks, between(share)) for share in inner]
    best = int(np.argmax(values))
    return between(float(shares[best])), float(values[best])


def _permutation(order: Ints) -> Array:
    """P with a one at (a, order[a]): unit a becomes common unit order[a]."""
    return np.eye(len(order))[order]


def _ended(plan: Plan) -> list[Ints]:
    """The nearest permutation of each layer, as an order: common unit i is own unit order[i]."""
    return [np.argsort(best_columns(matrix)) for matrix in plan]


def _layers(network: UnitArrays) -> range:
    return range(hidden_layers(network))
