"""The linear regression of P2P: two nodes that each see one of two coordinates.

A. Lalitha, O. C. Kilinc, T. Javidi, F. Koushanfar. Peer-to-peer federated learning on graphs. 2019,
section 5.1 and figure 1. A belief N(mu, Sigma) over d weights is kept as its precision Lambda =
Sigma^-1 and its shift eta = Lambda mu, so that Bayes' rule and consensus are sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from fedrepro.api import Simulated, method
from fedrepro.core.evaluation_schedule_and_successive_halving import EvaluationSchedule
from fedrepro.core.metrics import Metric
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.papers.p2p.datasets.two_node_regression import NOISE, RANGE, THETA
from fedrepro.training.mixing_matrices import weights_of

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Information:
    """Gaussian beliefs N(mu, Sigma) of N nodes about d regression weights, as precision and shift.

    precision: Sigma^-1, (..., N, d, d); shift: Sigma^-1 mu, (..., N, d). Leading axes are repeats
    of the simulation. A prior shared by all nodes has shapes (d, d) and (d,).
    """

    precision: Array
    shift: Array

    @staticmethod
    def prior(variance: float, weights: int) -> Information:
        """Return the prior N(0, variance I) on regression weights, whose number is `weights`."""
        return Information(np.eye(weights) / variance, np.zeros(weights))

    @property
    def mean(self) -> Array:
        """Compute the means mu of N nodes' Gaussian beliefs about d weights: (..., N, d)."""
        mean = np.linalg.solve(self.precision, self.shift[..., None])[..., 0]
        return mean.astype(np.float64, copy=False)

    @property
    def covariance(self) -> Array:
        """Compute the covariances Sigma of N nodes' beliefs about d weights: (..., N, d, d)."""
        return np.linalg.inv(self.precision).astype(np.float64, copy=False)


def observed(beliefs: Information, features: Array, targets: Array, noise: float) -> Information:
    """Update each node's Gaussian belief by Bayes' rule on one example of features f and target y.

    The precision grows by f f'/noise and the shift by f y/noise. `features` are (..., N, d),
    `targets` (..., N), and `noise` is the variance of a target's noise.
    """
    outer = features[..., :, None] * features[..., None, :]
    shift = features * targets[..., None]
    return Information(beliefs.precision + outer / noise, beliefs.shift + shift / noise)


def mixed_information(weights: Array, beliefs: Information) -> Information:
    """Average each node's Gaussian belief with its neighbours', by mixing matrix `weights` (N, N).

    Precisions and shifts are averaged, which gives the normalised geometric mean of the beliefs.
    Rows of `weights` sum to one. Source: P2P, equations (6) and (7).
    """
    return Information(
        np.einsum("ij,...jde->...ide", weights, beliefs.precision), weights @ beliefs.shift
    )


def expected_squared_error(means: Array, truth: Array, moments: Array, noise: float) -> Array:
    """Compute the expected squared error of predictions f' mu, (..., N), without test examples.

    It is (mu - truth)' E[f f'] (mu - truth) + noise. `means` mu are the nodes' mean weights, of
    shape (..., N, d), `truth` the true weights (d,), `moments` E[f f'] of new examples' features f,
    (d, d), and `noise` the variance of a target's noise.
    """
    away = means - truth
    return np.asarray(np.einsum("...d,de,...e->...", away, moments, away) + noise)


def believed_variance(covariances: Array, moments: Array, noise: float) -> Array:
    """Compute the variance of predictions under each node's own belief N(mu, Sigma), (..., N).

    It is E[f' Sigma f] + noise, with `covariances` Sigma (..., N, d, d), `moments` E[f f'] of new
    examples' features f, (d, d), and `noise` the variance of a target's noise.
    """
    return np.asarray(np.einsum("...de,de->...", covariances, moments) + noise)


PRIOR = 0.5  # variance of every weight
# E[f f'] of features f = [1, x1, x2] of new examples, which have both coordinates
MOMENTS = np.diag([1.0, *(RANGE**2 / 3)])
METRICS = {
    "squared_error": Metric("expected squared error of a prediction", "squared units", 0, None, -1),
    "believed_variance": Metric(
        "variance that a node believes its predictions have", "squared units", 0, None, 0
    ),
    "parameter_error": Metric(
        "squared distance of the mean belief from the truth", "squared units", 0, None, -1
    ),
}


@method("regression_beliefs", kind="simulation", paper="p2p", metrics=METRICS)
def regression_beliefs(
    *,
    rng: RngKey,
    cooperation: Annotated[
        Literal["alone", "graph", "central"],
        Arg("nodes alone, nodes on the graph of `rows`, or one with both coordinates"),
    ] = "graph",
    rows: Annotated[
        tuple[str, ...],
        Arg("the weights that each node gives to both nodes, joined by _, as for graph 'matrix'"),
    ] = ("0.9_0.1", "0.6_0.4"),
    steps: Annotated[int, Arg("examples that each node sees", "examples", least=1)] = 500,
    every: Annotated[int, Arg("examples between two measurements", "examples", least=1)] = 5,
    repeats: Annotated[int, Arg("repetitions of the simulation in a trial", least=1)] = 2000,
) -> Simulated:
    """Simulate two nodes that learn a linear function; measure errors after every few examples.

    y = theta'[1, x] + noise with theta = [-0.3, 0.5, 0.8] and noise variance 0.64. Node 1 has
    x = [U(-1, 1), 0], node 2 [0, U(-1.5, 1.5)], and a central node both coordinates, one example a
    step. The prior is N(0, 0.5 I). Errors are expectations over new, noisy examples with both
    coordinates, in closed form, averaged over repeats. All values of `cooperation` see equal draws.
    Source: P2P, section 5.1, equations (6) and (7).
    """
    weights, views = np.eye(2), np.eye(2)  # which coordinates each node sees, (N, 2)
    if cooperation == "central":
        weights, views = np.eye(1), np.ones((1, 2))
    elif cooperation == "graph":
        graph = components("graph")["matrix"].spec({"rows": list(rows)})
        weights = weights_of(graph, 2, rng)
    beliefs = Information.prior(PRIOR, len(THETA))
    measuring = EvaluationSchedule(every)
    by_step: dict[int, dict[str, float | np.ndarray]] = {}
    for step, (features, noise) in enumerate(_examples(rng, steps, repeats, views), 1):
        targets = features @ THETA + noise
        beliefs = mixed_information(weights, observed(beliefs, features, targets, NOISE**2))
        if measuring.is_due(step, steps):
            means, covariances = beliefs.mean, beliefs.covariance
            by_metric = {
                "squared_error": expected_squared_error(means, THETA, MOMENTS, NOISE**2),
                "believed_variance": believed_variance(covariances, MOMENTS, NOISE**2),
                "parameter_error": ((means - THETA) ** 2).sum(axis=-1),
            }
            # means over repeats for each node
            by_step[step] = {name: values.mean(axis=0) for name, values in by_metric.items()}
    return Simulated(by_step)


def _examples(rng: RngKey, steps: int, repeats: int, views: Array) -> Iterator[tuple[Array, Array]]:
    """Yield for each step a new example of each node: features (repeats, N, 3) and target noise."""
    draws = rng.stream("regression-beliefs")
    for _ in range(steps):
        x = draws.uniform(-RANGE, RANGE, (repeats, 2))[:, None, :] * views
        noise = draws.normal(0, NOISE, (repeats, 2))[:, : len(views)]
        yield np.concatenate([np.ones((*x.shape[:-1], 1)), x], axis=-1), noise
