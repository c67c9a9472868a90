"""Weights of a graph from its neighbours.

`hears` is bool (N, N), symmetric, False on the diagonal; W is float64 (N, N), and its rows sum to
one. Without self-loops W_ii is only what the row would else fall short of one.
"""

from __future__ import annotations

import numpy as np


def metropolis(hears: np.ndarray, self_loops: bool = True) -> np.ndarray:
    """Weigh neighbours by 1 / (1 + max(d_i, d_j)), without self-loops by 1 / max(d_i, d_j).

    W_ii is the rest. W is symmetric, so that every node counts alike in the long run. Source: Xiao
    and Boyd, Fast linear iterations for distributed averaging, 2004, section 4.2.
    """
    degrees = hears.sum(1)
    most = np.maximum(degrees[:, None], degrees[None, :]) + self_loops
    weights = np.where(hears, 1.0 / np.maximum(most, 1), 0.0)
    # W_ii = 1 - the sum of the others (the paper leaves out the sum); rounding must not make it
    # negative
    np.fill_diagonal(weights, np.maximum(0.0, 1.0 - weights.sum(1)))
    return weights


def uniform(hears: np.ndarray, self_loops: bool = True) -> np.ndarray:
    """Weigh itself and neighbours by 1 / (1 + d_i); without self-loops neighbours by 1 / d_i."""
    adjacency = hears.astype(np.float64)
    if self_loops or len(hears) == 1:
        np.fill_diagonal(adjacency, 1.0)
    shares: np.ndarray = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1.0)
    return shares


RULES = {"metropolis": metropolis, "uniform": uniform}
