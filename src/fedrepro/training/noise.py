"""Random numbers inside training steps: dropout and variational weights.

A model's numbers depend on its place (seed, trial, client), the epoch and the step in it. On the
CPU every model has a generator of its own, so they do not depend on the block either; on a GPU
one generator serves the block, because a kernel per model would cost more than the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedrepro.training.minibatches import Task

if TYPE_CHECKING:
    import torch

# the increment of Weyl sequences: consecutive steps get seeds far apart
STRIDE = 0x9E3779B97F4A7C15
MASK = 2**63 - 1


class StepNoise:
    """The `networks.layers.Noise` of a block of models; `at` moves it to a step."""

    def __init__(self, tasks: Sequence[Task], batch_size: int, device: torch.device) -> None:
        import torch

        self.tasks, self.batch_size = tasks, batch_size
        self.shared = device.type != "cpu"
        count = 1 if self.shared else len(tasks)
        self.generators = [torch.Generator(device) for _ in range(count)]
        self.keys = [(-1, 0)] * count

    def at(self, step: int, models: int) -> None:
        """Seed the generators for one step of the first models."""
        for i in range(min(models, len(self.generators))):
            epoch, inside = divmod(step, self.tasks[i].per_epoch(self.batch_size))
            if self.keys[i][0] != epoch:
                place = self.tasks[i].rng.at(round=self.tasks[i].first_epoch + epoch)
                self.keys[i] = (epoch, int(place.stream("step-noise").integers(MASK)))
            self.generators[i].manual_seed((self.keys[i][1] + inside * STRIDE) & MASK)

    def kept(self, like: torch.Tensor, share: float) -> torch.Tensor:
        """Ones with probability `share`, else zeros, shaped as `like` (A, …)."""
        import torch

        drawn = torch.empty_like(like, memory_format=torch.contiguous_format)
        for part, generator in self._parts(drawn):
            part.bernoulli_(share, generator=generator)
        return drawn

    def normal(self, like: torch.Tensor) -> torch.Tensor:
        """Standard normal numbers, shaped as `like` (A, …)."""
        import torch

        drawn = torch.empty_like(like, memory_format=torch.contiguous_format)
        for part, generator in self._parts(drawn):
            part.normal_(generator=generator)
        return drawn

    def _parts(self, drawn: torch.Tensor) -> list[tuple[torch.Tensor, torch.Generator]]:
        if self.shared:
            return [(drawn, self.generators[0])]
        return list(zip(drawn, self.generators, strict=False))
