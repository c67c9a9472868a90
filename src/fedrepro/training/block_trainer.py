"""Models that train by automatic differentiation, in blocks of as many as a GPU holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from fedrepro.core.diagnostics.machine_facts import slots
from fedrepro.networks.layers import Convolution2d, Variational
from fedrepro.networks.torch_modules import OwnModule
from fedrepro.training.augmentation_and_noise import Crops, StepNoise, noise_of
from fedrepro.training.examples import Examples, Reader
from fedrepro.training.gradients import (
    OPTIMISERS,
    Adam,
    Gradients,
    Layout,
    Sgd,
    first,
    observed_hits,
    observed_losses,
)
from fedrepro.training.minibatches import Chunk, Task
from fedrepro.training.training_settings import (
    EarlyStopping,
    InitialTensors,
    LazyGpuTensors,
    Procedure,
    TrainedModels,
)

if TYPE_CHECKING:
    import torch

BUFFERS = 5  # weights, gradients and three optimiser states
# activations wait for the backward pass with their gradients, and kernels need room of their own
SEEN_AT_ONCE = 3


def block_size(procedure: Procedure, device: torch.device, models: int) -> int:
    """Count the models of a block: one on the CPU, or what fits half of a job's share of the GPU.

    Blocks are made equally large, because a small one costs nearly as many kernels. A GPU holds the
    activations of a whole block as well. All of its memory counts and not what is free, so that a
    run that goes on is cut as before.
    """
    import torch

    if device.type != "cuda":
        return 1
    each = 4 * (BUFFERS * Layout(procedure.shapes).size + SEEN_AT_ONCE * activations(procedure))
    _, memory = torch.cuda.mem_get_info(device)
    most = max(1, memory // slots() // 2 // each)
    return -(-models // -(-models // most))


def activations(procedure: Procedure) -> int:
    """Floats of one model's activations in a step, windows of convolutions included.

    Terms of the loss are taken to hold as many again.
    """
    places = procedure.network.places
    outputs = sum(
        layer.held if isinstance(layer, OwnModule) else math.prod(layer.output(shape))
        for layer, shape, _ in places
    )
    windows = sum(
        shape[0] * layer.kernel**2 * math.prod(layer.output(shape)[1:])
        for layer, shape, _ in places
        if isinstance(layer, Convolution2d)
    )
    return procedure.rows * (outputs + windows) * (2 if procedure.losses else 1)


# Losses take as many kernels as a layer, so they are computed for many steps at once.
STEPS_SEEN = 32


class TrainingBlock:
    """Buffers of up to `capacity` models, and the steps that these take.

    The buffers serve one block after another, because fresh memory for a large network costs as
    much as a step of training it. same_rate: all models that will train together have the same step
    size.
    """

    def __init__(
        self,
        procedure: Procedure,
        examples: Examples,
        capacity: int,
        same_rate: bool,
        keep_gradients: bool,
    ) -> None:
        import torch

        self.procedure, layout = procedure, Layout(procedure.shapes)
        self.device, self.dtype = examples.inputs.device, examples.dtype
        self.network_size = Layout(procedure.network.shapes).size
        self.flat = torch.zeros(capacity, layout.size, dtype=self.dtype, device=self.device)
        self.start = torch.zeros_like(self.flat) if procedure.terms else self.flat
        self.summed = torch.zeros_like(self.flat) if keep_gradients else None
        whole = procedure.settings.batch_size is None
        # what differentiates automatically knows one step size
        self.direct = procedure.can_fuse_update(keep_gradients) and same_rate
        # direct descent writes no gradients: nothing has to be cleared
        self.gradient = self.flat if self.direct else torch.zeros_like(self.flat)
        self.total = torch.zeros_like(self.flat) if whole else self.gradient
        # what a forward pass writes to buffers stays as it is
        weights, network = layout.views(self.flat), procedure.network
        self.buffers = [weights[name] for name in network.buffers]
        self.gradients = Gradients(
            network,
            weights,
            layout.views(self.gradient),
            layout.views(self.start),
            "unfolded" if self.device.type == "cuda" else "grouped",
            procedure.losses,
            self.direct,
        )
        self.reader = Reader(examples, capacity, procedure.rows)
        self.noise: StepNoise | None = None
        self.crops = Crops(network) if procedure.settings.augment != "none" else None
        # predictions of a chunk that were right, (steps, models), where models stop by them
        self.right: torch.Tensor | None = None
        # a variational network has the same weights in all pieces of a step
        self.fresh_pieces = not any(isinstance(layer, Variational) for layer in network.layers)
        self.memory: dict[str, torch.Tensor] = {}
        self.optimiser: Adam | Sgd

    def begin(
        self,
        start: np.ndarray,
        private: np.ndarray | None,
        reference: np.ndarray | None,
        memory: Mapping[str, np.ndarray],
        tasks: Sequence[Task],
    ) -> None:
        """Load the next block of models into the buffers, in place of those trained there.

        Args:
            start: tensors of the network (models, size), or (1, size) for all of them.
            private: parameters that loss terms add to each model (models, size).
            reference: weights that loss terms compare with, shaped as `start`; by default `start`.
            memory: of the optimiser, buffers (models, size), on the CPU written in place, and steps
                (models,), all alike; or nothing.
            tasks: of the models, which say how many these are.
        """
        import torch

        settings, count, inner = self.procedure.settings, len(tasks), self.network_size
        self.flat[:count, :inner].copy_(torch.from_numpy(start))
        if private is not None:
            self.flat[:count, inner:].copy_(torch.from_numpy(private))
        if self.start is not self.flat:
            self.start[:count].copy_(self.flat[:count])
            if reference is not None:
                self.start[:count, :inner].copy_(torch.from_numpy(reference))
        if self.summed is not None:
            self.summed.zero_()
        rates = [settings.lr if task.lr is None else task.lr for task in tasks]
        same = len(set(rates)) == 1
        if same:
            settings = replace(settings, lr=rates[0])
        self.gradients.begin(rates, self.procedure.shares(tasks))
        flat = self.flat[:count]
        kind = OPTIMISERS[settings.optimiser]
        self.memory = {
            name: torch.from_numpy(memory[name]).to(self.device)
            for name in (settings.remembered if memory else ())
        }
        steps = int(memory["steps"][0]) if memory else 0
        self.optimiser = kind(flat, settings, None if same else rates, self.memory, steps)
        if self.procedure.network.draws:
            self.noise = noise_of(tasks, settings.batch_size, self.device)
        if self.crops is not None:
            self.crops.begin(tasks)

    def train(self, tasks: Sequence[Task]) -> tuple[np.ndarray, np.ndarray]:
        """Take every step of the tasks, or stop when no model has a finite loss any more.

        Returns the losses (steps, models), zero where a model has no more steps, and how many
        steps each was to take, int (models,): fewer than planned where it stopped early.
        """
        import torch

        stopping = EarlyStopping(tasks, self.procedure.settings)
        kept = [self.flat] if self.summed is None else [self.flat, self.summed]
        chunk_losses = []
        lost = np.zeros(len(tasks), bool)
        chunks: Iterator[Chunk] = self.procedure.plan(tasks)
        if stopping.patience:
            chunks = (part for chunk in chunks for part in stopping.parts(chunk))
        for chunk in chunks:
            if stopping.patience:
                shape = len(chunk.index), len(tasks)
                self.right = torch.zeros(shape, dtype=torch.int64, device=self.device)
            take = self._minibatches if chunk.whole is None else self._pieces
            losses = take(chunk, len(tasks)).cpu().numpy()
            chunk_losses.append(losses)
            if self.right is not None:
                stopping.see(chunk.first + len(losses), self.right.sum(0).cpu().numpy(), kept)
            lost |= ~np.isfinite(losses).all(0) & stopping.running
            if (lost | ~stopping.running).all():
                break
        stopping.put_back(kept)
        whole = np.concatenate(chunk_losses)
        if stopping.kept:
            whole[np.arange(len(whole))[:, None] >= stopping.taken] = 0
        return whole, stopping.taken

    def _minibatches(self, chunk: Chunk, models: int) -> torch.Tensor:
        """Take a step on each minibatch of a chunk: losses (steps, models)."""
        from torch.nn.utils.rnn import pad_sequence

        index, weight, moves = self._uploaded(chunk)
        losses = weight.new_zeros(len(index), models)
        seen: list[torch.Tensor] = []
        for step, x, y in self.reader.minibatches(index, chunk.active):
            count, done = len(x), step + 1
            if self.crops is not None and moves is not None:
                x = self.crops.moved(x, moves[step, :count])
            seen.append(self._step(chunk.first + step, x, y, first(weight[step], count)))
            if len(seen) >= STEPS_SEEN or done == len(index):
                part = slice(done - len(seen), done)
                padded = pad_sequence(seen, batch_first=True)
                seen, count = [], padded.shape[1]
                losses[part, :count] = self._observed(
                    padded, index[part, :count], weight[part, :count], (part, slice(count))
                )
        return losses

    def _observed(
        self,
        logits: torch.Tensor,
        rows: torch.Tensor,
        weight: torch.Tensor,
        where: tuple[slice, slice],
    ) -> torch.Tensor:
        """Compute the cross-entropy of each example, at rows (…, B) of the data set.

        Right predictions are added to `right` at these steps and models.
        """
        examples, network = self.reader.examples, self.procedure.network
        y = examples.targets[rows]
        if network.predictions > 1:
            y, weight = network.asked(examples.inputs[rows], y), network.weighed(weight)
        if self.right is not None:
            self.right[where] += observed_hits(logits, y, weight)
        return observed_losses(logits, y, weight)

    def _step(
        self, step: int, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """Take one step of the first models: their logits (A, B, K)."""
        count = len(x)
        logits = self._gradient(step, x, y, weight)
        for term in self.procedure.perturbations:
            flat, kept = first(self.flat, count), [value[:count].clone() for value in self.buffers]
            slope = first(self.gradient, count).clone()
            weights, inner = flat.clone(), self.network_size
            away = term.away(slope[:, :inner], flat[:, :inner], self.start[:count, :inner])
            flat[:, :inner] += away
            self._gradient(step, x, y, weight)  # draws as before
            flat.copy_(weights)
            first(self.gradient, count).mul_(term.share).add_(slope, alpha=1 - term.share)
            for buffer, value in zip(self.buffers, kept, strict=True):
                buffer[:count] = value
        if not self.direct:
            self._descend(count)
        return logits

    def _gradient(
        self, step: int, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, piece: int = 0
    ) -> torch.Tensor:
        if self.noise is not None:
            self.noise.at(step, len(x), piece)
        return self.gradients.step(x, y, weight, self.noise)

    def _pieces(self, chunk: Chunk, models: int) -> torch.Tensor:
        """Take one step on all examples, piece by piece: losses (1, models)."""
        index, weight, moves = self._uploaded(chunk)
        losses = weight.new_zeros(1, models)
        self.total.zero_()
        for piece, count in enumerate(chunk.active):
            x, y = self.reader.read(first(index[piece], count))
            if self.crops is not None and moves is not None:
                x = self.crops.moved(x, moves[piece, :count])
            share = first(weight[piece], count)
            logits = self._gradient(chunk.first, x, y, share, piece if self.fresh_pieces else 0)
            rows, where = first(index[piece], count), (slice(1), slice(count))
            losses[0, :count] += self._observed(logits, rows, share, where)
            self.total[:count] += self.gradient[:count]
        self._descend(chunk.active[0])
        return losses

    def _uploaded(self, chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Rows (steps, models, batch), their weights, zero for filled rows, and how they move.

        A weight is one over the examples of the minibatch, or of the client for its whole data.
        """
        import torch

        index = torch.from_numpy(chunk.index).to(self.device)
        size = torch.from_numpy(chunk.size).to(self.device).unsqueeze(-1)
        counts = torch.arange(index.shape[-1], device=self.device) < size
        if chunk.whole is not None:
            size = torch.from_numpy(chunk.whole).to(self.device).unsqueeze(-1)
        weight = counts.to(self.dtype) / size.clamp_min(1)
        moves = None if self.crops is None else self.crops.drawn(chunk).to(self.device)
        return index, weight, moves

    def _descend(self, count: int) -> None:
        """Take one step of the optimiser for the first models."""
        flat, gradient = first(self.flat, count), first(self.total, count)
        if self.summed is not None:
            self.summed[:count] += gradient
        inner, kept = self.network_size, [buffer[:count].clone() for buffer in self.buffers]
        for pull in self.procedure.weight_penalties:
            pull.add(gradient[:, :inner], flat[:, :inner], self.start[:count, :inner])
        self.optimiser.step(flat, gradient)
        for buffer, value in zip(self.buffers, kept, strict=True):
            buffer[:count] = value

    def finite(self, models: int) -> np.ndarray:
        """Tell which of the first models have finite weights: bool (models,)."""
        import torch

        flat = self.flat[:models]
        # a sum takes a tenth of the time of looking at each, but may itself be too large
        finite = torch.isfinite(flat.sum(1)).cpu().numpy()
        for model in np.flatnonzero(~finite):
            finite[model] = bool(torch.isfinite(flat[int(model)]).all())
        return np.asarray(finite)


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
            some, span = [tasks[i] for i in chosen], cast("slice | np.ndarray", chosen)
            if (np.diff(chosen) == 1).all():  # a slice copies nothing
                span = slice(int(chosen[0]), int(chosen[0]) + len(chosen))
            private = {name: value[chosen] for name, value in given.private.items()}
            trained.begin(
                start if len(start) == 1 else start[span],
                self.outer.pack(private) if private else None,
                reference if reference is None or len(reference) == 1 else reference[span],
                {name: value[span] for name, value in (memory or {}).items()},
                some,
            )
            losses, taken = trained.train(some)
            for name, value in trained.memory.items():
                array, kept = value.cpu().numpy(), (memory or {})[name]
                if not np.may_share_memory(array, kept):
                    kept[span] = array
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
