"""Optimisers over flat buffers: one fused step for all models of a block.

They remember models in buffers (models, size), by the names of `Settings.remembered`. A caller may
hand these over, to go on with and to keep; they are written in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedrepro.training.settings import Settings

if TYPE_CHECKING:
    import torch


class Adam:
    """Adam or AMSGrad on a buffer (models, size); L2 enters the gradient, as in the loss.

    rates: step size of each model; by default the procedure's. memory: buffers to go on with, of
    models that have all taken `steps` steps.
    """

    def __init__(
        self,
        flat: torch.Tensor,
        settings: Settings,
        rates: list[float] | None = None,
        memory: Mapping[str, torch.Tensor] | None = None,
        steps: int = 0,
    ) -> None:
        import torch

        self.settings, self.rates = settings, rates
        kept = memory or {name: torch.zeros_like(flat) for name in settings.remembered}
        self.first, self.second, self.largest = kept["first"], kept["second"], kept.get("largest")
        self.steps = torch.full((), float(steps), dtype=torch.float32, device=flat.device)

    def step(self, flat: torch.Tensor, gradient: torch.Tensor) -> None:
        """Take one step for the first models of the buffer; all of them have taken equally many."""
        self.steps += 1
        if self.rates is None:
            self._step(flat, gradient, slice(len(flat)), self.settings.lr)
            return
        # the fused kernel knows one step size
        for i, rate in enumerate(self.rates[: len(flat)]):
            self._step(flat[i : i + 1], gradient[i : i + 1], slice(i, i + 1), rate)

    def _step(self, flat: torch.Tensor, gradient: torch.Tensor, models: slice, rate: float) -> None:
        import torch

        settings = self.settings
        moment, square, largest = self._kept(models)
        torch._fused_adam_(
            [flat],
            [gradient],
            moment,
            square,
            largest,
            [self.steps],
            lr=rate,
            beta1=settings.beta1,
            beta2=settings.beta2,
            weight_decay=settings.l2,
            eps=settings.eps,
            amsgrad=settings.amsgrad,
            maximize=False,
        )

    def _kept(self, models: slice) -> list[list[torch.Tensor]]:
        """First and second moments, and the largest of these with AMSGrad, of some models."""
        kept = [[self.first], [self.second], [] if self.largest is None else [self.largest]]
        if models == slice(len(self.first)):
            return kept
        return [[value[models] for value in buffers] for buffers in kept]

    def state(self) -> dict[str, torch.Tensor]:
        """Return what must be kept to go on: moments and number of steps."""
        state = {"first": self.first, "second": self.second, "steps": self.steps}
        return state if self.largest is None else {**state, "largest": self.largest}

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from a state; it is copied, so the state itself does not change."""
        for name, value in self.state().items():
            value.copy_(state[name])


class Sgd:
    """Gradient descent with heavy-ball momentum on a buffer (models, size); the rest: as Adam."""

    def __init__(
        self,
        flat: torch.Tensor,
        settings: Settings,
        rates: list[float] | None = None,
        memory: Mapping[str, torch.Tensor] | None = None,
        steps: int = 0,
    ) -> None:
        import torch

        self.settings, self.rates = settings, rates
        kept = memory or {name: torch.zeros_like(flat) for name in settings.remembered}
        self.velocity = kept.get("velocity")

    def step(self, flat: torch.Tensor, gradient: torch.Tensor) -> None:
        """Take one step for the first models of the buffer."""
        settings = self.settings
        if settings.l2:
            gradient.add_(flat, alpha=settings.l2)
        if self.velocity is not None:
            gradient = self.velocity[: len(flat)].mul_(settings.momentum).add_(gradient)
        if self.rates is None:
            flat.add_(gradient, alpha=-settings.lr)
            return
        # one by one, so that a model moves as it does without the others
        for i, rate in enumerate(self.rates[: len(flat)]):
            flat[i].add_(gradient[i], alpha=-rate)


OPTIMISERS: dict[str, type[Adam] | type[Sgd]] = {"adam": Adam, "sgd": Sgd}
