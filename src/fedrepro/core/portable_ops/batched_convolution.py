"""Convolutions of a stack of models as batched products, for GPUs.

cuDNN takes a convolution whose groups are models one group after another, in kernels that leave a
GPU nearly idle. Here the windows of all examples lie side by side as columns, and each example is
one product of a batch. Sums over examples come last, so a gradient's long sum is cut into parts.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def convolved(x: torch.Tensor, weight: torch.Tensor, padding: int) -> torch.Tensor:
    """Convolve model by model, differentiable.

    (A, B, C, H, W) by (A, O, C, k, k) to (A, B, O, H', W').
    """
    output: torch.Tensor = _convolution().apply(x, weight, padding)
    return output


def columns(x: torch.Tensor, kernel: int, padding: int) -> torch.Tensor:
    """Unfold the windows of each image: (A, B, C, H, W) to (A · B, C · k · k, H' · W')."""
    from torch.nn.functional import pad

    around = pad(x, (padding,) * 4) if padding else x
    windows = around.unfold(3, kernel, 1).unfold(4, kernel, 1).permute(0, 1, 2, 5, 6, 3, 4)
    a, b, c, _, _, height, width = windows.shape
    return windows.reshape(a * b, c * kernel * kernel, height * width)


@cache
def _convolution() -> Any:
    """Make the autograd function, on first use, because torch is imported late."""
    import torch
    from torch.nn.functional import fold

    class Convolution(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, padding: int) -> torch.Tensor:
            (models, examples, *_), (_, channels, _, kernel, _) = x.shape, weight.shape
            windows = columns(x, kernel, padding)
            by = weight.reshape(models, 1, channels, -1)
            by = by.expand(-1, examples, -1, -1).reshape(models * examples, channels, -1)
            ctx.save_for_backward(windows, by)
            ctx.shapes, ctx.padding = (x.shape, weight.shape), padding
            height, width = (size + 2 * padding - kernel + 1 for size in x.shape[3:])
            return torch.bmm(by, windows).view(models, examples, channels, height, width)

        @staticmethod
        def backward(ctx: Any, error: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            (windows, by), (shape, weight) = ctx.saved_tensors, ctx.shapes
            flat = error.reshape(*by.shape[:2], -1)
            below = None
            if ctx.needs_input_grad[0]:
                back = torch.bmm(by.transpose(1, 2), flat)
                below = fold(back, shape[3:], weight[-1], padding=ctx.padding).view(shape)
            per_example = torch.bmm(flat, windows.transpose(1, 2))
            return below, per_example.view(*shape[:2], *weight[1:]).sum(1), None

    return Convolution
