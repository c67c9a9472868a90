"""Radii by bisection: the largest distance from a model at which all models are good enough.

Source: "Model Aggregation via Good-Enough Model Spaces" (GEMS), Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Bisection:
    """Options of a search: radii up to r_max, to within delta, by `points` on each surface."""

    r_max: float = 4000.0
    delta: float = 0.01
    points: int = 500


@dataclass(frozen=True)
class Radius:
    """Result of a search: the tested side of the last interval.

    `empty`: the centre itself is not good enough, so no space exists. `capped`: every surface up to
    r_max was good enough, so the true radius is not smaller.
    """

    value: float
    empty: bool = False
    capped: bool = False


EMPTY = Radius(0.0, empty=True)


def bisected(good_enough: Callable[[float], bool], search: Bisection) -> Radius:
    """Find the largest radius that was tested and found good enough. Source: GEMS, Algorithm 2.

    good_enough(R) says whether all points drawn from the surface of radius R pass Q. The text does
    not say which end of the last interval it returns; this is the lower one, which passed.
    """
    low, high = 0.0, search.r_max
    while high - low > search.delta:
        middle = (low + high) / 2
        if not low < middle < high:  # closer than numbers are
            break
        if good_enough(middle):
            low = middle
        else:
            high = middle
    return Radius(low, capped=high == search.r_max)
