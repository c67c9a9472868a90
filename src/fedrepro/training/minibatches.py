"""Minibatches, crops and mirror images, dropout and variational noise, by random keys.

Minibatches depend on (seed, trial, client, round, epoch) only; how an image is moved on these and
its row in the data set. On the CPU every model has a counter-based generator of its own for noise,
set to the step, so its numbers depend neither on models that train along nor on earlier steps. On a
GPU one generator serves all models, because a kernel per model costs more than the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.networks.layers import SHIFTS
from fedrepro.networks.network import Network

CHUNK_BYTES = 16 * 2**20
VISITED_ROWS = 2**16


@dataclass(frozen=True)
class Task:
    """The training of one model at one client: the client's examples, a random key, the step count.

    rows: int64 (n,), indices in the data set. rng: the key by which each epoch's order is drawn. lr
    and steps, if given, replace the general learning rate and epochs; steps beyond an epoch go on
    in the next one. done: minibatches of earlier rounds, after which training begins.
    """

    rows: np.ndarray
    rng: RngKey
    lr: float | None = None
    steps: int | None = None
    done: int = 0

    def per_epoch(self, batch_size: int | None) -> int:
        """Return the number of minibatches in an epoch; 1 if `batch_size` is None (full batch)."""
        return 1 if batch_size is None else -(-len(self.rows) // batch_size)

    def total(self, batch_size: int | None, epochs: int) -> int:
        """Return how many minibatches this training takes: its own `steps`, or `epochs` epochs."""
        return self.per_epoch(batch_size) * epochs if self.steps is None else self.steps


@dataclass(frozen=True)
class Chunk:
    """Consecutive minibatches of models that train together, or one full-batch step.

    first: number of the first step. index: int64 (steps, models, batch), row numbers; short
    minibatches are filled up with their client's first row. size: int64 (steps, models), how many
    rows are not filling. active: for each step how many models still train; models with most steps
    come first. epoch: int64 (steps, models). whole: int64 (models,), each model's number of
    examples in a full-batch step, whose index and size count parts instead of steps.
    """

    first: int
    index: np.ndarray
    size: np.ndarray
    active: list[int]
    epoch: np.ndarray
    whole: np.ndarray | None = None


def epoch_order(task: Task, epoch: int) -> np.ndarray:
    """Return the client's data-set row numbers in the random order of epoch `epoch`: int64 (n,)."""
    stream = task.rng.at(epoch=epoch).stream("minibatches")
    return task.rows[stream.permutation(len(task.rows))]


