"""Second moments of a convolution's patches by products of shifted images, without the patches."""

from __future__ import annotations

from functools import cache

import numpy as np

from fedrepro.networks.memory_layout import Array


def patch_moment(
    images: Array, kernel: tuple[int, int], padding: tuple[int, int, int, int], ones: bool
) -> np.ndarray:
    """Sum the outer products of all patches that a kernel (kh, kw) sees by steps of one.

    `images` are float32 (n, C, H, W), with zeros around them by `padding` (top, bottom, left,
    right); with `ones` a patch ends in a 1. Returns float64 (C kh kw [+ 1], same). Pairs of kernel
    places that are equally far apart share a sum over whole images; each pair then subtracts the
    rows and columns at edges that its places do not reach.
    """
    (n, channels, rows, columns), (kh, kw), (top, bottom, left, right) = (
        images.shape, kernel, padding,
    )  # fmt: skip
    high, wide = rows + top + bottom - kh + 1, columns + left + right - kw + 1  # windows
    # zeros behind each row and image, so that a shift past an end meets them
    tall = rows + max(top + bottom, kh - 1)
    broad = columns + max(left + right, kw - 1)
    flat = np.zeros((n * tall * broad + kh * broad + kw, channels), images.dtype)
    padded = flat[: n * tall * broad].reshape(n, tall, broad, channels)
    padded[:, top : top + rows, left : left + columns] = images.transpose(0, 2, 3, 1)
    ends = [at for at in range(top, top + rows) if at < kh - 1 or at >= high]
    sides = [at for at in range(left, left + columns) if at < kw - 1 or at >= wide]

    def outside(first: int, window: int, edges: list[int]) -> list[int]:
        return [at for at in edges if not first <= at < first + window]

    @cache
    def product(down: int, over: int, row: int | None, column: int | None) -> np.ndarray:
        """Sum x[i, j] x[i + down, j + over]ᵀ over all pixels, or those in `row` and `column`."""
        shift = down * broad + over
        if row is None and column is None:
            size = n * tall * broad
            return np.asarray((flat[:size].T @ flat[shift : shift + size]).astype(np.float64))
        other = np.lib.stride_tricks.as_strided(flat[shift:], padded.shape, padded.strides)
        whole = slice(None)
        part = (whole, whole if row is None else row, whole if column is None else column)
        a, b = (one[part].reshape(-1, channels) for one in (padded, other))
        return np.asarray((a.T @ b).astype(np.float64))

    places = [(y, x) for y in range(kh) for x in range(kw)]
    moment = np.zeros((len(places), channels, len(places), channels))
    for i, (y, x) in enumerate(places):
        ys, xs = outside(y, high, ends), outside(x, wide, sides)
        for j, (below, behind) in enumerate(places[i:], i):
            apart = below - y, behind - x
            block = product(*apart, None, None).copy()
            for row in ys:
                block -= product(*apart, row, None)
            for column in xs:
                block -= product(*apart, None, column)
                for row in ys:
                    block += product(*apart, row, column)
            moment[i, :, j] = block
            moment[j, :, i] = block.T
    length = channels * len(places)
    found = moment.transpose(1, 0, 3, 2).reshape(length, length)
    if not ones:
        return found
    sums = padded.sum(axis=0, dtype=np.float64)
    of_place = [sums[y : y + high, x : x + wide].sum(axis=(0, 1)) for y, x in places]
    last = np.append(np.transpose(of_place).ravel(), float(n * high * wide))
    return np.block([[found, last[:-1, None]], [last[None]]])
