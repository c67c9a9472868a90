"""Buffers that begin where a line of the cache or a page of memory does."""

from __future__ import annotations

from typing import Any

import numpy as np

LINE, PAGE = 64, 4096  # bytes of a line of the cache, and of memory


def aligned(size: int, dtype: Any, place: int = 0, unit: int = LINE) -> np.ndarray[Any, Any]:
    """Make zeros (size,) that begin `place` bytes behind a whole unit of memory, such as a line."""
    if not size:
        return np.zeros(0, dtype)
    count = size * np.dtype(dtype).itemsize
    buffer = np.zeros(count + unit, np.uint8)
    first = (place - buffer.ctypes.data) % unit
    values: np.ndarray[Any, Any] = buffer[first : first + count].view(dtype)
    return values
