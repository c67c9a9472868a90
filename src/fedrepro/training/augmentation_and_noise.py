"""Randomness of training steps: crops and mirror images, dropout, and variational weights.

How an image is moved depends on its random key (seed, trial, client, round, epoch) and its row in
the data set, not on its minibatch. On the CPU every model has a counter-based generator of its own
for noise, set to the step, so its numbers depend neither on models that train along nor on earlier
steps. On a GPU one generator serves all models, because a kernel per model costs more than the
step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.networks.layers import MARGIN, SHIFTS, Shape
from fedrepro.networks.network import Network
from fedrepro.training.minibatches import Chunk, Task

if TYPE_CHECKING:
    import torch

CROPS = "augmentation"
KINDS = 2 * SHIFTS**2
WORD = 2**64 - 1


def kinds(key: int, rows: np.ndarray) -> np.ndarray:
    """Draw whether to mirror each image and how far to shift it: int64 codes (n,), below KINDS.

    `rows`, int64 (n,), are the images' row numbers in the data set; `key` is the 128-bit random key
    of one client's epoch. A code is a hash of both (finaliser of SplitMix64; Steele, Lea and Flood,
    2014), so it does not depend on the minibatch.
    """
    numbers = rows.astype(np.uint64)
    for half in (key & WORD, key >> 64):
        numbers = _mixed(numbers + np.uint64(half))
    return (numbers % np.uint64(KINDS)).astype(np.int64)


def _mixed(bits: np.ndarray) -> np.ndarray:
    bits = bits * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))


def require_images(network: Network) -> None:
    """Raise FedreproError if a network's inputs are not images, which crops and flips need."""
    if len(network.shape) != 3:
        raise FedreproError(
            f"augment~crop_flip moves images, but this {network.kind} network takes inputs of "
            f"shape {network.shape}; choose a convolutional model, or augment~none"
        )


