"""Weighted sums over the nodes of a graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

COLUMNS = 1 << 14  # numbers of a node that are summed at once: 64 nodes take 8 MB


def mixed(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Compute sum_j W_ij x_j for each node i, in float64; x (N, *shape) keeps shape and dtype."""
    flat = values.reshape(len(values), -1)
    sums = np.empty_like(flat)
    for start in range(0, flat.shape[1], COLUMNS):
        columns = slice(start, start + COLUMNS)
        sums[:, columns] = weights @ flat[:, columns].astype(np.float64)
    return sums.reshape(values.shape)


def mixed_tensors(weights: np.ndarray, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Apply `mixed` to each tensor, (N, *shape)."""
    return {name: mixed(weights, value) for name, value in tensors.items()}
