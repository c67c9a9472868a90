"""Adaptive hyper-parameters: a distribution over a grid of settings that follows rewards.

Representation matching with adaptive hyper-parameters (RM), section 3. A round's setting
is drawn from a discrete Gaussian over the grid; its mean and precision then ascend along the
rewards of the last rounds. The paper prints descent in equations (6), (7) and algorithm 1, line 18;
rewards are to grow, so this is ascent (erratum E6). State is plain float64 arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fedrepro.core.errors import FedreproError, shown
from fedrepro.core.rng import RngKey

Positions = Literal["positions", "values", "log"]

# of a diagonal entry of the precision, along axes of length one
LEAST_PRECISION, MOST_PRECISION = 2.0, 200.0


@dataclass(frozen=True)
class GridAxis:
    """The values of one hyper-parameter, laid into [-0.5, 0.5] with mean zero.

    positions: what is laid, the values' ranks, the values themselves as the text says, or their
    logarithms: (x - mean) / (2 max |x - mean|). Errors: FedreproError for fewer than two values,
    or one that is given twice.
    """

    name: str
    given: Sequence[float]
    positions: Positions = "positions"

    def __post_init__(self) -> None:
        if len(self.given) < 2:
            raise FedreproError(
                f"'{self.name}' is an axis of a grid with the value {self.given[0]:g} alone, "
                "which leaves nothing to adapt; give two or more"
            )
        if len(set(self.given)) < len(self.given):
            raise FedreproError(
                f"'{self.name}' is an axis of a grid and lists a value twice: "
                f"{shown([*self.given])}; take one out"
            )

    @cached_property
    def values(self) -> np.ndarray:
        """In ascending order: float64 (n,)."""
        return np.sort(np.asarray(self.given, np.float64))

    @cached_property
    def places(self) -> np.ndarray:
        """Where they lie: float64 (n,), ascending."""
        x = np.arange(len(self.values)) if self.positions == "positions" else self._scaled
        gap = x - x.mean()
        places: np.ndarray = gap / (2 * np.abs(gap).max())
        return places

    @property
    def _scaled(self) -> np.ndarray:
        return np.log(self.values) if self.positions == "log" else self.values

    def real(self, place: float) -> float:
        """Interpolate the value at a place between those of the grid."""
        between = float(np.interp(place, self.places, self._scaled))
        return float(np.exp(between)) if self.positions == "log" else between


@dataclass(frozen=True)
class DiscreteGaussian:
    """P(h) ∝ exp(-½ (h - mean)ᵀ A (h - mean)) over the points of a grid, A = diag(exp(s)).

    points: float64 (n, D); mean, log_precision (s): float64 (D,).
    """

    points: np.ndarray
    mean: np.ndarray
    log_precision: np.ndarray

    @cached_property
    def log_probabilities(self) -> np.ndarray:
        """Float64 (n,), normalised by log-sum-exp over the grid."""
        exponent = -0.5 * (self.points - self.mean) ** 2 @ np.exp(self.log_precision)
        exponent -= exponent.max()
        logs: np.ndarray = exponent - np.log(np.exp(exponent).sum())
        return logs

    def draw(self, rng: RngKey) -> int:
        """Which point, by its exact probability; the same at the same place of `rng`."""
        ends = np.exp(self.log_probabilities).cumsum()
        drawn = rng.stream("hyper-parameters").random() * ends[-1]
        return int(np.searchsorted(ends, drawn, side="right"))

    def score(self, point: int) -> np.ndarray:
        """Gradient of log P(h) with respect to mean, then s: float64 (2 D,).

        A (h - E[h']) and ½ exp(s_d) (E[(h'_d - mean_d)²] - (h_d - mean_d)²). E[h'] and not the
        mean, since the sum over the grid moves with it.
        """
        share, precision = np.exp(self.log_probabilities), np.exp(self.log_precision)
        gaps = self.points - self.mean
        by_mean = precision * (gaps[point] - share @ gaps)
        by_spread = 0.5 * precision * (share @ gaps**2 - gaps[point] ** 2)
        return np.concatenate([by_mean, by_spread])


def window_step(rewards: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """sum_τ (r_τ - mean r) score_τ over a window: rewards (m,), scores (m, K) to (K,).

    Source: RM, eq. (7), algorithm 1, line 18. Each score is that of the distribution that drew.
    """
    step: np.ndarray = (rewards - rewards.mean()) @ scores
    return step


def reward_of(before: float, after: float) -> float:
    """(L_t - L_{t+1}) / L_t within [-1, 1]; -1 if that is not a number."""
    if not np.isfinite(after):
        return -1.0
    fall = (before - after) / max(before, float(np.finfo(np.float64).tiny))
    return float(np.clip(fall, -1.0, 1.0))


@dataclass(frozen=True)
class Search:
    """A distribution over the grid of some axes, and how it follows rewards.

    rate: eta_H. window: Z, rewards before the last one that an update looks at. precision: of
    every axis at the start.
    """

    axes: tuple[GridAxis, ...]
    rate: float
    window: int
    precision: float

    @cached_property
    def points(self) -> np.ndarray:
        """The grid: float64 (n, D), the last axis fastest."""
        return np.array(list(itertools.product(*(axis.places for axis in self.axes))))

    def start(self) -> dict[str, Any]:
        """Return the first state: the mean at the centre, and no rewards."""
        count = len(self.axes)
        return {
            "mean": np.zeros(count),
            "log_precision": np.full(count, np.log(self.precision)),
            "rewards": np.zeros(0),
            "scores": np.zeros((0, 2 * count)),
        }

    def distribution(self, state: dict[str, Any]) -> DiscreteGaussian:
        """From which the next setting is drawn."""
        return DiscreteGaussian(self.points, state["mean"], state["log_precision"])

    def setting(self, point: int) -> list[float]:
        """Return the values of a point of the grid."""
        place = np.unravel_index(point, [len(axis.values) for axis in self.axes])
        return [float(axis.values[i]) for axis, i in zip(self.axes, place, strict=True)]

    def mean(self, state: dict[str, Any]) -> list[float]:
        """Return the mean in the hyper-parameters' own units."""
        return [axis.real(place) for axis, place in zip(self.axes, state["mean"], strict=True)]

    def after(self, state: dict[str, Any], point: int, reward: float) -> dict[str, Any]:
        """Return the state after a round with the setting `point` and its reward.

        psi + rate · window_step over the last window + 1 rewards. The mean stays within the grid,
        and every precision within LEAST_PRECISION and MOST_PRECISION.
        """
        last = slice(-(self.window + 1), None)
        score = self.distribution(state).score(point)
        rewards = np.append(state["rewards"], reward)[last]
        scores = np.vstack([state["scores"], score])[last]
        by_mean, by_spread = np.split(self.rate * window_step(rewards, scores), 2)
        low, high = self.points.min(0), self.points.max(0)
        limits = np.log([LEAST_PRECISION, MOST_PRECISION])
        return {
            "mean": np.clip(state["mean"] + by_mean, low, high),
            "log_precision": np.clip(state["log_precision"] + by_spread, *limits),
            "rewards": rewards,
            "scores": scores,
        }
