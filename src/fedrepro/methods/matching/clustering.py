"""Hidden units of one network in clusters by direction, each cluster made one unit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrepro.methods.matching.networks import UnitArrays
from fedrepro.methods.matching.rewards import Array, Ints

STEPS = 300  # of Lloyd's algorithm at most
SAME = 1e-12  # squared distance of directions that are one, but for rounding


def merge_similar_units(
    network: UnitArrays, widths: Sequence[int], restarts: int, rng: np.random.Generator
) -> UnitArrays:
    """Cluster the hidden layers' units to these widths, from the lowest layer up.

    A ReLU unit with weights v in and u out computes what v/|v| with |v| u does. A cluster has the
    mean of its directions v/|v| in, and the sum of |v| u out.
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
    """Return the cluster of each point (n,): the best of some starts of Lloyd's algorithm.

    All distances are read from the inner products of the points, (n, n), so a step costs the same
    for points of any length. Starts are drawn as in k-means++ (Arthur and Vassilvitskii, 2007).
    """
    products = points @ points.T
    best, least = np.zeros(len(points), np.int64), np.inf
    for _ in range(restarts):
        labels, spread = _lloyd(products, _starts(products, clusters, rng))
        if spread < least - SAME:
            best, least = labels, spread
    return best


def _starts(products: Array, clusters: int, rng: np.random.Generator) -> Ints:
    """Draw points to start from, each by its squared distance to those before it: (clusters,)."""
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
    """Cluster from these points; return labels and the sum of squared distances to centres.

    A cluster that is left by all stays empty.
    """
    lengths = np.diag(products)
    labels = (lengths[starts] - 2 * products[:, starts]).argmin(axis=1)
    labels[starts] = np.arange(len(starts))
    for _ in range(STEPS):
        distances = _distances(products, labels, len(starts))
        closer = distances.argmin(axis=1)
        if np.array_equal(closer, labels):
            break
        labels = closer
    distances = _distances(products, labels, len(starts))
    return labels, float((lengths + distances[np.arange(len(labels)), labels]).sum())


def _distances(products: Array, labels: Ints, clusters: int) -> Array:
    """Compute squared distances (n, clusters) to means, less each point's squared length."""
    order = np.argsort(labels, kind="stable")
    present, first = np.unique(labels[order], return_index=True)
    sizes = np.bincount(labels, minlength=clusters)[present]
    sums = np.add.reduceat(products[order], first, axis=0)  # of products with the members
    rows = np.searchsorted(present, labels)
    within = np.bincount(rows, weights=sums[rows, np.arange(len(labels))]) / sizes**2
    distances = np.full((len(labels), clusters), np.inf)
    distances[:, present] = within - 2 * sums.T / sizes
    return distances
