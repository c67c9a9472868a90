"""Statements on the points of exhibits, each with an interval at any confidence.

Each number is computed in each trial by itself, from the trials that all its parts have: methods
share a trial's partition and local models, so their difference scatters less than either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedrepro.numbers.intervals import (
    Array,
    Contrast,
    Interval,
    first_closed,
    mean_of_contrasts,
)
from fedrepro.verdicts.cells import Place, Trials, at


class Statement(Protocol):
    """A number that a form computes at one point, from this many `trials`."""

    @property
    def at(self) -> str: ...
    @property
    def trials(self) -> int: ...
    def interval(self, confidence: float) -> Interval: ...


@dataclass(frozen=True)
class Contrasts:
    """A difference of two extremes, or the mean of several over points."""

    at: str
    parts: Sequence[Contrast]

    @property
    def trials(self) -> int:
        return min(part.trials for part in self.parts)

    def interval(self, confidence: float) -> Interval:
        return mean_of_contrasts(self.parts, confidence)

    def repeated(self, times: int) -> Contrasts:
        """Return the statement with each trial repeated `times` times."""
        return Contrasts(self.at, [part.repeated(times) for part in self.parts])


@dataclass(frozen=True)
class Rounds:
    """How far a method stays behind its goal, (trials, rounds)."""

    at: str
    rounds: Sequence[int]
    behind: Array

    @property
    def trials(self) -> int:
        return len(self.behind)

    def interval(self, confidence: float) -> Interval:
        return first_closed(self.rounds, self.behind, confidence)


def mean_over_points(statements: Sequence[Statement], exhibit: str) -> Contrasts:
    """Average the points of one exhibit, in each trial that all of them have."""
    parts = [part for point in statements if isinstance(point, Contrasts) for part in point.parts]
    return Contrasts(f"{exhibit}, mean of {len(parts)} points", parts)


def statement(
    exhibit: str, place: Place, gains: Sequence[Trials], rivals: Sequence[Trials]
) -> Contrasts:
    """Subtract from the best of some numbers the best of others if there are any.

    Numbers on both sides limit the result: a best is not below any that it is best of.
    """
    both = by_trial([*gains, *rivals])
    values, others = both[:, : len(gains)], both[:, len(gains) :]
    least = 0.0 if rivals and all(rival in gains for rival in rivals) else -math.inf
    most = 0.0 if rivals and all(gain in rivals for gain in gains) else math.inf
    others = others if rivals else zero(values)
    return Contrasts(at(exhibit, place), [Contrast(values, others, least, most)])


def zero(gains: Array) -> Array:
    """Return a rival that is 0 in every trial."""
    return np.zeros((len(gains), 1))


def by_trial(numbers: Sequence[Trials]) -> Array:
    """(trials, numbers) in the trials that all have: the first ones, as trials count from 0."""
    count = min(map(len, numbers))
    return np.array([trials[:count] for trials in numbers], dtype=np.float64).T
