"""Numbers in compiled code, the same bits everywhere: exp, log, softplus, random; CPU modes.

No library is called: functions are polynomials by fused multiply-adds, random numbers Philox's.
CPU modes, on x86, say whether subnormal numbers count as 0. Callers leave out the argument `code`.
"""

from __future__ import annotations

import math
import platform
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from fedrepro.core.portable_ops.compiled_functions_and_products import (
    Array,
    Code,
    Function,
    cgutils,
    fma,
    inner,
    overloaded,
    written,
)

SINGLE = np.float32
LOWEST = SINGLE(-87.0)  # what lies below has no normal number as its exponential
BITS, BIAS = np.int32(23), np.int32(127)  # of a float32: where its exponent is, and what is zero
PER_TWO = SINGLE(1 / math.log(2))
# log 2 in two parts, the first short enough for its multiples to be exact
TWO_HIGH = SINGLE(355 / 512)
TWO_LOW = SINGLE(math.log(2) - 355 / 512)
# exp(r) = 1 + r + r² (E0 + E1 r + …) where |r| is at most log(2) / 2, by Chebyshev interpolation;
# the relative error is 1e-8
E0, E1, E2 = SINGLE(0.5), SINGLE(0.1666657703), SINGLE(0.04166655466)
E3, E4 = SINGLE(0.008363173075), SINGLE(0.001392617612)
# log(1 + t) = 2 atanh(z) = 2 z (1 + A1 z² + A2 z⁴ + …) with z = t / (2 + t), at most a third; 4e-9
A1, A2 = SINGLE(0.3333316082), SINGLE(0.2001229762)
A3, A4 = SINGLE(0.1398257887), SINGLE(0.1407888918)
ONE, TWO, NOTHING = SINGLE(1), SINGLE(2), SINGLE(0)
# the same for float64: Taylor's terms of exp up to r¹³, and of atanh
FRACTION, HALFWAY = np.int64(52), np.int64(1023)
LEAST = -708.0
PER_TWO_64 = 1 / math.log(2)
TWO_HIGH_64 = float.fromhex("0x1.62e42fefa0000p-1")
TWO_LOW_64 = float.fromhex("0x1.cf79abc9e3b3ap-40")
TERMS = tuple(1 / math.factorial(k) for k in range(2, 14))
ODD = tuple(1 / (2 * k + 1) for k in range(1, 18))
ROOT_HALF = math.sqrt(0.5)


@overloaded
def scaled(value: Any, scale: Any, inverse: Any) -> Function:
    """Divide value by scale, `inverse` is 1/scale; for Numba types, return the code to compile."""
    number = np.float32 if inverse == types.float32 else np.float64

    def byte(value: Any, scale: Any, inverse: Any) -> Any:
        # the quotient, rounded once (Markstein): a division takes five times as long
        x = number(value)
        q = x * inverse
        return fma(fma(-q, scale, x), inverse, q)

    def floating(value: Any, scale: Any, inverse: Any) -> Any:
        return value / scale

    return byte if value == types.uint8 else floating


@inner
def odd_terms(q: float) -> float:
    """Return 1/3 + q/5 + q²/7 + …, for atanh(z) = z + z q odd_terms(q) with q = z² ≤ 1/9."""
    p = 0.0
    for k in range(len(ODD)):
        p = fma(p, q, ODD[len(ODD) - 1 - k])
    return p


@inner
def log_of(x: float) -> float:
    """Return log(x) of a normal float64 number, or x itself if it is not positive and finite."""
    if not 0 < x < math.inf:
        return x
    bits = np.float64(x).view(np.int64)
    twos = (bits >> FRACTION) - HALFWAY
    m = np.int64(bits - (twos << FRACTION)).view(np.float64)
    if m > 2 * ROOT_HALF:
        m, twos = 0.5 * m, twos + 1
    z = (m - 1.0) / (m + 1.0)
    q = z * z
    small = fma(2.0 * z, q * odd_terms(q), 2.0 * z)
    log_x: float = fma(np.float64(twos), TWO_HIGH_64, fma(np.float64(twos), TWO_LOW_64, small))
    return log_x


