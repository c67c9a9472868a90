"""One flat buffer per model, each tensor padded to 16 floats.

Optimisers then take one step over all models at once, and the rounding of a model does not
depend on where in the buffer it lies: every tensor starts at a multiple of the widest vector.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

PAD = 16


def first(value: torch.Tensor, count: int) -> torch.Tensor:
    """Take the first models of a tensor (models, …): itself if these are all, which is faster."""
    return value if value.size(0) == count else value[:count]


@dataclass(frozen=True)
class Layout:
    """Names, shapes and offsets of a model's tensors in its flat buffer."""

    shapes: Mapping[str, tuple[int, ...]]

    @property
    def offsets(self) -> dict[str, int]:
        offsets, at = {}, 0
        for name, shape in self.shapes.items():
            offsets[name] = at
            at += -(-math.prod(shape) // PAD) * PAD
        return offsets

    @property
    def size(self) -> int:
        """Floats per model, padding included."""
        return sum(-(-math.prod(shape) // PAD) * PAD for shape in self.shapes.values())

    @property
    def numbers(self) -> int:
        """Floats per model without padding: what a client sends."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """View the tensors of a buffer (models, size), each (models, *shape), in its memory."""
        tensors = {}
        for (name, shape), at in zip(self.shapes.items(), self.offsets.values(), strict=True):
            part = flat[:, at : at + math.prod(shape)]
            tensors[name] = part.view(len(flat), *shape)
        return tensors

    def pack(self, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
        """Pack tensors (models, *shape) into a flat array (models, size) of the same dtype."""
        first = next(iter(tensors.values()))
        flat = np.zeros((len(first), self.size), first.dtype)
        for (name, shape), at in zip(self.shapes.items(), self.offsets.values(), strict=True):
            part = flat[:, at : at + math.prod(shape)]
            part[...] = tensors[name].reshape(len(first), -1)
        return flat

    def unpack(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Unpack what `pack` packed: tensors (models, *shape), copied."""
        tensors = {}
        for (name, shape), at in zip(self.shapes.items(), self.offsets.values(), strict=True):
            part = flat[:, at : at + math.prod(shape)]
            tensors[name] = part.reshape(len(flat), *shape).copy()
        return tensors
