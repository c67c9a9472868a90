"""What repeated averaging with W converges to, and how fast.

W is float64 (N, N), stochastic, strongly connected and aperiodic.
"""

from __future__ import annotations

import numpy as np

ENOUGH = 1e-12  # of a sum, in what is left out of it


def stationary(weights: np.ndarray) -> np.ndarray:
    """v with v'W = v' and sum one, float64 (N,): how much each node counts in the long run.

    From (I - W + 11')' v = 1, a linear solve: powers of W would stall on a long ring.
    """
    size = len(weights)
    found: np.ndarray = np.linalg.solve((np.eye(size) - weights + 1.0).T, np.ones(size))
    return found


def second_modulus(weights: np.ndarray) -> float:
    """The second largest modulus of an eigenvalue, 0 for one node.

    It is the largest of W - 1v', whose eigenvalues are those of W with 0 in the place of 1. The
    modulus and not the eigenvalue: [[.25, .75], [.75, .25]] has -0.5.
    """
    return float(np.abs(np.linalg.eigvals(_transient(weights))).max())


def mixing_sum(weights: np.ndarray) -> float:
    """S_W = max_i sum_{k >= 1} sum_j |(W^k)_ij - v_j|, v being stationary.

    Summed until what is left, were it to shrink by the second modulus, is 1e-12 of it.
    """
    step = _transient(weights)
    rate = second_modulus(weights)
    power, total = step, np.abs(step).sum(1)
    while np.abs(power).sum(1).max() * rate > ENOUGH * (1 - rate) * total.max():
        power = power @ step
        total += np.abs(power).sum(1)
    return float(total.max())


def _transient(weights: np.ndarray) -> np.ndarray:
    """W - 1v', whose k-th power is W^k - 1v'."""
    found: np.ndarray = weights - stationary(weights)[None, :]
    return found
