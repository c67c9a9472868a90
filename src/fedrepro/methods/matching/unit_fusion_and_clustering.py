"""Fusion of hidden units: of several networks by optimal transport, of one by clustering.

Optimal transport (Singh and Jaggi, 2020): each unit of a layer, with its incoming weights and bias,
has the same mass, and the common layer is a barycentre of given size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrepro.methods.matching.network_arrays_and_tracing import UnitArrays, strength
from fedrepro.methods.matching.pfnm_atoms_and_rewards import Array, Ints
from fedrepro.methods.matching.unit_permutations import UnitSets


def fused(
    networks: Sequence[UnitArrays],
    widths: Sequence[int],
    share: Array,
    towards: Array,
    order: Ints,
    sweeps: int,
) -> UnitArrays:
    """Fuse J networks (weight0, bias0, …), from the lowest layer up, by transport of their units.

    The result has hidden layers of `widths`. Hidden layers average networks by `share` (J,), the
    output layer by `towards` (J, K). A layer starts with the units of network order[0], strongest
    first, then of order[1], …, up to its width, and is improved in at most `sweeps` iterations.
    """
    blocks: list[Array] = []
    ways = [network[0] for network in networks]  # into the layer, from the common units below
    for layer, width in enumerate(widths):
        units = [
            np.vstack([way.reshape(-1, way.shape[-1]), network[2 * layer + 1]]).T
            for way, network in zip(ways, networks, strict=True)
        ]
        ranked = [
            measure[np.argsort(-strength(network, layer), kind="stable")]
            for measure, network in zip(units, networks, strict=True)
        ]
        start = np.concatenate([ranked[j] for j in order])[:width]
        common, plans = barycentre(units, start, share, sweeps)
        blocks += [common[:, :-1].T.reshape(*ways[0].shape[:-1], width), common[:, -1]]
        above = [network[2 * layer + 2] for network in networks]
        ways = [
            (plan.T @ way.reshape(len(plan), -1)).reshape(width, *way.shape[1:])
            for plan, way in zip(plans, above, strict=True)
        ]
    top = sum(way * weight for way, weight in zip(ways, towards, strict=True))
    bias = (towards * np.stack([network[-1] for network in networks])).sum(axis=0)
    return (*blocks, np.asarray(top), bias)


def fused_sets(
    networks: Sequence[UnitArrays],
    units: UnitSets,
    share: Array,
    towards: Array,
    order: Ints,
    sweeps: int,
) -> UnitArrays:
    """Fuse J networks of one architecture into one of the same widths, by transport of their units.

    A set in `units`, such as layers that a shortcut joins, has one transport plan per network, by
    incoming weights. The search starts at the units of network order[0], strongest first, for at
    most `sweeps` iterations. `share` (J,) averages weights, `towards` (J, K) weights to classes.
    """
    current = list(networks)
    for layer, uses in enumerate(units.uses):
        # what a layer takes has to be carried before it is compared
        waiting = {use.at for later in units.uses[layer:] for use in later if not use.gives}
        ready = [use for use in uses if use.counted and use.gives and use.at not in waiting]
        measures = [np.hstack([units.rows(net, use) for use in ready]) for net in current]
        ranked = [m[np.argsort(-(m**2).sum(1), kind="stable")] for m in measures]
        start = np.concatenate([ranked[j] for j in order])[: units.width(networks[0], layer)]
        _, plans = barycentre(measures, start, share, sweeps)
        pairs = zip(current, plans, strict=True)
        current = [units.times(network, uses, plan) for network, plan in pairs]
    return units.mean(current, share, towards)


def barycentre(
    measures: Sequence[Array], start: Array, share: Array, sweeps: int
) -> tuple[Array, list[Array]]:
    """Find n points in the middle of several sets of points, and each set's transport plan to them.

    `measures` are sets (m, D) of points of equal masses, each set weighted by `share`. From
    `start`, each of the n points moves to the mean of the mass that it receives, until no mass
    moves or for `sweeps` iterations. Returns points (n, D), plans (m, n).
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
    """Return the cheapest transport plan (m, n) from `origins` to `points`; rows sum to one."""
    # loaded here: planning lists the methods, and must not wait for it
    from ot.lp import emd

    costs = (origins**2).sum(1)[:, None] - 2 * origins @ points.T + (points**2).sum(1)
    masses = np.full(len(origins), 1.0 / len(origins)), np.full(len(points), 1.0 / len(points))
    return np.asarray(emd(*masses, np.maximum(costs, 0.0)) * len(origins))


