"""Training by automatic differentiation: users' torch modules, terms without compiled code, GPUs.

On the CPU one model trains after another, on a GPU blocks of as many as its memory holds, ordered
by number of steps. Imports torch: the engine imports this module when it needs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch.nn import functional

from fedrepro.core.diagnostics.machine_facts import slots
from fedrepro.networks.layers import MARGIN, Convolution2d, Pass, Variational
from fedrepro.networks.network import Network
from fedrepro.networks.torch_modules import OwnModule
from fedrepro.training.examples import Arrays, Examples
from fedrepro.training.loss_terms import TermInputs
from fedrepro.training.minibatches import (
    CROPS,
    KINDS,
    NOISE,
    Chunk,
    Task,
    halves,
    kinds,
    normal_pairs,
    require_images,
    schedule,
    whole_steps,
)
from fedrepro.training.optimiser_steps import Layout, optimiser_step
from fedrepro.training.training_settings import (
    EarlyStopping,
    InitialTensors,
    LazyGpuTensors,
    Procedure,
    TrainedModels,
)

BUFFERS = 5  # weights, gradients and three optimiser states
# activations wait for the backward pass with their gradients, and kernels need room of their own
SEEN_AT_ONCE = 3


def block_size(procedure: Procedure, device: torch.device, models: int) -> int:
    """Return how many models to train at once: 1 on a CPU, on a GPU as many as its memory holds.

    Groups are nearly equal. They may fill half of this process's share of all GPU memory, not only
    of what is free, so that a resumed run forms equal groups.
    """
    if device.type != "cuda":
        return 1
    size = Layout({**procedure.network.shapes, **procedure.private}).size
    each = 4 * (BUFFERS * size + SEEN_AT_ONCE * activations(procedure))
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
    """Trains groups of models by torch's automatic differentiation; a model is a row of `flat`."""

    def __init__(
        self, procedure: Procedure, examples: Examples, tasks: Sequence[Task], keep_gradients: bool
    ) -> None:
        self.procedure, self.examples, self.keep = procedure, examples, keep_gradients
        self.network, self.settings = procedure.network, procedure.settings
        self.device, self.dtype = examples.inputs.device, examples.dtype
        self.inner, self.outer = Layout(self.network.shapes), Layout(procedure.private)
        self.size = self.inner.size + self.outer.size
        self.block = block_size(procedure, self.device, len(tasks))
        self.crops = Crops(self.network) if self.settings.augment != "none" else None
        # a variational network has the same weights in all pieces of a step
        self.fresh = not any(isinstance(layer, Variational) for layer in self.network.layers)

    def parts(
        self, tasks: Sequence[Task], given: InitialTensors, memory: Arrays | None
    ) -> Iterator[TrainedModels]:
        """Train models from `given` tensors in groups; yield their results; update `memory`."""
        steps = [task.total(self.settings.batch_size, self.settings.epochs) for task in tasks]
        whole = self.settings.batch_size is None
        pieces = [-(-len(task.rows) // self.procedure.rows) if whole else 1 for task in tasks]
        order = np.lexsort((np.negative(pieces), np.negative(steps)))
        # the fused kernel of an optimiser knows one number of steps
        alike = memory is None or len(set(memory["steps"].tolist())) == 1
        length = self.block if alike else 1
        for at in range(0, len(order), length):
            chosen = order[at : at + length]
            self._begin([tasks[i] for i in chosen], chosen, given, memory)
            losses, taken = self._all_steps()
            if memory is not None:
                for name in self.settings.remembered:
                    memory[name][chosen] = self.moments[name].cpu().numpy()
            weights, private = self._views(self.flat)
            yield TrainedModels(
                chosen,
                losses,
                taken,
                torch.isfinite(self.flat).all(1).cpu().numpy(),
                LazyGpuTensors(weights) if self.device.type != "cpu" else _arrays(weights),
                _arrays(private),
                _arrays(self._views(self.summed)[0]) if self.keep else None,
            )

    def _begin(
        self, tasks: list[Task], chosen: np.ndarray, given: InitialTensors, memory: Arrays | None
    ) -> None:
        """Set up models `chosen`: weights `given`, optimiser state `memory`, random numbers."""

        def packed(layout: Layout, tensors: Arrays) -> torch.Tensor:
            own = {k: v if len(v) == 1 else v[chosen] for k, v in tensors.items()}
            return torch.from_numpy(layout.pack(own))

        self.tasks, settings, inner = tasks, self.settings, self.inner.size
        self.flat = torch.zeros(len(chosen), self.size, dtype=self.dtype, device=self.device)
        self.flat[:, :inner] = packed(self.inner, given.start)
        if given.private:
            self.flat[:, inner:] = packed(self.outer, given.private)
        self.start = self.flat.clone()  # what terms compare the weights with
        if given.reference is not None:
            self.start[:, :inner] = packed(self.inner, given.reference)
        self.summed = torch.zeros_like(self.flat if self.keep else self.flat[:0])
        self.rates = [settings.lr if task.lr is None else task.lr for task in tasks]
        shares = self.procedure.shares(tasks)
        self.shares = torch.tensor(shares, dtype=self.dtype, device=self.device)
        self.moments = {
            name: torch.zeros_like(self.flat)
            if memory is None
            else torch.from_numpy(memory[name][chosen]).to(self.device)
            for name in settings.remembered
        }
        taken = 0 if memory is None else int(memory["steps"][chosen[0]])
        self.moments["steps"] = torch.full((), float(taken), device=self.device)
        drawn = self.network.draws
        self.noise = noise_of(tasks, settings.batch_size, self.device) if drawn else None
        weights, _ = self._views(self.flat)
        self.buffers = [weights[name] for name in self.network.buffers]

    def _views(self, flat: torch.Tensor) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        inner = self.inner.size
        return self.inner.views(flat[:, :inner]), self.outer.views(flat[:, inner:])

    def _all_steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Train the group; return losses (steps, models), 0 after a model's end, and its steps."""
        stopping = EarlyStopping(self.tasks, self.settings)
        kept = [self.flat, self.summed] if self.keep else [self.flat]
        each, lost = [], np.zeros(len(self.tasks), bool)
        rows = self.procedure.rows  # of a minibatch, or of a part of a full batch
        steps_of = whole_steps if self.settings.batch_size is None else schedule
        for chunk in steps_of(self.tasks, rows, self.settings.epochs):
            losses = self._steps(chunk, stopping, kept)
            each.append(losses)
            lost |= ~np.isfinite(losses).all(0) & stopping.running
            if (lost | ~stopping.running).all():
                break
        stopping.put_back(kept)
        losses = np.concatenate(each)
        losses[np.arange(len(losses))[:, None] >= stopping.taken] = 0
        return losses, stopping.taken

    def _steps(
        self, chunk: Chunk, stopping: EarlyStopping, kept: Sequence[torch.Tensor]
    ) -> np.ndarray:
        """Run the training steps of a chunk of minibatches; return the losses (steps, models).

        Examples have weights that sum to one over a minibatch or, in a full-batch step in parts,
        over a client's examples; padding has weight 0. `kept` (models, …) is saved when `stopping`
        stops a model.
        """
        index, size = (torch.from_numpy(v).to(self.device) for v in (chunk.index, chunk.size))
        whole, size = chunk.whole is not None, size.unsqueeze(-1)
        counts = torch.arange(index.shape[-1], device=self.device) < size
        if chunk.whole is not None:
            size = torch.from_numpy(chunk.whole).to(self.device).unsqueeze(-1)
        weights = counts.to(self.dtype) / size.clamp_min(1)
        moves = None if self.crops is None else self.crops.drawn(chunk, self.tasks).to(self.device)
        losses = weights.new_zeros(1 if whole else len(index), len(self.tasks))
        right = torch.zeros(len(self.tasks), dtype=torch.int64, device=self.device)
        total = torch.zeros_like(self.flat) if whole else self.flat
        for piece, active in enumerate(chunk.active):
            step, count = 0 if whole else piece, min(active, stopping.last)
            if not count:
                return losses[:step].cpu().numpy()
            weight = weights[piece, :count]
            x, y = self.examples.gathered(index[piece, :count])
            if self.crops is not None and moves is not None:
                x = self.crops.moved(x, moves[piece, :count])
            y = self.network.asked(x, y)
            drawn = piece if whole and self.fresh else 0
            loss, logits, gradient = self._gradient(chunk.first + step, drawn, x, y, weight)
            losses[step, :count] += loss
            if stopping.patience:
                right[:count] += right_predictions(logits, y, self.network.weighed(weight))
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
        """Compute losses, logits, gradients of A models on x (A, B, D); update running statistics.

        `weight` (A, B) weighs the examples; `step` and `piece` (of a full-batch step) select random
        numbers. Losses are cross-entropies (A,), not finite where an added loss term is not;
        gradients are of all.
        """
        network, terms, count = self.network, self.procedure.losses, len(x)
        leaf = self.flat[:count].detach().requires_grad_()
        tensors, private = self._views(leaf)
        gpu = self.device.type == "cuda"
        run = Pass("unfolded" if gpu else "grouped", self.noise, keep=bool(terms))
        if self.noise is not None:
            self.noise.at(step, count, piece)
            if network.buffers:  # rows that fill up would be counted as others
                run.rows = (weight > 0).sum(-1).tolist()
        logits, weight = network.forward(tensors, x, run), network.weighed(weight)
        losses = total = cross_entropy(logits, y, weight)
        if terms:
            start, begun = self._views(self.start[:count])
            tensors, start, share = tensors | private, start | begun, self.shares[:count]
            look = TermInputs(network, tensors, start, x, weight, run, share)
            for term in terms:
                total = total + term.loss(look)
        (gradient,) = torch.autograd.grad(total.sum(), leaf)
        return (losses + (total - total)).detach(), logits.detach(), gradient

    def _perturbed(
        self, gradient: torch.Tensor, step: int, x: torch.Tensor, y: torch.Tensor,
        weight: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Return a step's gradient (A, size), mixed with one at moved weights, as by SAM."""
        count, inner = len(x), self.inner.size
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
        """Update the first A models by loss gradients (A, size); add penalties to these."""
        count, inner = len(gradient), self.inner.size
        flat, kept = self.flat[:count], [buffer[:count].clone() for buffer in self.buffers]
        if self.keep:
            self.summed[:count] += gradient
        start, slope = self.start[:count, :inner], gradient[:, :inner]
        for term in self.procedure.weight_penalties:
            if term.pull:
                slope.add_(flat[:, :inner], alpha=term.pull).sub_(start, alpha=term.pull)
            if term.shift:
                slope.add_(start, alpha=term.shift)
        optimiser_step(flat, gradient, self.moments, self.settings, self.rates)
        self._put_back(kept)

    def _put_back(self, kept: Sequence[torch.Tensor]) -> None:
        for buffer, value in zip(self.buffers, kept, strict=True):
            buffer[: len(value)] = value


def _arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: value.cpu().numpy() for name, value in tensors.items()}


def cross_entropy(logits: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Sum cross-entropies times `weight` (A models, B examples); `y`: labels or probabilities."""
    each = functional.cross_entropy(logits.flatten(0, 1), y.flatten(0, 1), reduction="none")
    return (each.view(weight.shape) * weight).sum(1)


def right_predictions(logits: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Count the right predictions, int64 (…), of `logits` (…, B, K) whose `weight` is not zero."""
    labels = y if y.dim() < logits.dim() else y.argmax(-1)
    count: torch.Tensor = ((logits.argmax(-1) == labels) & (weight > 0)).sum(-1)
    return count


class Crops:
    """Data augmentation of training images of several models: random crops, mirror images."""

    def __init__(self, network: Network) -> None:
        require_images(network)
        self.channels, height, width = network.shape
        places = np.arange(height * width).reshape(height, width)
        around = np.pad(places, MARGIN, constant_values=height * width)
        crops = np.lib.stride_tricks.sliding_window_view(around, (height, width))
        # each output pixel's source pixel, for each flip and shift
        sources = np.stack([crops, crops[..., ::-1]]).reshape(KINDS, -1)
        self.sources = torch.from_numpy(sources)

    def drawn(self, chunk: Chunk, tasks: Sequence[Task]) -> torch.Tensor:
        """Draw a code of flip and shift for each image of `chunk`: int64 (steps, models, batch)."""
        moves = np.zeros_like(chunk.index)
        for i, task in enumerate(tasks):
            epochs = chunk.epoch[:, i]
            for epoch in np.unique(epochs[chunk.size[:, i] > 0]):
                key, steps = task.rng.at(epoch=int(epoch)).key(CROPS), epochs == epoch
                moves[steps, i] = kinds(halves(key), chunk.index[steps, i])
        return torch.from_numpy(moves)

    def moved(self, x: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        """Flip and shift images `x` (A, B, D) of A models by codes (A, B), with zeros around."""
        pixels = functional.pad(x.reshape(-1, self.channels, x.shape[-1] // self.channels), (0, 1))
        self.sources = self.sources.to(x.device)
        source = self.sources[kind.reshape(-1)]
        taken = pixels.gather(2, source.unsqueeze(1).expand(-1, self.channels, -1))
        return taken.view(x.shape)


# normal numbers at a time, words included they stay in the cache; whole 64-bit words, so that a
# part of them is the same as the whole
CHUNK = 2**15
STRIDE = 0x9E3779B97F4A7C15  # of Weyl sequences: consecutive steps get seeds far apart
SEEDS = 2**64  # of a GPU's generator, which is counter-based too


def noise_of(
    tasks: Sequence[Task], batch_size: int | None, device: torch.device
) -> ModelNoise | BlockNoise:
    """Return random generators: one for each model on a CPU, one for all on a GPU."""
    return (ModelNoise if device.type == "cpu" else BlockNoise)(tasks, batch_size, device)


class ModelNoise:
    """Random numbers of training steps on the CPU, independent for each model and step."""

    def __init__(self, tasks: Sequence[Task], batch_size: int | None, device: torch.device) -> None:
        self.tasks, self.batch_size = tasks, batch_size
        self.streams: list[np.random.Philox] = []

    def at(self, step: int, models: int, piece: int = 0) -> None:
        """Set the generators of the first `models` to training step `step`.

        `piece` is the number of the part, of a full-batch step that is computed in parts.
        """
        self.streams.clear()
        for task in self.tasks[:models]:
            epoch, inside = divmod(task.done + step, task.per_epoch(self.batch_size))
            # the lowest of the counter's words counts within a step, the others steps and pieces
            key, counter = task.rng.at(epoch=epoch).key(NOISE), [0, inside, piece, 0]
            self.streams.append(np.random.Philox(key=key, counter=counter))

    def take(self, model: int, count: int) -> np.ndarray:
        """Draw a model's next `count` random integers of the current step: uint32 (count,)."""
        return self.streams[model].random_raw(-(-count // 2)).view(np.uint32)[:count]

    def kept(self, like: torch.Tensor, share: float) -> torch.Tensor:
        drawn, below = _contiguous(like), round(share * 2**32)
        for model, part in enumerate(drawn.numpy()):
            part.reshape(-1)[...] = self.take(model, part.size) < below
        return drawn

    def normal(self, like: torch.Tensor) -> torch.Tensor:
        drawn = _contiguous(like)
        for model, part in enumerate(drawn.numpy()):
            for at in range(0, part.size, CHUNK):
                self.write(model, part.reshape(-1)[at : at + CHUNK])
        return drawn

    def seeds(self, models: int) -> list[int]:
        return [int(self.take(model, 2).view(np.uint64)[0]) for model in range(models)]

    def write(self, model: int, out: np.ndarray) -> None:
        """Fill `out` (n,) with a model's next standard normal numbers, from a table of pairs.

        Parts of an array, of lengths that are multiples of eight, get the numbers of one call.
        """
        pairs = -(-len(out) // 2)
        places = self.take(model, -(-pairs // 2)).view(np.uint16)[:pairs]
        table = normal_pairs(out.dtype)
        if len(out) % 2:
            out[...] = np.take(table, places).view(out.dtype)[: len(out)]
        else:  # checking each place would copy the result
            np.take(table, places, out=out.view(table.dtype), mode="wrap")


class BlockNoise:
    """Random numbers of training steps on a GPU, from one generator for all models together.

    A generator, and with it a kernel, for each model would take longer.
    """

    def __init__(self, tasks: Sequence[Task], batch_size: int | None, device: torch.device) -> None:
        self.task, self.batch_size = tasks[0], batch_size
        self.generator = torch.Generator(device)

    def at(self, step: int, models: int, piece: int = 0) -> None:
        """Set the generator to step `step`, or `piece` of one done in parts; ignore `models`."""
        epoch, inside = divmod(self.task.done + step, self.task.per_epoch(self.batch_size))
        key = self.task.rng.at(epoch=epoch).key(NOISE)
        # a step in pieces is the only one of its epoch
        self.generator.manual_seed((key + (inside + piece) * STRIDE) % SEEDS)

    def kept(self, like: torch.Tensor, share: float) -> torch.Tensor:
        return _contiguous(like).bernoulli_(share, generator=self.generator)

    def normal(self, like: torch.Tensor) -> torch.Tensor:
        return _contiguous(like).normal_(generator=self.generator)

    def seeds(self, models: int) -> list[int]:
        device = self.generator.device
        drawn = torch.randint(2**62, (models,), generator=self.generator, device=device)
        return list(drawn.tolist())


def _contiguous(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(like, memory_format=torch.contiguous_format)
