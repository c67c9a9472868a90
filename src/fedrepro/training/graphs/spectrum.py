"""Limit and speed of repeated averaging with W.

W is float64 (N, N), stochastic, strongly connected and aperiodic.
"""

from __future__ import annotations

import numpy as np

ENOUGH = 1e-12  # of a sum, in what is left out of it
LONG = 64  # nodes; up to this size, powers of the whole matrix are quick enough


def stationary(weights: np.ndarray) -> np.ndarray:
    """Solve v'W = v' with sum one for v, float64 (N,): each node's weight in the long run.

    From (I - W + 11')' v = 1, a linear solve: powers of W would stall on a long ring.
    """
    size = len(weights)
    shares: np.ndarray = np.linalg.solve((np.eye(size) - weights + 1.0).T, np.ones(size))
    return shares


def second_modulus(weights: np.ndarray) -> float:
    """Return the second largest modulus of an eigenvalue of W, 0 for one node.

    It is the largest of W - 1v', whose eigenvalues are those of W with 0 in place of 1. The sign
    does not count: [[.25, .75], [.75, .25]] has -0.5.
    """
    return float(np.abs(np.linalg.eigvals(_transient(weights))).max())


def mixing_sum(weights: np.ndarray) -> float:
    """Compute S_W = max_i sum_{k >= 1} sum_j |(W^k)_ij - v_j|, v being stationary.

    The sum ends where the rest, shrinking by the second modulus, is below 1e-12 of it. That takes
    190,000 powers on a ring of 300 nodes, where one row stands for all others.
    """
    step = _transient(weights)
    rate = second_modulus(weights)
    alike = np.array_equal(weights, np.roll(weights, (1, 1), (0, 1)))  # all nodes see the same
    if len(weights) > LONG and alike:
        return _sum_of_first_row(step, rate)
    power, total = step, np.abs(step).sum(1)
    while np.abs(power).sum(1).max() * rate > ENOUGH * (1 - rate) * total.max():
        power = power @ step
        total += np.abs(power).sum(1)
    return float(total.max())


def _sum_of_first_row(step: np.ndarray, rate: float) -> float:
    """Compute `mixing_sum` of a circulant W from its first row, LONG powers at a time."""
    rows = [step[0]]
    while len(rows) < LONG:
        rows.append(rows[-1] @ step)
    powers, jump = np.stack(rows), np.linalg.matrix_power(step, LONG)
    total = np.abs(powers).sum()
    while np.abs(powers[-1]).sum() * rate > ENOUGH * (1 - rate) * total:
        powers = powers @ jump
        total += np.abs(powers).sum()
    return float(total)


def _transient(weights: np.ndarray) -> np.ndarray:
    """W - 1v', whose k-th power is W^k - 1v'."""
    transient: np.ndarray = weights - stationary(weights)[None, :]
    return transient
