"""Variational perceptrons written out by hand, on the CPU: weights are drawn, beliefs moved.

With ε standard normal and σ = softplus(ρ) the weights θ = μ + σε of a step go through a dense
network (`hand.py`), which gives the gradient g at θ. With c KL(q ‖ N(m, s²)) in the loss,

    ∂μ = g + c (μ - m) / s²,
    ∂ρ = (g ε + c (σ - s)(σ + s) / (s² σ)) · exp(ρ - σ),

where exp(ρ - σ) is the slope of the softplus; the gradient of the divergence is exactly zero at the
prior. Next to that the products are a small part: what costs are passes over the weights. So they
are made in parts that stay in the cache, without a buffer that could do without, model by model,
so that the bytes of a model cannot depend on its company. Source: P2P, eq. (8).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedrepro.networks.layers import Noise
from fedrepro.networks.network import Network
from fedrepro.training.flat import Layout
from fedrepro.training.hand import HandGradients, Written
from fedrepro.training.noise import CHUNK, ModelNoise
from fedrepro.training.terms import GaussianPrior, Term

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, "torch.Tensor"]


class DrawnPrior(Protocol):
    """The prior of one part of the weights, whose divergence a step descends on."""

    def begin(self) -> None:
        """Other models have taken their places."""
        ...

    def pull(self, part: DrawnPart, share: float) -> None:
        """Add the gradient of share · KL at the means, and that at σ to the spreads'."""
        ...


@dataclass(frozen=True)
class DrawnPart:
    """Some weights of one tensor of one model; all are (n,).

    mean, spread: as trained; deviation, drawn: σ and θ of this step; at_mean, at_spread: their
    gradients, which first are g and ε. scratch: room that all parts share.
    """

    mean: torch.Tensor
    spread: torch.Tensor
    deviation: torch.Tensor
    drawn: torch.Tensor
    at_mean: torch.Tensor
    at_spread: torch.Tensor
    scratch: torch.Tensor
    prior: DrawnPrior

    def draw(self, noise: ModelNoise, model: int) -> None:
        """Weights of a step."""
        import torch

        softplus(self.spread, self.deviation)
        noise.write(model, self.at_spread.numpy())
        torch.addcmul(self.mean, self.deviation, self.at_spread, out=self.drawn)

    def turn(self, share: float) -> None:
        """From the gradient at the weights to those of means and spreads."""
        import torch

        self.at_spread.mul_(self.at_mean)
        self.prior.pull(self, share)
        slope = torch.sub(self.spread, self.deviation, out=self.scratch).exp_()
        self.at_spread.mul_(slope)


def softplus(spread: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """log(1 + exp(spread)), to `out`, which NumPy takes two thirds of the time for; (n,)."""
    import torch

    torch.exp(spread, out=out)
    np.log1p(out.numpy(), out=out.numpy())
    return out


class NoPrior:
    """The data alone."""

    def begin(self) -> None:
        """See `DrawnPrior`."""

    def pull(self, part: DrawnPart, share: float) -> None:
        """See `DrawnPrior`."""


@dataclass(frozen=True)
class ConstantPrior:
    """N(0, sd²) for every weight."""

    sd: float

    def begin(self) -> None:
        """See `DrawnPrior`."""

    def pull(self, part: DrawnPart, share: float) -> None:
        """See `DrawnPrior`."""
        import torch

        gap = torch.sub(part.deviation, self.sd, out=part.scratch)
        # (σ - s)(σ + s) / 2s = gap + gap² / 2s
        gap.addcmul_(gap, gap, value=0.5 / self.sd)
        part.at_spread.addcdiv_(gap, part.deviation, value=2 * share / self.sd)
        part.at_mean.add_(part.mean, alpha=share / self.sd**2)


class TensorPrior:
    """N(mean, softplus(spread)²), weight by weight; all are (n,)."""

    def __init__(self, mean: torch.Tensor, spread: torch.Tensor) -> None:
        import torch

        self.mean, self.spread = mean, spread
        self.deviation = torch.empty_like(spread)

    def begin(self) -> None:
        """See `DrawnPrior`."""
        softplus(self.spread, self.deviation)

    def pull(self, part: DrawnPart, share: float) -> None:
        """See `DrawnPrior`."""
        import torch

        gap = torch.sub(part.deviation, self.deviation, out=part.scratch).div_(self.deviation)
        # (σ - s)(σ + s) / 2s² = gap + gap² / 2, where gap = (σ - s) / s
        gap.addcmul_(gap, gap, value=0.5)
        part.at_spread.addcdiv_(gap, part.deviation, value=2 * share)
        away = torch.sub(part.mean, self.mean, out=part.scratch).div_(self.deviation)
        part.at_mean.addcdiv_(away, self.deviation, value=share)


class DrawnGradients:
    """Gradients of a variational perceptron; weights, gradients, start: by name, (M, *shape)."""

    def __init__(
        self,
        network: Network,
        weights: Tensors,
        gradients: Tensors,
        batch: int,
        terms: Sequence[Term],
        start: Tensors,
    ) -> None:
        import torch

        self.weights, self.gradients, self.start = weights, gradients, start
        layout = Layout(network.of_means.shapes)
        first = weights["bias0"]
        room = (len(first), layout.size)
        self.deviation, self.drawn = (layout.views(first.new_zeros(room)) for _ in range(2))
        self.divergence = next((term for term in terms if isinstance(term, GaussianPrior)), None)
        self.priors: list[TensorPrior] = []
        self.scratch = torch.empty(CHUNK, dtype=first.dtype)
        self.parts = [
            [
                self._part(name, model, slice(at, at + CHUNK))
                for name, shape in layout.shapes.items()
                for at in range(0, math.prod(shape), CHUNK)
            ]
            for model in range(len(first))
        ]
        self.shares: list[float] = []
        at_means = {name: gradients[name] for name in layout.shapes}
        others = [term for term in terms if term is not self.divergence]
        self.dense = HandGradients(network.of_means, self.drawn, Written(at_means), batch, others)

    def begin(self, rates: Sequence[float], shares: Sequence[float]) -> None:
        """See `Gradients`."""
        self.shares = list(shares)
        for parts in self.parts[: len(shares)]:
            for part in parts:
                part.prior.begin()

    def step(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, noise: Noise | None = None
    ) -> torch.Tensor:
        """See `Gradients`."""
        assert isinstance(noise, ModelNoise)
        models = range(len(x))
        for model in models:
            for part in self.parts[model]:
                part.draw(noise, model)
        logits = self.dense.step(x, y, weight)
        for model in models:
            for part in self.parts[model]:
                part.turn(self.shares[model])
        return logits

    def _part(self, name: str, model: int, rows: slice) -> DrawnPart:
        def of(tensors: Tensors, of: str = name) -> torch.Tensor:
            return tensors[of][model].view(-1)[rows]

        spread = f"{name}_spread"
        mean = of(self.weights)
        return DrawnPart(
            mean,
            of(self.weights, spread),
            of(self.deviation),
            of(self.drawn),
            of(self.gradients),
            of(self.gradients, spread),
            self.scratch[: len(mean)],
            self._prior(of(self.start), of(self.start, spread)),
        )

    def _prior(self, mean: torch.Tensor, spread: torch.Tensor) -> DrawnPrior:
        if self.divergence is None:
            return NoPrior()
        if self.divergence.sd is not None:
            return ConstantPrior(self.divergence.sd)
        return TensorPrior(mean, spread)
