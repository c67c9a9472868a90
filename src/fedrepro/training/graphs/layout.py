"""Positions of a graph's nodes in a picture: float64 (N, 2), within the unit square."""

from __future__ import annotations

import math

import numpy as np


def circle(count: int) -> np.ndarray:
    """Place nodes on a circle, clockwise from the top."""
    angles = 2 * math.pi * np.arange(count) / max(1, count)
    return 0.5 + 0.5 * np.stack([np.sin(angles), np.cos(angles)], axis=1)


def hub(count: int) -> np.ndarray:
    """Place node 0 in the middle of a circle of the others."""
    return np.concatenate([[[0.5, 0.5]], circle(count - 1)])


def lattice(count: int) -> np.ndarray:
    """Place nodes in rows from the top, as near to a square as possible."""
    rows, columns = rectangle(count)
    nodes = np.arange(count)
    most = max(rows, columns) - 1 or 1
    across = 0.5 + (nodes % columns - (columns - 1) / 2) / most
    down = 0.5 - (nodes // columns - (rows - 1) / 2) / most
    return np.stack([across, down], axis=1)


def rectangle(count: int) -> tuple[int, int]:
    """Return the most square (rows, columns) with rows · columns = count and rows ≤ columns."""
    rows = max(n for n in range(1, math.isqrt(count) + 1) if count % n == 0)
    return rows, count // rows


# by what the component of a graph calls it (`layout`)
PLACES = {"circle": circle, "hub": hub, "lattice": lattice}
