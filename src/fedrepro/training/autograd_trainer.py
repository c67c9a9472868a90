"""Training by automatic differentiation: users' torch modules, terms without compiled code, GPUs.

On the CPU one model trains after another, on a GPU blocks of as many as its memory holds. Models
are ordered by number of steps, so that the ones that still train are the first ones of a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.diagnostics.machine_facts import slots
from fedrepro.networks.layers import Convolution2d, Pass, Variational
from fedrepro.networks.torch_modules import OwnModule
from fedrepro.training.augmentation_and_noise import Crops, noise_of
from fedrepro.training.examples import Examples
from fedrepro.training.flat_models import Layout, descend
from fedrepro.training.loss_terms import TermInputs
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
    """Return how many of `models` models to train at once: 1 on a CPU, as memory allows on a GPU.

    Weights and activations may fill half of this process's share of the GPU's memory, whether or
    not it is free, so a resumed run gets the same number. Groups have nearly equal sizes.
    """
    import torch

    if device.type != "cuda":
        return 1
    each = 4 * (BUFFERS * Layout(procedure.shapes).size + SEEN_AT_ONCE * activations(procedure))
    _, memory = torch.cuda.mem_get_info(device)
    most = max(1, memory // slots() // 2 // each)
    return -(-models // -(-models // most))


def activations(procedure: Procedure) -> int:
    """Count the numbers that a model's activations take in a training step, to fit GPU memory."""
    outputs = windows = 0
    for layer, shape, _ in procedure.network.places:
        out = layer.output(shape)
        outputs += layer.held if isinstance(layer, OwnModule) else math.prod(out)
        if isinstance(layer, Convolution2d):
            windows += shape[0] * layer.kernel**2 * math.prod(out[1:])
    return procedure.rows * (outputs + windows) * (2 if procedure.losses else 1)


class AutogradTrainer:
    """A trainer of models by torch's automatic differentiation, in groups that train together.

    block: how many models train together, by default as many as fit in memory.
    """

    def __init__(
        self,
        procedure: Procedure,
        examples: Examples,
        tasks: Sequence[Task],
        keep_gradients: bool,
        block: int | None,
    ) -> None:
        self.procedure, self.examples, self.keep = procedure, examples, keep_gradients
        self.inner, self.outer = Layout(procedure.network.shapes), Layout(procedure.private)
        self.size = self.inner.size + self.outer.size
        self.block = block or block_size(procedure, examples.inputs.device, len(tasks))
        crop = procedure.settings.augment != "none"
        self.crops = Crops(procedure.network) if crop else None

    def parts(
        self, tasks: Sequence[Task], given: InitialTensors, memory: Mapping[str, np.ndarray] | None
    ) -> Iterator[TrainedModels]:
        """Train a model for each of `tasks`, from the tensors `given`; yield results by group.

        `memory` has all models' optimiser state, and is updated in place; by default it starts at
        zero.
        """
        settings = self.procedure.settings
        steps = [task.total(settings.batch_size, settings.epochs) for task in tasks]
        pieces = [self.procedure.pieces(task) for task in tasks]
        order = np.lexsort((np.negative(pieces), np.negative(steps)))
        # the fused kernel of an optimiser knows one number of steps
        alike = memory is None or len(set(memory["steps"].tolist())) == 1
        length = self.block if alike else 1
        for at in range(0, len(order), length):
            yield _Block(self, tasks, order[at : at + length], given, memory).trained()


