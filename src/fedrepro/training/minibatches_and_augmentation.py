"""Minibatches, crops and mirror images, dropout and variational noise, by random keys.

Minibatches depend on (seed, trial, client, round, epoch) only. A crop or mirror image depends on
these and on the image's row in the data set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from fedrepro.core.rng import RngKey
from fedrepro.networks.layers import SHIFTS

CHUNK_BYTES = 16 * 2**20
VISITED_ROWS = 2**16


@dataclass(frozen=True)
class Task:
    """The training of one model at one client: the client's examples, a random key, the step count.

    rows: int64 (n,), indices in the data set. rng: the key by which each epoch's order is drawn.
    steps, if given, replaces the number of epochs. done: minibatches taken in earlier rounds.
    """

    rows: np.ndarray
    rng: RngKey
    steps: int | None = None
    done: int = 0

    def per_epoch(self, batch_size: int | None) -> int:
        """Return the number of minibatches in an epoch; 1 if `batch_size` is None (full batch)."""
        return 1 if batch_size is None else -(-len(self.rows) // batch_size)

    def total(self, batch_size: int | None, epochs: int) -> int:
        """Return how many minibatches follow `done` in this training, by `steps` or `epochs`."""
        return self.per_epoch(batch_size) * epochs if self.steps is None else self.steps


@dataclass(frozen=True)
class Chunk:
    """Consecutive minibatches of models that train together.

    first: number of the first step. index: int64 (steps, models, batch), row numbers; short
    minibatches are filled up with their first row. size: int64 (steps, models), how many rows are
    not filling. active: how many models still train in each step; those with most steps come first.
    epoch: int64 (steps, models), number of each step's epoch.
    """

    first: int
    index: np.ndarray
    size: np.ndarray
    active: list[int]
    epoch: np.ndarray


def epoch_order(task: Task, epoch: int) -> np.ndarray:
    """Return the client's data-set row numbers in the random order of epoch `epoch`: int64 (n,)."""
    return task.rows[task.rng.at(epoch=epoch).stream("minibatches").permutation(len(task.rows))]


def schedule(tasks: Sequence[Task], batch_size: int, epochs: int) -> Iterator[Chunk]:
    """Yield minibatches of models that train together; `tasks` with most steps must come first.

    Short minibatches are filled up: thus rounding does not depend on which models train together.
    """
    totals = np.array([task.total(batch_size, epochs) for task in tasks])
    length = max(1, CHUNK_BYTES // (8 * len(tasks) * batch_size))
    for first in range(0, totals[0], length):
        now = np.arange(first, min(totals[0], first + length))[:, None]
        epoch = now + [task.done for task in tasks]
        epoch //= [task.per_epoch(batch_size) for task in tasks]
        index, size = np.zeros((*epoch.shape, batch_size), np.int64), np.zeros_like(epoch)
        for i, (task, end) in enumerate(zip(tasks, np.minimum(totals, now[-1] + 1), strict=True)):
            if end > first:
                one = _between(task, batch_size, task.done + first, task.done + int(end))
                own = slice(len(one.ends) - 1), i
                size[own], index[own] = np.diff(one.ends), one.rows[0]
                index[own][np.arange(batch_size) < size[own][:, None]] = one.rows
        yield Chunk(first, index, size, (totals > now).sum(1).tolist(), epoch)


@dataclass(frozen=True)
class Visits:
    """Consecutive minibatches of one model's training; step s uses rows[ends[s] : ends[s + 1]].

    epochs, places: int64 (steps,), the epoch of each step, and the step's number in it.
    """

    rows: np.ndarray
    ends: np.ndarray
    epochs: np.ndarray
    places: np.ndarray

    def words(self, rng: RngKey, purpose: str) -> tuple[np.ndarray, np.ndarray]:
        """Return keys of E epochs for a `purpose` such as NOISE, (E, 2), and an array (steps, 2).

        Its rows are (index of the step's epoch among the keys, the step's number in that epoch).
        """
        epochs, which = np.unique(self.epochs, return_inverse=True)
        keys = [halves(rng.at(epoch=epoch).key(purpose)) for epoch in epochs.tolist()]
        return np.stack(keys), np.stack([which, self.places], 1)


def visits(
    task: Task, batch_size: int | None, epochs: int, singly: bool = False
) -> Iterator[Visits]:
    """Yield the minibatches of `task` as `Visits` of several epochs each, or of one if `singly`."""
    per_epoch, step = task.per_epoch(batch_size), task.done
    together = 1 if singly else -(-VISITED_ROWS // len(task.rows))
    end = step + task.total(batch_size, epochs)
    while step < end:
        last = min(end, (step // per_epoch + together) * per_epoch)
        yield _between(task, batch_size, step, last)
        step = last


def _between(task: Task, batch_size: int | None, step: int, end: int) -> Visits:
    """Return minibatches `step` to `end` - 1 of one training, counted over epochs; end > step."""
    epochs, places = np.divmod(np.arange(step, end), task.per_epoch(batch_size))
    rows = [
        task.rows if batch_size is None else epoch_order(task, epoch)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1)
    ]
    each, size = len(task.rows), batch_size or len(task.rows)
    begin = places[0] * size
    ends = (epochs - epochs[0]) * each + np.minimum((places + 1) * size, each)
    whole = np.concatenate(rows)[begin : ends[-1]].astype(np.int64, copy=False)
    return Visits(whole, np.append(0, ends - begin), epochs, places)


CROPS = "augmentation"
KINDS = 2 * SHIFTS**2


def halves(key: int) -> np.ndarray:
    return np.array([key & 2**64 - 1, key >> 64], np.uint64)


def kinds(key: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Draw n images' flips and crops as codes, int64 (n,): 81 · flip + 9 · down + right (0 to 8).

    A code is a hash of the image's row number and the `key` of a client's epoch, uint64 (2,) or
    (n, 2), so it does not depend on the minibatch (finaliser of SplitMix64; Steele et al., 2014).
    """
    bits = rows.astype(np.uint64)
    for half in np.moveaxis(key, -1, 0):
        bits = (bits + half) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits = bits ^ (bits >> np.uint64(31))
    return (bits % np.uint64(KINDS)).astype(np.int64)


NOISE = "step-noise"
PAIRS = 2**16
# turns by this angle spread the points of a spiral evenly over all directions
GOLDEN = math.pi * (3 - math.sqrt(5))


@cache
def normal_pairs(dtype: np.dtype) -> np.ndarray:
    """Return a table of pairs of standard normal numbers, for fast random draws: complex (2¹⁶,).

    An entry drawn uniformly gives two uncorrelated numbers. In the plane, entries lie on rings of
    equal probability. A ring has four, a quarter turn apart, so that odd moments and the covariance
    are zero; it is turned by the golden angle against the ring before. The rings' radii give a
    variance of one. Fourth and sixth moments are off by 1e-4; no number is beyond 4.7.
    """
    rings = PAIRS // 4
    ends = np.arange(1, rings + 1) / rings
    # functions of the C library, which NumPy replaces on some processors by others
    logs = np.array([math.log(end) for end in ends])
    below = np.concatenate([[0], ends - ends * logs])  # the integral of -log
    radius = np.sqrt(2 * rings * np.diff(below))
    angles = [GOLDEN * ring + math.pi / 8 for ring in range(rings)]
    ring = radius * [complex(math.cos(angle), math.sin(angle)) for angle in angles]
    points = np.outer([1, 1j, -1, -1j], ring).reshape(-1)
    return points.astype(np.result_type(dtype, np.complex64))
