"""Mixing matrices of decentralised learning: rules, checks, limit and speed of averaging, files.

W is float64 (N, N), stochastic: W_ij > 0 is the weight of what node i receives from node j. Nodes
count from 0, as clients do.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.core.checksummed_files import one_line
from fedrepro.core.errors import FedreproError, shown, unknown
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.data.user_data import input_checksum

TOLERANCE = 1e-9  # of the sum of a row, as decimals are rounded


def checked_weights(
    rows: Sequence[Sequence[float]] | np.ndarray, who: str, clients: int
) -> np.ndarray:
    """Check a mixing matrix `rows`; return it as float64 (N, N) with rows that sum to one exactly.

    W has to be stochastic, strongly connected and aperiodic, so that averaging by W converges. A
    FedreproError, which names `who`, says the first condition that is violated. `clients` is N.
    """
    if not isinstance(rows, Sequence | np.ndarray):
        raise FedreproError(f"{who} returns a {type(rows).__name__}: let it return W, (N, N)")
    form = f"{who} does not return rows of numbers: let it return W, (N, N)"
    try:
        for place, row in enumerate(rows):
            if len(row) != len(rows):
                found = f"{len(rows)} rows, and that of node {place} has {len(row)} numbers"
                raise FedreproError(f"{who} is not square: it has {found}")
        weights = np.array(rows, np.float64)
    except (TypeError, ValueError) as error:
        raise FedreproError(form) from error
    if weights.ndim != 2:
        raise FedreproError(form)
    if len(weights) != clients:
        fix = f"there are {clients} clients: give it a row and a column for each"
        raise FedreproError(f"{who} is for {len(weights)} nodes, and {fix}")
    sums, hears = weights.sum(1), weights > 0
    for fault in _faults(weights, sums, hears):
        raise FedreproError(f"{who}{fault}")
    return np.asarray(weights / sums[:, None])


def _faults(weights: np.ndarray, sums: np.ndarray, hears: np.ndarray) -> Iterator[str]:
    for i, j in np.argwhere(~(np.isfinite(weights) & (weights >= 0))):
        own = f"the weight {weights[i, j]:g} in the row of node {i}, column {j}"
        yield f" has {own}: weights are 0 or above"
    for node in np.flatnonzero(np.abs(sums - 1) > TOLERANCE):
        yield f": the row of node {node} sums to {sums[node]:.12g}, and rows sum to 1"
    apart = " is not strongly connected: nothing of node {} reaches node {}; add neighbours"
    for node in np.flatnonzero(steps_from(hears.T, 0) < 0):
        yield apart.format(0, node)
    for node in np.flatnonzero(steps_from(hears, 0) < 0):
        yield apart.format(node, 0)
    power = hears.astype(np.float64)
    for _ in range(2 * len(hears).bit_length()):  # W^k > 0 for some k < N² unless it is periodic
        power = np.minimum(power @ power, 1.0)
    if not power.all():
        yield " is periodic, so that beliefs never settle: add self-loops"


def steps_from(edges: np.ndarray, start: int) -> np.ndarray:
    """Return the fewest steps from `start` to each node by edges[i, j]: (N,), -1 without a path."""
    distances = np.full(len(edges), -1, np.int64)  # by hand: planning does not load scipy
    front, steps = np.zeros(len(edges), bool), 0
    front[start] = True
    while front.any():
        distances[front] = steps
        front = edges[front].any(0) & (distances < 0)
        steps += 1
    return distances


def weights_of(graph: Spec, clients: int, rng: RngKey) -> np.ndarray:
    """Compute and check W of a configured graph of N `clients`; `rng` draws random graphs."""
    weights: Any = graph.component.make(object, clients, rng, **graph.values)
    return checked_weights(weights, f"graph {shown(graph.token)}", clients)


def metropolis(hears: np.ndarray, self_loops: bool = True) -> np.ndarray:
    """Return Metropolis weights of a graph, W_ij = 1 / (1 + max(d_i, d_j)) for neighbours: (N, N).

    `hears` is the symmetric adjacency matrix, bool (N, N), d the degrees, W_ii the rest to 1.
    Without `self_loops` W_ij = 1 / max(d_i, d_j). Source: Xiao and Boyd, 2004, section 4.2.
    """
    degrees = hears.sum(1)
    most = np.maximum(degrees[:, None], degrees[None, :]) + self_loops
    weights = np.where(hears, 1.0 / np.maximum(most, 1), 0.0)
    # the paper leaves out the sum; rounding must not make it negative
    np.fill_diagonal(weights, np.maximum(0.0, 1.0 - weights.sum(1)))
    return weights


def uniform(hears: np.ndarray, self_loops: bool = True) -> np.ndarray:
    """Return weights (N, N), equal in row i where hears[i] is true; with `self_loops` also at i."""
    adjacency = hears.astype(np.float64)
    if self_loops or len(hears) == 1:
        np.fill_diagonal(adjacency, 1.0)
    return np.asarray(adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1.0))


RULES = {"metropolis": metropolis, "uniform": uniform}
COLUMNS = 1 << 14  # numbers of a node that are summed at once: 64 nodes take 8 MB


def mixed(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return sum_j W_ij x_j for each node i, (N, *shape): W is `weights`, x `values`."""
    flat = values.reshape(len(values), -1)
    sums = np.empty_like(flat)
    for start in range(0, flat.shape[1], COLUMNS):
        columns = slice(start, start + COLUMNS)
        sums[:, columns] = weights @ flat[:, columns].astype(np.float64)
    return sums.reshape(values.shape)


