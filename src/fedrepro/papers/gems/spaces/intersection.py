"""A point that lies in all spaces, as GEMS looks for one: descent from the mean of the centres."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spaces:
    """K spaces {w: |(w - c_k) / s_k| <= r_k}: balls, or ellipsoids along the axes; all float64.

    centres: (K, d); radii: (K,); shapes: (K, d), relative radii, or (1, 1), ones for balls. empty:
    bool (K,), those that hold nothing, not even their centre; their radius is 0.
    """

    centres: Array
    radii: Array
    shapes: Array
    empty: npt.NDArray[np.bool_]

    @staticmethod
    def balls(centres: Array, radii: Array) -> Spaces:
        """Balls, none of them empty."""
        return Spaces(centres, radii, np.ones((1, 1)), np.zeros(len(radii), bool))

    @property
    def mean(self) -> Array:
        """Of the centres: (d,)."""
        mean: Array = self.centres.mean(axis=0)
        return mean

    def distances(self, point: Array) -> Array:
        """|(w - c_k) / s_k|: (K,)."""
        distances: Array = np.linalg.norm((point - self.centres) / self.shapes, axis=1)
        return distances

    def holds(self, point: Array) -> bool:
        """Whether a point lies in all spaces."""
        return bool((self.distances(point) <= self.radii).all() and not self.empty.any())


@dataclass(frozen=True)
class Hinges:
    """sum_k max(0, |scale_k (w - c_k)| - margin_k); scales (K, d) or (1, 1), margins (K,)."""

    centres: Array
    scales: Array
    margins: Array

    def value(self, point: Array) -> float:
        """At a point (d,)."""
        lengths = np.linalg.norm(self.scales * (point - self.centres), axis=1)
        return float(np.maximum(lengths - self.margins, 0).sum())


def of_balls(spaces: Spaces) -> Hinges:
    """max(0, |w - c_k| - r_k). Source: GEMS, eq. (2)."""
    return Hinges(spaces.centres, np.ones((1, 1)), spaces.radii)


def of_ellipsoids(spaces: Spaces, thinnest: float) -> Hinges:
    """Return the terms max(0, |(w - c_k) / r_k| - 1).

    Source: GEMS, eq. (2) with (4); the authors' code. A radius counts as at least `thinnest`,
    because one of 0 has no such term.
    """
    radii = np.maximum(spaces.radii, thinnest)[:, None] * spaces.shapes
    return Hinges(spaces.centres, 1 / radii, np.ones(len(radii)))


def weighed_by_centres(spaces: Spaces) -> Hinges:
    """max(0, |c_k (w - c_k)| - r_k), as the authors' code has it for balls: a slip in eq. (2)."""
    return Hinges(spaces.centres, np.abs(spaces.centres), spaces.radii)


@dataclass(frozen=True)
class Descent:
    """Where a descent ended: a point (d,), the steps to it, and the objective there."""

    point: Array
    steps: int
    objective: float


def descended(hinges: Hinges, start: Array, lr: float, steps: int) -> Descent:
    """Descend by plain gradients until the objective is 0, or for `steps` steps.

    Where a term is 0, or its length, its gradient counts as 0. Source: GEMS, section 3.1; learning
    rate and steps are the authors' code's.
    """
    point = np.array(start, np.float64)
    done = 0
    while True:
        apart = hinges.scales * (point - hinges.centres)
        lengths = np.sqrt(np.einsum("kd,kd->k", apart, apart))
        outside = lengths > hinges.margins
        if done == steps or not outside.any():
            return Descent(point, done, hinges.value(point))
        weights = np.divide(outside, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        apart *= hinges.scales
        point -= lr * (weights @ apart)
        done += 1