@overloaded
def exp_of(x: Any) -> Function:
    """Compute exp(x) of a scalar x ≤ 0; for its Numba type, return the function to compile."""

    def double(x: Any) -> Any:
        bounded = LEAST if x < LEAST else x
        twos = np.rint(bounded * PER_TWO_64)
        r = fma(-twos, TWO_LOW_64, fma(-twos, TWO_HIGH_64, bounded))
        p = fma(fma(fma(TERMS[11], r, TERMS[10]), r, TERMS[9]), r, TERMS[8])
        p = fma(fma(fma(fma(p, r, TERMS[7]), r, TERMS[6]), r, TERMS[5]), r, TERMS[4])
        p = fma(fma(fma(fma(p, r, TERMS[3]), r, TERMS[2]), r, TERMS[1]), r, TERMS[0])
        scale = np.int64((np.int64(twos) + HALFWAY) << FRACTION).view(np.float64)
        return (fma(p, r * r, r) + 1.0) * scale

    def single(x: Any) -> Any:
        # comparisons that are false keep what is not a number
        bounded = LOWEST if x < LOWEST else x
        twos = np.rint(bounded * PER_TWO)
        r = fma(-twos, TWO_LOW, fma(-twos, TWO_HIGH, bounded))
        p = fma(fma(fma(fma(E4, r, E3), r, E2), r, E1), r, E0)
        scale = np.int32((np.int32(twos) + BIAS) << BITS).view(SINGLE)
        return (fma(p, r * r, r) + ONE) * scale

    return single if x == types.float32 else double


@overloaded
def softplus_of(x: Any) -> Function:
    """Compute log(1 + exp(x)) of a scalar; for its Numba type, return the function to compile."""

    def double(x: Any) -> Any:
        t = exp_of(-abs(x))
        z = t / (2.0 + t)
        q = z * z
        return max(x, 0.0) + fma(2.0 * z, q * odd_terms(q), 2.0 * z)

    def single(x: Any) -> Any:
        t = exp_of(-abs(x))
        z = t / (TWO + t)
        q = z * z
        p = fma(fma(fma(fma(A4, q, A3), q, A2), q, A1), q, ONE)
        above = NOTHING if x < NOTHING else x  # what is not a number stays
        return fma(TWO * z, p, above)

    return single if x == types.float32 else double


@partial(written, result=types.uint64)
def _high(code: Code, a: Any, b: Any) -> Any:
    """Write LLVM code, into `code`, for the upper 64 bits of a · b (uint64), for random numbers."""
    builder, wide = code.builder, ir.IntType(128)
    whole = builder.mul(builder.zext(a, wide), builder.zext(b, wide))
    return builder.trunc(builder.lshr(whole, ir.Constant(wide, 64)), ir.IntType(64))


MULTIPLY = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
WEYL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)


@inner
def words(key: Array, inside: int, piece: int, first: int, out: Array) -> None:
    """Fill `out`, uint64 (n,), with the random numbers of a stream from position `first` on.

    The stream is that of numpy.random.Philox with `key`, uint64 (2,), and counter (0, inside,
    piece, 0). So part number `piece` of minibatch number `inside` has a stream of its own.
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


X86 = platform.machine() in ("x86_64", "AMD64")
FLUSHED = 0x8040  # bits of the register: of results, and of operands


@written
def prefetch_line(code: Code, array: Any, at: Any) -> None:
    """Write LLVM code, into `code`, that has the CPU cache array[at] before it is needed."""
    builder, number = code.builder, ir.IntType(32)
    place = builder.bitcast(code.at(code.kinds[0], array, at), ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
    ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    # to read, into the second cache, data and no code
    builder.call(ask, [place, *(ir.Constant(number, value) for value in (0, 2, 1))])


def _mode(builder: Any, name: str, place: Any) -> None:
    if X86:  # stores ('st') the register MXCSR at `place`, or loads ('ld') it
        pointer = builder.bitcast(place, ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type])
        ask = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}mxcsr")
        builder.call(ask, [pointer])


@partial(written, result=types.uint32)
def flush(code: Code) -> Any:
    """Write LLVM code by which an x86 CPU takes subnormals as 0; return its old register MXCSR."""
    builder = code.builder
    place = cgutils.alloca_once_value(builder, ir.Constant(ir.IntType(32), 0))
    _mode(builder, "st", place)
    before = builder.load(place)
    builder.store(builder.or_(before, ir.Constant(before.type, FLUSHED)), place)
    _mode(builder, "ld", place)
    return before


@written
def restore(code: Code, before: Any) -> None:
    """Write LLVM code, into `code`, that sets an x86 CPU's MXCSR to `before`, from `flush`."""
    _mode(code.builder, "ld", cgutils.alloca_once_value(code.builder, before))
