"""Models as flat vectors, (models, size), and optimiser steps on them.

A vector ends in zeros up to a multiple of the widest registers, so that the rounding of a model
does not depend on its row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.training.training_examples import Arrays
from fedrepro.training.training_settings_and_procedures import Settings

if TYPE_CHECKING:
    import torch

PAD = 16


@dataclass(frozen=True)
class Layout:
    """The order in which a model's named tensors are packed into one vector of all its numbers."""

    shapes: Mapping[str, tuple[int, ...]]

    @property
    def sizes(self) -> list[int]:
        return [math.prod(shape) for shape in self.shapes.values()]

    @property
    def numbers(self) -> int:
        return sum(self.sizes)  # without zeros that fill up the vector

    @property
    def size(self) -> int:
        """Return the length of a model's vector, including the zeros that fill it up."""
        return -(-self.numbers // PAD) * PAD

    def views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """View models packed as rows (models, size) as tensors (models, *shape) by name."""
        import torch

        parts = torch.split(flat[:, : self.numbers], self.sizes, dim=1) if self.shapes else ()
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(len(flat), *shape) for (name, shape), part in named}

    def pack(self, tensors: Arrays) -> np.ndarray:
        """Pack named tensors (models, *shape) into rows, one model each: (models, size)."""
        parts = [tensors[name].reshape(len(tensors[name]), -1) for name in self.shapes]
        return np.pad(np.concatenate(parts, axis=1), ((0, 0), (0, self.size - self.numbers)))

    def unpack(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Copy tensors, (models, *shape) by name, out of models packed as rows (models, size)."""
        import torch

        views = self.views(torch.from_numpy(flat))
        return {name: view.numpy().copy() for name, view in views.items()}


def new_memory(flat: torch.Tensor, settings: Settings) -> dict[str, torch.Tensor]:
    """Return an optimiser's first state for models `flat` (A, size): moments 0, and `steps` 0."""
    import torch

    moments = {name: torch.zeros_like(flat) for name in settings.remembered}
    return {**moments, "steps": torch.zeros((), device=flat.device)}


def optimiser_step(
    flat: torch.Tensor,
    gradient: torch.Tensor,
    memory: MutableMapping[str, torch.Tensor],
    settings: Settings,
) -> None:
    """Update weights `flat` (A, size) of A models in place by one step of the optimiser.

    `gradient` (A, size) is the loss's; L2 is added, which SGD does in place. `memory`, made by
    `new_memory`, is the optimiser's state and is updated: its first A rows are these models', which
    have all taken equally many steps.
    """
    import torch

    memory["steps"] += 1
    if settings.optimiser == "adam":
        first, second, *largest = (memory[name][: len(flat)] for name in settings.remembered)
        how = {name: getattr(settings, name) for name in ("lr", "beta1", "beta2", "eps", "amsgrad")}
        how |= {"weight_decay": settings.l2, "maximize": False}
        torch._fused_adam_([flat], [gradient], [first], [second], largest, [memory["steps"]], **how)
        return
    if settings.l2:
        gradient.add_(flat, alpha=settings.l2)
    if settings.remembered:
        gradient = memory["velocity"][: len(flat)].mul_(settings.momentum).add_(gradient)
    flat.add_(gradient, alpha=-settings.lr)
