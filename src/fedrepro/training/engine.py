"""The training engine: many clients as one stacked model.

Models are ordered by their number of steps and cut into blocks that fit the cache; within a
block the ones that still train are a shrinking prefix. Short minibatches are filled with rows of
weight zero and tensors padded (`flat.py`), so on the CPU the bytes of a client's weights do not
depend on the block it was trained in (tested).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.networks.network import Network
from fedrepro.training.block import Block, Procedure
from fedrepro.training.examples import Examples
from fedrepro.training.flat import Layout
from fedrepro.training.minibatches import Task, schedule
from fedrepro.training.paths import StepPath, choose, require
from fedrepro.training.settings import Settings
from fedrepro.training.terms import Proximal, Term

if TYPE_CHECKING:
    import torch

# Weights, gradients and three optimiser states of a block should stay in the last cache level;
# measured on 25 clients of MLP-50: blocks of 8 (6.4 MB) beat 1, 5 and 25.
CPU_BLOCK_BYTES = 8 * 2**20
BUFFERS = 5


@dataclass(frozen=True)
class Trained:
    """Weights (models, *shape) by name, float32, in the order of the tasks.

    gradients: the sum over steps of the minibatch gradients of the loss (without L2 and proximal
    terms), same shapes, if asked for. steps: int (models,). seconds: measured, for all models
    together.
    """

    tensors: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray] | None
    steps: np.ndarray
    seconds: float


@dataclass(frozen=True)
class Averaged:
    """The weighted mean of the trained models: tensors (1, *shape) by name; see `Trained`."""

    tensors: dict[str, np.ndarray]
    steps: np.ndarray
    seconds: float


def train(
    network: Network,
    examples: Examples,
    tasks: Sequence[Task],
    settings: Settings,
    initial: Mapping[str, np.ndarray],
    *,
    terms: Sequence[Term | Proximal] = (),
    keep_gradients: bool = False,
    block: int | None = None,
    path: StepPath | None = None,
) -> Trained:
    """Train one model per task by minibatch descent on cross-entropy plus l2/2 · |parameters|².

    initial: tensors (models, *shape), or (1, *shape) for a shared start, those of `terms` among
    them. `block`: models trained together (None: as the cache allows); on the CPU it changes the
    speed, never the result. Raises FedreproError naming client, trial and step if a loss is not
    finite.
    """
    began = time.perf_counter()
    work = _Work(Procedure(network, settings, terms), examples, tasks, keep_gradients, block, path)
    dtype = next(iter(initial.values())).dtype
    tensors, summed = work.empty(dtype), work.empty(dtype) if keep_gradients else None
    for part in work.parts(initial):
        work.put(tensors, part.chosen, part.flat)
        if summed is not None and part.summed is not None:
            work.put(summed, part.chosen, part.summed)
    return Trained(tensors, summed, work.steps, time.perf_counter() - began)


def average(
    network: Network,
    examples: Examples,
    tasks: Sequence[Task],
    settings: Settings,
    initial: Mapping[str, np.ndarray],
    weights: Sequence[float],
    *,
    terms: Sequence[Term | Proximal] = (),
    block: int | None = None,
    path: StepPath | None = None,
) -> Averaged:
    """sum_i weights[i] · (model of task i after training), as `train` trains them.

    Models are folded into the sum as they are done, so memory does not grow with their number.
    """
    import torch

    began = time.perf_counter()
    work = _Work(Procedure(network, settings, terms), examples, tasks, False, block, path)
    total = torch.zeros(1, work.layout.size, dtype=examples.dtype, device=examples.inputs.device)
    for part in work.parts(initial):
        # one by one, in an order that does not depend on the block
        for model, flat in zip(part.chosen, part.flat, strict=True):
            total[0].add_(flat, alpha=float(weights[model]))
    tensors = work.layout.unpack(total.cpu().numpy())
    return Averaged(tensors, work.steps, time.perf_counter() - began)


class _Work:
    """Tasks ordered by number of steps and cut into blocks."""

    def __init__(
        self,
        procedure: Procedure,
        examples: Examples,
        tasks: Sequence[Task],
        keep_gradients: bool,
        block: int | None,
        path: StepPath | None,
    ) -> None:
        _check_filled(tasks)
        given, network, losses = procedure.settings, procedure.network, procedure.losses
        device = examples.inputs.device
        path = require(path or choose(network, device.type, losses), network, losses)
        self.tasks, self.settings = tasks, given
        self.steps = np.array([task.total(given.batch_size, given.epochs) for task in tasks])
        self.layout = procedure.layout(path)
        if path == "loop":
            self.size = 1
        else:
            self.size = min(len(tasks), block or block_size(self.layout, device, len(tasks)))
        own_rates = any(task.lr not in (None, given.lr) for task in tasks)
        self.block = Block(
            procedure, path, self.layout, examples, self.size, own_rates, keep_gradients
        )

    def parts(self, initial: Mapping[str, np.ndarray]) -> Iterator[Part]:
        """Train block after block; a part is valid until the next one is asked for."""
        start = self.layout.pack(initial)
        order = np.argsort(-self.steps, kind="stable")
        for at in range(0, len(order), self.size):
            chosen = order[at : at + self.size]
            tasks = [self.tasks[i] for i in chosen]
            self.block.begin(start if len(start) == 1 else start[chosen], tasks)
            plan = schedule(tasks, self.settings.batch_size, self.settings.epochs)
            finite = self.block.train(plan, len(tasks))
            _check_finite(tasks, finite, self.steps[chosen])
            summed = self.block.summed
            yield Part(
                chosen,
                self.block.flat[: len(tasks)],
                None if summed is None else summed[: len(tasks)],
            )

    def empty(self, dtype: np.dtype[Any]) -> dict[str, np.ndarray]:
        """Room for all models."""
        models = len(self.tasks)
        return {
            name: np.empty((models, *shape), dtype) for name, shape in self.layout.shapes.items()
        }

    def put(self, tensors: dict[str, np.ndarray], chosen: np.ndarray, flat: torch.Tensor) -> None:
        """Copy the models of a block to their places."""
        for name, value in self.layout.views(flat).items():
            tensors[name][chosen] = value.cpu().numpy()


@dataclass(frozen=True)
class Part:
    """Trained models of one block: their tasks, weights (n, size), and summed gradients."""

    chosen: np.ndarray
    flat: torch.Tensor
    summed: torch.Tensor | None


def block_size(layout: Layout, device: torch.device, models: int) -> int:
    """Models per block: what fits the cache on the CPU, or half the free memory of the GPU.

    Blocks are made equally large, because a small one costs nearly as many kernel launches.
    """
    import torch

    each = BUFFERS * layout.size * 4
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        most = max(1, free // 2 // each)
    else:
        most = max(1, CPU_BLOCK_BYTES // each)
    blocks = -(-models // most)
    return -(-models // blocks)


def _check_filled(tasks: Sequence[Task]) -> None:
    """An error for a client without examples."""
    for task in tasks:
        if not len(task.rows):
            raise FedreproError(
                f"client {task.rng.client} of trial {task.rng.trial} has no training examples; "
                "use fewer clients or a partition with min_examples"
            )


def _check_finite(tasks: Sequence[Task], finite: np.ndarray, steps: np.ndarray) -> None:
    """An error for the model whose loss stopped being finite first."""
    short = np.flatnonzero(finite < steps)
    if len(short):
        # a block stops as soon as one model fails, so the first to fail is the one with fewest
        first = int(short[np.argmin(finite[short])])
        rng = tasks[first].rng
        raise FedreproError(
            f"the loss of client {rng.client} in trial {rng.trial} is not finite at step "
            f"{int(finite[first]) + 1}; lower the learning rate (lr), or check its inputs"
        )
