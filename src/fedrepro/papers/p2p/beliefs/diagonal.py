"""Normal beliefs whose weights are independent, of every node of a graph. P2P, section 5.2.

Means and standard deviations are (N, n), a row for each node. The normalised geometric mean of such
beliefs, equation (3), is again one: precisions are averaged, and means by their precisions,

    1/s_i² = sum_j W_ij / σ_j²,    m_i = s_i² sum_j W_ij μ_j / σ_j².
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def consensus(weights: Array, mean: Array, deviation: Array) -> tuple[Array, Array]:
    """Return each node's belief after it has heard its neighbours: means and deviations.

    Rows of `weights`, (N, N), sum to one. Source: P2P, section 5.2; with full covariances (6) and
    (7).
    """
    precision = 1 / (deviation * deviation)
    heard = weights @ precision
    return weights @ (precision * mean) / heard, 1 / np.sqrt(heard)


def mean_of_means(weights: Array, mean: Array, deviation: Array) -> tuple[Array, Array]:
    """Return the deviations of `consensus` with plain averages of the means: a control."""
    return weights @ mean, 1 / np.sqrt(weights @ (1 / (deviation * deviation)))


def deviation_of(spread: Array) -> Array:
    """σ = log(1 + exp(spread)), as weights are drawn with; float64."""
    return np.log1p(np.exp(spread.astype(np.float64)))


def spread_of(deviation: Array) -> Array:
    """Invert softplus: log(exp(σ) - 1)."""
    return np.log(np.expm1(deviation))
