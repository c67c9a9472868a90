"""Operations on torch tensors that never call MKL on the CPU, and convolutions of stacks on GPUs.

MKL, by which torch multiplies, computes other bytes on processors of Intel than on those of AMD. So
do torch's exp, log, sqrt, erf, tan, atan, log2, log10 and logsumexp, the power 0.5, and the
gradient of the power 1.5; its exp2, expm1, log1p, other powers, tanh, sigmoid, softplus, softmax
and log_softmax do not. NumPy's OpenBLAS computes equal bytes once its kernels are selected
(`core/kernel_pinning.py`). Models of a stack are multiplied one by one, so that the bytes of one do
not depend on the others. On GPUs products are torch's own.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def multiplied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a @ b of matrices or stacks without gradients, with equal bytes on all CPUs."""
    import torch

    if a.device.type != "cpu":
        return torch.matmul(a, b)
    return torch.from_numpy(np.matmul(a.detach().numpy(), b.detach().numpy()))


def portable_affine(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return x (A, B, n) @ weight (A, n, m) + bias (A, m), differentiable, equal on all CPUs."""
    import torch

    if x.device.type != "cpu":
        return torch.baddbmm(bias.unsqueeze(1), x, weight)
    output: torch.Tensor = _affine().apply(x, weight, bias)
    return output


@cache
def _affine() -> Any:
    import torch

    class AffineProduct(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
        ) -> torch.Tensor:
            ctx.save_for_backward(x, weight)
            return multiplied(x, weight).add_(bias.unsqueeze(1))

        @staticmethod
        def backward(ctx: Any, error: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            x, weight = ctx.saved_tensors
            needs = ctx.needs_input_grad
            return (
                multiplied(error, weight.transpose(1, 2)) if needs[0] else None,
                multiplied(x.transpose(1, 2), error) if needs[1] else None,
                error.sum(1) if needs[2] else None,
            )

    return AffineProduct


def exponential(x: torch.Tensor) -> torch.Tensor:
    """Return e**x, with equal bytes on all CPUs; its relative error is up to |x| roundings."""
    return (x * math.log2(math.e)).exp2()


def logarithm(x: torch.Tensor) -> torch.Tensor:
    """Return log x, by the C library, with equal bytes on all CPUs."""
    import torch

    return torch.xlogy(torch.ones_like(x), x)


def root(x: torch.Tensor) -> torch.Tensor:
    """Return the square root of x, without a gradient; on the CPU correctly rounded."""
    import torch

    detached = x.detach()
    return (
        torch.from_numpy(np.sqrt(detached.numpy()))
        if detached.device.type == "cpu"
        else detached.sqrt()
    )


def convolved(x: torch.Tensor, weight: torch.Tensor, padding: int) -> torch.Tensor:
    """Convolve images of A models, each model with its own kernels; fast on GPUs, differentiable.

    x (A, B, C, H, W) and weight (A, O, C, k, k) give (A, B, O, H', W'); `padding` is zeros around.
    cuDNN goes model by model, which leaves a GPU nearly idle; here all windows are one product.
    """
    output: torch.Tensor = _convolution().apply(x, weight, padding)
    return output


def columns(x: torch.Tensor, kernel: int, padding: int) -> torch.Tensor:
    """Unfold the k × k windows of images (A, B, C, H, W): (A · B, C · k · k, H' · W')."""
    from torch.nn.functional import pad

    around = pad(x, (padding,) * 4) if padding else x
    windows = around.unfold(3, kernel, 1).unfold(4, kernel, 1).permute(0, 1, 2, 5, 6, 3, 4)
    a, b, c, _, _, height, width = windows.shape
    return windows.reshape(a * b, c * kernel * kernel, height * width)


@cache
def _convolution() -> Any:
    """Return the autograd function of `convolved`, with one batched product for all examples."""
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
