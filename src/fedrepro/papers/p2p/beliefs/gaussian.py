"""Gaussian beliefs of linear regression in information form. P2P, section 5.1, equations (6), (7).

A belief N(mu, Sigma) over d weights is kept as its precision Lambda = Sigma^-1 and its shift
eta = Lambda mu, so that both Bayes' rule and consensus are sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Information:
    """Beliefs of N nodes, and of repeats before them: precision (..., N, d, d), shift (..., N, d).

    A prior that all share may lack the leading axes.
    """

    precision: Array
    shift: Array

    @staticmethod
    def prior(variance: float, weights: int) -> Information:
        """Return N(0, variance I) over `weights` weights."""
        return Information(np.eye(weights) / variance, np.zeros(weights))

    @property
    def mean(self) -> Array:
        """mu, (..., N, d)."""
        mean = np.linalg.solve(self.precision, self.shift[..., None])[..., 0]
        return mean.astype(np.float64, copy=False)

    @property
    def covariance(self) -> Array:
        """Sigma, (..., N, d, d)."""
        return np.linalg.inv(self.precision).astype(np.float64, copy=False)


def observed(beliefs: Information, features: Array, targets: Array, noise: float) -> Information:
    """Apply Bayes' rule to one example a node: Lambda + f f'/noise, eta + f y/noise.

    `features` is (..., N, d), `targets` (..., N), and `noise` the variance of a target.
    """
    outer = features[..., :, None] * features[..., None, :]
    shift = features * targets[..., None]
    return Information(beliefs.precision + outer / noise, beliefs.shift + shift / noise)


def consensus(weights: Array, beliefs: Information) -> Information:
    """Apply equations (6) and (7): the mean of the neighbours' precisions, and of their shifts.

    Rows of `weights`, (N, N), sum to one. This is the normalised geometric mean of Gaussian
    beliefs.
    """
    return Information(
        np.einsum("ij,...jde->...ide", weights, beliefs.precision),
        weights @ beliefs.shift,
    )


def expected_squared_error(means: Array, truth: Array, moments: Array, noise: float) -> Array:
    """Return the error of predictions f' mu: (mu - truth)' E[f f'] (mu - truth) + noise, (..., N).

    `moments` is E[f f'] of new examples, (d, d). Exact: no test examples are drawn.
    """
    away = means - truth
    errors: Array = np.einsum("...d,de,...e->...", away, moments, away) + noise
    return errors


def believed_variance(covariances: Array, moments: Array, noise: float) -> Array:
    """Return a node's belief of its predictions' variance, E[f' Sigma f] + noise, (..., N)."""
    variances: Array = np.einsum("...de,de->...", covariances, moments) + noise
    return variances
