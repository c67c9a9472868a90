"""Normal random numbers in compiled code: the same bits as NumPy's, in half its time.

A thousand small networks that are initialised again draw forty million of them, which took longer
than a step of training each.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numba.np.random import _constants as ziggurat

from fedrepro.core.portable_ops import compiled_math as compiling
from fedrepro.core.portable_ops import random_words
from fedrepro.core.portable_ops.compiled_math import Array, compiled, inner
from fedrepro.core.portable_ops.random_words import words

AHEAD = 512  # random words that are made at a time
FRACTION = (1 << 52) - 1
# of a layer: its width a unit, for either sign; how high it ends; and what lies surely inside
WIDTHS = np.concatenate([ziggurat.wi_double, -ziggurat.wi_double])
HEIGHTS, INSIDE = ziggurat.fi_double, ziggurat.ki_double.astype(np.int64)
EDGE, PER_EDGE = ziggurat.ziggurat_nor_r, ziggurat.ziggurat_nor_inv_r


def normals(key: int, sd: float, count: int) -> np.ndarray:
    """Draw N(0, sd²), float32 (count,), as `normal(0, sd, count)` of Philox with this key does."""
    out = np.empty(count, np.float32)
    _fill(np.array([key & (1 << 64) - 1, key >> 64], np.uint64), float(sd), out)
    return out


@inner
def _uniform(word: np.uint64) -> float:
    return np.int64(word >> np.uint64(11)) * (1.0 / (1 << 53))


@inner
def _beyond(key: Array, place: int) -> tuple[float, int]:
    """Draw a number beyond the last layer's edge (Marsaglia's tail); return the next place too."""
    two = np.empty(2, np.uint64)
    while True:
        words(key, 0, 0, place, two)
        place += 2
        x, y = -PER_EDGE * np.log1p(-_uniform(two[0])), -np.log1p(-_uniform(two[1]))
        if y + y > x * x:
            return EDGE + x, place


@partial(compiled, calls=(compiling, random_words))
def _fill(key: Array, sd: float, out: Array) -> None:
    """Draw by the ziggurat of 256 layers with NumPy's tables: 99 of 100 numbers take one word."""
    ahead = np.empty(AHEAD, np.uint64)
    last = np.uint64(AHEAD - 1)  # places without a sign, so that nobody looks for one
    done, place = 0, np.int64(0)
    while done < len(out):
        first = place - place % 4
        words(key, 0, 0, first, ahead)
        at = np.uint64(place - first)
        while at < last and done < len(out):
            word = ahead[at]
            at += np.uint64(1)
            layer = word & np.uint64(255)
            part = np.int64(word >> np.uint64(9)) & FRACTION
            x = part * WIDTHS[word & np.uint64(511)]
            if part >= INSIDE[layer]:
                if layer == 0:
                    x, place = _beyond(key, first + np.int64(at))
                    x = -x if part >> 8 & 1 else x
                    at = np.uint64(place - first)
                else:
                    low, high = HEIGHTS[layer], HEIGHTS[layer - np.uint64(1)]
                    height = (high - low) * _uniform(ahead[at]) + low
                    at += np.uint64(1)
                    if height >= math.exp(-0.5 * x * x):
                        continue
            out[done] = 0.0 + sd * x
            done += 1
        place = first + np.int64(at)
