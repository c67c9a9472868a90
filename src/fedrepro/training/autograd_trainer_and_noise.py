"""Training by automatic differentiation, for GPUs, users' torch modules, uncompiled loss terms.

On the CPU one model trains after another. On a GPU as many train at once as fit in its memory, in
order of their numbers of steps. Imports torch: the engine imports this module when it needs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch.nn import functional

from fedrepro.core.diagnostics.machine_facts import slots
from fedrepro.core.errors import FedreproError
from fedrepro.networks.layers import MARGIN, SHIFTS, Convolution2d, Pass, Shape, Variational
from fedrepro.networks.user_torch_modules import OwnModule
from fedrepro.training import minibatches_and_augmentation as batches
from fedrepro.training.flat_models_and_optimiser_steps import Layout, new_memory, optimiser_step
from fedrepro.training.loss_terms import GaussianPrior, TermInputs
from fedrepro.training.minibatches_and_augmentation import Chunk, Task
from fedrepro.training.training_examples import Arrays, Examples
from fedrepro.training.training_settings_and_procedures import (
    EarlyStopping,
    Procedure,
    TrainedModels,
)

BUFFERS = 5  # weights, gradients and three optimiser states
# activations wait for the backward pass with their gradients, and kernels need room of their own
SEEN_AT_ONCE = 3


def block_size(procedure: Procedure, device: torch.device, models: int, rows: int) -> int:
    """Return how many of `models` (a number) to train at once, on `rows` examples each: 1 on a CPU.

    On a GPU groups are nearly equal, and take at most half of this process's share of the GPU's
    memory. Free memory does not count, so that a resumed run forms equal groups.
    """
    if device.type != "cuda":
        return 1
    size = Layout({**procedure.network.shapes, **procedure.private}).size
    each = 4 * (BUFFERS * size + SEEN_AT_ONCE * activations(procedure, rows))
    _, memory = torch.cuda.mem_get_info(device)
    most = max(1, memory // slots() // 2 // each)
    return -(-models // -(-models // most))


def activations(procedure: Procedure, rows: int) -> int:
    """Estimate how many floats a model's activations take in a training step on `rows` examples."""
    outputs = windows = 0
    for layer, shape, _ in procedure.network.places:
        out = layer.output(shape)
        outputs += layer.held if isinstance(layer, OwnModule) else math.prod(out)
        if isinstance(layer, Convolution2d):
            windows += shape[0] * layer.kernel**2 * math.prod(out[1:])
    return rows * (outputs + windows) * (2 if procedure.losses else 1)


