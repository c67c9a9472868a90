"""Convolutions with ReLU and pooling in compiled code: forward, backward, gradients, moments.

Images lie as (H, W, C) with zeros around, so that a convolution is one matrix product over
positions (`core/portable_ops/convolution_pooling_sparse_products.py`). The gradient by the kernel
is such a product too, and the gradient by the inputs one with the kernel turned by 180°. Below max
pooling three errors in four are zero. A pooled layer whose input channels fill whole vector
registers is LISTED: both gradients come from a list of nonzero errors, with the bits of products.

A kernel lies in a model's flat array like an affine map: weight (k · k · C, channels), then its
bias, rows padded to whole vectors. Functions share arguments: convs is the layout, c a layer's row
of convs.layers, with columns f.HEIGHT and so on, and room the work buffers. rows is the number of
examples; weights and gradient are flat arrays of one model. Errors are the loss's gradients by the
inputs or outputs of a layer. Linear outputs are those before ReLU and pooling.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fedrepro.core.portable_ops import compiled_functions_and_products as products
from fedrepro.core.portable_ops import (
    convolution_pooling_sparse_products as convolution_and_pooling,
)
from fedrepro.core.portable_ops import elementary_functions_random_cpu_modes as elementary_functions
from fedrepro.core.portable_ops.compiled_functions_and_products import (
    Array,
    clear,
    compiled,
    inner,
    padded_to,
    row_of,
    transpose,
)
from fedrepro.core.portable_ops.convolution_pooling_sparse_products import (
    LANE_BYTES,
    added_up,
    given_back,
    largest,
    product_at,
    sparse_product,
)
from fedrepro.core.portable_ops.elementary_functions_random_cpu_modes import flush, restore, scaled
from fedrepro.core.portable_ops.padding_and_alignment import PAD
from fedrepro.networks import compiled_layout_and_buffers as f
from fedrepro.networks import layers
from fedrepro.networks.compiled_layout_and_buffers import Convolutions, Images


@inner
def lay_image(
    convs: Convolutions, source: Array, scale: Any, move: Any, b: int, room: Images
) -> None:
    """Copy an image, (C, H, W) flat, as (H, W, C) to room.images, as input of example number `b`.

    `scale` is (divisor of the stored pixels `source`, 1 / divisor), `move` (whether to mirror, row,
    column of the image at which the crop begins); pixels outside are zero.
    """
    (channels, height, width, edge), c = convs.image, convs.layers[0]
    (mirrored, down, right), images = move, room.images
    # x of the source goes to column x - right, or, mirrored, to width - 1 + right - x
    start, step = ((width - 1 + right), -channels) if mirrored else (-right, channels)
    for i in range(height):
        y, at = i + down, c[f.IMAGE] + b * c[f.NEXT] + (i + edge) * c[f.ROW] + edge * channels
        clear(images, at, at + width * channels)
        if 0 <= y < height:
            for k in range(channels):
                to, first = at + start * channels + k, (k * height + y) * width
                for x in range(max(0, right), min(width, width + right)):
                    images[to + x * step] = scaled(source[first + x], scale[0], scale[1])


@inner
def features(convs: Convolutions, weights: Array, rows: int, room: Images, x: Array) -> None:
    """Run `rows` examples through all convolutions; write outputs to x, (rows, H · W · C) flat.

    Inputs are in room.images. Images go one by one, so that activations stay in the cache.
    """
    last = len(convs.layers) - 1
    size = gives(convs.layers[last]) // row_of(convs.layers[last, f.CHANNELS])
    size *= convs.layers[last, f.CHANNELS]
    for b in range(rows):
        for layer in range(last + 1):
            c = convs.layers[layer]
            stride, run = row_of(c[f.CHANNELS]), c[f.KERNEL] * c[f.BELOW]
            begin = weights, c[f.WEIGHT] + c[f.KERNEL] * run * stride, 0
            if not convs.biased:
                begin = room.zeros, 0, 0
            left = room.images, c[f.IMAGE] + b * c[f.NEXT], c[f.ROW], 1
            right = weights, c[f.WEIGHT], run * stride, stride
            places = convs.lists, c[f.WINDOWS]
            shape = c[f.HEIGHT] * c[f.WIDTH], c[f.KERNEL], run, padded_to(c[f.CHANNELS])
            product_at(convs.by, (room.out, 0, stride), begin, left, right, places, shape)
            target, to = x, b * size
            if layer < last:
                above = convs.layers[layer + 1]
                target, to = room.images, above[f.IMAGE] + b * above[f.NEXT]
            activate(convs, c, target, to, c[f.CHOSEN] + b * gives(c), room)


@inner
def gives(c: Array) -> int:
    """Count the numbers of an example's output after pooling, channels filled to whole vectors."""
    side = 2 if c[f.POOLED] else 1
    count: int = (c[f.HEIGHT] // side) * (c[f.WIDTH] // side) * row_of(c[f.CHANNELS])
    return count


@inner
def activate(convs: Convolutions, c: Array, x: Array, to: int, noted: int, room: Images) -> None:
    """Write ReLU of a layer's linear outputs, room.out, after any 2×2 max pooling, to x[to:].

    Positions of pooled maxima in windows, 0 to 3, or 4 if none is > 0, go to room.chosen[noted:].
    """
    stride, across, nothing = row_of(c[f.CHANNELS]), c[f.WIDTH] // 2, room.out.dtype.type(0)
    if c[f.POOLED]:
        for i in range(c[f.HEIGHT] // 2):
            for j in range(across):
                source, place = (2 * i * c[f.WIDTH] + 2 * j) * stride, i * across + j
                # in order: what fills up channels goes over the end
                at = to + convs.lists[c[f.TARGETS] + place]
                for k in range(0, padded_to(c[f.CHANNELS]), PAD):
                    largest(room.out, source + k, stride, c[f.WIDTH] * stride, x, at + k,
                            room.chosen, noted + place * stride + k)  # fmt: skip
        return
    for place in range(c[f.HEIGHT] * c[f.WIDTH]):
        at = to + convs.lists[c[f.TARGETS] + place]
        for k in range(c[f.CHANNELS]):
            value = room.out[place * stride + k]
            x[at + k] = nothing if value < nothing else value


def learn_kernels(
    convs: Convolutions, weights: Array, gradient: Array, rows: int, room: Images, x: Array,
    errors: Array,
) -> None:  # fmt: skip
    """Add to `gradient` the gradients of all kernels and biases, summed over `rows` examples.

    `errors`, (H · W · C, rows padded to 8s) flat, are gradients by x, which `features` has written.
    """
    turn_kernels(convs, weights, room)
    turn_gradients(convs, gradient, room, False)
    for b in range(rows):
        take_errors(convs, errors, b, padded_to(rows), room)
        for layer in range(len(convs.layers) - 1, -1, -1):
            c = convs.layers[layer]
            if len(room.extra):
                for k in range(gives(c)):
                    room.lower[k] += room.extra[c[f.EXTRA] + b * gives(c) + k]
            if c[f.LISTED]:
                list_errors(convs, c, c[f.CHOSEN] + b * gives(c), room)
                learn_listed(convs, c, gradient, c[f.IMAGE] + b * c[f.NEXT], room)
            else:
                errors_before(convs, layer, b, room, x)
                learn_kernel(convs, c, gradient, c[f.IMAGE] + b * c[f.NEXT], room)
            if layer:
                errors_below(convs, c, room)
    turn_gradients(convs, gradient, room, True)


@inner
def turn_gradients(convs: Convolutions, gradient: Array, room: Images, back: bool) -> None:
    """Transpose LISTED layers' kernel gradients from `gradient` to room.turned; `back` reverses."""
    for layer in range(len(convs.layers)):
        c = convs.layers[layer]
        if c[f.LISTED]:
            length, channels = c[f.KERNEL] * c[f.KERNEL] * c[f.BELOW], c[f.CHANNELS]
            plain = gradient, c[f.WEIGHT], row_of(channels)
            turned = room.turned, c[f.TURNED], length
            if back:
                transpose(turned, channels, length, plain)
            else:
                transpose(plain, length, channels, turned)


@inner
def list_errors(convs: Convolutions, c: Array, noted: int, room: Images) -> None:
    """List the nonzero loss gradients by a pooled layer's linear outputs, in room.errors.

    room.lower has gradients by pooled outputs, room.chosen[noted:] positions of maxima in windows.
    """
    lists, stride, across = room.errors, row_of(c[f.CHANNELS]), c[f.WIDTH] // 2
    n, place, long = 0, 0, c[f.KERNEL] * c[f.KERNEL] * c[f.BELOW]
    for o in range(c[f.CHANNELS]):
        lists.starts[o] = lists.ends[o] = o * (c[f.HEIGHT] // 2) * across
    for y in range(c[f.HEIGHT] // 2):
        clear(lists.counts, 0, across * f.SPOTS_OF_CELL)
        for x in range(across):  # the channels of each position of the cell, without branches
            cell = (y * across + x) * stride
            for o in range(c[f.CHANNELS]):
                bucket = x * f.SPOTS_OF_CELL + np.int64(room.chosen[noted + cell + o])
                count = lists.counts[bucket]
                lists.buckets[bucket * c[f.CHANNELS] + count] = o
                lists.counts[bucket] = count + (room.lower[cell + o] != 0)
        for spot in range(4 * across):
            down = spot // (2 * across)
            x = spot - 2 * across * down
            bucket = (x >> 1) * f.SPOTS_OF_CELL + 2 * down + (x & 1)
            cell = (y * across + (x >> 1)) * stride
            lists.firsts[place], seat = n, convs.lists[c[f.CORNERS] + place]
            for m in range(lists.counts[bucket]):
                o = lists.buckets[bucket * c[f.CHANNELS] + m]
                end, error = lists.ends[o], room.lower[cell + o]
                lists.amounts[n], lists.which[n], lists.channels[n] = error, o * long, o
                lists.own[end], lists.seats[end] = error, seat
                lists.ends[o] = end + 1
                n += 1
            place += 1
    lists.firsts[place] = n


@inner
def learn_listed(convs: Convolutions, c: Array, gradient: Array, image: int, room: Images) -> None:
    """Add a LISTED layer's gradients for an example: kernel, to room.turned; bias, to `gradient`.

    Its inputs are room.images[image:], the gradients by its linear outputs room.errors.
    """
    run, lists, lanes = c[f.KERNEL] * c[f.BELOW], room.errors, LANE_BYTES // room.images.itemsize
    out, source = (room.turned, c[f.TURNED], run), (room.images, image, c[f.ROW])
    size = c[f.KERNEL], c[f.CHANNELS], run // lanes, lanes
    sparse_product(convs.sparse, out, source, (convs.lists, c[f.OWN]), (lists.seats, 0),
                   (lists.own, 0), (lists.starts, 0), (lists.ends, 0), size)  # fmt: skip
    if convs.biased:
        bias = c[f.WEIGHT] + c[f.KERNEL] * run * row_of(c[f.CHANNELS])
        for m in range(lists.firsts[c[f.HEIGHT] // 2 * (c[f.WIDTH] // 2) * 4]):
            gradient[bias + lists.channels[m]] += lists.amounts[m]


@inner
def turn_kernels(convs: Convolutions, weights: Array, room: Images) -> None:
    """Copy the kernels of all layers but the first to room.flipped, arranged for backpropagation.

    Kernels (k, k, inputs, channels) become (k · k, channels, inputs), rotated by 180°, or, where
    layers sum windows (f.ADDED) or list errors (f.LISTED), (channels, k · k, inputs).
    """
    for layer in range(1, len(convs.layers)):
        c = convs.layers[layer]
        stride, low, spots = row_of(c[f.CHANNELS]), row_of(c[f.BELOW]), c[f.KERNEL] * c[f.KERNEL]
        if c[f.LISTED]:
            length = spots * c[f.BELOW]
            turned = room.flipped, c[f.FLIPPED], length
            transpose((weights, c[f.WEIGHT], stride), length, c[f.CHANNELS], turned)
            continue
        for s in range(spots):
            source = c[f.WEIGHT] + s * c[f.BELOW] * stride
            for o in range(c[f.CHANNELS]):
                place = o * spots + s if c[f.ADDED] else (spots - 1 - s) * stride + o
                for i in range(c[f.BELOW]):
                    room.flipped[c[f.FLIPPED] + place * low + i] = weights[source + i * stride + o]


@inner
def take_errors(convs: Convolutions, errors: Array, first: int, step: int, room: Images) -> None:
    """Copy to room.lower an example's gradients by the last outputs, errors[first::step]."""
    top = convs.layers[len(convs.layers) - 1]
    channels, stride = top[f.CHANNELS], row_of(top[f.CHANNELS])
    for place in range(gives(top) // stride):
        for k in range(channels):
            room.lower[place * stride + k] = errors[first + (place * channels + k) * step]
        clear(room.lower, place * stride + channels, (place + 1) * stride)


@inner
def errors_before(convs: Convolutions, layer: int, b: int, room: Images, x: Array) -> None:
    """Backpropagate errors through a layer's pooling and ReLU, from room.lower to room.upper.

    `layer` and `b` are the numbers of layer and example. Without pooling, the error becomes 0 where
    the output is 0: outputs of the last layer are in x, those of others in room.images.
    """
    c = convs.layers[layer]
    stride, across, nothing = row_of(c[f.CHANNELS]), c[f.WIDTH] // 2, room.out.dtype.type(0)
    row = c[f.ACROSS] * stride
    if c[f.POOLED]:
        noted = c[f.CHOSEN] + b * gives(c)
        for i in range(c[f.HEIGHT] // 2):
            for j in range(across):
                place, to = (i * across + j) * stride, c[f.INSIDE] + 2 * (i * row + j * stride)
                for k in range(0, padded_to(c[f.CHANNELS]), PAD):
                    given_back(room.lower, place + k, room.chosen, noted + place + k, room.upper,
                               to + k, stride, row)  # fmt: skip
        return
    values, first = x, b * (gives(c) // stride) * c[f.CHANNELS]
    if layer + 1 < len(convs.layers):
        above = convs.layers[layer + 1]
        values, first = room.images, above[f.IMAGE] + b * above[f.NEXT]
    for i in range(c[f.HEIGHT]):
        for j in range(c[f.WIDTH]):
            place = i * c[f.WIDTH] + j
            at, to = first + convs.lists[c[f.TARGETS] + place], c[f.INSIDE] + i * row + j * stride
            for k in range(c[f.CHANNELS]):
                error = room.lower[place * stride + k]
                room.upper[to + k] = error if values[at + k] > nothing else nothing


@inner
def learn_kernel(convs: Convolutions, c: Array, gradient: Array, image: int, room: Images) -> None:
    """Add an example's gradients by kernel and bias to `gradient`: by products, even if LISTED.

    Errors by its linear outputs begin at room.upper[c[f.INSIDE]], inputs at room.images[image].
    """
    stride, at, run = row_of(c[f.CHANNELS]), c[f.WEIGHT], c[f.KERNEL] * c[f.BELOW]
    errors = room.upper, c[f.INSIDE], c[f.ACROSS] * stride, stride
    columns, length = padded_to(c[f.CHANNELS]), c[f.KERNEL] * run
    if c[f.CHANNELS] <= PAD < run:
        width = padded_to(run)
        out, size = (room.out, 0, width), (c[f.CHANNELS], c[f.HEIGHT], c[f.WIDTH], width)
        for d in range(c[f.KERNEL]):
            first, rows = at + d * run * stride, (room.images, image + d * c[f.ROW])
            for n in range(run):
                for o in range(c[f.CHANNELS]):
                    room.out[o * width + n] = gradient[first + n * stride + o]
            product_at(convs.by, out, out, errors, (*rows, c[f.ROW], c[f.BELOW]),
                       (convs.lists, 0), size)  # fmt: skip
            for n in range(run):
                for o in range(c[f.CHANNELS]):
                    gradient[first + n * stride + o] = room.out[o * width + n]
    else:
        kernel, inputs = (gradient, at, stride), (room.images, image, c[f.ROW], c[f.BELOW])
        size = length, c[f.HEIGHT], c[f.WIDTH], columns
        places = convs.lists, c[f.WINDOW]
        product_at(convs.by, kernel, kernel, inputs, errors, places, size)
    if convs.biased:
        bias, one = (gradient, at + length * stride, stride), (room.one, 0, 0, 0)
        size = 1, c[f.HEIGHT], c[f.WIDTH], columns
        product_at(convs.by, bias, bias, one, errors, (convs.lists, 0), size)


@inner
def errors_below(convs: Convolutions, c: Array, room: Images) -> None:
    """Backpropagate errors through a convolution, from its linear outputs, to room.lower.

    Gradients by its outputs are listed in room.errors if c[f.LISTED], else in room.upper. If
    c[f.ADDED], an input's gradient is the sum over the windows that contain it, in a fixed order.
    """
    stride, low, k = row_of(c[f.CHANNELS]), row_of(c[f.BELOW]), c[f.KERNEL]
    if c[f.LISTED]:
        errors_scattered(convs, c, room)
    elif c[f.ADDED]:
        width, across = k * k * low, c[f.WIDTH] + k - 1
        left, size = (room.upper, c[f.UPPER], 0, 1), (c[f.SPOTS], 1, c[f.CHANNELS], width)
        right, places = (room.flipped, c[f.FLIPPED], 0, width), (convs.lists, c[f.BACK])
        out, begin = (room.out, 0, width), (room.zeros, 0, 0)
        product_at(convs.by, out, begin, left, right, places, size)
        down, over = (c[f.WIDTH] * k - 1) * k * low, (k * k - 1) * low
        for y in range(c[f.HEIGHT] + k - 1):
            i = max(0, y - k + 1)
            for x in range(across):
                j = max(0, x - k + 1)
                window = (((i * c[f.WIDTH] + j) * k + y - i) * k + x - j) * low
                rows, columns = min(y + 1, c[f.HEIGHT]) - i, min(x + 1, c[f.WIDTH]) - j
                added_up(room.out, window, (rows, down), (columns, over),
                         room.lower, (y * across + x) * low)  # fmt: skip
    else:
        left, run = (room.upper, c[f.UPPER], c[f.ACROSS] * stride, 1), k * stride
        right, places = (room.flipped, c[f.FLIPPED], run * low, low), (convs.lists, c[f.BACK])
        size = c[f.SPOTS], k, run, padded_to(c[f.BELOW])
        out, begin = (room.lower, 0, low), (room.zeros, 0, 0)
        product_at(convs.by, out, begin, left, right, places, size)


@inner
def errors_scattered(convs: Convolutions, c: Array, room: Images) -> None:
    """Backpropagate the list room.errors through the LISTED layer `c`, to room.lower."""
    run, lists, lanes = c[f.KERNEL] * c[f.BELOW], room.errors, LANE_BYTES // room.image.itemsize
    clear(room.image, 0, c[f.NEXT])
    last, low = c[f.KERNEL] - 1, row_of(c[f.BELOW])
    size = c[f.KERNEL], c[f.HEIGHT] // 2 * (c[f.WIDTH] // 2) * 4, run // lanes, lanes
    sparse_product(convs.sparse, (room.image, last * c[f.ROW], -c[f.ROW]),
                   (room.flipped, c[f.FLIPPED] + last * run, -run), (convs.lists, c[f.CORNERS]),
                   (lists.which, 0), (lists.amounts, 0), (lists.firsts, 0), (lists.firsts, 1),
                   size)  # fmt: skip
    for place in range(c[f.SPOTS]):
        at, to = convs.lists[c[f.BACK] + place], place * low
        for k in range(c[f.BELOW]):
            room.lower[to + k] = room.image[at + k]


CALLS = (products, elementary_functions, convolution_and_pooling, f, layers)


@partial(compiled, calls=CALLS)
def add_moments(
    convs: Convolutions, layer: int, rows: int, room: Images, scratch: Array, sums: Array
) -> None:
    """Add the second moments a aᵀ of a convolution's inputs, over all windows a, to `sums`.

    `predict` has left the inputs of layer number `layer` in `room`, for `rows` examples. A window a
    has K = k · k · C numbers: a kernel's side is k, C counts input channels. `sums` is float64 (K +
    1, k, width) flat: the K rows of a aᵀ, each in k parts of k · C numbers padded to `width`, then
    the sum of all windows. `scratch` is equally large work space.
    """
    before = flush()
    c = convs.layers[layer]
    k, length = c[f.KERNEL], c[f.KERNEL] * c[f.KERNEL] * c[f.BELOW]
    width = padded_to(k * c[f.BELOW])
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
    """Backpropagate `errors` through all convolutions; add up g gᵀ, or squared kernel gradients.

    `errors` (N, H · W · C) are gradients by the last outputs `x`, which `predict` left with `room`.
    If `squares` is empty, the sum of g gᵀ (channels, padded channels) for layer l is added to
    `factors`, flat float64, from starts[l] to starts[l+1]; g is the gradient by linear outputs at a
    position. Else the squares of each example's gradients by kernels and biases are added to
    `squares`, float64, ordered as `weights`. `scratch` is work space as large as the sums.
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
