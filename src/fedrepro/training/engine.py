"""The training engine: many clients as one stacked model.

Models are ordered by their number of steps and cut into blocks that fit the cache; within a
block the ones that still train are a shrinking prefix. Short minibatches are filled with rows of
weight zero and tensors padded (`flat.py`), so on the CPU the bytes of a client's weights do not
depend on the block it was trained in (tested).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.errors import FedreproError
from fedrepro.models.dense import Dense
from fedrepro.training.flat import Layout
from fedrepro.training.gradients import DenseGradients
from fedrepro.training.minibatches import Schedule, Task, schedule
from fedrepro.training.optimisers import OPTIMISERS
from fedrepro.training.settings import Settings

if TYPE_CHECKING:
    import torch

# Weights, gradients and three optimiser states of a block should stay in the last cache level;
# measured on 25 clients of MLP-50: blocks of 8 (6.4 MB) beat 1, 5 and 25.
CPU_BLOCK_BYTES = 8 * 2**20
BUFFERS = 5
CHECK_EVERY = 256


@dataclass(frozen=True)
class Trained:
    """Weights (models, *shape) by name, float32, in the order of the tasks.

    gradients: the sum over steps of the minibatch gradients of the data loss (without L2), same
    shapes, if asked for. steps: int (models,). seconds: measured, for all models together.
    """

    tensors: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray] | None
    steps: np.ndarray
    seconds: float


def train(
    dense: Dense,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    tasks: Sequence[Task],
    settings: Settings,
    initial: dict[str, np.ndarray],
    *,
    keep_gradients: bool = False,
    block: int | None = None,
) -> Trained:
    """Train one model per task by minibatch descent on cross-entropy plus l2/2 * |parameters|².

    inputs: (N, D) floating; targets: (N, K), one-hot or soft, same dtype and device; initial:
    tensors (models, *shape). `block`: models trained together (None: as the cache allows); on
    the CPU it changes the speed, never the result. Raises FedreproError naming client, trial and
    step if a loss is not finite.
    """
    began = time.perf_counter()
    layout = Layout(dense.shapes)
    per_epoch = np.array([task.steps(settings.batch_size) for task in tasks])
    if not per_epoch.all():
        empty = tasks[int(np.argmin(per_epoch))].rng
        raise FedreproError(
            f"client {empty.client} of trial {empty.trial} has no training examples; "
            "use fewer clients or a partition with min_examples"
        )
    start = layout.pack(initial)
    end, summed = np.empty_like(start), np.empty_like(start) if keep_gradients else None
    order = np.argsort(-per_epoch, kind="stable")
    size = block or block_size(layout, inputs)
    for at in range(0, len(order), size):
        chosen = order[at : at + size]
        plan = schedule([tasks[i] for i in chosen], settings.batch_size, settings.epochs)
        run = _Block(dense, layout, start[chosen], inputs, targets, settings, keep_gradients)
        finite = run.train(plan)
        _check_finite([tasks[i] for i in chosen], finite, per_epoch[chosen] * settings.epochs)
        end[chosen] = run.flat.cpu().numpy()
        if summed is not None and run.summed is not None:
            summed[chosen] = run.summed.cpu().numpy()
    return Trained(
        tensors=layout.unpack(end),
        gradients=None if summed is None else layout.unpack(summed),
        steps=per_epoch * settings.epochs,
        seconds=time.perf_counter() - began,
    )


def block_size(layout: Layout, inputs: torch.Tensor) -> int:
    """Models per block: what fits the cache on the CPU, or half the free memory of the GPU."""
    import torch

    each = BUFFERS * layout.size * inputs.element_size()
    if inputs.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(inputs.device)
        return max(1, free // 2 // each)
    return max(1, CPU_BLOCK_BYTES // each)


class _Block:
    """Buffers and loop of one block of models."""

    def __init__(
        self,
        dense: Dense,
        layout: Layout,
        start: np.ndarray,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        settings: Settings,
        keep_gradients: bool,
    ) -> None:
        import torch

        self.inputs, self.targets = inputs, targets
        self.flat = torch.from_numpy(start).to(inputs, copy=True)
        self.gradient = torch.zeros_like(self.flat)
        self.summed = torch.zeros_like(self.flat) if keep_gradients else None
        self.optimiser = OPTIMISERS[settings.optimiser](self.flat, settings)
        self.gradients = DenseGradients(
            dense, layout.views(self.flat), layout.views(self.gradient), settings.batch_size
        )
        models, batch = len(start), settings.batch_size
        self.x = inputs.new_empty(models, batch, inputs.shape[1])
        self.y = targets.new_empty(models, batch, targets.shape[1])

    def train(self, plan: Schedule) -> np.ndarray:
        """Take every step of the schedule. Returns the number of finite steps of each model."""
        import torch

        index = torch.from_numpy(plan.index).to(self.inputs.device)
        weight = torch.from_numpy(plan.weight).to(self.inputs).unsqueeze(-1)
        finite = torch.zeros(len(self.flat), dtype=torch.int64, device=self.inputs.device)
        for step, count in enumerate(plan.active.tolist()):
            rows = index[step, :count].reshape(-1)
            x, y = self.x[:count], self.y[:count]
            torch.index_select(self.inputs, 0, rows, out=x.view(len(rows), -1))
            torch.index_select(self.targets, 0, rows, out=y.view(len(rows), -1))
            error = self.gradients.step(x, y, weight[step, :count])
            finite[:count] += torch.isfinite(error.sum((1, 2)))
            if self.summed is not None:
                self.summed[:count] += self.gradient[:count]
            self.optimiser.step(self.flat[:count], self.gradient[:count])
            if step % CHECK_EVERY == 0 and int(finite[:count].min()) <= step:
                break
        counted: np.ndarray = finite.cpu().numpy()
        return counted


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


def one_hot(labels: np.ndarray, classes: int) -> np.ndarray:
    """Labels (N,) to targets (N, K), float32."""
    rows: np.ndarray = np.eye(classes, dtype=np.float32)[labels]
    return rows
