"""Early stopping: a client stops when its running training accuracy has not risen for a while.

The running accuracy of an epoch is the share of examples that were predicted rightly when their
minibatch came, in the pass that trains, with dropout and before the step. Each model of a block
stops for itself: its weights are kept as they then were, and what it goes through with the others
after that is thrown away. So it ends with the same bytes in any company.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.training.minibatches import Chunk, Task
from fedrepro.training.settings import Settings

if TYPE_CHECKING:
    import torch


class EarlyStopping:
    """Which models of a block still train, and what the others stopped with.

    patience: epochs in a row without a rise above the best so far after which a model stops.
    running: bool (models,). taken: int (models,), steps of each. kept: its rows of some buffers.
    """

    def __init__(self, tasks: Sequence[Task], settings: Settings) -> None:
        self.patience = settings.patience
        self.per_epoch = np.array([task.per_epoch(settings.batch_size) for task in tasks])
        self.taken = np.array([task.total(settings.batch_size, settings.epochs) for task in tasks])
        self.running = np.ones(len(tasks), bool)
        self.right, self.best, self.waited = (np.zeros(len(tasks), np.int64) for _ in range(3))
        self.best -= 1
        self.kept: dict[int, list[torch.Tensor]] = {}

    def parts(self, chunk: Chunk) -> Iterator[Chunk]:
        """Cut a chunk where a model that still trains ends an epoch, without those behind the last.

        A part is made when the one before it has been seen.
        """
        steps = 1 if chunk.whole is not None else len(chunk.index)
        at = 0
        while at < steps and self.running.any():
            now, ends = chunk.first + at, self.per_epoch[self.running]
            length = min(steps - at, int((ends - now % ends).min()))
            yield self._shorter(chunk if chunk.whole is not None else _cut(chunk, at, length))
            at += length

    def _shorter(self, chunk: Chunk) -> Chunk:
        last = int(np.flatnonzero(self.running).max()) + 1
        return replace(chunk, active=[min(count, last) for count in chunk.active])

    def see(self, end: int, right: np.ndarray, buffers: Sequence[torch.Tensor]) -> None:
        """Count right predictions, int (models,), of a part that ends with the step `end`.

        Of a model that stops now the rows of `buffers` (models, …) are kept.
        """
        self.right += right
        ended = self.running & (end % self.per_epoch == 0) & (end <= self.taken)
        risen = ended & (self.right > self.best)
        self.best[risen] = self.right[risen]
        self.waited[ended] += 1
        self.waited[risen] = 0
        self.right[ended] = 0
        for model in np.flatnonzero(ended & (self.waited >= self.patience)):
            self.running[model] = False
            self.taken[model] = end
            self.kept[int(model)] = [buffer[model].clone() for buffer in buffers]
        self.running &= end < self.taken

    def put_back(self, buffers: Sequence[torch.Tensor]) -> None:
        """Give every model that stopped early what it stopped with."""
        for model, rows in self.kept.items():
            for buffer, row in zip(buffers, rows, strict=True):
                buffer[model].copy_(row)


def _cut(chunk: Chunk, at: int, length: int) -> Chunk:
    """Take some of the steps of a chunk."""
    part = slice(at, at + length)
    return replace(
        chunk,
        first=chunk.first + at,
        index=chunk.index[part],
        size=chunk.size[part],
        active=chunk.active[part],
        epoch=chunk.epoch[part],
    )