STEPS = 300  # of Lloyd's algorithm at most
SAME = 1e-12  # squared distance of directions that are one, but for rounding


def merge_similar_units(
    network: UnitArrays, widths: Sequence[int], restarts: int, rng: np.random.Generator
) -> UnitArrays:
    """Shrink a network's hidden layers to `widths` by merging units that k-means clusters together.

    A ReLU unit with incoming weights v and outgoing weights u equals one with v/|v| and |v| u. From
    the lowest layer up, units in a cluster of v/|v| become one with the mean of v/|v| and the sum
    of |v| u, by the best of `restarts` clusterings.
    """
    blocks = list(network)
    for layer, width in enumerate(widths):
        units = np.vstack([blocks[2 * layer], blocks[2 * layer + 1]]).T
        length = np.linalg.norm(units, axis=1, keepdims=True)
        directions = units / np.where(length > 0, length, 1.0)
        members = np.eye(width)[k_means(directions, width, restarts, rng)]
        sizes = members.sum(axis=0)[:, None]
        centres = members.T @ directions / np.maximum(sizes, 1.0)
        blocks[2 * layer] = centres[:, :-1].T
        blocks[2 * layer + 1] = centres[:, -1]
        blocks[2 * layer + 2] = members.T @ (length * blocks[2 * layer + 2])
    return tuple(blocks)


def k_means(points: Array, clusters: int, restarts: int, rng: np.random.Generator) -> Ints:
    """Cluster points (n, D) by k-means; return the number of each point's cluster, int64 (n,).

    The best of `restarts` runs counts, each started as in k-means++ (Arthur and Vassilvitskii,
    2007). Distances come from inner products.
    """
    products = points @ points.T
    best, least = np.zeros(len(points), np.int64), np.inf
    for _ in range(restarts):
        labels, spread = _lloyd(products, _starts(products, clusters, rng))
        if spread < least - SAME:
            best, least = labels, spread
    return best


def _starts(products: Array, clusters: int, rng: np.random.Generator) -> Ints:
    lengths = np.diag(products)
    starts = [int(rng.integers(len(products)))]
    nearest = np.full(len(products), np.inf)
    while len(starts) < clusters:
        latest = starts[-1]
        nearest = np.minimum(nearest, lengths - 2 * products[latest] + lengths[latest])
        nearest[nearest < SAME] = 0.0
        total = nearest.sum()
        if total > 0:
            starts.append(int(rng.choice(len(products), p=nearest / total)))
        else:  # fewer directions than clusters: some get a second one
            starts.append(int(np.setdiff1d(np.arange(len(products)), starts)[0]))
    return np.array(starts)


def _lloyd(products: Array, starts: Ints) -> tuple[Ints, float]:
    """Run k-means from points `starts` by inner `products` (n, n); return labels, squared error."""
    lengths = np.diag(products)
    labels = (lengths[starts] - 2 * products[:, starts]).argmin(axis=1)
    labels[starts] = np.arange(len(starts))
    for _ in range(STEPS):
        closer = _distances(products, labels, len(starts)).argmin(axis=1)
        if np.array_equal(closer, labels):
            break
        labels = closer
    distances = _distances(products, labels, len(starts))
    return labels, float((lengths + distances[np.arange(len(labels)), labels]).sum())


def _distances(products: Array, labels: Ints, clusters: int) -> Array:
    """Compute |x - mean|² - |x|² of points x and cluster means by inner products: (n, clusters)."""
    order = np.argsort(labels, kind="stable")
    present, first = np.unique(labels[order], return_index=True)
    sizes = np.bincount(labels, minlength=clusters)[present]
    sums = np.add.reduceat(products[order], first, axis=0)  # of products with the members
    rows = np.searchsorted(present, labels)
    within = np.bincount(rows, weights=sums[rows, np.arange(len(labels))]) / sizes**2
    distances = np.full((len(labels), clusters), np.inf)
    distances[:, present] = within - 2 * sums.T / sizes
    return distances
