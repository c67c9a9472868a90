"""Models in blocks: ordered, cut and trained one block after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fedrepro.training.block_sizes import block_size
from fedrepro.training.examples import Examples
from fedrepro.training.flat_layout import Layout
from fedrepro.training.minibatches import Task
from fedrepro.training.procedure import InitialTensors, LazyGpuTensors, Procedure, TrainedModels
from fedrepro.training.training_block import TrainingBlock


class BlockTrainer:
    """Trains models by automatic differentiation, in blocks that fit the memory, or one by one.

    Models are ordered by number of steps, so that the ones that still train are a shrinking prefix.
    """

    def __init__(
        self,
        procedure: Procedure,
        examples: Examples,
        tasks: Sequence[Task],
        keep_gradients: bool,
        block: int | None,
    ) -> None:
        self.procedure, self.examples = procedure, examples
        self.inner, self.outer = Layout(procedure.network.shapes), Layout(procedure.private)
        self.size, self.keep = self.inner.size + self.outer.size, keep_gradients
        device = examples.inputs.device
        most = block or block_size(procedure, device, len(tasks))
        self.models = min(len(tasks), most)

    def parts(
        self, tasks: Sequence[Task], given: InitialTensors, memory: Mapping[str, np.ndarray] | None
    ) -> Iterator[TrainedModels]:
        """Train block after block; a part is valid until the next one is asked for."""
        settings = self.procedure.settings
        steps = [task.total(settings.batch_size, settings.epochs) for task in tasks]
        pieces = [self.procedure.pieces(task) for task in tasks]
        order = np.lexsort((np.negative(pieces), np.negative(steps)))
        if memory is not None and len(set(memory["steps"].tolist())) > 1:
            self.models = 1  # the fused kernel of an optimiser knows one number of steps
        rates = {settings.lr if task.lr is None else task.lr for task in tasks}
        same = self.models == 1 or len(rates) == 1
        trained = TrainingBlock(self.procedure, self.examples, self.models, same, self.keep)
        start = self.inner.pack(given.start)
        reference = None if given.reference is None else self.inner.pack(given.reference)
        for at in range(0, len(order), self.models):
            chosen = order[at : at + self.models]
            some, span = [tasks[i] for i in chosen], _span(chosen)
            private = {name: value[chosen] for name, value in given.private.items()}
            trained.begin(
                _of(start, span),
                self.outer.pack(private) if private else None,
                None if reference is None else _of(reference, span),
                {name: value[span] for name, value in (memory or {}).items()},
                some,
            )
            losses, taken = trained.train(some)
            if memory is not None:
                trained.remember(memory, span)
            yield self._part(trained, chosen, losses, taken)

    def _part(
        self, trained: TrainingBlock, chosen: np.ndarray, losses: np.ndarray, taken: np.ndarray
    ) -> TrainedModels:
        count, inner = len(chosen), self.inner.size
        flat, summed = trained.flat[:count], trained.summed
        weights, on_gpu = self.inner.views(flat), trained.device.type != "cpu"
        return TrainedModels(
            chosen,
            losses,
            taken,
            trained.finite(count),
            LazyGpuTensors(weights) if on_gpu else {k: v.numpy() for k, v in weights.items()},
            {name: v.cpu().numpy() for name, v in self.outer.views(flat[:, inner:]).items()},
            None
            if summed is None
            else {k: v.cpu().numpy() for k, v in self.inner.views(summed[:count]).items()},
        )


def _span(chosen: np.ndarray) -> slice | np.ndarray:
    """Turn places that follow each other into a slice, which copies nothing."""
    first, count = int(chosen[0]), len(chosen)
    return slice(first, first + count) if (np.diff(chosen) == 1).all() else chosen


def _of(flat: np.ndarray, chosen: slice | np.ndarray) -> np.ndarray:
    return flat if len(flat) == 1 else flat[chosen]
