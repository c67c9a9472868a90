"""Balls around hidden units: all units in one give nearly the same outputs (GEMS, section 3.2).

A unit's pre-activations are linear in how far it is moved, and one set of directions serves all
units of a client. Along a direction outputs only go away from where they were, so a direction that
passes at a radius passes at all smaller ones, and is asked no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from fedrepro.papers.gems.spaces.radius_search import Bisection, Floats, Radius, bisected

Deviation = Literal["outside", "inside"]


@dataclass(frozen=True)
class HiddenUnits:
    """Hidden units of a client and what they are given.

    inputs: float32 (n, D), outputs of the layer below; units: float32 (D + 1, L), biases last.
    """

    inputs: Floats
    units: Floats

    @property
    def with_ones(self) -> Floats:
        """Inputs with a last column of ones for the biases: (n, D + 1)."""
        ones = np.ones((len(self.inputs), 1), np.float32)
        return np.hstack([self.inputs, ones]).astype(np.float32, copy=False)


def moves(layer: HiddenUnits, rng: np.random.Generator, points: int) -> Floats:
    """Return what a step of length 1 along new directions adds to pre-activations, (p, n)."""
    normals = rng.standard_normal((points, len(layer.units)), np.float32)
    normals /= np.sqrt(np.einsum("pd,pd->p", normals, normals))[:, None]
    moved: Floats = normals @ layer.with_ones.T
    return moved


def allowed(epsilon: float, examples: int, deviation: Deviation) -> float:
    """How far outputs on n examples may be from the unit's own, in the Euclidean norm.

    outside: |difference| / n <= epsilon, as printed; inside: |difference| / sqrt(n) <= epsilon.
    Source: GEMS, eq. (3).
    """
    return epsilon * (examples if deviation == "outside" else examples**0.5)


def balls(layer: HiddenUnits, moved: Floats, most: float, search: Bisection) -> list[Radius]:
    """Search a ball around each unit, every radius along the same directions `moved`, (p, n).

    `most` is the deviation that `allowed` returns.
    """
    starts = (layer.with_ones @ layer.units).T
    return [bisected(_Pruned(start, moved, most), search) for start in starts]


def balls_of_fresh_draws(
    layer: HiddenUnits, rng: np.random.Generator, most: float, search: Bisection
) -> list[Radius]:
    """Search a ball around each unit, every radius along new directions."""
    starts = (layer.with_ones @ layer.units).T

    def good_enough(start: Floats, radius: float) -> bool:
        moved = moves(layer, rng, search.points)
        return bool((deviations(start, moved, radius) <= most).all())

    return [bisected(partial(good_enough, start), search) for start in starts]


def deviations(start: Floats, moved: Floats, radius: float) -> Floats:
    """Compute |relu(a + R t) - relu(a)| along each direction: float32 (p,).

    `start` is a, (n,), the unit's pre-activations; `moved` is t, (p, n).
    """
    apart = np.maximum(start + np.float32(radius) * moved, 0)
    apart -= np.maximum(start, 0)
    norms: Floats = np.sqrt(np.einsum("pn,pn->p", apart, apart))
    return norms


class _Pruned:
    """Q of one unit at a radius, of the directions alone that can still fail below it."""

    def __init__(self, start: Floats, moved: Floats, most: float) -> None:
        self.start, self.moved, self.most = start, moved, most

    def __call__(self, radius: float) -> bool:
        far = deviations(self.start, self.moved, radius) > self.most
        if far.any() and not far.all():
            self.moved = self.moved[far]
        return not far.any()


def values(radii: Sequence[Radius]) -> np.ndarray:
    """Return the radii as numbers: float64 (n,)."""
    return np.array([radius.value for radius in radii])
