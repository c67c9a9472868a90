"""Gradients of A models at once, by the paths that the engine chooses among.

Fully connected networks are written out by hand: stacked matrix products into buffers that are
allocated once, a dozen kernels a step for all models together, nothing recorded for automatic
differentiation. Other networks, and losses with further terms, are differentiated automatically,
through the stacked forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fedrepro.networks.layers import Convolution, Noise, Pass
from fedrepro.networks.network import Network
from fedrepro.training.terms import Term, TermInputs

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, "torch.Tensor"]


class Gradients(Protocol):
    """Writes the gradients of sum_b weight_b · CE(softmax(logits_b), target_b), plus terms.

    x: (A, B, D); y: (A, B) labels or (A, B, K) shares; weight: (A, B). Returns that cross-entropy
    without the terms, (A,), not finite where the terms are not. noise: of this step, None for
    networks that draw nothing.
    """

    def step(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, noise: Noise | None = None
    ) -> torch.Tensor: ...


@dataclass(frozen=True)
class _Layer:
    """Buffers of a dense layer for as many models as train: looked up once, not in every step."""

    weight: torch.Tensor
    turned: torch.Tensor
    bias: torch.Tensor
    output: torch.Tensor
    error: torch.Tensor | None
    weight_gradient: torch.Tensor
    bias_gradient: torch.Tensor


class HandGradients:
    """The dense path. weights, gradients: tensors by name, (M, *shape); gradients are written."""

    def __init__(
        self,
        network: Network,
        weights: Tensors,
        gradients: Tensors,
        batch: int,
    ) -> None:
        import torch

        assert network.sizes is not None
        sizes, first = network.sizes, weights["weight0"]
        self.kept = 1 - network.dropout
        models = len(first)
        self.weights, self.gradients = weights, gradients
        self.outputs = [_turned(first, models, batch, size) for size in sizes[1:-1]]
        self.outputs.append(first.new_empty(models, batch, sizes[-1]))
        self.errors = [_turned(first, models, batch, size) for size in sizes[1:-1]]
        self.minus = -torch.ones_like(first[:, :1, :1]).expand(models, batch, 1)
        self.layers = [self._layer(layer, models) for layer in range(len(sizes) - 1)]

    def step(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, noise: Noise | None = None
    ) -> torch.Tensor:
        """See `Gradients`."""
        import torch

        if len(x) != len(self.layers[0].weight):
            self.layers = [self._layer(layer, len(x)) for layer in range(len(self.layers))]
        given = [x]
        for layer in self.layers[:-1]:
            out = layer.output
            torch.baddbmm(layer.bias, given[-1], layer.weight, out=out)
            out.relu_()
            if noise is not None:
                out.mul_(noise.kept(out, self.kept).div_(self.kept))
            given.append(out)
        last = self.layers[-1]
        top = torch.baddbmm(last.bias, given[-1], last.weight, out=last.output)
        loss = self._loss(top, y, weight)
        if y.dim() == 2:
            top.scatter_add_(-1, y.unsqueeze(-1), self.minus[: len(x)])
        else:
            top.sub_(y)
        self._backward(given, top.mul_(weight.unsqueeze(-1)))
        return loss

    def _loss(self, top: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Cross-entropy (A,) of the logits (A, B, K), which become probabilities.

        log sum_k exp(t_k) = max_k t_k - log max_k p_k, so no second exponential is taken.
        """
        import torch

        highest = top.amax(-1)
        if y.dim() == 2:
            right, share = top.gather(-1, y.unsqueeze(-1)).squeeze(-1), None
        else:
            right, share = (top * y).sum(-1), y.sum(-1)
        torch.softmax(top, -1, out=top)
        each = highest.sub_(top.amax(-1).log_())
        each = each if share is None else each.mul_(share)
        return each.sub_(right).mul_(weight).sum(1)

    def _backward(self, given: list[torch.Tensor], error: torch.Tensor) -> None:
        import torch

        for place in reversed(range(len(self.layers))):
            layer = self.layers[place]
            torch.bmm(given[place].transpose(1, 2), error, out=layer.weight_gradient)
            torch.sum(error, 1, out=layer.bias_gradient)
            below = self.layers[place - 1].error
            if place > 0 and below is not None:
                torch.bmm(error, layer.turned, out=below)
                # what dropout left out is zero as well, and what it kept was scaled up
                error = _where_positive(below, given[place])
                if self.kept < 1:
                    error.div_(self.kept)

    def _layer(self, layer: int, models: int) -> _Layer:
        """The buffers of the first models."""
        weight = self.weights[f"weight{layer}"][:models]
        hidden = layer < len(self.errors)
        return _Layer(
            weight,
            weight.transpose(1, 2),
            self.weights[f"bias{layer}"][:models].unsqueeze(1),
            self.outputs[layer][:models],
            self.errors[layer][:models] if hidden else None,
            self.gradients[f"weight{layer}"][:models],
            self.gradients[f"bias{layer}"][:models],
        )


def _where_positive(value: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """The value, in place, zero where the output of the ReLU is; a product with a mask of bytes
    takes six times as long."""
    import torch

    backward = torch.ops.aten.threshold_backward.grad_input
    found: torch.Tensor = backward(value, output, 0, grad_input=value)
    return found


def _turned(like: torch.Tensor, models: int, batch: int, size: int) -> torch.Tensor:
    """An empty (models, batch, size) whose matrices lie transposed.

    With weights that do so too (`Layout.turned`) products of narrow layers take a sixth less time.
    """
    return like.new_empty(models, size, batch).transpose(1, 2)


@dataclass
class AutogradGradients:
    """Automatic differentiation through the stacked forward pass.

    weights, gradients, start: (M, *shape) by name; gradients are written. lr: descend by this
    rate at once, instead of writing the gradients, which saves two passes over a large network.
    """

    network: Network
    weights: Tensors
    gradients: Tensors
    start: Tensors
    convolution: Convolution
    terms: Sequence[Term] = ()
    lr: float | None = None

    def step(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, noise: Noise | None = None
    ) -> torch.Tensor:
        """See `Gradients`."""
        import torch

        count = len(x)
        leaves = {name: w[:count].detach().requires_grad_() for name, w in self.weights.items()}
        # terms may use a weight a second time, after it has moved
        rate = None if self.terms else self.lr
        run = Pass(self.convolution, noise, keep=bool(self.terms), descend=rate)
        logits = self.network.forward(leaves, x, run)
        y, weight = self.network.asked(x, y), self.network.weighed(weight)
        plain = losses = cross_entropy(logits, y, weight)
        if self.terms:
            start = {name: value[:count] for name, value in self.start.items()}
            look = TermInputs(self.network, leaves, start, x, weight, run)
            for term in self.terms:
                losses = losses + term.loss(look)
        found = torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)
        if self.lr is not None:
            with torch.no_grad():
                for leaf, value in zip(leaves.values(), found, strict=True):
                    if value is not None:  # else the backward pass has moved it
                        leaf.add_(value, alpha=-self.lr)
        else:
            torch._foreach_copy_([value[:count] for value in self.gradients.values()], found)
        # zero, or not a number if a term is not finite
        return (plain + (losses - losses)).detach() if self.terms else plain.detach()


def cross_entropy(logits: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Weighted cross-entropy per model, (A,). logits: (A, B, K); y: (A, B) or (A, B, K)."""
    from torch.nn import functional

    each = functional.cross_entropy(
        logits.flatten(0, 1), y.flatten() if y.dim() == 2 else y.flatten(0, 1), reduction="none"
    )
    return (each.view(weight.shape) * weight).sum(1)
