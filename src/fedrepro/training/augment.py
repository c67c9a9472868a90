"""Random crops and mirror images of training examples, drawn for every epoch.

An example's move follows from its client's place (seed, trial, client, round, epoch) and its row in
the data set, so it does not depend on its minibatch or block.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.networks.layers import Shape
from fedrepro.networks.network import Network
from fedrepro.training.minibatches import Chunk, Task

if TYPE_CHECKING:
    import torch

PURPOSE = "augmentation"
MARGIN = 4  # pixels of zeros around an image, within which a crop of its size is taken
SHIFTS = 2 * MARGIN + 1
KINDS = 2 * SHIFTS**2
WORD = 2**64 - 1


def kinds(key: int, rows: np.ndarray) -> np.ndarray:
    """Draw the move of each of these rows: int64 below KINDS, (flip, down, right) in one.

    A row's number is mixed with the key of the client's epoch by the finaliser of SplitMix64
    (Steele, Lea and Flood, 2014), twice, for the two halves of the key.
    """
    numbers = rows.astype(np.uint64)
    for half in (key & WORD, key >> 64):
        numbers = _mixed(numbers + np.uint64(half))
    return (numbers % np.uint64(KINDS)).astype(np.int64)


def _mixed(bits: np.ndarray) -> np.ndarray:
    bits = bits * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = bits ^ (bits >> np.uint64(31))
    return mixed


def require_images(network: Network) -> None:
    """Raise FedreproError if the network does not take images."""
    if len(network.shape) != 3:
        raise FedreproError(
            f"augment~crop_flip moves images, but this {network.kind} network takes inputs of "
            f"shape {network.shape}; choose a convolutional model, or augment~none"
        )


class Crops:
    """Crops and mirror images for a block of models.

    Raises FedreproError if the network does not take images.
    """

    def __init__(self, network: Network) -> None:
        require_images(network)
        self.shape: Shape = network.shape
        self.tasks: Sequence[Task] = ()
        self._placed: torch.Tensor | None = None

    def begin(self, tasks: Sequence[Task]) -> None:
        """Let these models take the places of others."""
        self.tasks = tasks

    def drawn(self, chunk: Chunk) -> torch.Tensor:
        """Draw the move of each example of a chunk: int64 (steps, models, batch)."""
        import torch

        moves = np.zeros_like(chunk.index)
        for i, task in enumerate(self.tasks):
            epochs = chunk.epoch[:, i]
            for epoch in np.unique(epochs[chunk.size[:, i] > 0]):
                key = task.rng.at(epoch=int(epoch)).key(PURPOSE)
                steps = epochs == epoch
                moves[steps, i] = kinds(key, chunk.index[steps, i])
        return torch.from_numpy(moves)

    def moved(self, x: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        """Move images x (A, B, D) by their kinds (A, B); pixels from outside are zero."""
        from torch.nn.functional import pad

        channels = self.shape[0]
        pixels = pad(x.reshape(-1, channels, x.shape[-1] // channels), (0, 1))
        source = self._sources_at(x.device)[kind.reshape(-1)]
        taken = pixels.gather(2, source.unsqueeze(1).expand(-1, channels, -1))
        return taken.view(x.shape)

    def _sources_at(self, device: torch.device) -> torch.Tensor:
        if self._placed is None or self._placed.device != device:
            self._placed = self._sources.to(device)
        return self._placed

    @cached_property
    def _sources(self) -> torch.Tensor:
        """Look up where each pixel comes from: int64 (KINDS, H · W); H · W stands for outside."""
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
