"""Layout of numbers in memory: padded rows, and buffers that begin at a cache line or a page."""

from __future__ import annotations

from typing import Any

import numpy as np

LINE, PAGE = 64, 4096  # bytes of a cache line, and of a memory page
# rows of matrices are filled up with zeros to whole multiples of this
PAD = 8


def padded_to(columns: int) -> int:
    """Round a number of columns up to a multiple of 8 (PAD), which code computes at a time."""
    return -(-columns // PAD) * PAD


def row_of(columns: int) -> int:
    """Return the distance in memory between the beginnings of two rows of a matrix, in numbers.

    It is at least `columns`, a multiple of 8, not of 512: rows 2 KiB apart share few L1 cache sets.
    """
    width = -(-columns // PAD) * PAD
    return width + 16 if width % 512 == 0 else width


def aligned(size: int, dtype: Any, place: int = 0, unit: int = LINE) -> np.ndarray[Any, Any]:
    """Return zeros (size,) whose address is `place` bytes after a multiple of `unit` bytes."""
    if not size:
        return np.zeros(0, dtype)
    count = size * np.dtype(dtype).itemsize
    buffer = np.zeros(count + unit, np.uint8)
    first = (place - buffer.ctypes.data) % unit
    values: np.ndarray[Any, Any] = buffer[first : first + count].view(dtype)
    return values
