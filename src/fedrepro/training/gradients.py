"""Gradients of many fully connected networks at once, written out by hand.

Stacked matrix products into buffers that are allocated once: a step launches about a dozen
kernels for all models together, and nothing is recorded for automatic differentiation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedrepro.models.dense import Dense

if TYPE_CHECKING:
    import torch


class DenseGradients:
    """Cross-entropy gradients of M stacked networks on a minibatch of B rows each.

    weights, gradients: tensors by name, each (M, *shape); gradients are overwritten by `step`.
    """

    def __init__(
        self,
        dense: Dense,
        weights: dict[str, torch.Tensor],
        gradients: dict[str, torch.Tensor],
        batch: int,
    ) -> None:
        first = weights["weight0"]
        models = len(first)
        self.layers = dense.layers
        self.weights, self.gradients = weights, gradients
        self.outputs = [first.new_empty(models, batch, size) for size in dense.sizes[1:]]
        self.errors = [first.new_empty(models, batch, size) for size in dense.sizes[1:-1]]

    def step(self, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Gradients of sum_b weight_b * CE(softmax(logits_b), target_b), for the first A models.

        x: (A, B, D); target: (A, B, K), one-hot or soft, rows sum to one; weight: (A, B, 1).
        Returns the error at the logits, (A, B, K): weight * (softmax - target).
        """
        import torch

        count = len(x)
        given = [x]
        for layer in range(self.layers):
            bias = self.weights[f"bias{layer}"][:count].unsqueeze(1)
            out = self.outputs[layer][:count]
            torch.baddbmm(bias, given[-1], self.weights[f"weight{layer}"][:count], out=out)
            if layer < self.layers - 1:
                out.relu_()
                given.append(out)
        top = self.outputs[-1][:count]
        error = torch.softmax(top, -1, out=top).sub_(target).mul_(weight)
        self._backward(given, error)
        return error

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
                error = below.mul_(given[layer] > 0)
