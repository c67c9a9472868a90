"""Exponentials, logarithms and softplus of numbers in compiled code: the same bits everywhere.

No library is called: each function is a polynomial, computed by fused multiply-adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from fedrepro.core.portable_ops.compiled_math import Function, fma, inner
from fedrepro.core.portable_ops.inner_functions import OPTIONS

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


def scaled(value: Any, scale: Any, inverse: Any) -> Any:
    """Return value / scale in compiled code, such as a pixel / 255; `inverse` is 1 / scale."""
    raise NotImplementedError


@overload(scaled, jit_options=OPTIONS)
def _scaled(value: Any, scale: Any, inverse: Any) -> Callable[..., Any]:
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
    """Return log(x) of a float64 number in compiled code, with equal bits on all CPUs.

    x must not be subnormal; zero, negative and infinite x and NaN are returned as they are.
    """
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


def softplus_of(x: Any) -> Any:
    """Return log(1 + exp(x)) of a scalar in compiled code, with equal bits on all CPUs."""
    raise NotImplementedError


def exp_of(x: Any) -> Any:
    """Return exp(x) of a scalar x ≤ 0 in compiled code, with equal bits on all CPUs."""
    raise NotImplementedError


@overload(exp_of, jit_options=OPTIONS)
def _exp_of(x: Any) -> Function:
    def double(x: Any) -> Any:
        bounded = LEAST if x < LEAST else x
        twos = np.rint(bounded * PER_TWO_64)
        r = fma(-twos, TWO_LOW_64, fma(-twos, TWO_HIGH_64, bounded))
        p = TERMS[11]
        p = fma(p, r, TERMS[10])
        p = fma(p, r, TERMS[9])
        p = fma(p, r, TERMS[8])
        p = fma(p, r, TERMS[7])
        p = fma(p, r, TERMS[6])
        p = fma(p, r, TERMS[5])
        p = fma(p, r, TERMS[4])
        p = fma(p, r, TERMS[3])
        p = fma(p, r, TERMS[2])
        p = fma(p, r, TERMS[1])
        p = fma(p, r, TERMS[0])
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


@overload(softplus_of, jit_options=OPTIONS)
def _softplus_of(x: Any) -> Function:
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
