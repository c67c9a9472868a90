"""The largest of each 2×2 window, and its way back, in compiled code.

Nothing is rounded, so bytes are those of PyTorch, whose own is fast where channels fill whole
vectors. With LeNet's six it took a quarter of a step of training, and this takes a twentieth.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.products.compiled import Array, compiled

if TYPE_CHECKING:
    import torch


def max_pooled(x: torch.Tensor) -> torch.Tensor:
    """(B, C, H, W) to (B, C, H // 2, W // 2), channels last in memory; to be differentiated once.

    Of equal numbers the first of a window, row by row, is taken; what is not a number is kept. An
    odd last row or column is left out.
    """
    pooled: torch.Tensor = _pooling().apply(x)
    return pooled


@cache
def _pooling() -> Any:
    """The autograd function; made on first use, because torch comes later."""
    import torch

    largest, given_back = compiled(_largest), compiled(_given_back)

    class MaxPooled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            batch, channels, height, width = ctx.shape = x.shape
            out = torch.empty(
                (batch, channels, height // 2, width // 2),
                dtype=x.dtype,
                memory_format=torch.channels_last,
            )
            maps = _maps(out)
            ctx.chosen = np.empty(maps.shape, np.uint8)
            largest(_maps(x), maps, ctx.chosen)
            return out

        @staticmethod
        def backward(ctx: Any, error: torch.Tensor) -> torch.Tensor:
            below = torch.empty(ctx.shape, dtype=error.dtype, memory_format=torch.channels_last)
            given_back(_maps(error), ctx.chosen, _maps(below))
            return below

    return MaxPooled


def _maps(x: torch.Tensor) -> Array:
    """(B, C, H, W) as an array (B, H, W, C) without gaps: its own, if channels lie last."""
    import torch

    laid: Array = (
        x.detach().contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1).numpy()
    )
    return laid


def _largest(x: Array, out: Array, chosen: Array) -> None:
    """out (B, H // 2, W // 2, C): the largest of x (B, H, W, C); chosen: which of four it was.

    Rows are compared as a whole, then each column with the next one, and every other one is kept.
    """
    batch, height, width, channels = out.shape
    long = 2 * width * channels
    tall, rows = np.empty(long, x.dtype), np.empty(long, np.int32)
    most, places = np.empty(long, x.dtype), np.empty(long, np.int32)
    for b in range(batch):
        for i in range(height):
            upper, lower = x[b, 2 * i].reshape(-1), x[b, 2 * i + 1].reshape(-1)
            for k in range(long):
                one, other = upper[k], lower[k]
                larger = (other > one) | (other != other)
                tall[k], rows[k] = other if larger else one, np.int32(2) if larger else np.int32(0)
            for k in range(long - channels):
                one, other, row, next_row = tall[k], tall[k + channels], rows[k], rows[k + channels]
                larger = (other > one) | (other != other) | ((other == one) & (next_row < row))
                most[k], places[k] = other if larger else one, next_row + 1 if larger else row
            for j in range(width):
                for c in range(channels):
                    out[b, i, j, c] = most[2 * j * channels + c]
                    chosen[b, i, j, c] = places[2 * j * channels + c]


def _given_back(error: Array, chosen: Array, below: Array) -> None:
    """below (B, H, W, C): error (B, H // 2, W // 2, C) where it was chosen, else zero.

    A row of errors is written out to the width of x, and then compared as a whole.
    """
    batch, height, width, channels = error.shape
    long = 2 * width * channels
    wide, places = np.empty(long, error.dtype), np.empty(long, np.int32)
    column = (np.arange(long, dtype=np.int32) // channels) % 2
    nothing = error.dtype.type(0)
    for b in range(batch):
        below[b, 2 * height :] = nothing
        for i in range(height):
            for j in range(width):
                left, right = 2 * j * channels, (2 * j + 1) * channels
                for c in range(channels):
                    value, place = error[b, i, j, c], np.int32(chosen[b, i, j, c])
                    wide[left + c] = wide[right + c] = value
                    places[left + c] = places[right + c] = place
            for row in range(2):
                line = below[b, 2 * i + row].reshape(-1)
                line[long:] = nothing
                for k in range(long):
                    line[k] = wide[k] if places[k] == column[k] + 2 * row else nothing
