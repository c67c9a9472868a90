"""Beliefs over a finite set of parameters, in the log domain. P2P, algorithm 1.

Beliefs are arrays (..., N, M) float64 of logarithms, N nodes and M parameters; what stands before
are repeats, all computed at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TIE = 1e-9  # logarithms this close are equal but for rounding


def uniform(shape: tuple[int, ...]) -> Array:
    """Return equal beliefs in all parameters; shape (..., N, M)."""
    return np.full(shape, -np.log(shape[-1]))


def normalised(logs: Array) -> Array:
    """Beliefs that sum to one over the parameters."""
    most = logs.max(axis=-1, keepdims=True)
    beliefs: Array = logs - (most + np.log(np.exp(logs - most).sum(axis=-1, keepdims=True)))
    return beliefs


def updated(beliefs: Array, likelihoods: Array) -> Array:
    """Apply Bayes' rule at every node, equation (2): b = l rho, normalised.

    `likelihoods`, (..., N, M), has the logarithm of each parameter's likelihood of what the node
    saw.
    """
    return normalised(beliefs + likelihoods)


def averaged(weights: Array, beliefs: Array) -> Array:
    """Compute the consensus of equation (3) before it is normalised: sum_j W_ij log b_j.

    Rows of `weights`, (N, N), sum to one.
    """
    # one product for all repeats
    mixed: Array = np.moveaxis(np.tensordot(weights, beliefs, axes=(1, -2)), 0, -2)
    return mixed


def consensus(weights: Array, beliefs: Array) -> Array:
    """Equation (3): the normalised geometric mean of the neighbours' beliefs."""
    return normalised(averaged(weights, beliefs))


def learnt(beliefs: Array, truth: int) -> NDArray[Any]:
    """Whether each node's estimate, its most believed parameter, is the true one: (..., N) bool.

    A node that believes another as much has no estimate: ties are errors.
    """
    true_belief = beliefs[..., truth]
    rivals = [beliefs[..., other] for other in range(beliefs.shape[-1]) if other != truth]
    right: NDArray[Any] = true_belief > np.maximum.reduce(rivals) + TIE
    return right
