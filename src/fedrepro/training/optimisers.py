"""Optimisers over flat buffers: one fused step for all models of a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedrepro.training.settings import Settings

if TYPE_CHECKING:
    import torch


class Adam:
    """Adam or AMSGrad on a buffer (models, size); L2 enters the gradient, as in the loss."""

    def __init__(self, flat: torch.Tensor, settings: Settings) -> None:
        import torch

        self.settings = settings
        self.first = torch.zeros_like(flat)
        self.second = torch.zeros_like(flat)
        self.largest = torch.zeros_like(flat) if settings.amsgrad else None
        self.steps = torch.zeros((), dtype=torch.float32, device=flat.device)

    def step(self, flat: torch.Tensor, gradient: torch.Tensor) -> None:
        """One step for the first models of the buffer; all of them have taken equally many."""
        import torch

        count = len(flat)
        self.steps += 1
        given = self.settings
        torch._fused_adam_(
            [flat],
            [gradient],
            [self.first[:count]],
            [self.second[:count]],
            [] if self.largest is None else [self.largest[:count]],
            [self.steps],
            lr=given.lr,
            beta1=given.beta1,
            beta2=given.beta2,
            weight_decay=given.l2,
            eps=given.eps,
            amsgrad=given.amsgrad,
            maximize=False,
        )

    def state(self) -> dict[str, torch.Tensor]:
        """What must be kept to go on: moments and number of steps."""
        found = {"first": self.first, "second": self.second, "steps": self.steps}
        return found if self.largest is None else {**found, "largest": self.largest}

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from a state; it is copied, so the state itself does not change."""
        self.first.copy_(state["first"])
        self.second.copy_(state["second"])
        self.steps.copy_(state["steps"])
        if self.largest is not None:
            self.largest.copy_(state["largest"])


class Sgd:
    """Gradient descent with heavy-ball momentum on a buffer (models, size)."""

    def __init__(self, flat: torch.Tensor, settings: Settings) -> None:
        import torch

        self.settings = settings
        self.velocity = torch.zeros_like(flat) if settings.momentum else None

    def step(self, flat: torch.Tensor, gradient: torch.Tensor) -> None:
        """One step for the first models of the buffer."""
        given = self.settings
        if given.l2:
            gradient.add_(flat, alpha=given.l2)
        if self.velocity is not None:
            gradient = self.velocity[: len(flat)].mul_(given.momentum).add_(gradient)
        flat.add_(gradient, alpha=-given.lr)


OPTIMISERS: dict[str, type[Adam] | type[Sgd]] = {"adam": Adam, "sgd": Sgd}
