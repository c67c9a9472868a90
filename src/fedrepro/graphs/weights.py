"""From who hears whom to how much each counts.

`hears` is bool (N, N), symmetric, False on the diagonal; W is float64 (N, N), and its rows sum to
one. Without self-loops a node counts itself only as far as its row would else fall short of one.
"""

from __future__ import annotations

import numpy as np


def metropolis(hears: np.ndarray, self_loops: bool = True) -> np.ndarray:
    """W_ij = 1 / (1 + max(d_i, d_j)) between neighbours, W_ii what is left; without self-loops
    1 / max(d_i, d_j).

    Symmetric, so that every node counts alike in the long run. Source: Xiao and Boyd, Fast linear
    iterations for distributed averaging, 2004, section 4.2.
    """
    degrees = hears.sum(1)
    most = np.maximum(degrees[:, None], degrees[None, :]) + self_loops
    weights = np.where(hears, 1.0 / np.maximum(most, 1), 0.0)
    # W_ii = 1 - the sum of the others (the paper leaves out the sum); rounding must not make it
    # negative
    np.fill_diagonal(weights, np.maximum(0.0, 1.0 - weights.sum(1)))
    return weights


def uniform(hears: np.ndarray, self_loops: bool = True) -> np.ndarray:
    """Each node counts all whom it hears alike, and itself: 1 / (1 + d_i); without self-loops
    1 / d_i."""
    adjacency = hears.astype(np.float64)
    if self_loops or len(hears) == 1:
        np.fill_diagonal(adjacency, 1.0)
    shares: np.ndarray = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1.0)
    return shares


RULES = {"metropolis": metropolis, "uniform": uniform}
