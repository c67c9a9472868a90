"""Convolutions with ReLU and pooling in compiled code: forward, back, and what kernels learn.

Images lie with zeros around them as (H, W, C), so that a convolution is a product by places
(`products/places.py`). With the two exchanged, rows at the places of a window and runs along the
rows of the map, it is the gradient of the kernel; with the kernel turned round and errors for an
image it is that of the inputs. A kernel lies in a model as an affine map does: weight
(k · k · C, channels), then its bias, rows filled up to whole vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedrepro.networks.parts import Parts
from fedrepro.products.compiled import PAD, Array, inner, padded_to, row_of
from fedrepro.products.memory import aligned
from fedrepro.products.places import given_back, largest, multiplier_at, product_at

# What a row of `layers` holds. Of the map before its pooling: height, width, channels; channels of
# what it is given; side of the kernel; whether it is pooled. Where begin its weight, its kernel
# turned round, its inputs; numbers of one of these and of a row of it; what its pooling chose; its
# errors, of these the first inside the zeros, and how wide they are with them. Where its lists
# begin: starts of windows, numbers of a window, windows of errors and how many, and where its
# values go. Where begin errors that are added to those of what it gives.
(HEIGHT, WIDTH, CHANNELS, BELOW, KERNEL, POOLED, WEIGHT, FLIPPED, IMAGE, NEXT, ROW, CHOSEN, UPPER,
 INSIDE, ACROSS, WINDOWS, WINDOW, BACK, SPOTS, TARGETS, ADDED, FIELDS) = range(22)  # fmt: skip


class Convolutions(NamedTuple):
    """layers (L, FIELDS) and lists int64; image: (channels, height, width, zeros around) of an
    input; by: the address of the product by places."""

    layers: Array
    lists: Array
    image: tuple[int, int, int, int]
    biased: bool
    by: int


class Images(NamedTuple):
    """Buffers. images: inputs of all layers and examples, with zeros around; chosen: of poolings.
    Of one example: a map before its pooling (out), errors after (lower) and before it (upper).
    flipped: kernels turned round; one: the number. added: errors of what layers give that do not
    come from above, or empty."""

    images: Array
    chosen: Array
    out: Array
    upper: Array
    lower: Array
    flipped: Array
    zeros: Array
    one: Array
    added: Array


class _Lists:
    """Lists of places, one behind another."""

    def __init__(self) -> None:
        self.values: list[Array] = [np.zeros(1, np.int64)]  # the first place, for a single row
        self.size = 1

    def add(self, values: Array) -> int:
        self.values.append(values.ravel())
        self.size += values.size
        return self.size - values.size


def convolutions_of(
    parts: Parts, offsets: Sequence[int], rows: int, dtype: Any, matched: bool = False
) -> tuple[Convolutions, Images]:
    """Lay out the convolutions of a network for so many examples at a time, and their buffers.

    offsets: where each weight begins in a model. matched: whether errors are added to theirs.
    """
    lists, convs = _Lists(), np.zeros((len(parts.convolutions), FIELDS), np.int64)
    images = chosen = flipped = upper = out = lower = widest = added = 0
    for place, (layer, (below, height, width), pooled) in enumerate(parts.convolutions):
        c, k, edge, channels = convs[place], layer.kernel, layer.padding, layer.channels
        row, stride = (width + 2 * edge) * below, row_of.py_func(channels)
        c[HEIGHT], c[WIDTH] = height + 2 * edge - k + 1, width + 2 * edge - k + 1
        c[CHANNELS], c[BELOW], c[KERNEL], c[POOLED] = channels, below, k, pooled
        c[WEIGHT], c[FLIPPED], c[CHOSEN], c[UPPER] = offsets[place], flipped, chosen, upper
        c[IMAGE], c[NEXT], c[ROW] = images, (height + 2 * edge) * row, row
        images += rows * int(c[NEXT]) + PAD  # what fills up channels goes over the end
        flipped += k * k * stride * row_of.py_func(below)
        around = k - 1 - edge if place else 0  # zeros around errors that go further back
        c[ACROSS] = c[WIDTH] + 2 * around
        c[INSIDE] = upper + around * (c[ACROSS] + 1) * stride
        upper += int((c[HEIGHT] + 2 * around) * c[ACROSS]) * stride
        c[WINDOWS] = lists.add(_grid(c[HEIGHT], c[WIDTH], row, below))
        c[WINDOW] = lists.add(np.add.outer(_grid(k, k, row, below), np.arange(below)))
        c[BACK] = lists.add(_grid(height, width, c[ACROSS] * stride, stride))
        c[SPOTS] = height * width
        _, high, wide = parts.convolutions[place + 1][1] if place + 1 < len(convs) else parts.image
        chosen += rows * high * wide * stride * pooled
        c[ADDED], added = added, added + rows * high * wide * stride * matched
        after = parts.convolutions[place + 1][0].padding if place + 1 < len(convs) else 0
        row = (wide + 2 * after) * channels
        c[TARGETS] = lists.add(after * (row + channels) + _grid(high, wide, row, channels))
        out = max(out, int(c[HEIGHT] * c[WIDTH]) * stride)
        lower = max(lower, height * width * row_of.py_func(below), high * wide * stride)
        widest = max(widest, stride, row_of.py_func(below))
    image = (
        (*parts.convolutions[0][1], parts.convolutions[0][0].padding) if len(convs) else (0,) * 4
    )
    laid_out = Convolutions(
        convs, np.concatenate(lists.values), image, parts.biased,
        multiplier_at(np.dtype(dtype).name).address,
    )  # fmt: skip
    sizes = (images, out, upper, lower, flipped, widest)
    buffers = [aligned(size, dtype) for size in sizes]
    chosen_of, last = np.zeros(chosen, np.uint8), (np.ones(1, dtype), aligned(added, dtype))
    return laid_out, Images(buffers[0], chosen_of, *buffers[1:], *last)


def _grid(height: int, width: int, row: int, each: int) -> Array:
    places: Array = np.add.outer(np.arange(height) * row, np.arange(width) * each)
    return places


@inner
def features(convs: Convolutions, weights: Array, rows: int, room: Images, x: Array) -> None:
    """Write what the last layer gives of so many examples to x, (rows, H · W · C) flat.

    They go image by image, so that maps stay in the cache. The inputs lie in room.images.
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
    """room.out (H · W, channels) of the image that begins there."""
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
    """Numbers that a layer gives of an example, rows of channels filled up."""
    if c[POOLED]:
        return (c[HEIGHT] // 2) * (c[WIDTH] // 2) * row_of(c[CHANNELS])
    return c[HEIGHT] * c[WIDTH] * row_of(c[CHANNELS])


@inner
def pool(convs: Convolutions, c: Array, x: Array, to: int, noted: int, room: Images) -> None:
    """Write the largest of each 2×2 window, and ReLU, to where the next layer is given it."""
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
    """Write the ReLU of a map to where the next layer is given it."""
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
    """Add what so many examples say of all kernels and biases to the gradient.

    x: what `features` gave. errors: of it, (H · W · C, padded rows) flat.
    """
    last, across = len(convs.layers) - 1, padded_to(rows)
    for layer in range(1, last + 1):
        turn_kernel(convs.layers[layer], weights, room.flipped)
    top = convs.layers[last]
    channels, stride = top[CHANNELS], row_of(top[CHANNELS])
    spots = gives(top) // stride
    for b in range(rows):
        for place in range(spots):
            for k in range(channels):
                room.lower[place * stride + k] = errors[(place * channels + k) * across + b]
            room.lower[place * stride + channels : (place + 1) * stride] = 0
        for layer in range(last, -1, -1):
            c = convs.layers[layer]
            if len(room.added):
                for k in range(gives(c)):
                    room.lower[k] += room.added[c[ADDED] + b * gives(c) + k]
            if c[POOLED]:
                unpool(c, c[CHOSEN] + b * gives(c), room)
            elif layer < last:
                above = convs.layers[layer + 1]
                unrectify(convs, c, room.images, above[IMAGE] + b * above[NEXT], room)
            else:
                unrectify(convs, c, x, b * spots * channels, room)
            learn_kernel(convs, c, gradient, c[IMAGE] + b * c[NEXT], room)
            if layer:
                errors_below(convs, c, room)


@inner
def turn_kernel(c: Array, weights: Array, flipped: Array) -> None:
    """Write the kernel turned round, (k · k · channels, channels of its inputs)."""
    stride, low, spots = row_of(c[CHANNELS]), row_of(c[BELOW]), c[KERNEL] * c[KERNEL]
    for s in range(spots):
        source = c[WEIGHT] + s * c[BELOW] * stride
        to = c[FLIPPED] + (spots - 1 - s) * stride * low
        for o in range(c[CHANNELS]):
            for i in range(c[BELOW]):
                flipped[to + o * low + i] = weights[source + i * stride + o]


@inner
def unpool(c: Array, noted: int, room: Images) -> None:
    """room.upper from room.lower: errors go back to where the largest came from."""
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
    """room.upper from room.lower: errors where a value is above zero."""
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
    """Add what one image says of a kernel and its bias."""
    stride, at, length = row_of(c[CHANNELS]), c[WEIGHT], c[KERNEL] * c[KERNEL] * c[BELOW]
    errors = room.upper, c[INSIDE], c[ACROSS] * stride, stride
    kernel, columns = (gradient, at, stride), padded_to(c[CHANNELS])
    a = room.images, image, c[ROW], c[BELOW]
    size = length, c[HEIGHT], c[WIDTH], columns
    product_at(convs.by, kernel, kernel, a, errors, (convs.lists, c[WINDOW]), size)
    if convs.biased:
        bias, one = (gradient, at + length * stride, stride), (room.one, 0, 0, 0)
        size = 1, c[HEIGHT], c[WIDTH], columns
        product_at(convs.by, bias, bias, one, errors, (convs.lists, 0), size)


@inner
def errors_below(convs: Convolutions, c: Array, room: Images) -> None:
    """room.lower (H · W, channels): errors of what the convolution was given."""
    stride, low = row_of(c[CHANNELS]), row_of(c[BELOW])
    run = c[KERNEL] * stride
    a = room.upper, c[UPPER], c[ACROSS] * stride, 1
    b = room.flipped, c[FLIPPED], run * low, low
    size = c[SPOTS], c[KERNEL], run, padded_to(c[BELOW])
    places = convs.lists, c[BACK]
    product_at(convs.by, (room.lower, 0, low), (room.zeros, 0, 0), a, b, places, size)
