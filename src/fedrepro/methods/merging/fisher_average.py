"""Weights averaged by diagonal information, and the descent that FedFisher takes instead."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedrepro.methods.merging.kronecker import mean_of

Array = np.ndarray


def fisher_mean(weights: Array, information: Array, share: Array, floor: float = 0.0) -> Array:
    """Compute sum_i p_i F_i w_i / sum_i p_i F_i, elementwise, F_i at least `floor`: (J, …) to (…).

    Where no client has information it is the parameter average. float64.
    """
    floored = np.maximum(information.astype(np.float64), floor)
    whole, average = mean_of(floored, share), mean_of(weights, share)
    apart = mean_of(floored * (weights - average), share)
    mean: Array = average + np.divide(apart, whole, out=np.zeros_like(apart), where=whole != 0)
    return mean


def fisher_descent(
    gradient: Callable[[Array], Array], start: Array, steps: int, rate: float, within: bool
) -> Array:
    """Run FedFisher's descent: m = v + 0.9 m, s = v² + 0.99 s, w = w - η m / (√s + 0.01).

    v is the gradient at w; with `within`, 0.01 is added inside the root, as for Kronecker factors.
    Flat directions hardly leave the start. Source: the authors' code; no sum is damped, so this is
    not Adam.
    """
    x, mean, square = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for _ in range(steps):
        v = gradient(x)
        mean, square = v + 0.9 * mean, v * v + 0.99 * square
        x -= rate * mean / (np.sqrt(square + 0.01) if within else np.sqrt(square) + 0.01)
    return x
