"""Variational perceptrons in the compiled steps: weights are drawn, beliefs moved.

With ε standard normal and σ = softplus(ρ) the weights θ = μ + σε of a step go through a dense
network, which gives the gradient at θ; from it follow those of means and spreads. Strip by strip,
so that what is done to a weight is done while it is in the cache. Source: P2P, eq. (8).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrepro.core.portable_ops.compiled_math import (
    Array,
    compiled,
    exp_of,
    fma,
    inner,
    row_of,
    softplus_of,
)
from fedrepro.core.portable_ops.philox import words
from fedrepro.training.compiled_types import Model, Net, Scratch

STRIP = 4096  # numbers of a model that are moved while they are in the first cache
DRAWN = 2**15  # random numbers at a time


@inner
def draw(net: Net, model: Model, key: Array, inside: int, room: Scratch) -> None:
    """Weights of a step: θ = μ + σ ε, σ = log(1 + exp(ρ)); ε goes where ρ's gradient will be."""
    before, noise = 0, model.gradient[net.size :]
    for t in range(len(net.tensors)):
        at, rows, columns = net.tensors[t]
        for first in range(0, rows * columns, DRAWN):
            count = min(DRAWN, rows * columns - first)
            drawn = room.words[: -(-count // 8)]
            words(key, inside, 0, before, drawn)
            before += len(drawn)
            scatter_normals(drawn.view(np.uint16), net.table, columns, first, count, noise[at:])
    for first in range(0, net.size, STRIP):
        part = slice(first, min(first + STRIP, net.size))
        means, spreads = model.weights[part], model.weights[net.size :][part]
        deviation, used, ours = model.deviation[part], model.used[part], noise[part]
        for k in range(len(means)):
            s = softplus_of(spreads[k])
            deviation[k] = s
            used[k] = fma(s, ours[k], means[k])


@inner
def scatter_normals(
    places: Array, table: Array, columns: int, first: int, count: int, out: Array
) -> None:
    """Write `count` normal numbers, two for each place of the table, where a tensor has them."""
    row = row_of(columns)
    if row == columns and count % 2 == 0:
        pairs = out[first : first + count].view(table.dtype)
        for k in range(len(pairs)):
            pairs[k] = table[places[k]]
        return
    for k in range(count):
        pair, i = table[places[k // 2]], first + k
        out[i // columns * row + i % columns] = pair.imag if k % 2 else pair.real


@inner
def variational_gradients(model: Model, size: int, first: int, last: int, share: Any) -> None:
    """Turn the gradient at the weights, and the noise, into gradients of means and spreads.

    With `share` of KL(N(μ, σ²) ‖ N(m, s²)) in the loss ∂μ = g + share (μ - m) / s² and ∂ρ = (g ε +
    share (σ - s)(σ + s) / (s² σ)) · exp(ρ - σ), where the last factor is the slope of the softplus;
    it is exactly zero where both deviations are equal. Source: P2P, eq. (8).
    """
    means, spreads = model.weights[first:last], model.weights[size + first : size + last]
    at_means, at_spreads = model.gradient[first:last], model.gradient[size + first : size + last]
    deviation, prior = model.deviation[first:last], model.prior[first:last]
    prior_deviation = model.prior_deviation[first:last]
    for k in range(len(means)):
        g, s, p = at_means[k], deviation[k], prior_deviation[k]
        inverse = share / (p * p)
        at_means[k] = fma(means[k] - prior[k], inverse, g)
        pull = (s - p) * (s + p) * inverse / s
        at_spreads[k] = fma(g, at_spreads[k], pull) * exp_of(spreads[k] - s)


@compiled
def softplus(spread: Array, out: Array) -> None:
    """Write log(1 + exp(spread)) to `out`."""
    for k in range(len(spread)):
        out[k] = softplus_of(spread[k])
