"""Hidden units of several clients made one where their balls meet (GEMS, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedrepro.papers.gems.spaces.certificate import certified
from fedrepro.papers.gems.spaces.intersection import Array, Descent, Spaces

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