class Crops:
    """Data augmentation of training images of several models: random crops, mirror images."""

    def __init__(self, network: Network) -> None:
        require_images(network)
        self.shape: Shape = network.shape
        self._placed: torch.Tensor | None = None

    def drawn(self, chunk: Chunk, tasks: Sequence[Task]) -> torch.Tensor:
        """Draw a code of flip and shift for each image of `chunk`: int64 (steps, models, batch)."""
        import torch

        moves = np.zeros_like(chunk.index)
        for i, task in enumerate(tasks):
            epochs = chunk.epoch[:, i]
            for epoch in np.unique(epochs[chunk.size[:, i] > 0]):
                key = task.rng.at(epoch=int(epoch)).key(CROPS)
                steps = epochs == epoch
                moves[steps, i] = kinds(key, chunk.index[steps, i])
        return torch.from_numpy(moves)

    def moved(self, x: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        """Flip and shift images `x` (A, B, D) of A models by codes (A, B), with zeros around."""
        from torch.nn.functional import pad

        channels = self.shape[0]
        pixels = pad(x.reshape(-1, channels, x.shape[-1] // channels), (0, 1))
        if self._placed is None or self._placed.device != x.device:
            self._placed = self._sources.to(x.device)
        source = self._placed[kind.reshape(-1)]
        taken = pixels.gather(2, source.unsqueeze(1).expand(-1, channels, -1))
        return taken.view(x.shape)

    @cached_property
    def _sources(self) -> torch.Tensor:
        """Return each output pixel's source pixel for each flip and shift: int64 (KINDS, H · W)."""
        import torch

        height, width = self.shape[1:]
        places = np.arange(height * width).reshape(height, width)
        around = np.pad(places, MARGIN, constant_values=height * width)
        sources = []
        for kind in range(KINDS):
            flip, shift = divmod(kind, SHIFTS**2)
            down, right = divmod(shift, SHIFTS)
            crop = around[down : down + height, right : right + width]
            sources.append((crop[:, ::-1] if flip else crop).reshape(-1))
        return torch.from_numpy(np.stack(sources))


NOISE = "step-noise"
WORDS, PAIRS = 2**32, 2**16
# normal numbers at a time, words included they stay in the cache; whole 64-bit words, so that a
# part of them is the same as the whole
CHUNK = 2**15
# turns by this angle spread the points of a spiral evenly over all directions
GOLDEN = math.pi * (3 - math.sqrt(5))
# the increment of Weyl sequences: consecutive steps get seeds far apart
STRIDE = 0x9E3779B97F4A7C15
SEEDS = 2**64  # of a GPU's generator, which is counter-based too


def noise_of(
    tasks: Sequence[Task], batch_size: int | None, device: torch.device
) -> ModelNoise | BlockNoise:
    """Return random generators for models that train together, by the keys of `tasks`.

    On a CPU each model has its own; on a GPU one serves all models.
    """
    if device.type == "cpu":
        return ModelNoise(tasks, batch_size, device)
    return BlockNoise(tasks, batch_size, device)


class ModelNoise:
    """Random numbers for training steps on the CPU, with one random generator per model."""

    def __init__(self, tasks: Sequence[Task], batch_size: int | None, device: torch.device) -> None:
        self.streams = [Words(task.rng) for task in tasks]
        self.places = [(task.done, task.per_epoch(batch_size)) for task in tasks]

    def at(self, step: int, models: int, piece: int = 0) -> None:
        """Move the generators of the first `models` models to the start of training step `step`.

        If a full-batch step is computed in parts, each `piece` has random numbers of its own.
        """
        for stream, (done, per_epoch) in zip(self.streams[:models], self.places, strict=False):
            stream.at(*divmod(done + step, per_epoch), piece)

    def kept(self, like: torch.Tensor, share: float) -> torch.Tensor:
        """Draw a dropout mask of the shape of `like` (A, …): 1 with probability `share`, else 0."""
        drawn, below = _contiguous(like), round(share * WORDS)
        for part, stream in zip(drawn.numpy(), self.streams, strict=False):
            part.reshape(-1)[...] = stream.take(part.size) < below
        return drawn

    def normal(self, like: torch.Tensor) -> torch.Tensor:
        """Draw standard normal numbers for A models, shaped as `like` (A, …)."""
        drawn = _contiguous(like)
        for model, part in enumerate(drawn.numpy()):
            for at in range(0, part.size, CHUNK):
                self.write(model, part.reshape(-1)[at : at + CHUNK])
        return drawn

    def seeds(self, models: int) -> list[int]:
        """Draw a 64-bit seed for each of the first `models` models, for users' own torch layers."""
        return [int(stream.take(2).view(np.uint64)[0]) for stream in self.streams[:models]]

    def write(self, model: int, out: np.ndarray) -> None:
        """Fill the array `out` (n,) with the next standard normal numbers of model number `model`.

        Parts of an array, of lengths that are multiples of eight, get the numbers of one call. Each
        16 random bits are an index into the table `normal_pairs`.
        """
        pairs = -(-len(out) // 2)
        places = self.streams[model].take(-(-pairs // 2)).view(np.uint16)[:pairs]
        table = normal_pairs(out.dtype)
        if len(out) % 2:
            out[...] = np.take(table, places).view(out.dtype)[: len(out)]
        else:
            # checking each place would copy the result
            np.take(table, places, out=out.view(table.dtype), mode="wrap")


class Words:
    """A generator of random 32-bit integers for one model, which can jump to any training step."""

    def __init__(self, rng: RngKey) -> None:
        self.rng, self.epoch = rng, -1

    def at(self, epoch: int, inside: int, piece: int = 0) -> None:
        """Move the generator to part `piece` of minibatch number `inside` of epoch `epoch`."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.philox = np.random.Philox(key=self.rng.at(epoch=epoch).key(NOISE))
            self.state = self.philox.state
        # the lowest of the counter's four words counts within a step, the others steps and pieces
        self.state["state"]["counter"][1:3] = inside, piece
        self.philox.state = self.state

    def take(self, count: int) -> np.ndarray:
        """Draw the next `count` random integers of the current training step: uint32 (count,)."""
        return self.philox.random_raw(-(-count // 2)).view(np.uint32)[:count]


@cache
def normal_pairs(dtype: np.dtype) -> np.ndarray:
    """Return a table of pairs of standard normal numbers, for fast random draws: complex (2¹⁶,).

    An entry drawn uniformly gives two uncorrelated numbers, its real and imaginary part. Entries
    lie on rings of equal probability, four points a quarter turn apart on each, so that odd moments
    and the covariance are zero; each ring is turned by the angle GOLDEN against the one before.
    Radii make variances one. Fourth and sixth moments are off by 1e-4; no point is beyond 4.7.
    """
    rings = PAIRS // 4
    ends = np.arange(1, rings + 1) / rings
    # functions of the C library, which NumPy replaces on some processors by others
    logs = np.array([math.log(end) for end in ends])
    below = np.concatenate([[0], ends - ends * logs])  # the integral of -log
    radius = np.sqrt(2 * rings * np.diff(below))
    angles = [GOLDEN * ring + math.pi / 8 for ring in range(rings)]
    ring = radius * [complex(math.cos(angle), math.sin(angle)) for angle in angles]
    points = np.outer([1, 1j, -1, -1j], ring).reshape(-1)
    return points.astype(np.result_type(dtype, np.complex64))


class BlockNoise:
    """Random numbers for training steps on a GPU, from one generator for all models."""

    def __init__(self, tasks: Sequence[Task], batch_size: int | None, device: torch.device) -> None:
        import torch

        self.rng, self.per_epoch = tasks[0].rng, tasks[0].per_epoch(batch_size)
        self.done = tasks[0].done
        self.generator = torch.Generator(device)
        self.epoch, self.key = -1, 0

    def at(self, step: int, models: int, piece: int = 0) -> None:
        """Set the generator to the beginning of part `piece` of training step `step`."""
        epoch, inside = divmod(self.done + step, self.per_epoch)
        if epoch != self.epoch:
            self.epoch, self.key = epoch, self.rng.at(epoch=epoch).key(NOISE)
        # a step in pieces is the only one of its epoch
        self.generator.manual_seed((self.key + (inside + piece) * STRIDE) % SEEDS)

    def kept(self, like: torch.Tensor, share: float) -> torch.Tensor:
        return _contiguous(like).bernoulli_(share, generator=self.generator)

    def normal(self, like: torch.Tensor) -> torch.Tensor:
        return _contiguous(like).normal_(generator=self.generator)

    def seeds(self, models: int) -> list[int]:
        import torch

        device = self.generator.device
        drawn = torch.randint(2**62, (models,), generator=self.generator, device=device)
        return list(drawn.tolist())


def _contiguous(like: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.empty_like(like, memory_format=torch.contiguous_format)
