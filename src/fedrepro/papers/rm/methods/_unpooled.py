"""How far what a pooled image gives back is from an image, without the zeros of unpooling.

Three of four values of an unpooled image are zero, and more where a ReLU was, but a convolution of
it takes as long as that of any image. Here every value that is not zero lays its kernel down, in
passes that Numba compiles. The gap and its gradients come from one walk over an example, whose
image and errors stay in the cache and are never written out.

Sums may be taken in the order that suits the vectors of a machine (`reassoc`): the same machine
gives the same bytes.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fedrepro.products.compiled import Array, compiled

WINDOW = 2  # side of the pooling
PLACES = WINDOW * WINDOW
TOGETHER = 4  # kernels that are laid down, or lifted, at once
LONG = 64  # floats of a row of a kernel from which rows are read where they lie
TURN = 32  # kernels are filled up with zeros to whole turns of a loop over vectors
FAST = {"contract", "nsz", "reassoc"}

part = numba.njit(error_model="numpy", fastmath=FAST)


@part
def _sort(
    value: Array,
    places: Array,
    width: int,
    begin: Array,
    corner: Array,
    which: Array,
    amount: Array,
    nonzero: Array,
) -> Any:
    """Sort the values of one example that are not zero by the place that they go back to.

    value, places: (h, w, C). Returns how many places there are; that of r has its (row, column) in
    corner[r], and channels which[begin[r] : begin[r + 1]] with these amounts, filled up by
    amounts of zero. nonzero: room, (places of a window, C).
    """
    height, across, channels = value.shape
    count = np.zeros(PLACES, np.int64)
    n = r = 0
    for i in range(height):
        for j in range(across):
            first = WINDOW * (i * width + j)
            count[:] = 0
            for c in range(channels):
                if value[i, j, c] != 0:
                    place = places[i, j, c] - first
                    lower = place >= width
                    at = place - lower * (width - WINDOW)
                    nonzero[at, count[at]] = c
                    count[at] += 1
            for at in range(PLACES):
                if count[at] == 0:
                    continue
                begin[r] = n
                corner[r, 0], corner[r, 1] = WINDOW * i + at // WINDOW, WINDOW * j + at % WINDOW
                r += 1
                for m in range(count[at]):
                    which[n], amount[n] = nonzero[at, m], value[i, j, nonzero[at, m]]
                    n += 1
                while n % TOGETHER:
                    which[n], amount[n] = 0, 0
                    n += 1
    begin[r] = n
    return r


@part
def _lay(patch: Array, weight: Array, which: Array, amount: Array, begin: int, end: int) -> None:
    """patch = sum_m amount[m] · weight[which[m]], m from begin to end; (L,), (C, L), (M,), (M,)."""
    patch[:] = 0
    for m in range(begin, end, TOGETHER):
        w0, w1 = weight[which[m]], weight[which[m + 1]]
        w2, w3 = weight[which[m + 2]], weight[which[m + 3]]
        v0, v1, v2, v3 = amount[m], amount[m + 1], amount[m + 2], amount[m + 3]
        for t in range(len(patch)):
            patch[t] += v0 * w0[t] + v1 * w1[t] + v2 * w2[t] + v3 * w3[t]


@part
def _lift(
    errors: Array,
    first: Array,
    amount: Array,
    count: int,
    strips: int,
    floats: int,
    apart: int,
    weight: Array,
    moved: Array,
    below: Array,
) -> None:
    """The gradients of `_lay` for one channel: of amounts into below, of its weights onto moved.

    errors: flat; patch m begins at first[m] and has so many strips, of so many floats, so far
    apart. weight, moved: (L,). first, amount, below: (count,) and room to fill up to fours.
    """
    amount[count : count + TOGETHER - 1] = 0
    for m in range(0, count, TOGETHER):
        v0, v1, v2, v3 = amount[m], amount[m + 1], amount[m + 2], amount[m + 3]
        d0 = d1 = d2 = d3 = amount.dtype.type(0)
        for s in range(strips):
            offset = s * apart
            w, g = weight[s * floats : (s + 1) * floats], moved[s * floats : (s + 1) * floats]
            e0 = errors[first[m] + offset : first[m] + offset + floats]
            e1 = errors[first[m + 1] + offset : first[m + 1] + offset + floats]
            e2 = errors[first[m + 2] + offset : first[m + 2] + offset + floats]
            e3 = errors[first[m + 3] + offset : first[m + 3] + offset + floats]
            for t in range(floats):
                d0 += e0[t] * w[t]
                d1 += e1[t] * w[t]
                d2 += e2[t] * w[t]
                d3 += e3[t] * w[t]
                g[t] += v0 * e0[t] + v1 * e1[t] + v2 * e2[t] + v3 * e3[t]
        below[m], below[m + 1], below[m + 2], below[m + 3] = d0, d1, d2, d3


@part
def _gap(
    image: Array, bias: Array, theirs: Array, relu: bool, slope: Any, errors: Array, summed: Array
) -> Any:
    """|f - theirs|² along a row, f = image + bias or its ReLU; errors = slope · (f - theirs)."""
    # a literal zero would make sums of single precision double
    total = nothing = image.dtype.type(0)
    for t in range(len(theirs)):
        f = image[t] + bias[t]
        dead = relu and f <= 0
        gap = (nothing if dead else f) - theirs[t]
        total += gap * gap
        error = nothing if dead else slope * gap
        errors[t] = error
        summed[t] += error
    return total


@part
def _squares(line: Array) -> Any:
    """|line|²."""
    total = line.dtype.type(0)
    for t in range(len(line)):
        total += line[t] * line[t]
    return total


def _given_back(
    value: Array,
    places: Array,
    width: int,
    weight: Array,
    kernel: int,
    bias: Array,
    theirs: Array,
    relu: bool,
    scale: Array,
    rows: Array,
    columns: Array,
    image: Array,
    errors: Array,
    below: Array,
    moved: Array,
    summed: Array,
) -> Any:
    """sum_b scale_b · |f_b - theirs_b|², and its gradients by values, weights and bias.

    value, places and the gradient below: (B, h, w, C), places in rows of `width`. weight and its
    gradient moved: (C, L), the kernel of each channel as it is laid down, (kernel, kernel, O), and
    zeros. theirs: (B, H, W·O). bias and its gradient summed: (W·O,), along a row of theirs.
    scale: (B,). image: room for what is laid down, with the edges that kernels reach over;
    errors: likewise, zeros. rows: (first, last, shift), rows of theirs that the image has, at
    row + shift; columns: likewise, in floats. below, moved and summed are zeros.
    """
    examples, height, across, channels = value.shape
    units = image.shape[1] // (width + kernel - 1)
    row, long, cells = kernel * units, weight.shape[1], height * across
    begin = np.empty(PLACES * cells + 1, np.int64)
    corner = np.empty((PLACES * cells, 2), np.int64)
    room = cells * (channels + PLACES * (TOGETHER - 1))
    which, amount = np.empty(room, np.int64), np.empty(room, value.dtype)
    by_place = np.empty((PLACES, channels), np.int64)
    patch = np.zeros(long, value.dtype)
    # long rows of a kernel are read where they lie, others put one behind another
    direct = row >= LONG
    patches = np.zeros((1 if direct else PLACES * cells, long), value.dtype)
    flat = errors.reshape(-1) if direct else patches.reshape(-1)
    strips, floats, apart = (kernel, row, errors.shape[1]) if direct else (1, long, 0)
    seat = np.empty(errors.size, np.int64)
    first, cell = np.zeros(cells + TOGETHER, np.int64), np.empty(cells + TOGETHER, np.int64)
    nonzero, lifted = np.empty((2, cells + TOGETHER), value.dtype)
    left, right, shift = columns
    total = value.dtype.type(0)
    for b in range(examples):
        if scale[b] == 0:  # a row that fills a minibatch up
            continue
        count = _sort(value[b], places[b], width, begin, corner, which, amount, by_place)
        image[:] = 0
        for r in range(count):
            y, x = corner[r, 0], corner[r, 1] * units
            _lay(patch, weight, which, amount, begin[r], begin[r + 1])
            for k in range(kernel):
                onto, taken = image[y + k, x : x + row], patch[k * row : (k + 1) * row]
                for t in range(row):
                    onto[t] += taken[t]
        gap = value.dtype.type(0)
        for y in range(theirs.shape[1]):
            line = theirs[b, y]
            if not rows[0] <= y < rows[1]:
                gap += _squares(line)
            else:
                gap += _squares(line[:left]) + _squares(line[right:])
                gap += _gap(
                    image[y + rows[2], left + shift : right + shift],
                    bias[left:right],
                    line[left:right],
                    relu,
                    scale[b] + scale[b],
                    errors[y + rows[2], left + shift : right + shift],
                    summed[left:right],
                )
        total += scale[b] * gap
        for r in range(count):
            y, x = corner[r, 0], corner[r, 1] * units
            seat[y * width + corner[r, 1]] = y * errors.shape[1] + x if direct else r * long
            if not direct:
                for k in range(kernel):
                    taken, onto = errors[y + k, x : x + row], patches[r, k * row : (k + 1) * row]
                    for t in range(row):
                        onto[t] = taken[t]
        values, back = value[b].reshape(cells, channels), below[b].reshape(cells, channels)
        chosen = places[b].reshape(cells, channels)
        for c in range(channels):
            n = 0
            for m in range(cells):
                if values[m, c] != 0:
                    first[n], nonzero[n], cell[n] = seat[chosen[m, c]], values[m, c], m
                    n += 1
            _lift(flat, first, nonzero, n, strips, floats, apart, weight[c], moved[c], lifted)
            for m in range(n):
                back[cell[m], c] = lifted[m]
    return total


given_back = compiled(_given_back, FAST)