ENOUGH = 1e-12  # of a sum, in what is left out of it


def stationary(weights: np.ndarray) -> np.ndarray:
    """Return node weights v (N,), the limit of averaging by W, `weights`: v'W = v', sum 1."""
    size = len(weights)
    return np.asarray(np.linalg.solve((np.eye(size) - weights + 1.0).T, np.ones(size)))


def second_modulus(weights: np.ndarray) -> float:
    """Return W's second largest |eigenvalue|: the factor by which each averaging shrinks errors."""
    # W - 1v' has the eigenvalues of W, but 0 for 1
    return float(np.abs(np.linalg.eigvals(_transient(weights))).max())


def mixing_sum(weights: np.ndarray) -> float:
    """Return S_W = max_i sum_{k >= 1} sum_j |(W^k)_ij - v_j|: how slowly averaging by W converges.

    W is `weights`, v `stationary`; powers are added until the rest is below 1e-12 of the sum.
    """
    power = step = _transient(weights)
    total, rate = np.abs(step).sum(1), second_modulus(weights)
    while np.abs(power).sum(1).max() * rate > ENOUGH * (1 - rate) * total.max():
        power = power @ step
        total += np.abs(power).sum(1)
    return float(total.max())


def _transient(weights: np.ndarray) -> np.ndarray:
    return np.asarray(weights - stationary(weights)[None, :])


def circle(count: int) -> np.ndarray:
    """Return positions of graph nodes in [0, 1]², (count, 2): a circle, clockwise from the top."""
    angles = 2 * math.pi * np.arange(count) / max(1, count)
    return 0.5 + 0.5 * np.stack([np.sin(angles), np.cos(angles)], axis=1)


def hub(count: int) -> np.ndarray:
    """Return positions of graph nodes in [0, 1]², (count, 2): node 0 at the centre of a circle."""
    return np.concatenate([[[0.5, 0.5]], circle(count - 1)])


def lattice(count: int) -> np.ndarray:
    """Return positions of graph nodes in [0, 1]², (count, 2): a nearly square grid, by rows."""
    rows, columns = rectangle(count)
    down, across = np.divmod(np.arange(count), columns)
    centred = np.stack([across - (columns - 1) / 2, (rows - 1) / 2 - down], axis=1)
    return 0.5 + centred / (max(rows, columns) - 1 or 1)


def rectangle(count: int) -> tuple[int, int]:
    """Return the most square (rows, columns) with rows · columns = count and rows ≤ columns."""
    rows = max(n for n in range(1, math.isqrt(count) + 1) if count % n == 0)
    return rows, count // rows


# by what the component of a graph calls it (`layout`)
PLACES = {"circle": circle, "hub": hub, "lattice": lattice}


def read_graph(path: Path) -> list[list[float]]:
    """Read a mixing matrix from csv, a line per node; raise FedreproError if it is not one."""
    try:
        with warnings.catch_warnings(action="error"):
            rows: list[list[float]] = np.loadtxt(path, delimiter=",", ndmin=2).tolist()
    except (OSError, ValueError, UserWarning) as error:
        fix = "write a line for each node, as 0.25,0.75"
        raise FedreproError(f"{path} is not a matrix ({one_line(error)}): {fix}") from None
    return rows


def checksum_of_graph(path: Path) -> str:
    """Return "sha256:" and the checksum of a graph file, which identifies the file's content."""
    if not path.exists():
        known = [file.stem for file in path.parent.glob("*.csv")]
        raise unknown("graph", path.stem, known, str(path.parent))
    return input_checksum(path)
