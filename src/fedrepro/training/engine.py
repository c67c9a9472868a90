"""The training engine: many clients as one stacked model.

Models are ordered by their number of steps and cut into blocks that fit the cache; within a
block the ones that still train are a shrinking prefix. Short minibatches are filled with rows of
weight zero and tensors padded (`flat.py`), so on the CPU the bytes of a client's weights do not
depend on the block it was trained in (tested).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import Rng
from fedrepro.networks.network import Network
from fedrepro.training.block import Block, Procedure
from fedrepro.training.checks import check_going_on, check_private, check_tasks
from fedrepro.training.examples import Examples
from fedrepro.training.flat import Layout
from fedrepro.training.minibatches import Task
from fedrepro.training.optimisers import OPTIMISERS
from fedrepro.training.paths import StepPath, choose, require
from fedrepro.training.settings import Settings
from fedrepro.training.terms import Proximal, Term

if TYPE_CHECKING:
    import torch

# What a step reads and writes should stay in the last cache level: weights, gradients and three
# optimiser states; weights alone, and those received if a term looks at them, where a step moves
# them in the product that gives their gradient.
# Measured on 25 clients of MLP-50 under Adam: blocks of 8 (6.4 MB) beat 1, 5 and 25.
CPU_BLOCK_BYTES = 8 * 2**20
BUFFERS = 5


@dataclass(frozen=True)
class Outcome:
    """How the training of n models went, in the order of the tasks.

    private: the tensors of the loss terms by name, (n, *shape), which stay with their client; those
    of a model that is not finite are as they were given. finite: bool (n,), whether all losses and
    the weights at the end are. failed_at: int (n,), the first step whose loss was not finite,
    counted from 0, or -1. loss: float64 (n,), mean cross-entropy over the minibatches of the run,
    without further terms; not a number for a model that is not finite. steps: int (n,), fewer than
    planned where it stopped early. seconds: measured, for all models together. places: where each
    model's randomness came from.
    """

    private: dict[str, np.ndarray]
    finite: np.ndarray
    failed_at: np.ndarray
    loss: np.ndarray
    steps: np.ndarray
    seconds: float
    places: tuple[Rng, ...]

    def checked(self) -> Self:
        """Itself. Raises FedreproError naming client, trial and step if a model is not finite."""
        bad = np.flatnonzero(~self.finite)
        if len(bad):
            # of those whose weights alone are not finite the loss would have failed next
            at = np.where(self.failed_at < 0, self.steps, self.failed_at)[bad]
            rng = self.places[bad[at.argmin()]]
            raise FedreproError(
                f"the loss of client {rng.client} in trial {rng.trial} is not finite at step "
                f"{int(at.min()) + 1}; lower the learning rate (lr), or check its inputs"
            )
        return self


@dataclass(frozen=True)
class Trained(Outcome):
    """Weights of the network (n, *shape) by name; those of a model that is not finite are NaN.

    gradients: the sum over steps of the minibatch gradients of the loss (without L2 and proximal
    terms), same shapes, if asked for. memory: what the optimiser remembers of each model, if asked
    for: arrays (n, …) for a training that goes on.
    """

    tensors: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray] | None = None
    memory: dict[str, np.ndarray] | None = None


@dataclass(frozen=True)
class Averaged(Outcome):
    """The weighted sum of the trained models: tensors (1, *shape) by name; see `average`.

    weight: sum of the weights that went in; left_out: models that were not finite.
    """

    tensors: dict[str, np.ndarray]
    weight: float

    @property
    def left_out(self) -> int:
        return int((~self.finite).sum())


def train(
    network: Network,
    examples: Examples,
    tasks: Sequence[Task],
    settings: Settings,
    start: Mapping[str, np.ndarray],
    *,
    terms: Sequence[Term | Proximal] = (),
    private: Mapping[str, np.ndarray] | None = None,
    reference: Mapping[str, np.ndarray] | None = None,
    memory: Mapping[str, np.ndarray] | None = None,
    keep_gradients: bool = False,
    block: int | None = None,
    path: StepPath | None = None,
) -> Trained:
    """Train one model per task by minibatch descent on cross-entropy plus l2/2 · |parameters|².

    start: tensors (n, *shape), or (1, *shape) for a shared start. private: tensors of the terms,
    (n, *shape), trained beside the network's. reference: what terms compare the network with, as
    start, which it is without: the mean and spread of a prior, say. memory: what the optimiser
    remembers, as an earlier training gave it, or empty to begin with; without it the optimiser
    starts anew and nothing is given back. `block`: models trained together (None: as the cache
    allows); on the CPU it changes the speed, never the result. A model that is not finite does not
    change the others; `checked` makes it an error. Raises FedreproError for a client without
    examples or steps, and for private tensors that are missing or of another shape.
    """
    began = time.perf_counter()
    procedure = Procedure(network, settings, terms)
    given = Given(start, private or {}, reference, memory)
    work = _Work(procedure, examples, tasks, given, keep_gradients, block, path)
    tensors = work.empty(work.inner)
    summed = work.empty(work.inner) if keep_gradients else None
    for part in work.parts():
        work.put(tensors, work.inner, part.chosen, part.flat)
        if summed is not None and part.summed is not None:
            work.put(summed, work.inner, part.chosen, part.summed)
    return Trained(**work.outcome(began), tensors=tensors, gradients=summed, memory=work.memory)


def average(
    network: Network,
    examples: Examples,
    tasks: Sequence[Task],
    settings: Settings,
    start: Mapping[str, np.ndarray],
    weights: Sequence[float],
    *,
    terms: Sequence[Term | Proximal] = (),
    private: Mapping[str, np.ndarray] | None = None,
    block: int | None = None,
    path: StepPath | None = None,
) -> Averaged:
    """sum_i weights[i] · (network of task i after training), as `train` trains them.

    Models that are not finite are left out of the sum, whose weight the caller may bring back to
    one. Models are folded into the sum as they are done, so memory does not grow with their number.
    """
    import torch

    began = time.perf_counter()
    procedure = Procedure(network, settings, terms)
    work = _Work(procedure, examples, tasks, Given(start, private or {}), False, block, path)
    size = work.inner.size
    total = torch.zeros(1, size, dtype=examples.dtype, device=examples.inputs.device)
    for part in work.parts():
        # one by one, in an order that does not depend on the block
        for model, flat in zip(part.chosen, part.flat, strict=True):
            if work.finite[model]:
                total[0].add_(flat[:size], alpha=float(weights[model]))
    outcome = work.outcome(began)
    went_in = math.fsum(w for w, finite in zip(weights, work.finite, strict=True) if finite)
    tensors = work.inner.unpack(total.cpu().numpy())
    return Averaged(**outcome, tensors=tensors, weight=went_in)


@dataclass(frozen=True)
class Given:
    """Tensors that training starts from, by name; see `train`."""

    start: Mapping[str, np.ndarray]
    private: Mapping[str, np.ndarray]
    reference: Mapping[str, np.ndarray] | None = None
    memory: Mapping[str, np.ndarray] | None = None


class _Work:
    """Tasks ordered by number of steps and cut into blocks, and how their training went."""

    def __init__(
        self,
        procedure: Procedure,
        examples: Examples,
        tasks: Sequence[Task],
        given: Given,
        keep_gradients: bool,
        block: int | None,
        path: StepPath | None,
    ) -> None:
        check_tasks(tasks)
        check_private(procedure.private, given.private, len(tasks))
        check_going_on(procedure.settings, tasks, given.memory is not None)
        procedure.require_pieces()
        settings, network, losses = procedure.settings, procedure.network, procedure.losses
        device = examples.inputs.device
        path = path or choose(network, device.type, losses)
        require(path, network, losses, device.type)
        self.tasks = tasks
        self.steps = np.array([task.total(settings.batch_size, settings.epochs) for task in tasks])
        self.pieces = np.array([procedure.pieces(task) for task in tasks])
        layout = procedure.layout(path, keep_gradients)
        self.inner = Layout(network.shapes, layout.turned)
        self.outer = Layout(procedure.private, layout.turned)
        self.start = self.inner.pack(given.start)
        self.reference = None if given.reference is None else self.inner.pack(given.reference)
        self.given, self.private = given.private, self.empty(self.outer)
        self.memory = self._recalled(given.memory, settings)
        self.finite = np.ones(len(tasks), bool)
        self.failed_at = np.full(len(tasks), -1)
        self.loss = np.full(len(tasks), np.nan)
        if path == "loop":
            self.size = 1
        else:
            direct = procedure.descends(path, keep_gradients)
            buffers = 1 + bool(procedure.terms) if direct else BUFFERS
            self.size = block or block_size(layout, device, len(tasks), buffers)
            self.size = min(len(tasks), self.size)
        if self.memory is not None and len(set(self.memory["steps"].tolist())) > 1:
            self.size = 1  # the fused kernel of an optimiser knows one number of steps
        rates = {settings.lr if task.lr is None else task.lr for task in tasks}
        same_rate = self.size == 1 or len(rates) == 1
        self.block = Block(procedure, path, layout, examples, self.size, same_rate, keep_gradients)

    def parts(self) -> Iterator[Part]:
        """Train block after block; a part is valid until the next one is asked for."""
        order = np.lexsort((-self.pieces, -self.steps))
        for at in range(0, len(order), self.size):
            chosen = order[at : at + self.size]
            span, tasks = _span(chosen), [self.tasks[i] for i in chosen]
            own = {name: value[chosen] for name, value in self.given.items()}
            self.block.begin(
                _of(self.start, span),
                self.outer.pack(own) if own else None,
                None if self.reference is None else _of(self.reference, span),
                {name: value[span] for name, value in (self.memory or {}).items()},
                tasks,
            )
            self._judge(chosen, *self.block.train(tasks))
            self._remember(span)
            yield self._part(chosen)

    def _judge(self, chosen: np.ndarray, losses: np.ndarray, taken: np.ndarray) -> None:
        """Note the losses (steps, models) of a block, the steps of its models, and which of these
        are finite."""
        self.steps[chosen] = taken
        bad = ~np.isfinite(losses)
        failed = bad.any(0)
        self.failed_at[chosen] = np.where(failed, bad.argmax(0), -1)
        self.finite[chosen] = ~failed & self.block.finite(len(chosen))
        for i, model in enumerate(chosen):
            if self.finite[model]:
                # an exact sum does not depend on how the steps were cut
                self.loss[model] = math.fsum(losses[:, i].tolist()) / self.steps[model]

    def _recalled(
        self, memory: Mapping[str, np.ndarray] | None, settings: Settings
    ) -> dict[str, np.ndarray] | None:
        """What the optimiser remembers, in memory of its own; zero to begin with."""
        if memory is None:
            return None
        if memory:
            return {name: value.copy() for name, value in memory.items()}
        room = (len(self.tasks), self.inner.size + self.outer.size)
        names = OPTIMISERS[settings.optimiser].remembered(settings)
        found = {name: np.zeros(room, self.start.dtype) for name in names}
        return {"steps": np.zeros(len(self.tasks), np.int64), **found}

    def _remember(self, span: slice | np.ndarray) -> None:
        """Note what the optimiser remembers of the models of a block."""
        if self.memory is None:
            return
        self.memory["steps"][span] += self.steps[span]
        for name, value in self.block.memory.items():
            found, kept = value.cpu().numpy(), self.memory[name]
            if not np.may_share_memory(found, kept):
                kept[span] = found

    def _part(self, chosen: np.ndarray) -> Part:
        """The models of a block; what is not finite is not a number, whatever it was before."""
        flat, summed = self.block.flat[: len(chosen)], self.block.summed
        summed = None if summed is None else summed[: len(chosen)]
        bad = np.flatnonzero(~self.finite[chosen])
        inner = self.inner.size
        for name, value in self.outer.views(flat[:, inner:]).items():
            self.private[name][chosen] = value.cpu().numpy()
            self.private[name][chosen[bad]] = self.given[name][chosen[bad]]
        for i in bad.tolist():
            flat[i].fill_(math.nan)
            if summed is not None:
                summed[i].fill_(math.nan)
        return Part(chosen, flat, summed)

    def outcome(self, began: float) -> dict[str, Any]:
        """The fields of `Outcome`."""
        return {
            "private": self.private,
            "finite": self.finite,
            "failed_at": self.failed_at,
            "loss": self.loss,
            "steps": self.steps,
            "seconds": time.perf_counter() - began,
            "places": tuple(task.rng for task in self.tasks),
        }

    def empty(self, layout: Layout) -> dict[str, np.ndarray]:
        """Room for the tensors of all models."""
        models, dtype = len(self.tasks), self.start.dtype
        return {name: np.empty((models, *shape), dtype) for name, shape in layout.shapes.items()}

    def put(
        self,
        tensors: dict[str, np.ndarray],
        layout: Layout,
        chosen: np.ndarray,
        flat: torch.Tensor,
    ) -> None:
        """Copy the models of a block to their places."""
        for name, value in layout.views(flat).items():
            tensors[name][chosen] = value.cpu().numpy()


def _span(chosen: np.ndarray) -> slice | np.ndarray:
    """The same places as a slice if they follow each other: what it takes is not copied."""
    first, count = int(chosen[0]), len(chosen)
    return slice(first, first + count) if (np.diff(chosen) == 1).all() else chosen


def _of(flat: np.ndarray, chosen: slice | np.ndarray) -> np.ndarray:
    """The rows of these models; one row is that of all."""
    return flat if len(flat) == 1 else flat[chosen]


@dataclass(frozen=True)
class Part:
    """Trained models of one block: their tasks, weights (n, size), and summed gradients."""

    chosen: np.ndarray
    flat: torch.Tensor
    summed: torch.Tensor | None


def block_size(layout: Layout, device: torch.device, models: int, buffers: int = BUFFERS) -> int:
    """Models per block: what fits the cache on the CPU, or half the free memory of the GPU.

    buffers: floats that a step touches for each one of a model. Blocks are made equally large,
    because a small one costs nearly as many kernel launches.
    """
    import torch

    each = buffers * layout.size * 4
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        most = max(1, free // 2 // each)
    else:
        most = max(1, CPU_BLOCK_BYTES // each)
    blocks = -(-models // most)
    return -(-models // blocks)
