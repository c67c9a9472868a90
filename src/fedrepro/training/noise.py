"""Random numbers inside training steps: dropout and variational weights.

On the CPU every model has a counter-based generator of its own, keyed by its place (seed, trial,
client, round, epoch) and set to the step, so its numbers do not depend on the block that it is
trained in, nor on which steps came before. On a GPU one generator serves the block, because a
kernel per model would cost more than the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedrepro.core.rng import Rng
from fedrepro.networks.layers import Noise
from fedrepro.training.minibatches import Task

if TYPE_CHECKING:
    import torch

PURPOSE = "step-noise"
WORDS, DIRECTIONS = 2**32, 2**16
CHUNK = 2**17  # normal numbers at a time; for larger buffers the system hands out fresh memory
# the increment of Weyl sequences: consecutive steps get seeds far apart
STRIDE = 0x9E3779B97F4A7C15
SEEDS = 2**64  # of a GPU's generator, which is counter-based too


class StepNoise(Noise, Protocol):
    """The numbers of a block of models."""

    def at(self, step: int, models: int, piece: int = 0) -> None:
        """Go to one step of the first models, or to a piece of one."""
        ...


def noise_of(tasks: Sequence[Task], batch_size: int | None, device: torch.device) -> StepNoise:
    """The random numbers of these models on this device."""
    kind = ModelNoise if device.type == "cpu" else BlockNoise
    return kind(tasks, batch_size, device)


class ModelNoise:
    """Numbers of each model from a generator of its own, on the CPU."""

    def __init__(self, tasks: Sequence[Task], batch_size: int | None, device: torch.device) -> None:
        self.streams = [Words(task.rng) for task in tasks]
        self.per_epoch = [task.per_epoch(batch_size) for task in tasks]

    def at(self, step: int, models: int, piece: int = 0) -> None:
        """See `StepNoise`."""
        for stream, per_epoch in zip(self.streams[:models], self.per_epoch, strict=False):
            stream.at(*divmod(step, per_epoch), piece)

    def kept(self, like: torch.Tensor, share: float) -> torch.Tensor:
        """Ones with probability `share`, else zeros, shaped as `like` (A, …)."""
        drawn, below = _contiguous(like), round(share * WORDS)
        for part, stream in zip(drawn.numpy(), self.streams, strict=False):
            part.reshape(-1)[...] = stream.take(part.size) < below
        return drawn

    def normal(self, like: torch.Tensor) -> torch.Tensor:
        """Standard normal numbers, shaped as `like` (A, …)."""
        drawn = _contiguous(like)
        for part, stream in zip(drawn.numpy(), self.streams, strict=False):
            for at in range(0, part.size, CHUNK):
                normal(stream, part.reshape(-1)[at : at + CHUNK])
        return drawn


class Words:
    """Random 32-bit words of one model; any step can be gone to at once."""

    def __init__(self, rng: Rng) -> None:
        self.rng, self.epoch = rng, -1

    def at(self, epoch: int, inside: int, piece: int = 0) -> None:
        """Go to the beginning of a step of an epoch, or of a piece of it."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.philox = np.random.Philox(key=self.rng.at(epoch=epoch).key(PURPOSE))
            self.state = self.philox.state
        # the lowest of the counter's four words counts within a step, the others steps and pieces
        self.state["state"]["counter"][1:3] = inside, piece
        self.philox.state = self.state

    def take(self, count: int) -> np.ndarray:
        """The next words of the step: uint32 (count,)."""
        return self.philox.random_raw(-(-count // 2)).view(np.uint32)[:count]


def normal(stream: Words, out: np.ndarray) -> None:
    """Write standard normal numbers to `out`, (n,), by Box and Muller's transform.

    A pair takes 32 bits for its radius and 16 for its direction: all moments below order 2^16 are
    those of normal numbers. By NumPy's vectorised functions this takes a quarter of the time that
    its own normal numbers take, and about that of torch's, which have seeds of 32 bits.
    """
    half = -(-len(out) // 2)
    words = stream.take(half + -(-half // 2))
    radius = words[:half].astype(out.dtype)
    radius += 0.5  # zero has no logarithm
    radius *= 1 / WORDS
    np.log(radius, out=radius)
    radius *= -2
    np.sqrt(radius, out=radius)
    angle = words[half:].view(np.uint16)[:half].astype(out.dtype)
    angle *= 2 * math.pi / DIRECTIONS
    first, second = out[:half], out[half:]
    np.cos(angle, out=first)
    first *= radius
    np.sin(angle, out=angle)
    np.multiply(angle[: len(second)], radius[: len(second)], out=second)


class BlockNoise:
    """Numbers of all models of a block from one generator, on a GPU."""

    def __init__(self, tasks: Sequence[Task], batch_size: int | None, device: torch.device) -> None:
        import torch

        self.rng, self.per_epoch = tasks[0].rng, tasks[0].per_epoch(batch_size)
        self.generator = torch.Generator(device)
        self.epoch, self.key = -1, 0

    def at(self, step: int, models: int, piece: int = 0) -> None:
        """See `StepNoise`."""
        epoch, inside = divmod(step, self.per_epoch)
        if epoch != self.epoch:
            self.epoch, self.key = epoch, self.rng.at(epoch=epoch).key(PURPOSE)
        # a step in pieces is the only one of its epoch
        self.generator.manual_seed((self.key + (inside + piece) * STRIDE) % SEEDS)

    def kept(self, like: torch.Tensor, share: float) -> torch.Tensor:
        """Ones with probability `share`, else zeros, shaped as `like` (A, …)."""
        return _contiguous(like).bernoulli_(share, generator=self.generator)

    def normal(self, like: torch.Tensor) -> torch.Tensor:
        """Standard normal numbers, shaped as `like` (A, …)."""
        return _contiguous(like).normal_(generator=self.generator)


def _contiguous(like: torch.Tensor) -> torch.Tensor:
    """Room for numbers of this shape and type."""
    import torch

    return torch.empty_like(like, memory_format=torch.contiguous_format)