class AutogradTrainer:
    """A trainer of models in groups, as rows of a matrix, by torch's automatic differentiation."""

    def __init__(
        self, procedure: Procedure, examples: Examples, tasks: Sequence[Task], keep_gradients: bool
    ) -> None:
        self.procedure, self.examples, self.keep = procedure, examples, keep_gradients
        self.network, self.settings = procedure.network, procedure.settings
        self.device, self.dtype = examples.inputs.device, examples.dtype
        self.inner, self.outer = Layout(self.network.shapes), Layout(procedure.private)
        self.block = block_size(procedure, self.device, len(tasks), self._rows(tasks))
        self.block = 1 if self.settings.patience else self.block
        drawn = any(isinstance(layer, Variational) for layer in self.network.layers)
        if drawn or any(isinstance(term, GaussianPrior) for term in procedure.losses):
            said = "Bayesian layers train only in networks of these and ReLU, with no other terms"
            raise FedreproError(f"{said} in the loss than Entropy and one GaussianPrior")

    def parts(
        self, tasks: Sequence[Task], start: Arrays, reference: Arrays | None, memory: Arrays | None
    ) -> Iterator[TrainedModels]:
        """Train a model for each of `tasks` from tensors `start`; yield `TrainedModels` by group.

        `start` (n, *shape), or (1, *shape) for all, includes tensors that loss terms train. Terms
        compare weights with `reference`, by default `start`. A `memory` raises FedreproError.
        """
        if memory is not None:
            said = "an optimiser keeps its state between rounds in compiled steps alone"
            raise FedreproError(f"{said}: take device: cpu, and layers and terms of fedrepro")
        size, epochs = self.settings.batch_size, self.settings.epochs
        totals = np.array([task.total(size, epochs) for task in tasks])
        order = np.argsort(-totals, kind="stable")
        for at in range(0, len(order), self.block):
            chosen = order[at : at + self.block]
            self._begin([tasks[i] for i in chosen], chosen, start, reference)
            stopping = EarlyStopping(tasks[order[at]], self.settings)
            losses, lost = list[np.ndarray](), np.zeros(len(chosen), bool)
            for chunk in batches.schedule(self.tasks, self.rows, epochs):
                losses.append(self._steps(chunk, stopping))  # 0 after a model's end
                lost |= ~np.isfinite(losses[-1]).all(0)
                if lost.all() or stopping.over:
                    break
            weights, private = self._views(self.flat)
            yield TrainedModels(
                chosen,
                np.concatenate(losses),
                np.array([stopping.taken] if self.settings.patience else totals[chosen]),
                torch.isfinite(self.flat).all(1).cpu().numpy(),
                _arrays(weights) if self.device.type == "cpu" else weights,
                _arrays(private),
                _arrays(self._views(self.summed)[0]) if self.keep else None,
            )

    def _rows(self, tasks: Sequence[Task]) -> int:  # of a minibatch, or all of the largest client
        return self.settings.batch_size or max(len(task.rows) for task in tasks)

    def _begin(
        self, tasks: list[Task], chosen: np.ndarray, start: Arrays, reference: Arrays | None
    ) -> None:
        """Set up a group's training by `tasks`, from models `chosen` (indices) of `start`."""

        def packed(layout: Layout, tensors: Arrays) -> torch.Tensor:
            given = {name: tensors[name] for name in layout.shapes}
            own = {k: v if len(v) == 1 else v[chosen] for k, v in given.items()}
            return torch.from_numpy(layout.pack(own))

        self.tasks, settings, inner = tasks, self.settings, self.inner.size
        self.rows = self._rows(tasks)
        size = inner + self.outer.size
        self.flat = torch.zeros(len(chosen), size, dtype=self.dtype, device=self.device)
        self.flat[:, :inner] = packed(self.inner, start)
        if self.outer.shapes:
            self.flat[:, inner:] = packed(self.outer, start)
        self.start = self.flat[:, :inner].clone()  # what terms compare the weights with
        if reference is not None:
            self.start[:] = packed(self.inner, reference)
        self.summed = torch.zeros_like(self.flat if self.keep else self.flat[:0])
        self.moments = new_memory(self.flat, settings)
        drawn = self.network.draws
        self.noise = noise_of(tasks[0], settings.batch_size, self.device) if drawn else None
        weights, _ = self._views(self.flat)
        self.buffers = [weights[name] for name in self.network.buffers]

    def _views(self, flat: torch.Tensor) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        inner = self.inner.size
        return self.inner.views(flat[:, :inner]), self.outer.views(flat[:, inner:])

    def _steps(self, chunk: Chunk, stopping: EarlyStopping) -> np.ndarray:
        """Run the training steps of a chunk of minibatches; return the losses (steps, models)."""
        index, size = (torch.from_numpy(v).to(self.device) for v in (chunk.index, chunk.size))
        counts = torch.arange(self.rows, device=self.device) < size.unsqueeze(-1)
        weights = counts.to(self.dtype) / size.unsqueeze(-1).clamp_min(1)
        moves = None
        if self.settings.augment != "none":
            moves = drawn_moves(chunk, self.tasks).to(self.device)
        losses = weights.new_zeros(len(index), len(self.tasks))
        for step, count in enumerate(chunk.active):
            weight = weights[step, :count]
            x, y = self.examples.gathered(index[step, :count])
            if moves is not None:
                x = moved(x, moves[step, :count], self.network.shape)
            y = self.network.asked(x, y)
            loss, logits, gradient = self._gradient(chunk.first + step, x, y, weight)
            losses[step, :count] = loss
            self._descend(self._perturbed(gradient, chunk.first + step, x, y, weight))
            if self.settings.patience:
                right = right_predictions(logits, y, self.network.weighed(weight))
                stopping.see(chunk.first + step + 1, int(right))
                if stopping.over:
                    return losses[: step + 1].cpu().numpy()
        return losses.cpu().numpy()

    def _gradient(
        self, step: int, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return losses (A,), logits, gradients (A, size) of A models on x (A, B, D) at `step`."""
        network, terms, count = self.network, self.procedure.losses, len(x)
        leaf = self.flat[:count].detach().requires_grad_()
        tensors, private = self._views(leaf)
        gpu = self.device.type == "cuda"
        run = Pass("unfolded" if gpu else "grouped", self.noise, keep=bool(terms))
        if self.noise is not None:
            self.noise.at(step)
            if network.buffers:  # rows that fill up would be counted as others
                run.rows = (weight > 0).sum(-1).tolist()
        logits, weight = network.forward(tensors, x, run), network.weighed(weight)
        each = functional.cross_entropy(logits.flatten(0, 1), y.flatten(0, 1), reduction="none")
        losses = total = (each.view(weight.shape) * weight).sum(1)
        if terms:
            start = self.inner.views(self.start[:count])
            look = TermInputs(network, tensors | private, start, x, weight, run)
            for term in terms:
                total = total + term.loss(look)
        (gradient,) = torch.autograd.grad(total.sum(), leaf)
        return (losses + (total - total)).detach(), logits.detach(), gradient

    def _perturbed(
        self, gradient: torch.Tensor, step: int, x: torch.Tensor, y: torch.Tensor,
        weight: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Return `gradient` (A, size) mixed by each `Perturbation`, such as SAM, on a minibatch."""
        count, inner = len(x), self.inner.size
        for term in self.procedure.perturbations:
            flat, kept = self.flat[:count], [value[:count].clone() for value in self.buffers]
            weights = flat.clone()
            flat[:, :inner] += term.away(gradient[:, :inner], flat[:, :inner], self.start[:count])
            _, _, there = self._gradient(step, x, y, weight)  # draws as before
            flat.copy_(weights)
            gradient = there.mul_(term.share).add_(gradient, alpha=1 - term.share)
            self._put_back(kept)
        return gradient

    def _descend(self, gradient: torch.Tensor) -> None:
        """Add weight penalties to `gradient` (A, size); update the first A models by the sum."""
        count, inner = len(gradient), self.inner.size
        flat, kept = self.flat[:count], [buffer[:count].clone() for buffer in self.buffers]
        if self.keep:
            self.summed[:count] += gradient
        start, slope = self.start[:count], gradient[:, :inner]
        for term in self.procedure.weight_penalties:
            if term.pull:
                slope.add_(flat[:, :inner], alpha=term.pull).sub_(start, alpha=term.pull)
            if term.shift:
                slope.add_(start, alpha=term.shift)
        optimiser_step(flat, gradient, self.moments, self.settings)
        self._put_back(kept)

    def _put_back(self, kept: Sequence[torch.Tensor]) -> None:
        for buffer, value in zip(self.buffers, kept, strict=True):
            buffer[: len(value)] = value


def _arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: value.cpu().numpy() for name, value in tensors.items()}


