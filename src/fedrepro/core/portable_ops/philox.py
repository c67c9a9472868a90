"""Random words and normal numbers of NumPy's Philox in compiled code: the same bits.

A thousand small networks that are initialised again draw forty million normal numbers, which took
NumPy longer than a step of training each; here they take half its time.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic
from numba.np.random import _constants as ziggurat

from fedrepro.core.portable_ops import compiled_math as compiling
from fedrepro.core.portable_ops.compiled_math import Array, compiled, inner


def _high_of(typing: Any, a: Any, b: Any) -> Any:
    """Compute the upper 64 bits of a product of two uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        whole = builder.mul(*(builder.zext(factor, wide) for factor in arguments))
        return builder.trunc(builder.lshr(whole, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


_high: Any = intrinsic(_high_of)

MULTIPLY = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
WEYL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)


@inner
def words(key: Array, inside: int, piece: int, first: int, out: Array) -> None:
    """Write random words, uint64 (n,), from place `first` of a stream on.

    They are those of numpy.random.Philox with this key, uint64 (2,), and the counter
    (0, inside, piece, 0): Philox 4x64 with ten rounds.
    """
    for block in range(first // 4, -(-(first + len(out)) // 4)):
        k0, k1 = key[0], key[1]
        a, b = np.uint64(block + 1), np.uint64(inside)
        c, d = np.uint64(piece), np.uint64(0)
        for _ in range(10):
            high0, low0 = _high(MULTIPLY[0], a), MULTIPLY[0] * a
            high1, low1 = _high(MULTIPLY[1], c), MULTIPLY[1] * c
            a, b, c, d = high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0
            k0, k1 = k0 + WEYL[0], k1 + WEYL[1]
        at = 4 * block - first
        for i, word in enumerate((a, b, c, d)):
            if 0 <= at + i < len(out):
                out[at + i] = word


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


@partial(compiled, calls=(compiling,))
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
