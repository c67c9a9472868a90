"""An embedding and LSTM layers in compiled code; functions that run these or convolutions.

States lie as (T, B, units). So all T time steps share one matrix product of T · B rows, where they
do not depend on each other. A model in memory has the table of embeddings (codes, size), and
of each layer weight (inputs, 4 units), recurrent (units, 4 units) and bias; gates are in the order
of PyTorch: input, forget, cell, output. Functions share arguments: net is the layout, room the work
buffers, rows the number B of examples, weights and gradient flat arrays of one model.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedrepro.core.portable_ops import elementary_functions_random_cpu_modes as elementary
from fedrepro.core.portable_ops import padding_and_alignment
from fedrepro.core.portable_ops.compiled_functions_and_products import (
    Array,
    by_type,
    clear,
    compiled,
    inner,
    multiplier,
    padded_to,
    product,
    row_of,
    transpose,
)
from fedrepro.core.portable_ops.padding_and_alignment import PAD, aligned
from fedrepro.networks import compiled_convolutions
from fedrepro.networks.compiled_convolutions import features, lay_image
from fedrepro.networks.compiled_layout_and_buffers import Convolutions, Parts
from fedrepro.networks.layers import MARGIN, SHIFTS
from fedrepro.networks.network import Network


class Recurrent(NamedTuple):
    """The memory layout of an embedding and LSTM layers, for compiled code.

    starts: int64 (L, 3), where input weights, recurrent weights and biases of each layer begin in
    the model's flat array. table: (where the embeddings begin, how many there are, their size).
    units: of each layer. steps: T, letters in a window of text. every: whether each letter has a
    prediction, or only the last one. by: the address of the compiled matrix product.
    """

    starts: Array
    table: tuple[int, int, int]
    units: int
    steps: int
    every: bool
    by: int


class LstmBuffers(NamedTuple):
    """Flat work buffers of compiled LSTM layers, for T time steps, B examples and L layers.

    codes: letters as numbers, int64 (T, B); vectors: their embeddings (T, B, size); gates (L, T, B,
    4 units); states, cells and squashed (tanh of cells) (L, T, B, units); turned: transposed
    weights; above, cell: the loss's gradients by a layer's states (T, B, units), cells (B, units);
    zeros: 0s to start sums at. asked: letters to predict, int64 (T, B); numbers: 0, 1, 2, ….
    """

    codes: Array
    vectors: Array
    gates: Array
    states: Array
    cells: Array
    squashed: Array
    turned: Array
    above: Array
    cell: Array
    zeros: Array
    asked: Array
    numbers: Array


def recurrent_of(
    network: Network, parts: Parts, offsets: Mapping[str, int], rows: int, dtype: Any
) -> tuple[Recurrent, LstmBuffers]:
    """Return the memory layout of a network's recurrent layers, and work buffers for compiled code.

    `offsets` are where tensors begin in a model, by name; buffers of `dtype` hold `rows` examples.
    """
    steps, names = network.shape[0], ("weight", "recurrent", "bias")
    layers, units = len(parts.recurrent), parts.recurrent[0].units
    assert parts.embedding is not None
    codes, size = parts.embedding.codes, parts.embedding.size
    starts = [[offsets[f"{name}{k + 1}"] for name in names] for k in range(layers)]
    table, by = (offsets["table0"], codes, size), multiplier(np.dtype(dtype).name).address
    every = network.predictions > 1
    laid_out = Recurrent(np.array(starts, np.int64), table, units, steps, every, by)
    cells = rows * steps * layers
    vector, gate, state = (padding_and_alignment.row_of(n) for n in (size, 4 * units, units))
    sizes = {"vectors": cells * vector, "gates": cells * gate, "states": cells * state}
    sizes |= {"cells": cells * units, "squashed": cells * units, "above": cells * state}
    sizes |= {"turned": 4 * units * max(state, vector), "cell": rows * units}
    sizes["zeros"] = max(4 * units, state, vector)
    buffers = {name: aligned(count, dtype) for name, count in sizes.items()}
    letters, asked = (np.zeros(rows * steps, np.int64) for _ in range(2))
    numbers = np.arange(rows * steps)
    return laid_out, LstmBuffers(codes=letters, asked=asked, numbers=numbers, **buffers)


@inner
def sigmoid(x: Any, one: Any) -> Any:
    """Return 1 / (1 + exp(-x)); `one` is 1 in the type of x."""
    e = elementary.exp_of(-abs(x))
    return (one if x >= 0 else e) / (one + e)


@inner
def tanh(x: Any, one: Any) -> Any:
    """Return the hyperbolic tangent of x; `one` is 1 in the type of x."""
    e = elementary.exp_of(-(one + one) * abs(x))
    t = (one - e) / (one + e)
    return t if x >= 0 else -t


@inner
def unrolled(net: Recurrent, weights: Array, rows: int, room: LstmBuffers, x: Array) -> None:
    """Run embedding and LSTM layers on the letters room.codes, (T, rows); write states to x, flat.

    x gets the top layer's last states (rows, units), or with net.every all states (T, rows, units).
    """
    (table, _, size), h, cells = net.table, net.units, net.steps * rows
    vector, state, gate = row_of(size), row_of(h), row_of(4 * h)
    for r in range(cells):
        source = table + room.codes[r] * vector
        for k in range(size):
            room.vectors[r * vector + k] = weights[source + k]
    for layer in range(len(net.starts)):
        weight, recurrent, bias = net.starts[layer]
        first, states = layer * cells * gate, layer * cells * state
        below, n = (room.vectors, 0, vector, 1), size
        if layer:
            below, n = (room.states, states - cells * state, state, 1), h
        product(net.by, (room.gates, first, gate), (weights, bias, 0), below,
                (weights, weight, gate), (cells, n, padded_to(4 * h)))  # fmt: skip
        for t in range(net.steps):
            out = room.gates, first + t * rows * gate, gate
            if t:
                before = room.states, states + (t - 1) * rows * state, state, 1
                product(net.by, out, out, before, (weights, recurrent, gate),
                        (rows, h, padded_to(4 * h)))  # fmt: skip
            squash(net, rows, layer * cells + t * rows, t == 0, room)
    top = (len(net.starts) - 1) * cells
    first = top if net.every else top + cells - rows
    for r in range(top + cells - first):
        for k in range(h):
            x[r * h + k] = room.states[(first + r) * state + k]


@inner
def squash(net: Recurrent, rows: int, first: int, begins: bool, room: LstmBuffers) -> None:
    """Compute the gates, cells and states of an LSTM layer at one time step, in `room`.

    Rows `first` to first + `rows` - 1 of room.gates, one for each example, have the gates' linear
    parts; `begins` is whether the step is the first.
    """
    h, state, gate = net.units, row_of(net.units), row_of(4 * net.units)
    one = room.cells.dtype.type(1)
    for r in range(first, first + rows):
        g = room.gates[r * gate : r * gate + 4 * h]
        cell, squashed = room.cells[r * h : (r + 1) * h], room.squashed[r * h : (r + 1) * h]
        for k in range(2 * h):
            g[k] = sigmoid(g[k], one)
        for k in range(2 * h, 3 * h):
            g[k] = tanh(g[k], one)
        for k in range(3 * h, 4 * h):
            g[k] = sigmoid(g[k], one)
        for k in range(h):
            cell[k] = g[k] * g[2 * h + k]
        if not begins:
            before = room.cells[(r - rows) * h : (r - rows + 1) * h]
            for k in range(h):
                cell[k] = cell[k] + g[h + k] * before[k]
        out = room.states[r * state : r * state + h]
        for k in range(h):
            squashed[k] = tanh(cell[k], one)
            out[k] = g[3 * h + k] * squashed[k]


def backpropagate_through_time(
    net: Any, weights: Any, gradient: Any, rows: Any, room: Any, x: Any, errors: Any
) -> None:
    """Add the gradients of embedding and LSTM layers to `gradient`.

    `unrolled` has written its states to `room` and its output to `x`; `errors` (units, rows of x
    padded to 8s) are the loss's gradients by this output.
    """
    (table, _, size), h, cells = net.table, net.units, net.steps * rows
    vector, state, gate = row_of(size), row_of(h), row_of(4 * h)
    seen = cells if net.every else rows
    across, first = padded_to(seen), cells - seen
    clear(room.above, 0, first * state)
    for r in range(seen):
        for k in range(h):
            room.above[(first + r) * state + k] = errors[k * across + r]
    for layer in range(len(net.starts) - 1, -1, -1):
        weight, recurrent, bias = net.starts[layer]
        gates, states = layer * cells * gate, layer * cells * state
        transpose((weights, recurrent, gate), h, 4 * h, (room.turned, 0, state))
        clear(room.cell, 0, rows * h)
        for t in range(net.steps - 1, -1, -1):
            if t + 1 < net.steps:  # errors through the next time step
                out = room.above, t * rows * state, state
                later = room.gates, gates + (t + 1) * rows * gate, gate, 1
                product(
                    net.by, out, out, later, (room.turned, 0, state), (rows, 4 * h, padded_to(h))
                )
            unsquash(net, rows, layer * cells, t, room)
        below, n, row = (room.vectors, 0, 1, vector), size, vector
        if layer:
            below, n, row = (room.states, states - cells * state, 1, state), h, state
        to = gradient, weight, gate
        product(net.by, to, to, below, (room.gates, gates, gate), (n, cells, padded_to(4 * h)))
        to, before = (gradient, recurrent, gate), (room.states, states, 1, state)
        shape = h, cells - rows, padded_to(4 * h)
        product(net.by, to, to, before, (room.gates, gates + rows * gate, gate), shape)
        summed = gradient[bias : bias + 4 * h]
        for r in range(cells):
            g = room.gates[gates + r * gate : gates + r * gate + 4 * h]
            for k in range(4 * h):
                summed[k] += g[k]
        transpose((weights, weight, gate), n, 4 * h, (room.turned, 0, row))
        out = (room.above, 0, state) if layer else (room.vectors, 0, vector)
        product(net.by, out, (room.zeros, 0, 0), (room.gates, gates, gate, 1),
                (room.turned, 0, row), (cells, 4 * h, padded_to(n)))  # fmt: skip
    for r in range(cells):
        to_row = table + room.codes[r] * vector
        for k in range(size):
            gradient[to_row + k] += room.vectors[r * vector + k]


@inner
def unsquash(net: Recurrent, rows: int, layer: int, t: int, room: LstmBuffers) -> None:
    """Replace LSTM gates of step `t`, in room.gates, by loss gradients before their activation.

    room.above has gradients by states of all steps. room.cell, by cells of this step, gets those of
    the step before. `layer` is the row at which the layer's gates begin.
    """
    h, state, gate = net.units, row_of(net.units), row_of(4 * net.units)
    one = room.cells.dtype.type(1)
    for b in range(rows):
        r = layer + t * rows + b
        g = room.gates[r * gate : r * gate + 4 * h]
        error = room.above[(t * rows + b) * state : (t * rows + b) * state + h]
        squashed, cell = room.squashed[r * h : (r + 1) * h], room.cell[b * h : (b + 1) * h]
        before = room.cells[max(r - rows, 0) * h : (max(r - rows, 0) + 1) * h]
        earlier = one if t else one - one  # the first cell has none before it
        for k in range(h):
            entry, forget, new, out = g[k], g[h + k], g[2 * h + k], g[3 * h + k]
            s, e = squashed[k], error[k]
            c = cell[k] + e * out * (one - s * s)
            g[k] = c * new * entry * (one - entry)
            g[h + k] = c * (before[k] * earlier) * forget * (one - forget)
            g[2 * h + k] = c * entry * (one - new * new)
            g[3 * h + k] = e * s * out * (one - out)
            cell[k] = c * forget


def _forward_images(
    body: Any, weights: Any, inputs: Any, rows: Any, scale: Any, crops: Any, room: Any, x: Any
) -> None:
    mirrored, down, right = 0, 0, 0
    for b in range(len(rows)):
        if len(crops):
            mirrored, shift = divmod(crops[b], SHIFTS * SHIFTS)
            down, right = shift // SHIFTS - MARGIN, shift % SHIFTS - MARGIN
        lay_image(body, inputs[rows[b]], scale, (mirrored, down, right), b, room)
    features(body, weights, len(rows), room, x)


def _forward_letters(
    body: Any, weights: Any, inputs: Any, rows: Any, scale: Any, crops: Any, room: Any, x: Any
) -> None:
    for b in range(len(rows)):
        source = inputs[rows[b]]
        for t in range(len(source)):
            room.codes[t * len(rows) + b] = np.int64(source[t])
    unrolled(body, weights, len(rows), room, x)


def _copy_inputs(
    body: Any, weights: Any, inputs: Any, rows: Any, scale: Any, crops: Any, room: Any, x: Any
) -> None:
    size = inputs.shape[1]
    for i in range(len(rows)):
        to, source = x[i * size : (i + 1) * size], inputs[rows[i]]
        for j in range(size):
            to[j] = elementary.scaled(source[j], scale[0], scale[1])


# forward_body(body, weights, inputs, rows, scale, crops, room, x) writes to x, (rows, numbers)
# flat: outputs of the body of a network for these rows of the inputs (N, D). scale: divisor and its
# inverse. crops: how each image is moved (`training/minibatches_and_augmentation.py`), or empty.
forward_body = by_type(_copy_inputs, {Convolutions: _forward_images, Recurrent: _forward_letters})


@partial(compiled, calls=(*compiled_convolutions.CALLS, compiled_convolutions))
def predict(body: Any, weights: Array, inputs: Array, rows: int, room: Any, out: Array) -> None:
    """Compute a network's convolutions or recurrent layers (`body`) for all inputs (N, D).

    `body`, `room`: layout and buffers from `body_of`; `weights`: a flat model; `rows`: examples to
    compute at a time. `out`, flat with 8 (PAD) spare numbers at its end, gets the outputs, (N,
    units), or if all T letters of texts have predictions, (T, B, units) for each batch of B
    examples.
    """
    before = elementary.flush()
    each, one = (len(out) - PAD) // len(inputs), inputs.dtype.type(1)
    every, crops = np.arange(len(inputs)), np.empty(0, np.int64)
    for first in range(0, len(inputs), rows):
        some = every[first : first + rows]
        forward_body(body, weights, inputs, some, (one, one), crops, room, out[first * each :])
    elementary.restore(before)
