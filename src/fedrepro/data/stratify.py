"""Sharing out whole examples in proportion, without favouring anyone."""

from __future__ import annotations

import numpy as np


def apportion(total: int, weights: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """`total` whole items in proportion to `weights` (largest remainder; ties are drawn).

    Shapes: weights int64 (n,), not negative, with a positive sum; returns int64 (n,) that sums
    to `total`. Nobody's share differs from the exact one by one or more, and a weight of zero
    gets nothing.
    """
    shares, remainders = np.divmod(total * weights.astype(np.int64), weights.sum())
    order = np.lexsort((generator.random(weights.size), -remainders))
    shares[order[: total - shares.sum()]] += 1
    return shares


def set_aside(
    labels: np.ndarray, count: int, classes: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """`count` examples drawn so that every class is there in proportion, and the others.

    Shapes: labels int64 (N,); returns two sorted int64 index arrays, (count,) and (N - count,).
    """
    shares = apportion(count, np.bincount(labels, minlength=classes), generator)
    chosen = np.zeros(labels.size, bool)
    for label, share in enumerate(shares):
        chosen[generator.permutation(np.flatnonzero(labels == label))[:share]] = True
    return np.flatnonzero(chosen), np.flatnonzero(~chosen)
