"""Compiled code for many examples: outputs of convolutions and recurrent layers, and moments."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fedrepro.core.portable_ops import convolution_and_pooling, elementary_functions
from fedrepro.core.portable_ops import matrix_products as products
from fedrepro.core.portable_ops.convolution_and_pooling import product_at
from fedrepro.core.portable_ops.elementary_functions import flush, restore, scaled
from fedrepro.core.portable_ops.matrix_products import (
    Array,
    by_type,
    clear,
    compiled,
    inner,
    padded_to,
    row_of,
)
from fedrepro.core.portable_ops.padding_and_alignment import PAD
from fedrepro.networks import compiled_convolutions, compiled_lstm
from fedrepro.networks import convolution_layout as f
from fedrepro.networks.compiled_convolutions import (
    errors_before,
    errors_below,
    features,
    gives,
    lay_image,
    learn_kernel,
    list_errors,
    take_errors,
    turn_kernels,
)
from fedrepro.networks.compiled_lstm import Recurrent, lay_letters, unrolled
from fedrepro.networks.convolution_layout import Convolutions, Images
from fedrepro.networks.layers import MARGIN, SHIFTS

CALLS = (
    products,
    elementary_functions,
    convolution_and_pooling,
    compiled_convolutions,
    f,
)


@partial(compiled, calls=CALLS)
def record_convolutions(
    convs: Convolutions, weights: Array, inputs: Array, room: Images, x: Array
) -> None:
    """Compute all convolutions for inputs (N, D); keep all layers' inputs in the buffers `room`.

    `add_moments` sums their products. Outputs of the last layer go to x, (N, H · W · C) flat.
    """
    before = flush()
    one = inputs.dtype.type(1)
    for b in range(len(inputs)):
        lay_image(convs, inputs[b], (one, one), (0, 0, 0), b, room)
    features(convs, weights, len(inputs), room, x)
    restore(before)


@inner
def run_of(c: Array) -> int:
    """Return k · C, the length of a kernel's row in layer c (of convs.layers), padded to 8s."""
    width: int = padded_to(c[f.KERNEL] * c[f.BELOW])
    return width


@partial(compiled, calls=CALLS)
def add_moments(
    convs: Convolutions, layer: int, rows: int, room: Images, scratch: Array, sums: Array
) -> None:
    """Add the second moments a aᵀ of a convolution's inputs, over all windows a, to `sums`.

    For K-FAC. The inputs of number `layer` are in `room`, for `rows` examples; a window has K = k ·
    k · C numbers. `sums` is float64 (K + 1, k, width) flat: a row of a aᵀ in k parts of k · C
    numbers, padded to `width`; last the sum of all windows. `scratch` is equally large work space.
    """
    before = flush()
    c = convs.layers[layer]
    k, width, length = c[f.KERNEL], run_of(c), c[f.KERNEL] * c[f.KERNEL] * c[f.BELOW]
    for b in range(rows):
        image = c[f.IMAGE] + b * c[f.NEXT]
        clear(scratch, 0, len(scratch))
        a, one = (room.images, image, c[f.ROW], c[f.BELOW]), (room.one, 0, 0, 0)
        for d in range(k):
            right = room.images, image + d * c[f.ROW], c[f.ROW], c[f.BELOW]
            out = scratch, d * width, k * width
            size = length, c[f.HEIGHT], c[f.WIDTH], width
            product_at(convs.by, out, out, a, right, (convs.lists, c[f.WINDOW]), size)
            out, size = (scratch, (length * k + d) * width, 0), (1, c[f.HEIGHT], c[f.WIDTH], width)
            product_at(convs.by, out, out, one, right, (convs.lists, 0), size)
        for n in range(len(sums)):
            sums[n] += np.float64(scratch[n])
    restore(before)


@partial(compiled, calls=CALLS)
def add_errors(
    convs: Convolutions, weights: Array, errors: Array, room: Images, x: Array, factors: Array,
    starts: Array, scratch: Array, squares: Array,
) -> None:  # fmt: skip
    """Backpropagate `errors` through all convolutions; sum g gᵀ, or squared gradients of kernels.

    `errors` (N, H · W · C) are gradients by the last outputs x, g those by any layer's outputs at
    one position. If `squares` is empty, g gᵀ is summed in `factors`, float64: a matrix (channels,
    channels) of each layer, rows padded, beginning at starts (L + 1,). Else squared gradients of
    kernels and biases are summed in `squares`, float64. `scratch` is work space of the sums' size.
    """
    before = flush()
    turn_kernels(convs, weights, room)
    for b in range(len(errors)):
        take_errors(convs, errors[b], 0, 1, room)
        for layer in range(len(convs.layers) - 1, -1, -1):
            c = convs.layers[layer]
            stride = row_of(c[f.CHANNELS])
            errors_before(convs, layer, b, room, x)
            right = room.upper, c[f.INSIDE], c[f.ACROSS] * stride, stride
            if len(squares):
                first = c[f.WEIGHT]
                last = first + (c[f.KERNEL] * c[f.KERNEL] * c[f.BELOW] + convs.biased) * stride
                clear(scratch, first, last)
                learn_kernel(convs, c, scratch, c[f.IMAGE] + b * c[f.NEXT], room)
                for n in range(first, last):
                    squares[n] += np.float64(scratch[n]) * np.float64(scratch[n])
            else:
                first, last = starts[layer], starts[layer + 1]
                clear(scratch, first, last)
                out, size = (scratch, first, stride), (c[f.CHANNELS], c[f.HEIGHT], c[f.WIDTH])
                product_at(convs.by, out, out, right, right, (convs.lists, 0),
                           (*size, padded_to(c[f.CHANNELS])))  # fmt: skip
                for n in range(first, last):
                    factors[n] += np.float64(scratch[n])
            if layer:
                if c[f.LISTED]:
                    list_errors(convs, c, c[f.CHOSEN] + b * gives(c), room)
                errors_below(convs, c, room)
    restore(before)


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
        lay_letters(inputs[rows[b]], b, len(rows), room)
    unrolled(body, weights, len(rows), room, x)


def _copy_inputs(
    body: Any, weights: Any, inputs: Any, rows: Any, scale: Any, crops: Any, room: Any, x: Any
) -> None:
    size = inputs.shape[1]
    for i in range(len(rows)):
        to, source = x[i * size : (i + 1) * size], inputs[rows[i]]
        for j in range(size):
            to[j] = scaled(source[j], scale[0], scale[1])


# forward_body(body, weights, inputs, rows, scale, crops, room, x) writes to x, (rows, numbers)
# flat: outputs of the body of a network for these rows of the inputs (N, D). scale: divisor and its
# inverse. crops: how each image is moved (`training/minibatches.py`), or empty.
forward_body = by_type(_copy_inputs, {Convolutions: _forward_images, Recurrent: _forward_letters})


@partial(compiled, calls=(*CALLS, compiled_lstm))
def predict(body: Any, weights: Array, inputs: Array, rows: int, room: Any, out: Array) -> None:
    """Compute a network's convolutions or recurrent layers (`body`) for all inputs (N, D).

    Writes the outputs to `out`, flat, computing `rows` examples at a time in buffers `room`. If all
    T letters of a text window have predictions, a batch of B examples gives (T, B, units).
    """
    before = flush()
    each, one = (len(out) - PAD) // len(inputs), inputs.dtype.type(1)
    every, crops = np.arange(len(inputs)), np.empty(0, np.int64)
    for first in range(0, len(inputs), rows):
        some = every[first : first + rows]
        forward_body(body, weights, inputs, some, (one, one), crops, room, out[first * each :])
    restore(before)
