"""Representation matching of images in the compiled steps: maps f_j by transposed convolutions.

This loss term trains maps f_j. They predict activations of the received network, which the server
sent, from those of the network that trains. Three of four numbers of an unpooled image are zero,
and more after a ReLU. So the transposed convolution adds a kernel, turned by 180°, to the output
image only for numbers that are not zero. Images lie as (H, W, C), with the edges that kernels reach
over. In arguments `mine` has buffers of the network that trains, `room` those of the received
network and of the maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedrepro.core.portable_ops import padding_and_alignment
from fedrepro.core.portable_ops.compiled_functions_and_products import (
    PLAIN,
    Array,
    clear,
    inner,
    row_of,
)
from fedrepro.core.portable_ops.convolution_pooling_sparse_products import (
    LANE_BYTES,
    NOWHERE,
    STRIPS,
    VECTORS,
    lay,
    lift,
    total,
)
from fedrepro.core.portable_ops.padding_and_alignment import aligned
from fedrepro.networks import compiled_layout_and_buffers as f
from fedrepro.networks.compiled_convolutions import features, gives
from fedrepro.networks.compiled_layout_and_buffers import Convolutions, Images, Parts
from fedrepro.networks.layers import Shape

# What a row of `Maps.table` holds. Layer whose output is the source, its height and width, whether
# its pooling is undone; height and width of the image that is given back, with the edges that
# kernels reach over. Whether the target is what the affine maps are given, where it begins there or
# in Images.images, from image to image, from row to row; its channels; side of the kernel, numbers
# of a row of it; whether a ReLU follows. Rows and columns of the target that the convolution has:
# first, last, how much further they are in it. Where begin weight and bias in the model, and the
# kernel in `places`. Numbers from strip to strip of a kernel that is laid down, its tiles.
(SOURCE, DOWNWARDS, ACROSS, UNPOOLED, HIGH, ALONG, OF_X, TARGET, FURTHER, BENEATH, UNITS, SIDE,
 WIDE, RECTIFIED, TOP, BOTTOM, DOWN, LEFT, RIGHT, OVER, WEIGHT, BIAS, PLACES, LONG, TILES, BEYOND,
 FIELDS) = range(27)  # fmt: skip


class Maps(NamedTuple):
    """The maps f_j of representation matching on images, as arrays for compiled steps.

    A map predicts an activation of the received network. table: int64 (J, FIELDS), sizes and
    offsets of each map, in columns SOURCE, DOWNWARDS, …. places: for each number of a kernel
    rotated by 180°, its offset in the map's weight. tiles: int64 (T, 3), parts of kernels that fit
    registers: (code of the part's size, kernel row, first number in the row). shares (J,): factors
    of (prediction - target) in the gradients.
    """

    table: Array
    places: Array
    tiles: Array
    shares: Array


class MatchBuffers(NamedTuple):
    """The work buffers of representation matching of images, for one example and map f_j at a time.

    The received network: x, its last convolution outputs, (pixel, channel); shown, x as (channel,
    pixel); images, buffers of its convolutions. The map: laid, its kernel, (input channel, row,
    number in the row); moved, the kernel's gradient; bias, repeated along an output row; summed,
    the bias's gradient; image, its output, later the loss's gradient by the output. Its input's
    nonzero numbers, by pixel: amounts, their values; which, offsets of their kernels in laid;
    firsts, ends, the pixel's range in these two; corners, where the pixel's kernels are added in
    image. One input channel's nonzero numbers: own, their values; cells, where gradients go in
    mine.extra; seats, where their kernel was added in image; sums, parts of their gradients.
    """

    x: Array
    shown: Array
    images: Images
    laid: Array
    moved: Array
    image: Array
    bias: Array
    summed: Array
    firsts: Array
    ends: Array
    corners: Array
    which: Array
    amounts: Array
    seats: Array
    own: Array
    cells: Array
    sums: Array


def maps_of(
    parts: Parts,
    convs: Convolutions,
    pairs: Sequence[tuple[int, int]],
    shares: Sequence[float],
    shapes: Mapping[str, Shape],
    offsets: Mapping[str, int],
    dtype: np.dtype[Any],
) -> Maps:
    """Build the `Maps` of a network with layers `parts`, which `convs` lays out, in type `dtype`.

    `pairs` are (source, target) of each map: activations, counted from the network's input as 0.
    Tensors have `shapes`, and `offsets` in the flat model, by name; `shares` are as in `Maps`.
    """
    tiles: list[tuple[int, int, int]] = []
    images = [*(shape for _, shape, _ in parts.convolutions), parts.image]
    table, places, begun = np.zeros((len(pairs), FIELDS), np.int64), [np.zeros(0, np.int64)], 0
    for j, (p, (source, target)) in enumerate(zip(table, pairs, strict=True)):
        units, channels, side, _ = shapes[f"match{j}_weight"]
        c, (_, height, width) = convs.layers[source - 1], images[target]
        p[SOURCE], p[UNITS], p[SIDE], p[RECTIFIED] = source - 1, units, side, target > 0
        p[OF_X] = target == len(parts.convolutions)
        p[BENEATH], p[FURTHER] = width * units, height * width * units
        if not p[OF_X]:
            above, edge = convs.layers[target], parts.convolutions[target][0].padding
            p[BENEATH], p[FURTHER] = above[f.ROW], above[f.NEXT]
            p[TARGET] = above[f.IMAGE] + edge * (above[f.ROW] + above[f.BELOW])
        p[DOWNWARDS], p[ACROSS] = images[source][1:]
        p[UNPOOLED] = c[f.POOLED] and source > target
        high, along = (c[f.HEIGHT], c[f.WIDTH]) if p[UNPOOLED] else images[source][1:]
        p[HIGH], p[ALONG] = high + side - 1, along + side - 1
        p[TOP], p[BOTTOM], p[DOWN] = _shared(high, side, height)
        p[LEFT], p[RIGHT], p[OVER] = _shared(along, side, width)
        p[WEIGHT], p[BIAS] = offsets[f"match{j}_weight"], offsets[f"match{j}_bias"]
        p[PLACES], row = begun, padding_and_alignment.row_of(side)
        p[WIDE], p[TILES] = side * units, len(tiles)
        p[LONG], some = _tiles(side, side * units, LANE_BYTES // dtype.itemsize)
        tiles += some
        p[BEYOND] = len(tiles)
        weight = np.arange(units * channels * side * row).reshape(units, channels, side, row)
        turned = weight[..., :side].transpose(1, 2, 3, 0)[:, ::-1, ::-1]
        places.append(turned.ravel())
        begun += turned.size
    listed = np.array(tiles, np.int64)
    return Maps(table, np.concatenate(places), listed, np.array(shares, np.float64))


def _tiles(side: int, wide: int, lanes: int) -> tuple[int, list[tuple[int, int, int]]]:
    """Cut `side` rows of `wide` numbers of a kernel into parts for registers of `lanes` numbers."""
    vectors, tiles = -(-wide // lanes), []
    together = STRIPS if vectors == 1 else 1
    each = -(-vectors // -(-vectors // VECTORS))
    for dy in range(0, side, together):
        rows = min(together, side - dy)
        for first in range(0, vectors, each):
            kind = min(each, vectors - first) if rows == 1 else VECTORS + rows - 1
            tiles.append((kind, dy, first * lanes))
    return vectors * lanes, tiles


def _shared(size: int, side: int, target: int) -> tuple[int, int, int]:
    """Return (first, end, shift): rows of a received activation that a matching map predicts."""
    padding = side // 2
    convolved = size + 2 * padding - side + 1
    before = (target - convolved) // 2
    return max(0, before), min(target, before + convolved), side - 1 - padding - before


def room_of(convs: Convolutions, maps: Maps, images: Images, x: int) -> MatchBuffers:
    """Allocate buffers to train `maps`, in the type of `images`; `x` is the length of Scratch.x."""
    dtype, lanes = images.out.dtype, LANE_BYTES // images.out.itemsize
    cells = listed = laid = image = row = 0
    for p in maps.table:
        c = convs.layers[p[SOURCE]]
        side, of = int(p[SIDE]), int(p[DOWNWARDS] * p[ACROSS])
        spots = NOWHERE if p[UNPOOLED] else 1
        cells, listed = max(cells, of), max(listed, (of * spots + 1) * int(c[f.CHANNELS]))
        laid = max(laid, int(c[f.CHANNELS] * side * p[LONG]))
        edges = int(p[HIGH] * p[ALONG] * p[UNITS])
        image, row = max(image, edges), max(row, int((p[RIGHT] - p[LEFT]) * p[UNITS]))

    floats = {
        "x": x, "shown": x, "laid": laid, "moved": laid, "image": image + lanes, "bias": row,
        "summed": row, "amounts": listed, "own": cells + 1, "sums": cells * lanes,
    }  # fmt: skip
    whole = dict.fromkeys(("firsts", "ends", "corners"), NOWHERE * cells)
    whole |= {"which": listed, "seats": cells + 1, "cells": cells + 1}
    theirs = aligned(images.images.size, dtype)
    return MatchBuffers(
        images=images._replace(images=theirs, chosen=np.zeros_like(images.chosen)),
        **{name: aligned(size, dtype) for name, size in floats.items()},
        **{name: np.zeros(size, np.int64) for name, size in whole.items()},
    )


@inner
def features_of(
    convs: Convolutions, weights: Array, rows: int, mine: Images, room: MatchBuffers
) -> None:
    """Write `rows` images' outputs of received convolutions, `weights`, to room.x and .shown."""
    known, top = rows * convs.layers[0, f.NEXT], convs.layers[-1]
    room.images.images[:known] = mine.images[:known]
    features(convs, weights, rows, room.images, room.x)
    channels = top[f.CHANNELS]
    spots = gives(top) // row_of(channels)
    for b in range(rows):
        at = b * spots * channels
        for place in range(spots):
            for k in range(channels):
                room.shown[at + k * spots + place] = room.x[at + place * channels + k]


@inner
def matching_gradients(
    convs: Convolutions, maps: Maps, weights: Array, to: Array, add: bool, rows: int, step: float,
    mine: Images, x: Array, room: MatchBuffers,
) -> None:  # fmt: skip
    """Compute the representation matching loss's gradients, times `step`, for `rows` examples.

    Gradients by the maps, read from the flat model `weights`, are written (or added, if `add`) to
    `to`. Gradients by activations of the trained network (`mine`, the last: `x`) go to mine.extra.
    """
    for j in range(len(maps.table)):
        p = maps.table[j]
        c = convs.layers[p[SOURCE]]
        begin(maps, c, p, weights, room)
        for b in range(rows):
            values, at = x, b * (gives(c) // row_of(c[f.CHANNELS])) * c[f.CHANNELS]
            if p[SOURCE] + 1 < len(convs.layers):
                above = convs.layers[p[SOURCE] + 1]
                values, at = mine.images, above[f.IMAGE] + b * above[f.NEXT]
            source = values, at, c[f.CHOSEN] + b * gives(c)
            lay_down(convs, maps, p, mine, source, room)
            image_gap(p, b, room.image.dtype.type(step * maps.shares[j]), room)
            lift_up(convs, maps, p, mine, source, room)
        learn_map(maps, c, p, to, add, room)


@inner
def begin(maps: Maps, c: Array, p: Array, weights: Array, room: MatchBuffers) -> None:
    """Copy a matching map's kernel and bias to `room`, and set their gradients there to zero.

    `p` is the map's row of maps.table, `c` its input layer's row of `Convolutions.layers`.
    """
    long = p[LONG]
    for s in range(c[f.CHANNELS] * p[SIDE]):
        for i in range(p[WIDE]):
            place = maps.places[p[PLACES] + s * p[WIDE] + i]
            room.laid[s * long + i] = weights[p[WEIGHT] + place]
        clear(room.laid, s * long + p[WIDE], (s + 1) * long)
    clear(room.moved, 0, c[f.CHANNELS] * p[SIDE] * long)
    clear(room.summed, 0, len(room.summed))
    for i in range((p[RIGHT] - p[LEFT]) * p[UNITS]):
        room.bias[i] = weights[p[BIAS] + i % p[UNITS]]


@inner
def learn_map(maps: Maps, c: Array, p: Array, to: Array, add: bool, room: MatchBuffers) -> None:
    """Write (or `add`) a map's gradients in `room` to flat array `to`; `c`, `p`: see `begin`."""
    long, nothing = p[LONG], to.dtype.type(0)
    for s in range(c[f.CHANNELS] * p[SIDE]):
        for i in range(p[WIDE]):
            at = p[WEIGHT] + maps.places[p[PLACES] + s * p[WIDE] + i]
            to[at] = (to[at] if add else nothing) + room.moved[s * long + i]
    for i in range((p[RIGHT] - p[LEFT]) * p[UNITS]):
        at = p[BIAS] + i % p[UNITS]
        to[at] = (to[at] if add or i >= p[UNITS] else nothing) + room.summed[i]


@inner
def corner(p: Array, i: int, j: int, spot: int) -> Any:
    """Return the offset in a map's output where the kernel of input pixel (i, j) is added.

    `p` is a row of Maps.table, `spot` the maximum's place (0 to 3, by rows) in a 2 × 2 window.
    """
    if p[UNPOOLED]:
        i, j = 2 * i + spot // 2, 2 * j + spot % 2
    return (i * p[ALONG] + j) * p[UNITS]


@inner
def lay_down(
    convs: Convolutions, maps: Maps, p: Array, mine: Images, source: Any, room: MatchBuffers
) -> None:
    """Compute a map's output without bias from its input's nonzero numbers, into room.image.

    `p`: the map's row of maps.table. `mine`: the trained network's buffers. `source`: (array with
    the map's input, the input's offset there, offset in mine.chosen of places of pooling maxima).
    """
    (values, begins, noted), c = source, convs.layers[p[SOURCE]]
    channels, stride, spots = c[f.CHANNELS], row_of(c[f.CHANNELS]), NOWHERE if p[UNPOOLED] else 1
    row, long, kernel = p[ALONG] * p[UNITS], p[LONG], p[SIDE] * p[LONG]
    ends, r = np.empty(NOWHERE + 1, np.int64), 0
    for j in range(p[ACROSS]):
        for i in range(p[DOWNWARDS]):  # down, as what is laid down then lies apart
            place = i * p[ACROSS] + j
            at, first = begins + convs.lists[c[f.TARGETS] + place], place * spots * channels
            for spot in range(spots):
                ends[spot] = first + spot * channels
            ends[NOWHERE] = p[DOWNWARDS] * p[ACROSS] * spots * channels  # where nothing is read
            chosen = mine.chosen[noted + place * stride :]
            for k in range(channels):
                value = values[PLAIN(at + k)]
                where = PLAIN(chosen[k]) if spots > 1 else PLAIN(NOWHERE * (value == 0))
                end = ends[where]
                room.which[PLAIN(end)], room.amounts[PLAIN(end)] = k * kernel, value
                ends[where] = end + 1
            for spot in range(spots):
                if ends[spot] > first + spot * channels:
                    room.firsts[r], room.ends[r] = first + spot * channels, ends[spot]
                    room.corners[r] = corner(p, i, j, spot)
                    r += 1
    clear(room.image, 0, p[HIGH] * row)
    for tile in range(p[TILES], p[BEYOND]):
        kind, dy, at = maps.tiles[tile]
        for n in range(r):
            lay(kind, (room.image, room.corners[n] + dy * row + at, row),
                (room.laid, dy * long + at, long), room.which, room.amounts,
                (room.firsts[n], room.ends[n]))  # fmt: skip


@inner
def image_gap(p: Array, b: int, each: Any, room: MatchBuffers) -> None:
    """Add the bias to a map's output, in room.image; replace it by (output - target) · `each`.

    The result is the loss's gradient by the output; `each` is a factor, the target the received
    network's activation for example `b`, `p` the map's row of maps.table. The gradient is zero at
    edges and where a ReLU gave zero; it is added to room.summed, for the bias.
    """
    units = p[UNITS]
    row, nothing = p[ALONG] * units, room.image.dtype.type(0)
    left, long, rectified = (p[LEFT] + p[OVER]) * units, (p[RIGHT] - p[LEFT]) * units, p[RECTIFIED]
    values = room.x if p[OF_X] else room.images.images
    bias, summed = room.bias[:long], room.summed[:long]
    for i in range(p[HIGH]):
        line, y = room.image[i * row : (i + 1) * row], i - p[DOWN]
        if not p[TOP] <= y < p[BOTTOM]:
            clear(line, 0, row)
            continue
        at = p[TARGET] + b * p[FURTHER] + y * p[BENEATH] + p[LEFT] * units
        clear(line, 0, left)
        clear(line, left + long, row)
        back, theirs = line[left : left + long], values[at : at + long]
        for t in range(long):
            value = back[t] + bias[t]
            error = (value - theirs[t]) * each
            error = nothing if rectified and value <= 0 else error
            back[t] = error
            summed[t] += error


@inner
def lift_up(
    convs: Convolutions, maps: Maps, p: Array, mine: Images, source: Any, room: MatchBuffers
) -> None:
    """Backpropagate a map's gradients from room.image to mine.extra (input), room.moved (kernel).

    `p` is the map's row of maps.table; `source` is as in `lay_down`.
    """
    (values, begins, noted), c = source, convs.layers[p[SOURCE]]
    row, long, lanes = p[ALONG] * p[UNITS], p[LONG], LANE_BYTES // room.image.itemsize
    stride, channels, chosen = row_of(c[f.CHANNELS]), c[f.CHANNELS], mine.chosen[noted:]
    down, right, step = corner(p, 0, 0, 2), corner(p, 0, 0, 1), corner(p, 0, 1, 0)
    pooled, across, to = p[UNPOOLED], p[ACROSS], noted - c[f.CHOSEN] + c[f.EXTRA]
    clear(mine.extra, to, to + gives(c))
    for k in range(channels):
        n = 0
        for i in range(p[DOWNWARDS]):
            first, begin = corner(p, i, 0, 0), begins + convs.lists[c[f.TARGETS] + i * across] + k
            for j in range(across):
                cell, at = (i * across + j) * stride + k, PLAIN(n)
                value, seat = values[PLAIN(begin + j * channels)], first + j * step
                if pooled:
                    spot = np.int64(chosen[PLAIN(cell)])
                    seat += (spot >> 1) * down + (spot & 1) * right
                room.seats[at], room.own[at], room.cells[at] = seat, value, cell
                n += value != 0
        clear(room.sums, 0, n * lanes)
        for tile in range(p[TILES], p[BEYOND]):
            kind, dy, at = maps.tiles[tile]
            lift(kind, (room.image, dy * row + at, row),
                 (room.laid, (k * p[SIDE] + dy) * long + at, long), room.moved, room.seats,
                 room.own, room.sums, n)  # fmt: skip
        for m in range(n):
            mine.extra[to + room.cells[m]] = total(room.sums, m * lanes)
