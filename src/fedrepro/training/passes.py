"""The passes over variational weights that a step needs, compiled by Numba for the machine.

A step of a belief is bound by memory, so all that is done to a weight is done while it is in a
register: one pass draws the weights, another turns their gradient into those of means and spreads.
Nothing is reordered (no `fastmath`), so that the result does not depend on how wide the vectors of
the machine are. Exponentials are written out: calls of the C library would keep the
loops from being vectors. All arrays are (n,), contiguous, of one dtype, float32 or float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic, overload

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

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


def compiled(function: Function, fastmath: Collection[str] = ()) -> Function:
    """The function as machine code, which is kept on disk where that can be written.

    A division by zero gives infinity, as in NumPy: looking for it would keep loops from being
    vectors. fastmath: what LLVM may do beyond the letter.
    """
    allowed = set(fastmath)
    try:
        found: Function = numba.njit(error_model="numpy", cache=True, fastmath=allowed)(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written
        found = numba.njit(error_model="numpy", fastmath=allowed)(function)
    return found


def _fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.fma(*given)

    return a(a, b, c), generate


# a · b + c, rounded once: half the instructions, and the same bits on every machine
fma: Any = intrinsic(_fma)


def softplus_of(x: Any) -> Any:
    """log(1 + exp(x)) of a scalar, in compiled functions; `_softplus_of` has it for each dtype."""
    raise NotImplementedError


def exp_of(x: Any) -> Any:
    """exp(x) of a scalar that is not above zero, likewise."""
    raise NotImplementedError


@overload(exp_of, jit_options={"error_model": "numpy"})
def _exp_of(x: Any) -> Function:
    def double(x: Any) -> Any:
        return math.exp(x)

    def single(x: Any) -> Any:
        # comparisons that are false keep what is not a number
        bounded = LOWEST if x < LOWEST else x
        twos = np.rint(bounded * PER_TWO)
        r = fma(-twos, TWO_LOW, fma(-twos, TWO_HIGH, bounded))
        p = fma(fma(fma(fma(E4, r, E3), r, E2), r, E1), r, E0)
        scale = np.int32((np.int32(twos) + BIAS) << BITS).view(SINGLE)
        return (fma(p, r * r, r) + ONE) * scale

    return single if x == types.float32 else double


@overload(softplus_of, jit_options={"error_model": "numpy"})
def _softplus_of(x: Any) -> Function:
    def double(x: Any) -> Any:
        return max(x, 0.0) + math.log1p(math.exp(-abs(x)))

    def single(x: Any) -> Any:
        t = exp_of(-abs(x))
        z = t / (TWO + t)
        q = z * z
        p = fma(fma(fma(fma(A4, q, A3), q, A2), q, A1), q, ONE)
        above = NOTHING if x < NOTHING else x  # what is not a number stays
        return fma(TWO * z, p, above)

    return single if x == types.float32 else double


@compiled
def softplus(spread: Array, out: Array) -> None:
    """Write log(1 + exp(spread)) to `out`."""
    for i in range(len(spread)):
        out[i] = softplus_of(spread[i])


@compiled
def draw(mean: Array, spread: Array, noise: Array, deviation: Array, drawn: Array) -> None:
    """Write σ = log(1 + exp(spread)) and θ = mean + σ · noise."""
    for i in range(len(mean)):
        s = softplus_of(spread[i])
        deviation[i] = s
        drawn[i] = fma(s, noise[i], mean[i])


@compiled
def turn(
    mean: Array,
    spread: Array,
    deviation: Array,
    prior_mean: Array,
    prior_deviation: Array,
    share: float,
    at_mean: Array,
    at_spread: Array,
) -> None:
    """Gradients of means and spreads, in the place of that at the weights and of the noise.

    share: of KL(N(mean, σ²) ‖ N(m, s²)) in the loss; its part at the spread is exactly zero where
    both deviations are equal.
    """
    for i in range(len(mean)):
        g, s, p = at_mean[i], deviation[i], prior_deviation[i]
        inverse = share / (p * p)
        at_mean[i] = fma(mean[i] - prior_mean[i], inverse, g)
        pull = (s - p) * (s + p) * inverse / s
        at_spread[i] = fma(g, at_spread[i], pull) * exp_of(spread[i] - s)


@compiled
def turn_to_constant(
    mean: Array,
    spread: Array,
    deviation: Array,
    sd: float,
    share: float,
    at_mean: Array,
    at_spread: Array,
) -> None:
    """The same where the prior is N(0, sd²) for every weight."""
    inverse = share / (sd * sd)
    for i in range(len(mean)):
        g, s = at_mean[i], deviation[i]
        at_mean[i] = fma(mean[i], inverse, g)
        pull = (s - sd) * (s + sd) * inverse / s
        at_spread[i] = fma(g, at_spread[i], pull) * exp_of(spread[i] - s)
