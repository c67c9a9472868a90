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

    x: (A, B, D); y: (A, B) labels or (A, B, K) shares; weight: (A, B). Returns (A,) numbers that
    are finite as long as the loss is. noise: of this step, None for networks that draw nothing.
    """

    def step(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, noise: Noise | None = None
    ) -> torch.Tensor: ...


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
        self.layers = len(sizes) - 1
        self.weights, self.gradients = weights, gradients
        self.outputs = [_turned(first, models, batch, size) for size in sizes[1:-1]]
        self.outputs.append(first.new_empty(models, batch, sizes[-1]))
        self.errors = [_turned(first, models, batch, size) for size in sizes[1:-1]]
        self.minus = -torch.ones_like(first[:, :1, :1]).expand(models, batch, 1)

    def step(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, noise: Noise | None = None
    ) -> torch.Tensor:
        """See `Gradients`."""
        import torch

        count = len(x)
        given = [x]
        for layer in range(self.layers):
            bias = self.weights[f"bias{layer}"][:count].unsqueeze(1)
            out = self.outputs[layer][:count]
            torch.baddbmm(bias, given[-1], self.weights[f"weight{layer}"][:count], out=out)
            if layer < self.layers - 1:
                out.relu_()
                if noise is not None:
                    out.mul_(noise.kept(out, self.kept).div_(self.kept))
                given.append(out)
        top = self.outputs[-1][:count]
        error = torch.softmax(top, -1, out=top)
        if y.dim() == 2:
            error.scatter_add_(-1, y.unsqueeze(-1), self.minus[:count])
        else:
            error.sub_(y)
        error.mul_(weight.unsqueeze(-1))
        self._backward(given, error)
        return error.sum((1, 2))

    def _backward(self, given: list[torch.Tensor], error: torch.Tensor) -> None:
        import torch

        count = len(error)
        for layer in reversed(range(self.layers)):
            gradient = self.gradients[f"weight{layer}"][:count]
            torch.bmm(given[layer].transpose(1, 2), error, out=gradient)
            torch.sum(error, 1, out=self.gradients[f"bias{layer}"][:count])
            if layer > 0:
                below = self.errors[layer - 1][:count]
                transposed = self.weights[f"weight{layer}"][:count].transpose(1, 2)
                torch.bmm(error, transposed, out=below)
                # what dropout left out is zero as well, and what it kept was scaled up
                error = below.mul_(given[layer] > 0)
                if self.kept < 1:
                    error.div_(self.kept)


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
        losses = cross_entropy(logits, y, weight)
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
        return losses.detach()


def cross_entropy(logits: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Weighted cross-entropy per model, (A,). logits: (A, B, K); y: (A, B) or (A, B, K)."""
    from torch.nn import functional

    each = functional.cross_entropy(
        logits.flatten(0, 1), y.flatten() if y.dim() == 2 else y.flatten(0, 1), reduction="none"
    )
    return (each.view(weight.shape) * weight).sum(1)
