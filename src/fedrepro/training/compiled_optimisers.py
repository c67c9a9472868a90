"""Optimisers in the compiled steps, over parts of a flat model.

Each takes one pass over weights, gradient and what it remembers; L2 enters the gradient. Blocks
have theirs in `gradients.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrepro.portable_ops.compiled_math import Array, fma, inner
from fedrepro.training.compiled_types import AMSGRAD, SGD, Model, StepNumbers


@inner
def power(base: float, exponent: int) -> float:
    """Compute base ** exponent by squaring."""
    product = 1.0
    while exponent:
        if exponent % 2:
            product *= base
        base, exponent = base * base, exponent // 2
    return product


@inner
def rates_of(descent: StepNumbers, weights: Array, step: int) -> Any:
    """Compute the step size, and the factor on second moments, at the `step`-th step of Adam."""
    number = weights.dtype.type
    if descent.kind == SGD:
        return descent.lr, number(1)
    rate = number(descent.lr / (1.0 - power(descent.beta1, step)))
    return rate, number(1.0 / np.sqrt(1.0 - power(descent.beta2, step)))


@inner
def descend(
    descent: StepNumbers, rates: Any, model: Model, first: int, last: int, received: bool
) -> None:
    """Take a step of the optimiser for some of the numbers, the network's own if `received`."""
    rate, root = rates
    weights, gradient = model.weights[first:last], model.gradient[first:last]
    number = weights.dtype.type
    if len(model.summed):
        summed = model.summed[first:last]
        for k in range(len(gradient)):
            summed[k] += gradient[k]
    if received and descent.pull != 0:
        start = model.received[first:last]
        for k in range(len(gradient)):
            gradient[k] += descent.pull * (weights[k] - start[k])
    if received and descent.shift != 0:
        start = model.received[first:last]
        for k in range(len(gradient)):
            gradient[k] += descent.shift * start[k]
    moment, square, largest = model.moments
    beta2, rest = number(descent.beta2), number(1.0 - descent.beta2)
    if descent.kind == SGD and descent.momentum == 0:
        for k in range(len(gradient)):
            weights[k] = fma(-rate, decayed(descent.l2, weights[k], gradient[k]), weights[k])
    elif descent.kind == SGD:
        with_momentum(weights, gradient, moment[first:last], descent)
    elif descent.kind == AMSGRAD:
        amsgrad(weights, gradient, moment[first:last], square[first:last], largest[first:last],
                descent.l2, number(1.0 - descent.beta1), beta2, rest, rate, root,
                descent.eps)  # fmt: skip
    else:
        adam(weights, gradient, moment[first:last], square[first:last], descent.l2,
             number(1.0 - descent.beta1), beta2, rest, rate, root, descent.eps)  # fmt: skip


@inner
def decayed(l2: Any, weight: Any, gradient: Any) -> Any:
    """Add the gradient of l2/2 · weight², in the pass that needs it."""
    return gradient if l2 == 0 else fma(l2, weight, gradient)


@inner
def with_momentum(weights: Array, gradient: Array, velocity: Array, descent: StepNumbers) -> None:
    """v = momentum · v + g; w = w - lr · v."""
    for k in range(len(weights)):
        g = decayed(descent.l2, weights[k], gradient[k])
        velocity[k] = fma(descent.momentum, velocity[k], g)
        weights[k] = fma(-descent.lr, velocity[k], weights[k])


@inner
def adam(
    weights: Array, gradient: Array, first: Array, second: Array, l2: Any,
    new: Any, old_square: Any, new_square: Any, rate: Any, root: Any, eps: Any,
) -> None:  # fmt: skip
    """m and v are running means of g and g²; w = w - rate · m / (√v · root + eps)."""
    for k in range(len(weights)):
        g = decayed(l2, weights[k], gradient[k])
        first[k] = fma(new, g - first[k], first[k])
        second[k] = fma(old_square, second[k], new_square * g * g)
        weights[k] -= rate * first[k] / fma(np.sqrt(second[k]), root, eps)


@inner
def amsgrad(
    weights: Array, gradient: Array, first: Array, second: Array, largest: Array, l2: Any,
    new: Any, old_square: Any, new_square: Any, rate: Any, root: Any, eps: Any,
) -> None:  # fmt: skip
    """Descend as `adam` does, by the largest v so far."""
    for k in range(len(weights)):
        g = decayed(l2, weights[k], gradient[k])
        first[k] = fma(new, g - first[k], first[k])
        second[k] = fma(old_square, second[k], new_square * g * g)
        largest[k] = largest[k] if second[k] < largest[k] else second[k]
        weights[k] -= rate * first[k] / fma(np.sqrt(largest[k]), root, eps)
