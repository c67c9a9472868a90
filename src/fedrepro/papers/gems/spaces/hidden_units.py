"""Balls around hidden units, and units merged where their balls meet (GEMS, section 3.2).

All units in a ball give nearly the same outputs. A unit's pre-activations are linear in how far it
is moved, and one set of directions serves all units of a client. Along a direction outputs only go
away from where they were, so a direction that passes at a radius passes at all smaller ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedrepro.papers.gems.spaces.intersections import Array, Descent, Spaces, certified
from fedrepro.papers.gems.spaces.softmax_models import Bisection, Floats, Radius, bisected

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


Ints = npt.NDArray[np.int64]
Sets = list[list[int]]


@dataclass(frozen=True)
class Units:
    """N units of all clients: centres float64 (N, d), weights in and bias; owners int64 (N,)."""

    centres: Array
    owners: Ints

    @cached_property
    def distances(self) -> Array:
        """Between any two, (N, N); copies of a unit are at 0."""
        from scipy.spatial.distance import cdist

        distances: Array = cdist(self.centres, self.centres)
        return distances


def one_set(members: Sequence[int], meet: npt.NDArray[np.bool_], owners: Ints) -> Sets:
    """Merge the first unit with each next one whose ball meets those of all before.

    Source: the authors' code, which so makes at most one unit of a cluster, and may merge units of
    one client.
    """
    together: list[int] = []
    alone: Sets = []
    for unit in members:
        if meet[unit, together].all():
            together.append(unit)
        else:
            alone.append([unit])
    return [together, *alone] if members else []


def tuples(members: Sequence[int], meet: npt.NDArray[np.bool_], owners: Ints) -> Sets:
    """Merge units of different clients whose balls meet in pairs, one set after another.

    Each set starts from the first unit that is left and takes the first of each other client that
    meets all in it. Source: GEMS, section 3.2, step 3 (greedily, tuples of the Cartesian product).
    """
    left = list(members)
    sets: Sets = []
    while left:
        together: list[int] = []
        clients: set[int] = set()
        for unit in left:
            if owners[unit] not in clients and meet[unit, together].all():
                together.append(unit)
                clients.add(int(owners[unit]))
        left = [unit for unit in left if unit not in together]
        sets.append(together)
    return sets


GROUPINGS: dict[str, Callable[[Sequence[int], npt.NDArray[np.bool_], Ints], Sets]] = {
    "greedy": one_set,
    "tuples": tuples,
}


@dataclass(frozen=True)
class Merged:
    """The units of a common layer, float64 (A, d): first those of each cluster, in its order.

    merged: units that stand for several; leftover: units as a client has them; refused: sets that
    meet in pairs and have no common point, whose units stay.
    """

    units: Array
    merged: int
    leftover: int
    refused: int


Joined = Callable[[Spaces], Array | None]


def proven(descend: Callable[[Spaces], Descent]) -> Joined:
    """Find a point in all balls: the end of the descent, else the deepest, if there is one."""

    def joined(spaces: Spaces) -> Array | None:
        reached = descend(spaces)
        return reached.point if reached.objective == 0 else deepest(spaces)

    return joined


def deepest(spaces: Spaces) -> Array | None:
    """Find the deepest point of all balls, if they have one in common."""
    proof = certified(spaces)
    return proof.point if proof.meet else None


def merged(
    units: Units, radii: Array, clusters: Sequence[Ints], grouping: str, joined: Joined
) -> Merged:
    """Replace each set of units whose balls have a common point by one unit; others stay.

    `clusters` are the units that may be merged with each other, in order. `joined` returns the unit
    that stands for a set of balls, or None if they have no common point.
    """
    meet = units.distances <= radii[:, None] + radii
    parts: list[Array] = []
    common = refused = 0
    for members in clusters:
        for together in GROUPINGS[grouping](members.tolist(), meet, units.owners):
            centres = units.centres[together]
            point = joined(Spaces.balls(centres, radii[together])) if len(together) > 1 else None
            parts.append(centres if point is None else point[None])
            common += point is not None
            refused += point is None and len(together) > 1
    layer = np.concatenate(parts)
    return Merged(layer, common, len(layer) - common, refused)
