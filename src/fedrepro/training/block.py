"""A block: models that train together, their buffers, and the loop over minibatches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.networks.layers import Convolution
from fedrepro.networks.network import Network
from fedrepro.training.examples import Examples, Reader
from fedrepro.training.flat import Layout
from fedrepro.training.gradients import AutogradGradients, Gradients, HandGradients
from fedrepro.training.minibatches import Chunk, Task
from fedrepro.training.noise import StepNoise, noise_of
from fedrepro.training.optimisers import OPTIMISERS
from fedrepro.training.paths import StepPath
from fedrepro.training.settings import Settings
from fedrepro.training.terms import Proximal, Term

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Procedure:
    """What is trained and how: the network, the numbers of the descent, and terms of the loss."""

    network: Network
    settings: Settings
    terms: Sequence[Term | Proximal] = ()

    @property
    def losses(self) -> list[Term]:
        """The terms that need a forward pass."""
        return [term for term in self.terms if not isinstance(term, Proximal)]

    @property
    def pulls(self) -> list[Proximal]:
        """The terms on the weights alone."""
        return [term for term in self.terms if isinstance(term, Proximal)]

    @property
    def is_plain_descent(self) -> bool:
        """Whether a step is w - lr · gradient of the loss, and nothing else."""
        given = self.settings
        return given.optimiser == "sgd" and not (given.momentum or given.l2 or self.pulls)

    def layout(self, path: StepPath) -> Layout:
        """Tensors of the network, then those of the terms, as the path wants them in memory."""
        shapes = dict(self.network.shapes)
        for term in self.losses:
            shapes |= term.shapes(self.network)
        return Layout(shapes, turned=path == "hand")


class Block:
    """Buffers of up to `capacity` models. They serve one block after another, because fresh memory
    for a large network costs as much as a step of training it.

    own_rates: tasks bring step sizes of their own.
    """

    def __init__(
        self,
        procedure: Procedure,
        path: StepPath,
        layout: Layout,
        examples: Examples,
        capacity: int,
        own_rates: bool,
        keep_gradients: bool,
    ) -> None:
        import torch

        self.procedure, self.path, self.layout = procedure, path, layout
        self.device, self.dtype = examples.inputs.device, examples.dtype
        self.flat = torch.zeros(capacity, layout.size, dtype=self.dtype, device=self.device)
        self.start = torch.zeros_like(self.flat) if procedure.terms else self.flat
        self.summed = torch.zeros_like(self.flat) if keep_gradients else None
        self.own_rates = own_rates
        self.direct = (
            path != "hand" and not own_rates and not keep_gradients and procedure.is_plain_descent
        )
        # descending directly writes no gradients, so there is no buffer to clear
        self.gradient = self.flat if self.direct else torch.zeros_like(self.flat)
        self.gradients = self._gradients()
        self.reader = Reader(examples, capacity, procedure.settings.batch_size)
        self.noise: StepNoise | None = None

    def _gradients(self) -> Gradients:
        procedure = self.procedure
        weights, gradients = self.layout.views(self.flat), self.layout.views(self.gradient)
        if self.path == "hand":
            batch = procedure.settings.batch_size
            return HandGradients(procedure.network, weights, gradients, batch)
        alone = self.path == "loop" and self.device.type == "cpu"
        convolution: Convolution = "channels_last" if alone else "grouped"
        return AutogradGradients(
            procedure.network,
            weights,
            gradients,
            self.layout.views(self.start),
            convolution,
            procedure.losses,
            procedure.settings.lr if self.direct else None,
        )

    def begin(self, start: np.ndarray, tasks: Sequence[Task]) -> None:
        """Other models take their places: start (models, size), or (1, size) for all of them."""
        import torch

        settings, count = self.procedure.settings, len(tasks)
        self.flat[:count].copy_(torch.from_numpy(start))
        if self.start is not self.flat:
            self.start[:count].copy_(self.flat[:count])
        if self.summed is not None:
            self.summed.zero_()
        rates = [settings.lr if task.lr is None else task.lr for task in tasks]
        self.optimiser = OPTIMISERS[settings.optimiser](
            self.flat[:count], settings, rates if self.own_rates else None
        )
        if self.procedure.network.draws:
            self.noise = noise_of(tasks, settings.batch_size, self.device)

    def train(self, plan: Iterable[Chunk], models: int) -> np.ndarray:
        """Take every step of the plan. Returns the number of finite steps of each model."""
        import torch

        finite = torch.zeros(models, dtype=torch.int64, device=self.device)
        for chunk in plan:
            index, weight = self._uploaded(chunk)
            for step, count in enumerate(chunk.active):
                if self.noise is not None:
                    self.noise.at(chunk.first + step, count)
                x, y = self.reader.read(index[step, :count])
                loss = self.gradients.step(x, y, weight[step, :count], self.noise)
                finite[:count] += torch.isfinite(loss)
                if not self.direct:
                    self._descend(count)
            if int(finite[: chunk.active[-1]].min()) < chunk.first + len(chunk.active):
                break
        counted: np.ndarray = finite.cpu().numpy()
        return counted

    def _uploaded(self, chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows and weights, 1/size for examples and 0 for filled rows: (steps, models, batch)."""
        import torch

        index = torch.from_numpy(chunk.index).to(self.device)
        size = torch.from_numpy(chunk.size).to(self.device).unsqueeze(-1)
        counts = torch.arange(index.shape[-1], device=self.device) < size
        weight = counts.to(self.dtype) / size.clamp_min(1)
        return index, weight

    def _descend(self, count: int) -> None:
        """One step of the optimiser for the first models."""
        flat, gradient = self.flat[:count], self.gradient[:count]
        if self.summed is not None:
            self.summed[:count] += gradient
        for pull in self.procedure.pulls:
            pull.add(gradient, flat, self.start[:count])
        self.optimiser.step(flat, gradient)
