"""Random 64-bit numbers in compiled code, bit by bit those of NumPy's Philox generator."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from fedrepro.core.portable_ops.compiled_math import Array, inner


def _high_of(typing: Any, a: Any, b: Any) -> Any:
    """Write LLVM code for the upper 64 bits of a product of two uint64; an intrinsic of Numba."""

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
    """Fill `out`, uint64 (n,), with random numbers number `first`, first + 1, … of a stream.

    Compiled code. The stream is that of numpy.random.Philox with `key`, uint64 (2,), and counter
    (0, inside, piece, 0): one for each minibatch (`inside`) and part of a minibatch (`piece`).
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
