"""Gradients of A models at once by automatic differentiation, and optimisers over flat buffers.

A model has one flat buffer, each tensor padded to 16 floats. Optimisers take one fused step for all
models of a block, and the rounding of a model does not depend on where in the buffer it lies: every
tensor starts at a multiple of the widest vector. They remember models in buffers (models, size), by
the names of `Settings.remembered`. A caller may hand these over, to go on with and to keep; they
are written in place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.portable_ops.torch_ops import log_sum_exp
from fedrepro.networks.layers import Convolution, Noise, Pass
from fedrepro.networks.network import Network
from fedrepro.training.loss_terms import Term, TermInputs
from fedrepro.training.training_settings import Settings

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


Tensors = Mapping[str, "torch.Tensor"]


@dataclass
class Gradients:
    """Writes the gradients of sum_b weight_b · CE(softmax(logits_b), target_b), plus terms.

    weights, gradients, start: (M, *shape) by name; gradients are written. direct: descend at once,
    all models by the same rate, instead of writing the gradients, which saves two passes over a
    large network.
    """

    network: Network
    weights: Tensors
    gradients: Tensors
    start: Tensors
    convolution: Convolution
    terms: Sequence[Term] = ()
    direct: bool = False
    lr: float | None = None
    shares: torch.Tensor | None = None

    def begin(self, rates: Sequence[float], shares: Sequence[float]) -> None:
        """Let other models take their places, with their step sizes and shares of a divergence."""
        self.lr = rates[0] if self.direct else None
        self.shares = next(iter(self.weights.values())).new_tensor(shares)

    def step(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, noise: Noise | None = None
    ) -> torch.Tensor:
        """Take one step, and return the logits (A, B, K) before it.

        A term that is not finite shows in the logits at once.

        Args:
            x: (A, B, D).
            y: (A, B) labels or (A, B, K) shares.
            weight: (A, B), of each example.
            noise: of this step, None for networks that draw nothing.
        """
        import torch

        count = len(x)
        leaves = {name: w[:count].detach().requires_grad_() for name, w in self.weights.items()}
        run = Pass(self.convolution, noise, keep=bool(self.terms))
        if self.network.buffers and noise is not None:
            run.rows = (weight > 0).sum(-1).tolist()  # rows that fill up would be counted as others
        logits = self.network.forward(leaves, x, run)
        y, weight = self.network.asked(x, y), self.network.weighed(weight)
        losses = cross_entropy(logits, y, weight)
        if self.terms:
            start = {name: value[:count] for name, value in self.start.items()}
            assert self.shares is not None
            look = TermInputs(self.network, leaves, start, x, weight, run, self.shares[:count])
            for term in self.terms:
                losses = losses + term.loss(look)
        gradients = torch.autograd.grad(
            losses.sum(), list(leaves.values()), allow_unused=True,
            materialize_grads=self.lr is None,
        )  # fmt: skip
        if self.lr is not None:
            with torch.no_grad():
                for leaf, value in zip(leaves.values(), gradients, strict=True):
                    if value is not None:  # a tensor that the loss does not depend on
                        leaf.add_(value, alpha=-self.lr)
        else:
            torch._foreach_copy_([value[:count] for value in self.gradients.values()], gradients)
        if self.terms:
            # zero, or not a number if a term is not finite
            logits = logits + (losses - losses).view(-1, 1, 1)
        return logits.detach()


def cross_entropy(logits: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Sum weighted cross-entropies per model, (A,): logits (A, B, K), y (A, B) or (A, B, K)."""
    from torch.nn import functional

    each = functional.cross_entropy(
        logits.flatten(0, 1), y.flatten() if y.dim() == 2 else y.flatten(0, 1), reduction="none"
    )
    return (each.view(weight.shape) * weight).sum(1)


def observed_losses(logits: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Sum weighted cross-entropies of many steps, not to be differentiated: (…, B, K) to (…)."""
    each = log_sum_exp(logits)
    if y.dim() < logits.dim():
        each.sub_(logits.gather(-1, y.unsqueeze(-1)).squeeze(-1))
    else:
        each.mul_(y.sum(-1)).sub_((logits * y).sum(-1))
    return each.mul_(weight).sum(-1)


def observed_hits(logits: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Count right predictions: (…, B, K) to int64 (…); rows of weight zero count nothing.

    Targets are labels (…, B), or shares (…, B, K), whose largest is the right one.
    """
    labels = y if y.dim() < logits.dim() else y.argmax(-1)
    hits: torch.Tensor = ((logits.argmax(-1) == labels) & (weight > 0)).sum(-1)
    return hits


class _Optimiser:
    """An optimiser on a buffer (models, size).

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
        self.first, self.second, self.largest, self.velocity = (
            kept.get(name) for name in ("first", "second", "largest", "velocity")
        )
        self.steps = torch.full((), float(steps), dtype=torch.float32, device=flat.device)


class Adam(_Optimiser):
    """Adam or AMSGrad on a buffer (models, size); L2 enters the gradient, as in the loss."""

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
        assert self.first is not None
        assert self.second is not None
        torch._fused_adam_(
            [flat],
            [gradient],
            [self.first[models]],
            [self.second[models]],
            [] if self.largest is None else [self.largest[models]],
            [self.steps],
            lr=rate,
            beta1=settings.beta1,
            beta2=settings.beta2,
            weight_decay=settings.l2,
            eps=settings.eps,
            amsgrad=settings.amsgrad,
            maximize=False,
        )

    def state(self) -> dict[str, torch.Tensor]:
        """Return what must be kept to go on: moments and number of steps."""
        named = {"first": self.first, "second": self.second, "steps": self.steps}
        named["largest"] = self.largest
        return {name: value for name, value in named.items() if value is not None}

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from a state; it is copied, so the state itself does not change."""
        for name, value in self.state().items():
            value.copy_(state[name])


class Sgd(_Optimiser):
    """Gradient descent with heavy-ball momentum on a buffer (models, size)."""

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
