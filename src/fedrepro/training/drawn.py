"""Variational perceptrons written out by hand, on the CPU: weights are drawn, beliefs moved.

With ε standard normal and σ = softplus(ρ) the weights θ = μ + σε of a step go through a dense
network (`hand.py`), which gives the gradient g at θ. With c KL(q ‖ N(m, s²)) in the loss,

    ∂μ = g + c (μ - m) / s²,
    ∂ρ = (g ε + c (σ - s)(σ + s) / (s² σ)) · exp(ρ - σ),

where exp(ρ - σ) is the slope of the softplus; the gradient of the divergence is exactly zero at the
prior. Next to that the products are a small part: what costs are passes over the weights. So there
is one for each half of a step (`passes.py`), in parts that stay in the cache, model by model, so
that the bytes of a model cannot depend on its company. Source: P2P, eq. (8).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

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
Array = np.ndarray[Any, Any]


class DrawnPrior(Protocol):
    """The prior of one part of the weights, whose divergence a step descends on."""

    def begin(self) -> None:
        """Other models have taken their places."""
        ...

    def turn(self, part: DrawnPart, share: float) -> None:
        """Gradients of means and spreads, share · KL included, from g and ε in their places."""
        ...


@dataclass(frozen=True)
class DrawnPart:
    """Some weights of one tensor of one model; all are (n,).

    mean, spread: as trained; deviation, drawn: σ and θ of this step; at_mean, at_spread: their
    gradients, which first are g and ε.
    """

    mean: Array
    spread: Array
    deviation: Array
    drawn: Array
    at_mean: Array
    at_spread: Array
    prior: DrawnPrior

    def draw(self, noise: ModelNoise, model: int) -> None:
        """Weights of a step."""
        noise.write(model, self.at_spread)
        passes().draw(self.mean, self.spread, self.at_spread, self.deviation, self.drawn)

    def turn(self, share: float) -> None:
        """From the gradient at the weights to those of means and spreads."""
        self.prior.turn(self, share)


class ConstantPrior:
    """N(0, sd²) for every weight."""

    def __init__(self, sd: float, dtype: np.dtype[Any]) -> None:
        self.sd, self.share = dtype.type(sd), dtype.type

    def begin(self) -> None:
        """See `DrawnPrior`."""

    def turn(self, part: DrawnPart, share: float) -> None:
        """See `DrawnPrior`."""
        passes().turn_to_constant(
            part.mean,
            part.spread,
            part.deviation,
            self.sd,
            self.share(share),
            part.at_mean,
            part.at_spread,
        )


class NoPrior(ConstantPrior):
    """The data alone."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        super().__init__(1.0, dtype)

    def turn(self, part: DrawnPart, share: float) -> None:
        """See `DrawnPrior`."""
        super().turn(part, 0.0)


class TensorPrior:
    """N(mean, softplus(spread)²), weight by weight; all are (n,)."""

    def __init__(self, mean: Array, spread: Array) -> None:
        self.mean, self.spread, self.share = mean, spread, mean.dtype.type
        self.deviation = np.empty_like(spread)

    def begin(self) -> None:
        """See `DrawnPrior`."""
        passes().softplus(self.spread, self.deviation)

    def turn(self, part: DrawnPart, share: float) -> None:
        """See `DrawnPrior`."""
        passes().turn(
            part.mean,
            part.spread,
            part.deviation,
            self.mean,
            self.deviation,
            self.share(share),
            part.at_mean,
            part.at_spread,
        )


@cache
def passes() -> ModuleType:
    """The compiled passes: Numba takes half a second to import, so only what needs them does."""
    from fedrepro.training import passes as found

    return found


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
        self.weights, self.gradients, self.start = weights, gradients, start
        layout = Layout(network.of_means.shapes)
        first = weights["bias0"]
        room = (len(first), layout.size)
        self.deviation, self.drawn = (layout.views(first.new_zeros(room)) for _ in range(2))
        self.divergence = next((term for term in terms if isinstance(term, GaussianPrior)), None)
        self.priors: list[TensorPrior] = []
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
        def of(tensors: Tensors, of: str = name) -> Array:
            found: Array = tensors[of][model].view(-1)[rows].numpy()
            return found

        spread = f"{name}_spread"
        return DrawnPart(
            of(self.weights),
            of(self.weights, spread),
            of(self.deviation),
            of(self.drawn),
            of(self.gradients),
            of(self.gradients, spread),
            self._prior(of(self.start), of(self.start, spread)),
        )

    def _prior(self, mean: Array, spread: Array) -> DrawnPrior:
        if self.divergence is None:
            return NoPrior(mean.dtype)
        if self.divergence.sd is not None:
            return ConstantPrior(self.divergence.sd, mean.dtype)
        return TensorPrior(mean, spread)
