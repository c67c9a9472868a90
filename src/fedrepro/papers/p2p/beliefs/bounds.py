"""Samples that theorem 1 of P2P asks for: as it is printed, and as its proof gives it.

The printed bound is 16 C log(NM/delta) / (K^2 (1 - lambda)) with C = |log(L/alpha)|, the most that
the log-likelihoods of two parameters differ, and lambda the second largest eigenvalue of W. Four
steps of its proof do not hold:

- A log-likelihood ratio within [-C, C] has a range of 2C, so that McDiarmid's inequality gives
  exp(-eps^2 n / (8 C^2)): C has to be squared.
- The rate at which W converges is given by the second largest modulus. An eigenvalue of -0.5 makes
  1 - lambda 1.5. Even by the modulus, 4 log N / (1 - lambda) does not bound every W; the sum that
  it stands for, S_W = max_i sum_k sum_j |(W^k)_ij - v_j|, can be computed.
- Merging the two conditions on n needs K <= 1.
- That no wrong parameter is believed by 1/(2M) takes n >= 2 log(2M) / K as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Quantities other than the graph on which the bounds depend.

    Attributes:
        nodes: N.
        parameters: M.
        range: C, at most what log-likelihoods of two parameters differ by.
        rate: K, the least mean evidence against a wrong parameter in a sample, in nats.
        delta: the probability of an error at any node that is allowed.
    """

    nodes: int
    parameters: int
    range: float
    rate: float
    delta: float

    @property
    def log_cases(self) -> float:
        """log(NM/delta)."""
        return math.log(self.nodes * self.parameters / self.delta)


def printed_bound(problem: Problem, eigenvalue: float) -> float:
    """Theorem 1, equation (4), with the second largest eigenvalue of W, by its value."""
    return 16 * problem.range * problem.log_cases / (problem.rate**2 * (1 - eigenvalue))


def corrected_bound(problem: Problem, mixing: float) -> float:
    """Compute the bound of the corrected proof, for uniform priors; `mixing` is S_W."""
    c, k = problem.range, problem.rate
    return max(
        4 * c * mixing / k,
        32 * c**2 * problem.log_cases / k**2,
        2 * math.log(2 * problem.parameters) / k,
    )


def least_rate(stationary: Array, evidence: Array) -> float:
    """Compute K = min over wrong parameters of sum_j v_j I_j.

    `stationary` is v, (N,); `evidence` has I_j of each node against each wrong parameter, (N,
    wrong).
    """
    return float((stationary @ evidence).min())


def printed_excess_risk(loss: float, radius: float) -> float:
    """Corollary 1 as printed, B sqrt(r)/2: losses in [-B, B], r the covering's radius in nats."""
    return loss * math.sqrt(radius) / 2


def corrected_excess_risk(loss: float, radius: float) -> float:
    """B sqrt(2r): Pinsker's inequality is integral |p - q| <= sqrt(2 KL)."""
    return loss * math.sqrt(2 * radius)


def second_eigenvalue(weights: Array) -> float:
    """Return the second largest eigenvalue of W (of complex ones the real part), as in eq. (4)."""
    return float(np.sort(np.linalg.eigvals(weights).real)[-2])
