"""Convolutions with ReLU and pooling in compiled code: forward, backward, and kernels' gradients.

Images lie as (H, W, C) with zeros around, so that a convolution is one product over positions
(`core/portable_ops/implicit_convolution.py`). Its gradient by the kernel is such a product too, and
so is that by the inputs, with the kernel turned by 180°. Below max pooling three errors in four are
zero. Where input channels fill whole vectors, both gradients are products of the nonzero errors
alone (`core/portable_ops/sparse_products.py`), with the same bits.

A kernel lies in a model like an affine map: weight (k · k · C, channels), then its bias, rows
padded to whole vectors. Functions share three arguments: convs is the layout (`Convolutions`), c a
layer's row of convs.layers, room the buffers (`Images`). Errors are the loss's gradients by the
inputs or outputs of a layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrepro.core.portable_ops.aligned_buffers import PAD
from fedrepro.core.portable_ops.compiled_math import (
    Array,
    clear,
    inner,
    padded_to,
    row_of,
    transpose,
)
from fedrepro.core.portable_ops.elementary_functions import scaled
from fedrepro.core.portable_ops.implicit_convolution import (
    added_up,
    given_back,
    largest,
    product_at,
)
from fedrepro.core.portable_ops.sparse_products import LANE_BYTES, sparse_product
from fedrepro.networks.convolution_layout import (
    ACROSS,
    ADDED,
    BACK,
    BELOW,
    CHANNELS,
    CHOSEN,
    CORNERS,
    EXTRA,
    FLIPPED,
    HEIGHT,
    IMAGE,
    INSIDE,
    KERNEL,
    LISTED,
    NEXT,
    OWN,
    POOLED,
    ROW,
    SPOTS,
    SPOTS_OF_CELL,
    TARGETS,
    TURNED,
    UPPER,
    WEIGHT,
    WIDTH,
    WINDOW,
    WINDOWS,
    Convolutions,
    Images,
)


@inner
def lay_image(
    convs: Convolutions, source: Array, scale: Any, move: Any, b: int, room: Images
) -> None:
    """Copy an image to the lowest layer's input in room.images, as (H, W, C) with zeros around.

    `source` is the image, (C, H, W) flat, b its number in the batch. `scale` is (number that
    divides all pixels, its inverse). `move` is (whether to mirror, rows down, columns right), for
    random crops; pixels from beyond the image's edge are zero.
    """
    (channels, height, width, edge), c = convs.image, convs.layers[0]
    (mirrored, down, right), images = move, room.images
    # x of the source goes to column x - right, or, mirrored, to width - 1 + right - x
    start, step = ((width - 1 + right), -channels) if mirrored else (-right, channels)
    for i in range(height):
        y, at = i + down, c[IMAGE] + b * c[NEXT] + (i + edge) * c[ROW] + edge * channels
        clear(images, at, at + width * channels)
        if 0 <= y < height:
            for k in range(channels):
                to, first = at + start * channels + k, (k * height + y) * width
                for x in range(max(0, right), min(width, width + right)):
                    images[to + x * step] = scaled(source[first + x], scale[0], scale[1])


@inner
def features(convs: Convolutions, weights: Array, rows: int, room: Images, x: Array) -> None:
    """Compute all convolutions for `rows` examples; write the outputs to x, (rows, H · W · C) flat.

    `weights` is the model as a flat array. The inputs are in room.images (`Images`). Images are
    computed one by one, so that feature maps stay in the cache.
    """
    last = len(convs.layers) - 1
    size = gives(convs.layers[last]) // row_of(convs.layers[last, CHANNELS])
    size *= convs.layers[last, CHANNELS]
    for b in range(rows):
        for layer in range(last + 1):
            c = convs.layers[layer]
            convolve(convs, c, weights, c[IMAGE] + b * c[NEXT], room)
            target, to = x, b * size
            if layer < last:
                above = convs.layers[layer + 1]
                target, to = room.images, above[IMAGE] + b * above[NEXT]
            if c[POOLED]:
                pool(convs, c, target, to, c[CHOSEN] + b * gives(c), room)
            else:
                rectify(convs, c, target, to, room)


@inner
def convolve(convs: Convolutions, c: Array, weights: Array, image: int, room: Images) -> None:
    """Convolve the image that begins at index `image` of room.images; write the result to room.out.

    The output is (H · W, channels), before ReLU. c is the layer's row of convs.layers (its sizes
    and offsets), `weights` the model as a flat array.
    """
    stride, run = row_of(c[CHANNELS]), c[KERNEL] * c[BELOW]
    begin = weights, c[WEIGHT] + c[KERNEL] * run * stride, 0
    if not convs.biased:
        begin = room.zeros, 0, 0
    a = room.images, image, c[ROW], 1
    b = weights, c[WEIGHT], run * stride, stride
    size = c[HEIGHT] * c[WIDTH], c[KERNEL], run, padded_to(c[CHANNELS])
    product_at(convs.by, (room.out, 0, stride), begin, a, b, (convs.lists, c[WINDOWS]), size)


@inner
def gives(c: Array) -> int:
    """Return how many numbers a convolution's output for one example has in memory, with padding.

    c is the layer's row of `Convolutions.layers`: its sizes and offsets.
    """
    side = 2 if c[POOLED] else 1
    count: int = (c[HEIGHT] // side) * (c[WIDTH] // side) * row_of(c[CHANNELS])
    return count


@inner
def pool(convs: Convolutions, c: Array, x: Array, to: int, noted: int, room: Images) -> None:
    """Apply ReLU and 2×2 max pooling to a layer's linear output, room.out; write to x[to:].

    x may be the next layer's input. Where the largest value of each window was goes to room.chosen
    from index `noted` on. c is the layer's row of convs.layers: its sizes and offsets.
    """
    stride, across = row_of(c[CHANNELS]), c[WIDTH] // 2
    for i in range(c[HEIGHT] // 2):
        for j in range(across):
            source, place = (2 * i * c[WIDTH] + 2 * j) * stride, i * across + j
            at = to + convs.lists[c[TARGETS] + place]  # in order: what fills up channels goes over
            for k in range(0, padded_to(c[CHANNELS]), PAD):
                largest(room.out, source + k, stride, c[WIDTH] * stride, x, at + k,
                        room.chosen, noted + place * stride + k)  # fmt: skip


@inner
def rectify(convs: Convolutions, c: Array, x: Array, to: int, room: Images) -> None:
    """Apply ReLU to a layer's linear output, room.out; write the result to x from index `to` on.

    x may be the next layer's input. c is the layer's row of convs.layers: its sizes and offsets.
    """
    stride, nothing = row_of(c[CHANNELS]), room.out.dtype.type(0)
    for place in range(c[HEIGHT] * c[WIDTH]):
        at = to + convs.lists[c[TARGETS] + place]
        for k in range(c[CHANNELS]):
            value = room.out[place * stride + k]
            x[at + k] = nothing if value < nothing else value


@inner
def learn_kernels(
    convs: Convolutions, weights: Array, gradient: Array, rows: int, room: Images, x: Array,
    errors: Array,
) -> None:  # fmt: skip
    """Add to `gradient` the gradients of all kernels and biases, summed over `rows` examples.

    This is the backward pass of `features`, whose output is x. `errors` are the loss's gradients by
    x, (H · W · C, padded rows) flat. `weights` and `gradient` are the model and its gradient as
    flat arrays; `room` has the inputs of all layers.
    """
    turn_kernels(convs, weights, room)
    turn_gradients(convs, gradient, room, False)
    for b in range(rows):
        take_errors(convs, errors, b, padded_to(rows), room)
        for layer in range(len(convs.layers) - 1, -1, -1):
            c = convs.layers[layer]
            if len(room.extra):
                for k in range(gives(c)):
                    room.lower[k] += room.extra[c[EXTRA] + b * gives(c) + k]
            if c[LISTED]:
                list_errors(convs, c, c[CHOSEN] + b * gives(c), room)
                learn_listed(convs, c, gradient, c[IMAGE] + b * c[NEXT], room)
            else:
                errors_before(convs, layer, b, room, x)
                learn_kernel(convs, c, gradient, c[IMAGE] + b * c[NEXT], room)
            if layer:
                errors_below(convs, c, room)
    turn_gradients(convs, gradient, room, True)


@inner
def turn_gradients(convs: Convolutions, gradient: Array, room: Images, back: bool) -> None:
    """Copy kernels' gradients, transposed, from `gradient` to room.turned; with `back`, from there.

    Only for layers whose gradients `learn_listed` computes, in room.turned as (channels, k · k ·
    C). The flat array `gradient` has them as (k · k · C, channels).
    """
    for layer in range(len(convs.layers)):
        c = convs.layers[layer]
        if c[LISTED]:
            length, channels = c[KERNEL] * c[KERNEL] * c[BELOW], c[CHANNELS]
            plain, turned = (
                (gradient, c[WEIGHT], row_of(channels)),
                (room.turned, c[TURNED], length),
            )
            if back:
                transpose(turned, channels, length, plain)
            else:
                transpose(plain, length, channels, turned)


@inner
def list_errors(convs: Convolutions, c: Array, noted: int, room: Images) -> None:
    """List the nonzero gradients by a layer's outputs before max pooling, in room.errors.

    They are found from the gradients behind the pooling, room.lower, and the positions that the
    pooling chose, room.chosen from index `noted` on. c is the layer's row of convs.layers.
    """
    lists, stride, across = room.errors, row_of(c[CHANNELS]), c[WIDTH] // 2
    n, place, long = 0, 0, c[KERNEL] * c[KERNEL] * c[BELOW]
    for o in range(c[CHANNELS]):
        lists.starts[o] = lists.ends[o] = o * (c[HEIGHT] // 2) * across
    for y in range(c[HEIGHT] // 2):
        clear(lists.counts, 0, across * SPOTS_OF_CELL)
        for x in range(across):  # the channels of each position of the cell, without branches
            cell = (y * across + x) * stride
            for o in range(c[CHANNELS]):
                bucket = x * SPOTS_OF_CELL + np.int64(room.chosen[noted + cell + o])
                count = lists.counts[bucket]
                lists.buckets[bucket * c[CHANNELS] + count] = o
                lists.counts[bucket] = count + (room.lower[cell + o] != 0)
        for spot in range(4 * across):
            down = spot // (2 * across)
            x = spot - 2 * across * down
            bucket = (x >> 1) * SPOTS_OF_CELL + 2 * down + (x & 1)
            cell = (y * across + (x >> 1)) * stride
            lists.firsts[place], seat = n, convs.lists[c[CORNERS] + place]
            for m in range(lists.counts[bucket]):
                o = lists.buckets[bucket * c[CHANNELS] + m]
                end, error = lists.ends[o], room.lower[cell + o]
                lists.amounts[n], lists.which[n], lists.channels[n] = error, o * long, o
                lists.own[end], lists.seats[end] = error, seat
                lists.ends[o] = end + 1
                n += 1
            place += 1
    lists.firsts[place] = n


@inner
def learn_listed(convs: Convolutions, c: Array, gradient: Array, image: int, room: Images) -> None:
    """Add the gradient of one kernel to room.turned, and that of its bias to the array `gradient`.

    Computes from the nonzero gradients by the layer's outputs alone (room.errors). The layer's
    input begins at index `image` of room.images; c is the layer's row of convs.layers.
    """
    run, lists, lanes = c[KERNEL] * c[BELOW], room.errors, LANE_BYTES // room.images.itemsize
    out, source = (room.turned, c[TURNED], run), (room.images, image, c[ROW])
    size = c[KERNEL], c[CHANNELS], run // lanes, lanes
    sparse_product(convs.sparse, out, source, (convs.lists, c[OWN]), (lists.seats, 0),
                   (lists.own, 0), (lists.starts, 0), (lists.ends, 0), size)  # fmt: skip
    if convs.biased:
        bias = c[WEIGHT] + c[KERNEL] * run * row_of(c[CHANNELS])
        for m in range(lists.firsts[c[HEIGHT] // 2 * (c[WIDTH] // 2) * 4]):
            gradient[bias + lists.channels[m]] += lists.amounts[m]


@inner
def turn_kernels(convs: Convolutions, weights: Array, room: Images) -> None:
    """Copy the kernels of all layers but the first to room.flipped, rearranged for backpropagation.

    A kernel is turned by 180°, (k · k · channels, input channels). Layers with c[ADDED] or
    c[LISTED] in their row c of convs.layers have it transposed, (channels, k · k · input channels).
    `weights` is the model as a flat array.
    """
    for layer in range(1, len(convs.layers)):
        c = convs.layers[layer]
        stride, low, spots = row_of(c[CHANNELS]), row_of(c[BELOW]), c[KERNEL] * c[KERNEL]
        if c[LISTED]:
            length = spots * c[BELOW]
            turned = room.flipped, c[FLIPPED], length
            transpose((weights, c[WEIGHT], stride), length, c[CHANNELS], turned)
            continue
        for s in range(spots):
            source = c[WEIGHT] + s * c[BELOW] * stride
            for o in range(c[CHANNELS]):
                place = o * spots + s if c[ADDED] else (spots - 1 - s) * stride + o
                for i in range(c[BELOW]):
                    room.flipped[c[FLIPPED] + place * low + i] = weights[source + i * stride + o]


@inner
def take_errors(convs: Convolutions, errors: Array, first: int, step: int, room: Images) -> None:
    """Copy one example's gradients by the last layer's output to room.lower.

    The gradients begin at index `first` of `errors`, and one number lies `step` after another.
    """
    top = convs.layers[len(convs.layers) - 1]
    channels, stride = top[CHANNELS], row_of(top[CHANNELS])
    for place in range(gives(top) // stride):
        for k in range(channels):
            room.lower[place * stride + k] = errors[first + (place * channels + k) * step]
        clear(room.lower, place * stride + channels, (place + 1) * stride)


@inner
def errors_before(convs: Convolutions, layer: int, b: int, room: Images, x: Array) -> None:
    """Backpropagate one example's gradients through a layer's pooling and ReLU.

    Reads gradients by its outputs from room.lower, writes those by its linear outputs to
    room.upper. `layer` is the layer's index, b the example's; x holds the last layer's outputs.
    """
    c = convs.layers[layer]
    if c[POOLED]:
        unpool(c, c[CHOSEN] + b * gives(c), room)
    elif layer + 1 < len(convs.layers):
        above = convs.layers[layer + 1]
        unrectify(convs, c, room.images, above[IMAGE] + b * above[NEXT], room)
    else:
        size = gives(c) // row_of(c[CHANNELS]) * c[CHANNELS]
        unrectify(convs, c, x, b * size, room)


@inner
def unpool(c: Array, noted: int, room: Images) -> None:
    """Copy gradients by max pooling's outputs, room.lower, to its largest inputs, in room.upper.

    The inputs' positions, recorded by `pool`, begin at index `noted` of room.chosen; c is the
    layer's row of `Convolutions.layers`: its sizes and offsets.
    """
    stride, across = row_of(c[CHANNELS]), c[WIDTH] // 2
    row = c[ACROSS] * stride
    for i in range(c[HEIGHT] // 2):
        for j in range(across):
            place, to = (i * across + j) * stride, c[INSIDE] + 2 * (i * row + j * stride)
            for k in range(0, padded_to(c[CHANNELS]), PAD):
                given_back(room.lower, place + k, room.chosen, noted + place + k, room.upper,
                           to + k, stride, row)  # fmt: skip


@inner
def unrectify(convs: Convolutions, c: Array, x: Array, first: int, room: Images) -> None:
    """Backpropagate gradients through a ReLU, from room.lower to room.upper.

    The ReLU's outputs are in x from index `first` on; where one is zero, so is its gradient. c is
    the layer's row of convs.layers: its sizes and offsets.
    """
    stride, nothing = row_of(c[CHANNELS]), room.out.dtype.type(0)
    for i in range(c[HEIGHT]):
        for j in range(c[WIDTH]):
            place = i * c[WIDTH] + j
            at, to = first + convs.lists[c[TARGETS] + place], c[INSIDE]
            to += (i * c[ACROSS] + j) * stride
            for k in range(c[CHANNELS]):
                error = room.lower[place * stride + k]
                room.upper[to + k] = error if x[at + k] > nothing else nothing


@inner
def learn_kernel(convs: Convolutions, c: Array, gradient: Array, image: int, room: Images) -> None:
    """Add the gradient of one layer's kernel and bias, for one image, to the flat array `gradient`.

    The layer's input begins at index `image` of room.images; the loss's gradients by its output are
    in room.upper. c is the layer's row of convs.layers: its sizes and offsets.
    """
    stride, at, length = row_of(c[CHANNELS]), c[WEIGHT], c[KERNEL] * c[KERNEL] * c[BELOW]
    errors = room.upper, c[INSIDE], c[ACROSS] * stride, stride
    kernel, columns = (gradient, at, stride), padded_to(c[CHANNELS])
    a = room.images, image, c[ROW], c[BELOW]
    if c[CHANNELS] <= PAD < c[KERNEL] * c[BELOW]:
        learn_transposed(convs, c, gradient, image, errors, room)
    else:
        size = length, c[HEIGHT], c[WIDTH], columns
        product_at(convs.by, kernel, kernel, a, errors, (convs.lists, c[WINDOW]), size)
    if convs.biased:
        bias, one = (gradient, at + length * stride, stride), (room.one, 0, 0, 0)
        size = 1, c[HEIGHT], c[WIDTH], columns
        product_at(convs.by, bias, bias, one, errors, (convs.lists, 0), size)


@inner
def learn_transposed(
    convs: Convolutions, c: Array, gradient: Array, image: int, errors: Any, room: Images
) -> None:
    """Add a kernel's gradient to the flat array `gradient`, by one matrix product per kernel row.

    For layers with fewer channels than a vector register has numbers. The products, (channels, k ·
    input channels) for a k × k kernel, are transposed back into `gradient`. The layer's input
    begins at index `image` of room.images. `errors` is (array, offset, strides) of the loss's
    gradients; c is the layer's row of convs.layers.
    """
    run, stride = c[KERNEL] * c[BELOW], row_of(c[CHANNELS])
    width, out = padded_to(run), (room.out, 0, padded_to(run))
    size = c[CHANNELS], c[HEIGHT], c[WIDTH], width
    for d in range(c[KERNEL]):
        at, rows = c[WEIGHT] + d * run * stride, (room.images, image + d * c[ROW], c[ROW], c[BELOW])
        for n in range(run):
            for o in range(c[CHANNELS]):
                room.out[o * width + n] = gradient[at + n * stride + o]
        product_at(convs.by, out, out, errors, rows, (convs.lists, 0), size)
        for n in range(run):
            for o in range(c[CHANNELS]):
                gradient[at + n * stride + o] = room.out[o * width + n]


@inner
def errors_below(convs: Convolutions, c: Array, room: Images) -> None:
    """Backpropagate gradients through a convolution, from its output to its input.

    Reads room.upper, or the list of nonzero gradients, room.errors; writes room.lower, (H · W,
    channels). c is the layer's row of convs.layers; c[LISTED] and c[ADDED] tell how to compute.
    """
    stride, low = row_of(c[CHANNELS]), row_of(c[BELOW])
    run = c[KERNEL] * stride
    if c[LISTED]:
        errors_scattered(convs, c, room)
        return
    if c[ADDED]:
        errors_added(convs, c, room)
        return
    a = room.upper, c[UPPER], c[ACROSS] * stride, 1
    b = room.flipped, c[FLIPPED], run * low, low
    size = c[SPOTS], c[KERNEL], run, padded_to(c[BELOW])
    places = convs.lists, c[BACK]
    product_at(convs.by, (room.lower, 0, low), (room.zeros, 0, 0), a, b, places, size)


@inner
def errors_added(convs: Convolutions, c: Array, room: Images) -> None:
    """Backpropagate gradients through a convolution, as sums over the windows that an input is in.

    Reads room.upper and writes room.lower; for layers without padding whose inputs have at most 8
    channels. c is the layer's row of convs.layers. Sums have a fixed order.
    """
    low, k = row_of(c[BELOW]), c[KERNEL]
    width, across = k * k * low, c[WIDTH] + k - 1
    a = room.upper, c[UPPER], 0, 1
    size = c[SPOTS], 1, c[CHANNELS], width
    product_at(convs.by, (room.out, 0, width), (room.zeros, 0, 0), a,
               (room.flipped, c[FLIPPED], 0, width), (convs.lists, c[BACK]), size)  # fmt: skip
    down, right = (c[WIDTH] * k - 1) * k * low, (k * k - 1) * low
    for y in range(c[HEIGHT] + k - 1):
        i = max(0, y - k + 1)
        for x in range(across):
            j = max(0, x - k + 1)
            window = (((i * c[WIDTH] + j) * k + y - i) * k + x - j) * low
            rows, columns = min(y + 1, c[HEIGHT]) - i, min(x + 1, c[WIDTH]) - j
            added_up(room.out, window, (rows, down), (columns, right),
                     room.lower, (y * across + x) * low)  # fmt: skip


@inner
def errors_scattered(convs: Convolutions, c: Array, room: Images) -> None:
    """Backpropagate the nonzero gradients, room.errors, through a convolution, to room.lower.

    Each gradient times its channel's kernel is added to the window of inputs that the output has
    seen. Lower rows of the kernel come first, so that sums follow the outputs' order. c is the
    layer's row of convs.layers.
    """
    run, lists, lanes = c[KERNEL] * c[BELOW], room.errors, LANE_BYTES // room.image.itemsize
    clear(room.image, 0, c[NEXT])
    last, low = c[KERNEL] - 1, row_of(c[BELOW])
    size = c[KERNEL], c[HEIGHT] // 2 * (c[WIDTH] // 2) * 4, run // lanes, lanes
    sparse_product(convs.sparse, (room.image, last * c[ROW], -c[ROW]),
                   (room.flipped, c[FLIPPED] + last * run, -run), (convs.lists, c[CORNERS]),
                   (lists.which, 0), (lists.amounts, 0), (lists.firsts, 0), (lists.firsts, 1),
                   size)  # fmt: skip
    for place in range(c[SPOTS]):
        at, to = convs.lists[c[BACK] + place], place * low
        for k in range(c[BELOW]):
            room.lower[to + k] = room.image[at + k]
