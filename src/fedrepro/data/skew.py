"""How unlike the clients of a partition are, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Skew:
    """Skew of one trial. Sizes count examples; distances are shares between 0 and 1.

    distance: total variation between a client's label distribution and that of all clients
    together. classes: how many classes a client holds any example of.
    """

    clients: int
    examples: int
    size_min: int
    size_median: float
    size_max: int
    distance_mean: float
    distance_max: float
    classes_min: int
    classes_median: float
    classes_max: int


def distances(counts: np.ndarray) -> np.ndarray:
    """TV_j = 1/2 sum_k |n_jk / n_j - n_k / n|: float64 (J,); counts int64 (J, K), no row empty."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    overall = counts.sum(axis=0) / counts.sum()
    variations: np.ndarray = np.abs(shares - overall).sum(axis=1) / 2
    return variations


def skew_of(counts: np.ndarray) -> Skew:
    """Measure the skew of a partition by examples of each client and class: int64 (J, K)."""
    sizes, distance, classes = counts.sum(axis=1), distances(counts), (counts > 0).sum(axis=1)
    return Skew(
        clients=len(counts),
        examples=int(sizes.sum()),
        size_min=int(sizes.min()),
        size_median=float(np.median(sizes)),
        size_max=int(sizes.max()),
        # rounded, so that a sum in another order does not change the stored bytes
        distance_mean=round(float(distance.mean()), 9),
        distance_max=round(float(distance.max()), 9),
        classes_min=int(classes.min()),
        classes_median=float(np.median(classes)),
        classes_max=int(classes.max()),
    )