def schedule(tasks: Sequence[Task], batch_size: int, epochs: int) -> Iterator[Chunk]:
    """Yield all minibatches of models that train together, as `Chunk`s of consecutive steps.

    `tasks` are those with most steps first. Short minibatches are filled up, so that shapes, and
    with them rounding, do not depend on which models train together.
    """
    totals = [task.total(batch_size, epochs) for task in tasks]
    assert totals == sorted(totals, reverse=True)
    length = max(1, CHUNK_BYTES // (8 * len(tasks) * batch_size))
    for first in range(0, totals[0], length):
        steps = min(length, totals[0] - first)
        index = np.zeros((steps, len(tasks), batch_size), np.int64)
        size = np.zeros((steps, len(tasks)), np.int64)
        for i, task in enumerate(tasks[: sum(total > first for total in totals)]):
            count = min(steps, totals[i] - first)
            begin, part = task.done + first, (slice(count), i)
            some = _between(task, batch_size, begin, begin + count)
            size[part], index[part] = np.diff(some.ends), task.rows[0]
            index[part][np.arange(batch_size) < size[part][:, None]] = some.rows
        ends, now = np.array(totals), np.arange(first, first + steps)[:, None]
        active = (ends > now).sum(1)
        epoch = _before(tasks, now) // [task.per_epoch(batch_size) for task in tasks]
        yield Chunk(first, index, size, active.tolist(), epoch)


@dataclass(frozen=True)
class Visits:
    """Consecutive minibatches of one model's training; step s uses rows[ends[s] : ends[s + 1]].

    epochs: (number, first step in it, number of steps) of each epoch of the minibatches.
    """

    rows: np.ndarray
    ends: np.ndarray
    epochs: list[tuple[int, int, int]]

    def words(self, rng: RngKey, purpose: str) -> tuple[np.ndarray, np.ndarray]:
        """Return keys, uint64 (epochs, 2), and places of the steps' random numbers for `purpose`.

        A place, int64 (2,), is (index of the epoch's key, number of the step in the epoch).
        """
        keys = [rng.at(epoch=epoch).key(purpose) for epoch, _, _ in self.epochs]
        places = [
            (part, first + step)
            for part, (_, first, count) in enumerate(self.epochs)
            for step in range(count)
        ]
        return (
            np.array([(key & WORD, key >> 64) for key in keys], np.uint64),
            np.array(places, np.int64),
        )

    def per_row(self, of: Callable[[int, np.ndarray], np.ndarray]) -> np.ndarray:
        """Call of(epoch, row numbers) for each epoch; join the results, a value per row: (n,)."""
        steps = np.cumsum([0, *(count for _, _, count in self.epochs)])
        cuts = self.ends[steps]
        parts = zip(self.epochs, cuts[:-1], cuts[1:], strict=True)
        return np.concatenate([of(epoch, self.rows[a:b]) for (epoch, _, _), a, b in parts])


def visits(
    task: Task, batch_size: int | None, epochs: int, singly: bool = False
) -> Iterator[Visits]:
    """Yield the minibatches of one model's training, several epochs or `singly` one at a time."""
    per_epoch, step = task.per_epoch(batch_size), task.done
    together = 1 if singly else -(-VISITED_ROWS // len(task.rows))
    end = step + task.total(batch_size, epochs)
    while step < end:
        last = min(end, (step // per_epoch + together) * per_epoch)
        yield _between(task, batch_size, step, last)
        step = last


def _between(task: Task, batch_size: int | None, step: int, end: int) -> Visits:
    """Return minibatches `step` to `end` - 1 of one training, counted over epochs; end > step."""
    per_epoch, size = task.per_epoch(batch_size), batch_size or len(task.rows)
    every: list[np.ndarray] = []
    parts: list[tuple[int, int, int]] = []
    sizes = [0]
    while step < end:
        epoch, inside = divmod(step, per_epoch)
        count = min(per_epoch - inside, end - step)
        rows = task.rows if batch_size is None else epoch_order(task, epoch)
        every.append(rows[inside * size : (inside + count) * size])
        sizes += [*[size] * (count - 1), len(every[-1]) - (count - 1) * size]
        parts.append((epoch, inside, count))
        step += count
    whole = np.ascontiguousarray(every[0] if len(every) == 1 else np.concatenate(every))
    return Visits(whole.astype(np.int64, copy=False), np.cumsum(sizes), parts)


def whole_steps(tasks: Sequence[Task], piece: int, epochs: int) -> Iterator[Chunk]:
    """Yield full-batch steps of models that train together, one per `Chunk`, in parts.

    Gradients of parts of `piece` examples are added, so that rounding does not depend on which
    models train together. `tasks` have most steps, then most parts, first.
    """
    totals = [task.total(None, epochs) for task in tasks]
    assert totals == sorted(totals, reverse=True)
    sizes = np.array([len(task.rows) for task in tasks])
    pieces = -(-sizes // piece)
    index = np.zeros((pieces.max(), len(tasks), piece), np.int64)
    for i, task in enumerate(tasks):
        filled = np.full(len(index) * piece, task.rows[0])
        filled[: sizes[i]] = task.rows
        index[:, i] = filled.reshape(len(index), piece)
    begins = np.arange(len(index))[:, None] * piece
    size = np.clip(sizes - begins, 0, piece)
    for step in range(totals[0]):
        count = sum(total > step for total in totals)
        # a model without examples in a piece may stand before one that has some
        last = [int(np.flatnonzero(row).max()) + 1 for row in size[:, :count] if row.any()]
        used = slice(len(last))
        epoch = np.broadcast_to(_before(tasks, step), size[used].shape)
        yield Chunk(step, index[used], size[used], last, epoch, whole=sizes)


def _before(tasks: Sequence[Task], step: np.ndarray | int) -> np.ndarray:
    return np.asarray(step + np.array([task.done for task in tasks]))


CROPS = "augmentation"
KINDS = 2 * SHIFTS**2
WORD = 2**64 - 1


def kinds(key: int, rows: np.ndarray) -> np.ndarray:
    """Draw whether to mirror each image and how far to shift it: int64 codes (n,), below KINDS.

    A code is a hash of the image's row number and the 128-bit `key` of a client's epoch (finaliser
    of SplitMix64; Steele, Lea and Flood, 2014), so it does not depend on the minibatch.
    """
    numbers = rows.astype(np.uint64)
    for half in (key & WORD, key >> 64):
        numbers = _mixed(numbers + np.uint64(half))
    return (numbers % np.uint64(KINDS)).astype(np.int64)


def _mixed(bits: np.ndarray) -> np.ndarray:
    bits = bits * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))


def require_images(network: Network) -> None:
    """Raise FedreproError if a network's inputs are not images, which crops and flips need."""
    if len(network.shape) != 3:
        raise FedreproError(
            f"augment~crop_flip moves images, but this {network.kind} network takes inputs of "
            f"shape {network.shape}; choose a convolutional model, or augment~none"
        )


NOISE = "step-noise"
PAIRS = 2**16
# turns by this angle spread the points of a spiral evenly over all directions
GOLDEN = math.pi * (3 - math.sqrt(5))


@cache
def normal_pairs(dtype: np.dtype) -> np.ndarray:
    """Return a table of pairs of standard normal numbers, for fast random draws: complex (2¹⁶,).

    An entry drawn uniformly gives two uncorrelated numbers. Entries lie on rings of equal
    probability, four points a quarter turn apart on each, so that odd moments and the covariance
    are zero; each ring is turned by the angle GOLDEN against the one before. Radii make variances
    one. Fourth and sixth moments are off by 1e-4; no point is beyond 4.7.
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