class _Block:
    """A group of models that train together: their weights, optimiser moments, random numbers.

    The tensor `flat` (models, size) has a model per row: the network's weights, then tensors that
    loss terms train.
    """

    def __init__(
        self,
        trainer: AutogradTrainer,
        tasks: Sequence[Task],
        chosen: np.ndarray,
        given: InitialTensors,
        memory: Mapping[str, np.ndarray] | None,
    ) -> None:
        import torch

        self.trainer, self.procedure, self.examples = trainer, trainer.procedure, trainer.examples
        self.chosen, self.tasks, self.memory = chosen, [tasks[i] for i in chosen], memory
        self.device, self.dtype = self.examples.inputs.device, self.examples.dtype
        settings, network = self.procedure.settings, self.procedure.network
        self.flat = torch.zeros(len(chosen), trainer.size, dtype=self.dtype, device=self.device)
        inner = self.network_part(self.flat)
        inner.copy_(self._packed(given.start))
        if given.private:
            private = {name: value[chosen] for name, value in given.private.items()}
            self.flat[:, trainer.inner.size :] = torch.from_numpy(trainer.outer.pack(private))
        self.start = self.flat.clone()  # what terms compare the weights with
        if given.reference is not None:
            self.network_part(self.start).copy_(self._packed(given.reference))
        self.summed = torch.zeros_like(self.flat) if trainer.keep else None
        self.rates = [settings.lr if task.lr is None else task.lr for task in self.tasks]
        self.shares = torch.tensor(
            self.procedure.shares(self.tasks), dtype=self.dtype, device=self.device
        )
        self.moments = {
            name: torch.zeros_like(self.flat)
            if memory is None
            else torch.from_numpy(memory[name][chosen]).to(self.device)
            for name in settings.remembered
        }
        taken = 0 if memory is None else int(memory["steps"][chosen[0]])
        self.moments["steps"] = torch.full((), float(taken), device=self.device)
        noise = noise_of(self.tasks, settings.batch_size, self.device)
        self.noise = noise if network.draws else None
        # a variational network has the same weights in all pieces of a step
        self.fresh_pieces = not any(isinstance(layer, Variational) for layer in network.layers)
        weights = trainer.inner.views(inner)
        self.buffers = [weights[name] for name in network.buffers]

    def _packed(self, tensors: Mapping[str, np.ndarray]) -> torch.Tensor:
        import torch

        shared = len(next(iter(tensors.values()))) == 1
        own = tensors if shared else {name: value[self.chosen] for name, value in tensors.items()}
        return torch.from_numpy(self.trainer.inner.pack(own))

    def network_part(self, flat: torch.Tensor) -> torch.Tensor:
        return flat[:, : self.trainer.inner.size]

    def trained(self) -> TrainedModels:
        """Train this group of models to the end; return their weights, losses and step counts."""
        import torch

        losses, taken = self._all_steps()
        if self.memory is not None:
            for name in self.procedure.settings.remembered:
                self.memory[name][self.chosen] = self.moments[name].cpu().numpy()
        trainer, summed = self.trainer, self.summed
        weights = trainer.inner.views(self.network_part(self.flat))
        private = trainer.outer.views(self.flat[:, trainer.inner.size :])
        gradients = None if summed is None else trainer.inner.views(self.network_part(summed))
        return TrainedModels(
            self.chosen,
            losses,
            taken,
            torch.isfinite(self.flat).all(1).cpu().numpy(),
            LazyGpuTensors(weights) if self.device.type != "cpu" else _arrays(weights),
            _arrays(private),
            None if gradients is None else _arrays(gradients),
        )

    def _all_steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Run all steps of the group of models; return losses (steps, models), steps (models,).

        A loss is zero at steps after the end of its model's training.
        """
        stopping = EarlyStopping(self.tasks, self.procedure.settings)
        kept = [self.flat] if self.summed is None else [self.flat, self.summed]
        each, lost = [], np.zeros(len(self.tasks), bool)
        for chunk in self.procedure.plan(self.tasks):
            losses = self._steps(chunk, stopping, kept)
            each.append(losses)
            lost |= ~np.isfinite(losses).all(0) & stopping.running
            if (lost | ~stopping.running).all():
                break
        stopping.put_back(kept)
        whole = np.concatenate(each)
        whole[np.arange(len(whole))[:, None] >= stopping.taken] = 0
        return whole, stopping.taken

    def _steps(
        self, chunk: Chunk, stopping: EarlyStopping, kept: Sequence[torch.Tensor]
    ) -> np.ndarray:
        """Run the training steps of a chunk of minibatches; return the losses (steps, models).

        Examples have weights that sum to one over a minibatch, or, in a full-batch step computed in
        parts, over all of a client's examples; padding has weight 0. Ends early if all models have
        stopped. `kept` are tensors (models, …) that are saved for a model when `stopping` stops it.
        """
        import torch

        network, crops = self.procedure.network, self.trainer.crops
        index = torch.from_numpy(chunk.index).to(self.device)
        size = torch.from_numpy(chunk.size).to(self.device).unsqueeze(-1)
        counts = torch.arange(index.shape[-1], device=self.device) < size
        whole = chunk.whole is not None
        if chunk.whole is not None:
            size = torch.from_numpy(chunk.whole).to(self.device).unsqueeze(-1)
        weights = counts.to(self.dtype) / size.clamp_min(1)
        moves = None if crops is None else crops.drawn(chunk, self.tasks).to(self.device)
        losses = weights.new_zeros(1 if whole else len(index), len(self.tasks))
        right = torch.zeros(len(self.tasks), dtype=torch.int64, device=self.device)
        total = torch.zeros_like(self.flat) if whole else self.flat
        for piece, active in enumerate(chunk.active):
            step, count = 0 if whole else piece, min(active, stopping.last)
            if not count:
                return losses[:step].cpu().numpy()
            weight = weights[piece, :count]
            x, y = self.examples.gathered(index[piece, :count])
            if crops is not None and moves is not None:
                x = crops.moved(x, moves[piece, :count])
            y = network.asked(x, y)
            drawn = piece if whole and self.fresh_pieces else 0
            loss, logits, gradient = self._gradient(chunk.first + step, drawn, x, y, weight)
            losses[step, :count] += loss
            if stopping.patience:
                right[:count] += right_predictions(logits, y, network.weighed(weight))
            if whole:
                total[:count] += gradient
                if piece + 1 < len(chunk.active):
                    continue
                gradient = total[: min(chunk.active[0], stopping.last)]
            else:
                gradient = self._perturbed(gradient, chunk.first + step, x, y, weight)
            self._descend(gradient)
            if stopping.patience:
                stopping.see(chunk.first + step + 1, right.cpu().numpy(), kept)
                right.zero_()
        return losses.cpu().numpy()

    def _gradient(
        self, step: int, piece: int, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Compute loss, logits and gradient of A models on inputs x (A, B, D) with targets y.

        `weight` (A, B) weighs the examples; `step` and `piece` (part of a full-batch step) select
        random numbers. Returns cross-entropies (A,), not finite where an added loss term is not;
        logits; and gradients (A, size) of the whole loss. Also updates running statistics.
        """
        import torch

        trainer, network, terms = self.trainer, self.procedure.network, self.procedure.losses
        count, inner = len(x), trainer.inner.size
        leaf = self.flat[:count].detach().requires_grad_()
        tensors = trainer.inner.views(leaf[:, :inner])
        gpu = self.device.type == "cuda"
        run = Pass("unfolded" if gpu else "grouped", self.noise, keep=bool(terms))
        if self.noise is not None:
            self.noise.at(step, count, piece)
            if network.buffers:  # rows that fill up would be counted as others
                run.rows = (weight > 0).sum(-1).tolist()
        logits, weight = network.forward(tensors, x, run), network.weighed(weight)
        losses = total = cross_entropy(logits, y, weight)
        if terms:
            tensors |= trainer.outer.views(leaf[:, inner:])
            start = trainer.inner.views(self.start[:count, :inner])
            start |= trainer.outer.views(self.start[:count, inner:])
            look = TermInputs(network, tensors, start, x, weight, run, self.shares[:count])
            for term in terms:
                total = total + term.loss(look)
        (gradient,) = torch.autograd.grad(total.sum(), leaf)
        return (losses + (total - total)).detach(), logits.detach(), gradient

    def _perturbed(
        self, gradient: torch.Tensor, step: int, x: torch.Tensor, y: torch.Tensor,
        weight: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Return a step's gradient (A, size), changed by perturbations such as that of SAM.

        Each computes a second gradient at moved weights, and returns a weighted mean of both.
        Weights and running statistics are then restored.
        """
        count, inner = len(x), self.trainer.inner.size
        for term in self.procedure.perturbations:
            flat, kept = self.flat[:count], [value[:count].clone() for value in self.buffers]
            weights = flat.clone()
            away = term.away(gradient[:, :inner], flat[:, :inner], self.start[:count, :inner])
            flat[:, :inner] += away
            _, _, there = self._gradient(step, 0, x, y, weight)  # draws as before
            flat.copy_(weights)
            gradient = there.mul_(term.share).add_(gradient, alpha=1 - term.share)
            self._put_back(kept)
        return gradient

    def _descend(self, gradient: torch.Tensor) -> None:
        """Update the first A models by a step along loss gradients (A, size), penalties added."""
        count = len(gradient)
        flat, kept = self.flat[:count], [buffer[:count].clone() for buffer in self.buffers]
        if self.summed is not None:
            self.summed[:count] += gradient
        for pull in self.procedure.weight_penalties:
            parts = (self.network_part(part) for part in (gradient, flat, self.start[:count]))
            pull.add(*parts)
        descend(flat, gradient, self.moments, self.procedure.settings, self.rates)
        self._put_back(kept)

    def _put_back(self, kept: Sequence[torch.Tensor]) -> None:
        for buffer, value in zip(self.buffers, kept, strict=True):
            buffer[: len(value)] = value


def _arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: value.cpu().numpy() for name, value in tensors.items()}


def cross_entropy(logits: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return each model's sum of its examples' cross-entropies, weighted by `weight` (A, B): (A,).

    `logits` are (A, B, K), `y` labels (A, B) or class probabilities (A, B, K).
    """
    from torch.nn import functional

    each = functional.cross_entropy(
        logits.flatten(0, 1), y.flatten() if y.dim() == 2 else y.flatten(0, 1), reduction="none"
    )
    return (each.view(weight.shape) * weight).sum(1)


def right_predictions(logits: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Count the correctly classified examples: int64 (…) for `logits` (…, B, K) of B examples.

    `y` has labels (…, B), or class probabilities (…, B, K) whose largest counts as the label.
    Examples of zero `weight` (…, B) are not counted.
    """
    labels = y if y.dim() < logits.dim() else y.argmax(-1)
    count: torch.Tensor = ((logits.argmax(-1) == labels) & (weight > 0)).sum(-1)
    return count
