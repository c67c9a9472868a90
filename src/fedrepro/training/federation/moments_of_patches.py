"""Second moments of a convolution's patches by products of shifted images, without the patches."""

from __future__ import annotations

from functools import cache

import numpy as np

from fedrepro.networks.memory_layout import Array


def patch_moment(
    images: Array, kernel: tuple[int, int], padding: tuple[int, int, int, int], ones: bool
) -> np.ndarray:
    """Sum the outer products of all patches of images that a kernel sees by steps of one pixel.

    The images are float32 (n, C, H, W), the kernel (kh, kw), the padding zeros at top, bottom, left
    and right. A patch lists channel, row, column, and with `ones` a 1 as for a bias: the result is
    float64 (C kh kw, C kh kw), or one larger.

    Two places of the kernel share a product with all pairs as far apart: for each distance it is
    taken once over the pixels that all places see, and each place adds the edges that it sees.
    Nothing is subtracted, so that a pixel that is always zero has a moment of zero.
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
    # rows and columns that not every place of the kernel sees, and the pixels between them
    ends = [at for at in range(top, top + rows) if at < kh - 1 or at >= high]
    sides = [at for at in range(left, left + columns) if at < kw - 1 or at >= wide]

    inner = flat[: n * tall * broad].copy()
    middle = inner.reshape(padded.shape)
    middle[:, ends] = 0
    middle[:, :, sides] = 0
    lines = slice(max(kh - 1, top), max(kh - 1, top, min(high, top + rows)))
    posts = slice(max(kw - 1, left), max(kw - 1, left, min(wide, left + columns)))

    def inside(first: int, window: int, edges: list[int]) -> list[int]:
        return [at for at in edges if first <= at < first + window]

    @cache
    def product(down: int, over: int, row: int | None, column: int | None) -> np.ndarray:
        """Sum x[y, x] x[y + down, x + over]ᵀ between the edges, or on a row, a column, or both."""
        shift = down * broad + over
        if row is None and column is None:
            size = n * tall * broad
            return np.asarray((inner.T @ flat[shift : shift + size]).astype(np.float64))
        other = np.lib.stride_tricks.as_strided(flat[shift:], padded.shape, padded.strides)
        part = (slice(None), lines if row is None else row, posts if column is None else column)
        a, b = (one[part].reshape(-1, channels) for one in (padded, other))
        return np.asarray((a.T @ b).astype(np.float64))

    places = [(y, x) for y in range(kh) for x in range(kw)]
    moment = np.zeros((len(places), channels, len(places), channels))
    for i, (y, x) in enumerate(places):
        ys, xs = inside(y, high, ends), inside(x, wide, sides)
        for j, (below, behind) in enumerate(places[i:], i):
            apart = below - y, behind - x
            block = product(*apart, None, None).copy()
            for row in ys:
                block += product(*apart, row, None)
            for column in xs:
                block += product(*apart, None, column)
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
