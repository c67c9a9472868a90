"""Models as flat vectors, (models, size), and optimiser steps on them.

A vector ends in zeros up to a multiple of the widest registers, so that the rounding of a model
does not depend on its row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.training.examples import Arrays
from fedrepro.training.training_settings import Settings

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
        """Return how many numbers a model has, without zeros that fill up its vector."""
        return sum(self.sizes)

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
        parts = np.split(flat[:, : self.numbers], np.cumsum(self.sizes)[:-1], axis=1)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.reshape(len(flat), *shape).copy() for (name, shape), part in named}


def new_memory(flat: torch.Tensor, settings: Settings) -> dict[str, torch.Tensor]:
    """Return an optimiser's first state: moments of zeros, shaped as `flat`, and `steps` = 0."""
    import torch

    moments = {name: torch.zeros_like(flat) for name in settings.remembered}
    return {**moments, "steps": torch.zeros((), device=flat.device)}


def optimiser_step(
    flat: torch.Tensor,
    gradient: torch.Tensor,
    memory: MutableMapping[str, torch.Tensor],
    settings: Settings,
    rates: Sequence[float] = (),
) -> None:
    """Update weights in place by one step of Adam, AMSGrad or SGD; L2 is added to the gradient.

    Args:
        flat: weights (A, size) of A models.
        gradient: the loss's gradients, (A, size); SGD overwrites them.
        memory: the optimiser's state, first made by `new_memory`, of A or more models that have all
            taken equally many steps; updated in place.
        settings: the optimiser and its constants.
        rates: step size of each model, by default that of the settings.
    """
    import torch

    memory["steps"] += 1
    # the fused kernel knows one step size, and a model moves as it does without the others
    same = len(set(rates)) <= 1
    parts = [slice(len(flat))] if same else [slice(i, i + 1) for i in range(len(flat))]
    for part, rate in zip(parts, rates or (settings.lr,), strict=False):
        slope = gradient[part]
        if settings.optimiser == "adam":
            first, second, *largest = (memory[name][part] for name in settings.remembered)
            torch._fused_adam_(
                [flat[part]],
                [slope],
                [first],
                [second],
                largest,
                [memory["steps"]],
                lr=rate,
                beta1=settings.beta1,
                beta2=settings.beta2,
                weight_decay=settings.l2,
                eps=settings.eps,
                amsgrad=settings.amsgrad,
                maximize=False,
            )
            continue
        if settings.l2:
            slope.add_(flat[part], alpha=settings.l2)
        if settings.remembered:
            slope = memory["velocity"][part].mul_(settings.momentum).add_(slope)
        flat[part].add_(slope, alpha=-rate)
