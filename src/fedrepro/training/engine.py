"""The training engine: many clients as one stacked model.

Models are ordered by their number of steps and cut into blocks that fit the cache; within a
block the ones that still train are a shrinking prefix. Short minibatches are filled with rows of
weight zero and tensors padded (`flat.py`), so on the CPU the bytes of a client's weights do not
depend on the block it was trained in (tested).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.errors import FedreproError
from fedrepro.networks.layers import Convolution
from fedrepro.networks.network import Network
from fedrepro.training.examples import Examples, Reader
from fedrepro.training.flat import Layout
from fedrepro.training.gradients import (
    AutogradGradients,
    Gradients,
    HandGradients,
    VmapGradients,
)
from fedrepro.training.minibatches import Chunk, Task, schedule
from fedrepro.training.noise import StepNoise
from fedrepro.training.optimisers import OPTIMISERS
from fedrepro.training.paths import Path, choose, require
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
class Procedure:
    """What is trained and how: the network, the numbers of the descent, and terms of the loss.

    path: how gradients are computed; None: as measured to be fastest.
    """

    network: Network
    settings: Settings
    terms: Sequence[Term | Proximal] = ()
    path: Path | None = None

    @property
    def losses(self) -> list[Term]:
        """The terms that need a forward pass."""
        return [term for term in self.terms if not isinstance(term, Proximal)]

    @property
    def pulls(self) -> list[Proximal]:
        """The terms on the weights alone."""
        return [term for term in self.terms if isinstance(term, Proximal)]

    @property
    def is_plain_descent(self) -> bool:
        """Whether a step is w - lr · gradient of the loss, and nothing else."""
        given = self.settings
        return given.optimiser == "sgd" and not (given.momentum or given.l2 or self.pulls)

    def layout(self, path: Path) -> Layout:
        """Tensors of the network, then those of the terms, as the path wants them in memory."""
        shapes = dict(self.network.shapes)
        for term in self.losses:
            shapes |= term.shapes(self.network)
        return Layout(shapes, turned=path == "hand")


def train(
    network: Network,
    examples: Examples,
    tasks: Sequence[Task],
    settings: Settings,
    initial: dict[str, np.ndarray],
    *,
    terms: Sequence[Term | Proximal] = (),
    keep_gradients: bool = False,
    block: int | None = None,
    path: Path | None = None,
) -> Trained:
    """Train one model per task by minibatch descent on cross-entropy plus l2/2 · |parameters|².

    initial: tensors (models, *shape), those of `terms` among them. `block`: models trained
    together (None: as the cache allows); on the CPU it changes the speed, never the result.
    Raises FedreproError naming client, trial and step if a loss is not finite.
    """
    began = time.perf_counter()
    procedure = Procedure(network, settings, terms, path)
    _check_filled(tasks)
    steps = np.array([task.total(settings.batch_size, settings.epochs) for task in tasks])
    device = examples.inputs.device
    chosen_path = require(
        path or choose(network, device.type, procedure.losses), network, procedure.losses
    )
    layout = procedure.layout(chosen_path)
    start = layout.pack(initial)
    end, summed = np.empty_like(start), np.empty_like(start) if keep_gradients else None
    order = np.argsort(-steps, kind="stable")
    size = 1 if chosen_path == "loop" else block or block_size(layout, device, len(tasks))
    for at in range(0, len(order), size):
        chosen = order[at : at + size]
        block_tasks = [tasks[i] for i in chosen]
        run = _Block(
            procedure, chosen_path, layout, start[chosen], examples, block_tasks, keep_gradients
        )
        finite = run.train(schedule(block_tasks, settings.batch_size, settings.epochs))
        _check_finite(block_tasks, finite, steps[chosen])
        end[chosen] = run.flat.cpu().numpy()
        if summed is not None and run.summed is not None:
            summed[chosen] = run.summed.cpu().numpy()
    return Trained(
        tensors=layout.unpack(end),
        gradients=None if summed is None else layout.unpack(summed),
        steps=steps,
        seconds=time.perf_counter() - began,
    )


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


class _Block:
    """Buffers and loop of one block of models."""

    def __init__(
        self,
        procedure: Procedure,
        path: Path,
        layout: Layout,
        start: np.ndarray,
        examples: Examples,
        tasks: Sequence[Task],
        keep_gradients: bool,
    ) -> None:
        import torch

        settings, self.pulls = procedure.settings, procedure.pulls
        device = examples.inputs.device
        self.device, self.dtype = device, examples.dtype
        self.flat = torch.from_numpy(start).to(device, examples.dtype, copy=True)
        self.start = self.flat.clone() if procedure.terms else self.flat
        self.summed = torch.zeros_like(self.flat) if keep_gradients else None
        rates = [settings.lr if task.lr is None else task.lr for task in tasks]
        own = None if set(rates) == {settings.lr} else rates
        self.optimiser = OPTIMISERS[settings.optimiser](self.flat, settings, own)
        self.noise = None
        if procedure.network.draws:
            self.noise = StepNoise(tasks, settings.batch_size, device)
        self.direct = (
            path not in ("hand", "vmap")
            and own is None
            and not keep_gradients
            and procedure.is_plain_descent
        )
        # descending directly writes no gradients, so there is no buffer to clear
        self.gradient = self.flat if self.direct else torch.zeros_like(self.flat)
        self.gradients = self._gradients(procedure, path, layout)
        self.reader = Reader(examples, len(start), settings.batch_size)

    def _gradients(self, procedure: Procedure, path: Path, layout: Layout) -> Gradients:
        network = procedure.network
        weights, gradients = layout.views(self.flat), layout.views(self.gradient)
        if path == "hand":
            batch = procedure.settings.batch_size
            return HandGradients(network, weights, gradients, batch, self.noise)
        if path == "vmap":
            return VmapGradients(network, weights, gradients)
        convolution: Convolution = "unfold" if path == "unfold" else "grouped"
        if path == "loop" and self.device.type == "cpu":
            convolution = "channels_last"
        return AutogradGradients(
            network,
            weights,
            gradients,
            layout.views(self.start),
            convolution,
            procedure.losses,
            self.noise,
            procedure.settings.lr if self.direct else None,
        )

    def train(self, plan: Iterable[Chunk]) -> np.ndarray:
        """Take every step of the plan. Returns the number of finite steps of each model."""
        import torch

        finite = torch.zeros(len(self.flat), dtype=torch.int64, device=self.device)
        for chunk in plan:
            index, weight = self._uploaded(chunk)
            for step, count in enumerate(chunk.active):
                if self.noise is not None:
                    self.noise.at(chunk.first + step, count)
                x, y = self.reader.read(index[step, :count])
                loss = self.gradients.step(x, y, weight[step, :count])
                finite[:count] += torch.isfinite(loss)
                if not self.direct:
                    self._descend(count)
            if int(finite[: chunk.active[-1]].min()) < chunk.first + len(chunk.active):
                break
        counted: np.ndarray = finite.cpu().numpy()
        return counted

    def _uploaded(self, chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows and weights, 1/size for examples and 0 for filled rows: (steps, models, batch)."""
        import torch

        index = torch.from_numpy(chunk.index).to(self.device)
        size = torch.from_numpy(chunk.size).to(self.device).unsqueeze(-1)
        counts = torch.arange(index.shape[-1], device=self.device) < size
        weight = counts.to(self.dtype) / size.clamp_min(1)
        return index, weight

    def _descend(self, count: int) -> None:
        """One step of the optimiser for the first models."""
        flat, gradient = self.flat[:count], self.gradient[:count]
        if self.summed is not None:
            self.summed[:count] += gradient
        for pull in self.pulls:
            pull.add(gradient, flat, self.start[:count])
        self.optimiser.step(flat, gradient)


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
