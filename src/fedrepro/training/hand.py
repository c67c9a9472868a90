"""Dense networks written out by hand: what a step of A models at once takes and no more.

Stacked matrix products into buffers that are allocated once, two dozen kernels a step for all
models together, nothing recorded for automatic differentiation. Optimisers that look at a gradient
get it in a buffer (`HandGradients`); plain descent moves the weights in the product that would give
their gradient (`HandDescent`), so that it is neither allocated nor written nor read again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedrepro.networks.layers import Noise
from fedrepro.networks.network import Network

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, "torch.Tensor"]


@dataclass(frozen=True)
class _Layer:
    """Views of a dense layer's buffers for as many models as train, made once, not in every step.

    error: of its outputs, (A, B, m). output: after the ReLU, None for the logits, which are new in
    every step.
    """

    weight: torch.Tensor
    weight_turned: torch.Tensor
    bias: torch.Tensor
    error: torch.Tensor
    output: torch.Tensor | None
    output_turned: torch.Tensor | None


class HandNetwork(ABC):
    """A dense network. weights: tensors by name, (M, *shape)."""

    def __init__(self, network: Network, weights: Tensors, batch: int) -> None:
        import torch

        assert network.sizes is not None
        sizes, first = network.sizes, weights["weight0"]
        self.kept = 1 - network.dropout
        self.weights, models = weights, len(first)
        # activations lie as the weights do: products of narrow layers take a sixth less time
        self.outputs = [_like(first, models, batch, size) for size in sizes[1:-1]]
        self.errors = [torch.empty_like(value) for value in self.outputs]
        self.errors.append(first.new_empty(models, batch, sizes[-1]))
        self.ones = torch.ones_like(first[:, :1, :1]).expand(models, batch, 1)
        self.count, self.minus = 0, self.ones
        self.layers: list[_Layer] = []
        # a product with a mask of bytes takes six times as long
        self.where_positive = torch.ops.aten.threshold_backward.grad_input

    def step(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, noise: Noise | None = None
    ) -> torch.Tensor:
        """See `Gradients`."""
        import torch

        if x.size(0) != self.count:
            self.resize(x.size(0))
        given = x
        for layer in self.layers[:-1]:
            given = torch.baddbmm(layer.bias, given, layer.weight, out=layer.output).relu_()
            if noise is not None:
                given.mul_(noise.kept(given, self.kept).div_(self.kept))
        last = self.layers[-1]
        logits = torch.baddbmm(last.bias, given, last.weight)
        error = torch.softmax(logits, -1, out=last.error)
        if y.dim() == 2:
            error.scatter_add_(-1, y.unsqueeze(-1), self.minus)
        else:
            error.sub_(y)
        self._backward(x, error.mul_(self.scaled(weight).unsqueeze(-1)))
        return logits

    def resize(self, models: int) -> None:
        """Only the first models train from now on."""
        self.count, self.minus = models, -self.ones[:models]
        self.layers = [self._layer(place, models) for place in range(len(self.errors))]

    @abstractmethod
    def scaled(self, weight: torch.Tensor) -> torch.Tensor:
        """The weights (A, B) of examples that go into their errors."""

    @abstractmethod
    def use(self, place: int, given: torch.Tensor, error: torch.Tensor) -> None:
        """Do what is to be done with a layer's inputs, turned (A, n, B), and errors (A, B, m).

        The gradients of its weights are given · error, those of its biases the sum of error.
        """

    def _backward(self, x: torch.Tensor, error: torch.Tensor) -> None:
        import torch

        for place in range(len(self.layers) - 1, 0, -1):
            layer, under = self.layers[place], self.layers[place - 1]
            assert under.output is not None
            assert under.output_turned is not None
            below = torch.bmm(error, layer.weight_turned, out=under.error)
            self.use(place, under.output_turned, error)
            # what dropout left out is zero as well, and what it kept was scaled up
            error = self.where_positive(below, under.output, 0, grad_input=below)
            if self.kept < 1:
                error.div_(self.kept)
        self.use(0, x.transpose(1, 2), error)

    def _layer(self, place: int, models: int) -> _Layer:
        """The views of the first models."""
        weight = self.weights[f"weight{place}"][:models]
        output = self.outputs[place][:models] if place < len(self.outputs) else None
        return _Layer(
            weight,
            weight.transpose(1, 2),
            self.weights[f"bias{place}"][:models].unsqueeze(1),
            self.errors[place][:models],
            output,
            None if output is None else output.transpose(1, 2),
        )


class HandGradients(HandNetwork):
    """Gradients, tensors by name (M, *shape), are written."""

    def __init__(self, network: Network, weights: Tensors, gradients: Tensors, batch: int) -> None:
        super().__init__(network, weights, batch)
        self.gradients = gradients
        self.out: list[tuple[torch.Tensor, torch.Tensor]] = []

    def resize(self, models: int) -> None:
        """See `HandNetwork`."""
        super().resize(models)
        pairs = [(f"weight{place}", f"bias{place}") for place in range(len(self.errors))]
        self.out = [(self.gradients[w][:models], self.gradients[b][:models]) for w, b in pairs]

    def scaled(self, weight: torch.Tensor) -> torch.Tensor:
        """As they are."""
        return weight

    def use(self, place: int, given: torch.Tensor, error: torch.Tensor) -> None:
        """Write the gradients of the layer."""
        import torch

        weight, bias = self.out[place]
        torch.bmm(given, error, out=weight)
        torch.sum(error, 1, out=bias)


class HandDescent(HandNetwork):
    """A step of plain descent, each model by its own rate, taken while errors go down.

    The rate is part of the errors, so a model moves as it does in the company of other rates.
    """

    def __init__(self, network: Network, weights: Tensors, batch: int) -> None:
        super().__init__(network, weights, batch)
        self.all_rates = self.rates = self.ones.new_zeros(len(self.ones), 1)

    def begin(self, rates: Sequence[float]) -> None:
        """The step sizes of the models that train next."""
        self.all_rates[: len(rates)] = self.rates.new_tensor(rates).unsqueeze(1)

    def resize(self, models: int) -> None:
        """See `HandNetwork`."""
        super().resize(models)
        self.rates, self.row = self.all_rates[:models], self.ones[:models].transpose(1, 2)

    def scaled(self, weight: torch.Tensor) -> torch.Tensor:
        """Times the rate of the model."""
        return weight * self.rates

    def use(self, place: int, given: torch.Tensor, error: torch.Tensor) -> None:
        """Move the layer."""
        layer = self.layers[place]
        layer.weight.baddbmm_(given, error, alpha=-1)
        layer.bias.baddbmm_(self.row, error, alpha=-1)


def _like(weight: torch.Tensor, models: int, batch: int, size: int) -> torch.Tensor:
    """An empty (models, batch, size), transposed if the matrices of the weight (M, n, m) are."""
    if weight.stride(1) > weight.stride(2):
        return weight.new_empty(models, batch, size)
    return weight.new_empty(models, size, batch).transpose(1, 2)