def right_predictions(logits: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Count right predictions (…) of targets `y` by `logits` (…, B, K) if `weight` (…, B) > 0."""
    labels = y if y.dim() < logits.dim() else y.argmax(-1)
    count: torch.Tensor = ((logits.argmax(-1) == labels) & (weight > 0)).sum(-1)
    return count


def drawn_moves(chunk: Chunk, tasks: Sequence[Task]) -> torch.Tensor:
    """Draw a code of flip and shift (see `kinds`) per image in `chunk`: int64 (steps, tasks, B)."""
    moves = np.zeros_like(chunk.index)
    for i, task in enumerate(tasks):
        epochs = chunk.epoch[:, i]
        for epoch in np.unique(epochs[chunk.size[:, i] > 0]):
            key, steps = task.rng.at(epoch=int(epoch)).key(batches.CROPS), epochs == epoch
            moves[steps, i] = batches.kinds(batches.halves(key), chunk.index[steps, i])
    return torch.from_numpy(moves)


def moved(x: torch.Tensor, kind: torch.Tensor, shape: Shape) -> torch.Tensor:
    """Mirror and shift images `x` (A, B, D) of `shape` (C, H, W) by codes (A, B) of `kinds`."""
    flip, shift = kind.flatten() // SHIFTS**2, kind.flatten() % SHIFTS**2
    images = functional.pad(x.reshape(-1, *shape), [MARGIN] * 4)
    crops = images.unfold(2, shape[1], 1).unfold(3, shape[2], 1)
    each = torch.arange(len(images), device=x.device)
    taken = crops[each, :, shift // SHIFTS, shift % SHIFTS]
    return torch.where(flip.bool()[:, None, None, None], taken.flip(-1), taken).view(x.shape)


STRIDE = 0x9E3779B97F4A7C15  # of Weyl sequences: consecutive steps get seeds far apart
SEEDS = 2**64  # of a GPU's generator, which is counter-based too


def noise_of(task: Task, batch_size: int | None, device: torch.device) -> ModelNoise:
    """Return a source of random numbers by the key of `task`, on a GPU for its group of models.

    `batch_size` says at which steps epochs begin, as each epoch has a key of its own.
    """
    return (ModelNoise if device.type == "cpu" else BlockNoise)(task, batch_size, device)


class ModelNoise:
    """Random numbers of one model's training steps on the CPU, independent for each step."""

    def __init__(self, task: Task, batch_size: int | None, device: torch.device) -> None:
        self.task, self.batch_size, self.generator = task, batch_size, torch.Generator(device)

    def at(self, step: int) -> None:
        """Begin the random numbers of step `step`, from 0, after the task's `done` steps."""
        epoch, inside = divmod(self.task.done + step, self.task.per_epoch(self.batch_size))
        self.begin(self.task.rng.at(epoch=epoch).key(batches.NOISE), inside)

    def begin(self, key: int, inside: int) -> None:
        # the lowest of the counter's words counts within a step, the next one steps
        self.stream = np.random.Philox(key=key, counter=[0, inside, 0, 0])

    def kept(self, like: torch.Tensor, share: float) -> torch.Tensor:
        drawn = _contiguous(like)
        words = self.stream.random_raw(-(-drawn.numel() // 2)).view(np.uint32)[: drawn.numel()]
        drawn.numpy().reshape(-1)[...] = words < round(share * 2**32)
        return drawn

    def seeds(self, models: int) -> list[int]:
        return [int(seed) for seed in self.stream.random_raw(models)]


class BlockNoise(ModelNoise):
    """Random numbers of training steps on a GPU, by one generator for all models: it is faster."""

    def begin(self, key: int, inside: int) -> None:
        self.generator.manual_seed((key + inside * STRIDE) % SEEDS)

    def kept(self, like: torch.Tensor, share: float) -> torch.Tensor:
        return _contiguous(like).bernoulli_(share, generator=self.generator)

    def seeds(self, models: int) -> list[int]:
        device = self.generator.device
        drawn = torch.randint(2**62, (models,), generator=self.generator, device=device)
        return list(drawn.tolist())


def _contiguous(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(like, memory_format=torch.contiguous_format)
