"""Conditions on a matrix of weights under which beliefs settle, and errors for those it violates.

W_ij > 0 means that node i hears node j. Nodes count from 0, as clients do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedrepro.core.errors import FedreproError

TOLERANCE = 1e-9  # of the sum of a row, as decimals are rounded


def checked_weights(
    rows: Sequence[Sequence[float]] | np.ndarray, who: str, clients: int
) -> np.ndarray:
    """Check that W is stochastic, strongly connected and aperiodic; return it as float64 (N, N).

    Args:
        rows: W, (N, N); the rows that are returned sum to one exactly.
        who: Name of the graph in errors.
        clients: N, the number of nodes that is needed.

    Raises:
        FedreproError: For the first condition that W violates.
    """
    if not isinstance(rows, Sequence | np.ndarray):
        raise FedreproError(f"{who} returns a {type(rows).__name__}: let it return W, (N, N)")
    for place, row in enumerate(rows):
        if len(row) != len(rows):
            raise FedreproError(
                f"{who} is not square: it has {len(rows)} rows, and that of node {place} has "
                f"{len(row)} numbers"
            )
    weights = np.array(rows, np.float64)
    if len(weights) != clients:
        raise FedreproError(
            f"{who} is for {len(weights)} nodes, and there are {clients} clients: give it a row "
            "and a column for each client"
        )
    for i, j in np.argwhere(~(np.isfinite(weights) & (weights >= 0))):
        raise FedreproError(
            f"{who} has the weight {weights[i, j]:g} in the row of node {i}, column {j}: weights "
            "are 0 or above"
        )
    sums, hears = weights.sum(1), weights > 0
    for node in np.flatnonzero(np.abs(sums - 1) > TOLERANCE):
        raise FedreproError(
            f"{who}: the row of node {node} sums to {sums[node]:.12g}, and rows sum to 1"
        )
    for reached, phrase in (
        (steps_from(hears.T, 0) >= 0, "nothing of node 0 reaches node {}"),
        (steps_from(hears, 0) >= 0, "nothing of node {} reaches node 0"),
    ):
        for node in np.flatnonzero(~reached):
            raise FedreproError(
                f"{who} is not strongly connected: {phrase.format(node)}; give weights to further "
                "neighbours"
            )
    length = period(weights)
    if length > 1:
        raise FedreproError(
            f"{who} is periodic: what a node sends comes back after multiples of {length} rounds "
            "only, so that beliefs never settle; add self-loops"
        )
    normalised: np.ndarray = weights / sums[:, None]
    return normalised


def steps_from(edges: np.ndarray, start: int) -> np.ndarray:
    """Count the fewest steps from `start` to each node: int64 (N,), -1 for unreachable nodes.

    edges[i, j], bool (N, N), says whether a step leads from i to j.
    """
    distances = np.full(len(edges), -1, np.int64)
    front, steps = np.zeros(len(edges), bool), 0
    front[start] = True
    while front.any():
        distances[front] = steps
        front = edges[front].any(0) & (distances < 0)
        steps += 1
    return distances


def period(weights: np.ndarray) -> int:
    """Return the greatest common divisor of the lengths of all cycles of a strongly connected W.

    It is the gcd over edges of (steps to i) + 1 - (steps to j), by steps from node 0. Source:
    Denardo, Periods of connected networks and powers of nonnegative matrices, 1977.
    """
    hears = weights > 0
    steps = steps_from(hears, 0)
    i, j = np.nonzero(hears)
    return math.gcd(*np.abs(steps[i] + 1 - steps[j]).tolist())
