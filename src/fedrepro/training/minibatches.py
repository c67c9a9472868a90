"""Minibatch sequences that depend on (seed, trial, client, epoch) only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrepro.rng import Rng


@dataclass(frozen=True)
class Task:
    """The data of one model to train: rows of the data set, and where its randomness comes from.

    rows: int array of example indices. The minibatches of epoch e are drawn from
    rng.at(round=first_epoch + e).
    """

    rows: np.ndarray
    rng: Rng
    first_epoch: int = 0

    def steps(self, batch_size: int) -> int:
        """Minibatches per epoch; the last may be short."""
        return -(-len(self.rows) // batch_size)


@dataclass(frozen=True)
class Schedule:
    """Minibatches of several models over all their steps.

    index: int64 (steps, models, batch), rows of the data set; short minibatches are filled with
    row 0. weight: float64 (steps, models, batch): 1/size of the minibatch, 0 for filled rows, so
    that shapes, and with them the rounding, do not depend on the company a model keeps.
    active: number of models that still train at each step; models are ordered by steps.
    """

    index: np.ndarray
    weight: np.ndarray
    active: np.ndarray


def epoch_order(task: Task, epoch: int) -> np.ndarray:
    """The order in which a client visits its examples in one epoch."""
    stream = task.rng.at(round=task.first_epoch + epoch).stream("minibatches")
    return task.rows[stream.permutation(len(task.rows))]


def schedule(tasks: Sequence[Task], batch_size: int, epochs: int) -> Schedule:
    """All minibatches of these models. `tasks` must be ordered by number of steps, falling."""
    per_epoch = [task.steps(batch_size) for task in tasks]
    assert per_epoch == sorted(per_epoch, reverse=True)
    total = per_epoch[0] * epochs
    index = np.zeros((total, len(tasks), batch_size), np.int64)
    weight = np.zeros((total, len(tasks), batch_size))
    for i, (task, steps) in enumerate(zip(tasks, per_epoch, strict=True)):
        size, last = len(task.rows), len(task.rows) - (steps - 1) * batch_size
        shares = np.repeat(np.array([1 / batch_size] * (steps - 1) + [1 / last]), batch_size)
        shares[size:] = 0.0
        for epoch in range(epochs):
            at = slice(epoch * steps, (epoch + 1) * steps)
            padded = np.zeros(steps * batch_size, np.int64)
            padded[:size] = epoch_order(task, epoch)
            index[at, i] = padded.reshape(steps, batch_size)
            weight[at, i] = shares.reshape(steps, batch_size)
    ends = np.array(per_epoch) * epochs
    active = (ends[None, :] > np.arange(total)[:, None]).sum(1)
    return Schedule(index, weight, active)
