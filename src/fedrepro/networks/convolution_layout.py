"""The memory layout of convolutions, and buffers, with which `compiled_convolutions.py` works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedrepro.core.portable_ops import padding_and_alignment
from fedrepro.core.portable_ops.convolution_and_pooling import (
    LANE_BYTES,
    NOWHERE,
    multiplier_at,
    sparse_multiplier,
)
from fedrepro.core.portable_ops.matrix_products import Array
from fedrepro.core.portable_ops.padding_and_alignment import PAD, aligned
from fedrepro.networks.memory_layout import Parts

# What a row of `layers` holds. Of the map before its pooling: height, width, channels; channels of
# what it is given; side of the kernel; whether it is pooled. Where begin its weight, its kernel
# turned round, its inputs; numbers of one of these and of a row of it; what its pooling chose; its
# errors, of these the first inside the zeros, and how wide they are with them. Where its lists
# begin: starts of windows, numbers of a window, windows of errors (if errors are listed, the
# inputs' places in `Images.image`) and how many, and where its values go. Whether errors for its
# inputs are computed for each window and then added up. Where begin errors that are added to those
# of what it gives. Whether its errors are listed, without zeros. Where its kernel's gradient begins
# in `Images.turned`, and the lists of the outputs' windows and of rows of `turned`.
(HEIGHT, WIDTH, CHANNELS, BELOW, KERNEL, POOLED, WEIGHT, FLIPPED, IMAGE, NEXT, ROW, CHOSEN, UPPER,
 INSIDE, ACROSS, WINDOWS, WINDOW, BACK, SPOTS, TARGETS, ADDED, EXTRA,
 LISTED, TURNED, CORNERS, OWN, FIELDS) = range(27)  # fmt: skip

SPOTS_OF_CELL = NOWHERE + 1  # positions in a window of 2 × 2, and none


class Convolutions(NamedTuple):
    """The memory layout of a network's convolutions, for compiled code.

    layers: int64 (L, 26), a row for each layer, of its sizes and offsets. lists: int64, memory
    offsets of kernel windows and of outputs. image: (channels, height, width, zeros around) of an
    input. by, sparse: addresses of the compiled matrix products, with all numbers and with nonzero
    gradients alone (0 if no layer uses that).
    """

    layers: Array
    lists: Array
    image: tuple[int, int, int, int]
    biased: bool
    by: int
    sparse: int


class ErrorLists(NamedTuple):
    """The nonzero gradients by a pooled convolution's outputs, for one example, sorted in two ways.

    By output position (row by row): amounts, the gradients; channels, that of each; which, where
    this channel's kernel begins in the layer's part of `Images.flipped`; firsts (positions + 1,),
    the index of each position's first gradient. By channel: own, the gradients; seats, where the
    window of each begins in an image; starts, ends: each channel's. counts, buckets: for sorting.
    """

    amounts: Array
    which: Array
    channels: Array
    firsts: Array
    own: Array
    seats: Array
    starts: Array
    ends: Array
    counts: Array
    buckets: Array


class Images(NamedTuple):
    """Flat work buffers of compiled convolutions, for several examples.

    images: the inputs of all layers and examples, with zeros around; chosen: the positions that max
    pooling chose; extra: further gradients by layers' outputs, which are added, or empty. For one
    example: out, a layer's outputs before pooling; lower and upper, the loss's gradients by the
    outputs after and before pooling; errors, the nonzero ones before it; image, gradients by a
    layer's inputs, zeros around. flipped: kernels turned by 180°; turned: gradients of kernels.
    """

    images: Array
    chosen: Array
    out: Array
    upper: Array
    lower: Array
    flipped: Array
    zeros: Array
    one: Array
    extra: Array
    turned: Array
    image: Array
    errors: ErrorLists


def convolutions_of(
    parts: Parts, offsets: Sequence[int], rows: int, dtype: Any, matched: bool = False
) -> tuple[Convolutions, Images]:
    """Return the memory layout of a network's convolutions, and work buffers for compiled code.

    `rows` is how many examples are computed at once, `offsets` where each kernel begins in the
    model's flat array. `matched` adds the buffer `extra`, for representation matching.
    """
    lists, convs = list[Array](), np.zeros((len(parts.convolutions), FIELDS), np.int64)

    def add(values: Array) -> int:
        """Append memory offsets to `Convolutions.lists`; return the index at which they begin."""
        lists.append(values.ravel())
        return sum(map(len, lists[:-1]))

    # 0, 1, …: columns of a matrix as rows; a single row begins at the first
    add(np.arange(max(layer.channels for layer, _, _ in parts.convolutions)))
    images = chosen = flipped = upper = out = lower = widest = extra = turned = listed = spread = 0
    positions, taken, lanes = 0, 0, LANE_BYTES // np.dtype(dtype).itemsize
    for place, (layer, (below, height, width), pooled) in enumerate(parts.convolutions):
        c, k, edge, channels = convs[place], layer.kernel, layer.padding, layer.channels
        row, stride = (width + 2 * edge) * below, padding_and_alignment.row_of(channels)
        c[HEIGHT], c[WIDTH] = height + 2 * edge - k + 1, width + 2 * edge - k + 1
        c[CHANNELS], c[BELOW], c[KERNEL], c[POOLED] = channels, below, k, pooled
        c[LISTED] = pooled and below % lanes == 0
        if c[LISTED]:
            images = -(-images // lanes) * lanes  # vectors of its inputs lie in whole lines
        c[WEIGHT], c[FLIPPED], c[CHOSEN], c[UPPER] = offsets[place], flipped, chosen, upper
        c[IMAGE], c[NEXT], c[ROW] = images, (height + 2 * edge) * row, row
        images += rows * int(c[NEXT]) + PAD  # what fills up channels goes over the end
        flipped += k * k * stride * padding_and_alignment.row_of(below)
        low = padding_and_alignment.row_of(below)
        # whose columns would fill a part of a vector
        c[ADDED] = not edge and low == PAD and not c[LISTED]
        if c[LISTED]:
            c[TURNED], turned = turned, turned + channels * k * k * below
            c[CORNERS] = add(_grid(c[HEIGHT] // 2 * 2, c[WIDTH] // 2 * 2, row, below))
            c[OWN] = add(np.arange(channels) * k * k * below)
            listed = max(listed, int(c[HEIGHT] // 2 * (c[WIDTH] // 2)) * channels)
            taken = max(taken, int(c[WIDTH] // 2 * SPOTS_OF_CELL) * channels)
            spread, positions = max(spread, int(c[NEXT])), max(positions, int(c[HEIGHT] * c[WIDTH]))
        # zeros around errors that go further back
        around = k - 1 - edge if place and not c[ADDED] else 0
        c[ACROSS] = c[WIDTH] + 2 * around
        c[INSIDE] = upper + around * (c[ACROSS] + 1) * stride
        upper += int((c[HEIGHT] + 2 * around) * c[ACROSS]) * stride
        c[WINDOWS] = add(_grid(c[HEIGHT], c[WIDTH], row, below))
        c[WINDOW] = add(np.add.outer(_grid(k, k, row, below), np.arange(below)))
        tall, broad = (c[HEIGHT], c[WIDTH]) if c[ADDED] else (height, width)
        back = _grid(tall, broad, c[ACROSS] * stride, stride)
        if c[LISTED]:
            back = edge * (row + below) + _grid(height, width, row, below)
        c[BACK], c[SPOTS] = add(back), tall * broad
        after, (_, high, wide) = 0, parts.image
        if place + 1 < len(convs):
            above, (_, high, wide), _ = parts.convolutions[place + 1]
            after = above.padding
        chosen += rows * high * wide * stride * pooled
        c[EXTRA], extra = extra, extra + rows * high * wide * stride * matched
        row = (wide + 2 * after) * channels
        c[TARGETS] = add(after * (row + channels) + _grid(high, wide, row, channels))
        across = max(stride, k * k * low * int(c[ADDED]))  # numbers of a window of errors
        out = max(out, int(c[HEIGHT] * c[WIDTH]) * across)
        out = max(out, channels * padding_and_alignment.padded_to(k * below))  # a row of a kernel
        lower = max(lower, height * width * low, high * wide * stride)
        widest = max(widest, across, low)
    lowest, (channels, height, width), _ = parts.convolutions[0]
    image, by = (channels, height, width, lowest.padding), multiplier_at(np.dtype(dtype).name)
    sparse = sparse_multiplier(np.dtype(dtype).name).address if listed else 0
    offsets_of = np.concatenate(lists)
    laid_out = Convolutions(convs, offsets_of, image, parts.biased, by.address, sparse)
    amounts, places = (aligned(listed, kind) for kind in (dtype, np.int64))
    of_channels = np.zeros(int(convs[:, CHANNELS].max()), np.int64)
    counts, buckets = np.zeros(positions * SPOTS_OF_CELL, np.int64), np.zeros(taken, np.int64)
    errors = ErrorLists(
        amounts, places, places.copy(), np.zeros(positions + 1, np.int64),
        amounts.copy(), places.copy(), of_channels, of_channels.copy(), counts, buckets,
    )  # fmt: skip
    sizes = {"images": images, "out": out, "upper": upper, "lower": lower, "flipped": flipped}
    sizes |= {"zeros": widest, "extra": extra, "turned": turned, "image": spread}
    buffers = {name: aligned(size, dtype) for name, size in sizes.items()}
    one, chose = np.ones(1, dtype), np.zeros(chosen, np.uint8)
    return laid_out, Images(chosen=chose, one=one, errors=errors, **buffers)


def _grid(height: int, width: int, row: int, each: int) -> Array:
    places: Array = np.add.outer(np.arange(height) * row, np.arange(width) * each)
    return places
