"""Networks fused by optimal transport of their hidden units (Singh and Jaggi, 2020).

A network's layer is a measure: each of its units, its incoming weights and its bias, has the same
mass. The common layer is a barycentre of these measures with a given number of points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrepro.methods.matching.block_diagonal import strength
from fedrepro.methods.matching.convolutional_units import incoming, outgoing
from fedrepro.methods.matching.networks import UnitArrays
from fedrepro.methods.matching.rewards import Array, Ints


def fused(
    networks: Sequence[UnitArrays],
    widths: Sequence[int],
    share: Array,
    towards: Array,
    order: Ints,
    sweeps: int,
) -> UnitArrays:
    """Fuse networks into one of these widths, layer after layer from the lowest.

    In the layer above, a unit's weight from a unit below goes to the common units as its mass does.

    Args:
        networks: The networks.
        widths: Units of each hidden layer of the result.
        share: (J,), the weight of each network, sums to one.
        towards: (J, K), its weight for weights to each class.
        order: The networks from whose units, strongest first, the common ones start.
        sweeps: The most steps of each barycentre.
    """
    blocks: list[Array] = []
    ways = [network[0] for network in networks]  # into the layer, from the common units below
    for layer, width in enumerate(widths):
        biases = [network[2 * layer + 1] for network in networks]
        units = [np.vstack([incoming(w), b]).T for w, b in zip(ways, biases, strict=True)]
        ranked = [
            measure[np.argsort(-strength(network, layer), kind="stable")]
            for measure, network in zip(units, networks, strict=True)
        ]
        start = np.concatenate([ranked[j] for j in order])[:width]
        common, plans = barycentre(units, start, share, sweeps)
        blocks += [common[:, :-1].T.reshape(*ways[0].shape[:-1], width), common[:, -1]]
        above = [network[2 * layer + 2] for network in networks]
        ways = [
            (plan.T @ outgoing(way)).reshape(width, *way.shape[1:])
            for plan, way in zip(plans, above, strict=True)
        ]
    top = sum(way * weight for way, weight in zip(ways, towards, strict=True))
    bias = (towards * np.stack([network[-1] for network in networks])).sum(axis=0)
    return (*blocks, np.asarray(top), bias)


def barycentre(
    measures: Sequence[Array], start: Array, share: Array, sweeps: int
) -> tuple[Array, list[Array]]:
    """Find points (n, D) and, for each measure (m, D), its plan: (m, n), rows sum to one.

    Points and masses of a measure are equal among themselves, and costs are squared distances, so
    that a point is best at the mean of what is carried to it. Ends before `sweeps` when no mass
    moves any more.
    """
    points, plans = start, [np.empty(0)] * len(measures)
    for _ in range(sweeps):
        before, plans = plans, [_carried(measure, points) for measure in measures]
        if all(np.array_equal(old, new) for old, new in zip(before, plans, strict=True)):
            break
        means = (
            weight * len(start) / len(measure) * (plan.T @ measure)
            for weight, plan, measure in zip(share, plans, measures, strict=True)
        )
        points = np.asarray(sum(means))
    return points, plans


def _carried(origins: Array, points: Array) -> Array:
    """Find the cheapest plan from equal masses at origins to equal masses at points."""
    # loaded here: planning lists the methods, and must not wait for it
    from ot.lp import emd

    costs = (origins**2).sum(1)[:, None] - 2 * origins @ points.T + (points**2).sum(1)
    masses = np.full(len(origins), 1.0 / len(origins)), np.full(len(points), 1.0 / len(points))
    plan: Array = emd(*masses, np.maximum(costs, 0.0)) * len(origins)
    return plan
