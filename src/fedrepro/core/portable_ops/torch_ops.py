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
    """Return a @ b of matrices, or stacks of them, without a gradient; equal bytes on all CPUs."""
    import torch

    if a.device.type != "cpu":
        return torch.matmul(a, b)
    return torch.from_numpy(np.matmul(a.detach().numpy(), b.detach().numpy()))


def portable_affine(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return x @ weight + bias, (A, B, n) @ (A, n, m) + (A, m), of A models; differentiable."""
    import torch

    if x.device.type != "cpu":
        return torch.baddbmm(bias.unsqueeze(1), x, weight)
    output: torch.Tensor = _product().apply(x, weight).add_(bias.unsqueeze(1))
    return output


@cache
def _product() -> Any:
    import torch

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, weight)
            return multiplied(x, weight)

        @staticmethod
        def backward(ctx: Any, error: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            (x, weight), (of_x, of_weight) = ctx.saved_tensors, ctx.needs_input_grad
            return (
                multiplied(error, weight.transpose(1, 2)) if of_x else None,
                multiplied(x.transpose(1, 2), error) if of_weight else None,
            )

    return Product


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

    detached, on_cpu = x.detach(), x.device.type == "cpu"
    return torch.from_numpy(np.sqrt(detached.numpy())) if on_cpu else detached.sqrt()


def convolved(x: torch.Tensor, weight: torch.Tensor, padding: int) -> torch.Tensor:
    """Convolve images of A models, each model with its own kernels; fast on GPUs, differentiable.

    x (A, B, C, H, W) and weight (A, O, C, k, k) give (A, B, O, H', W'), by stride 1, `padding` 0s.
    cuDNN goes model by model, which leaves a GPU nearly idle; here all windows are one product.
    """
    import torch

    (models, examples, *_), (_, channels, _, kernel, _) = x.shape, weight.shape
    by = weight.reshape(models, 1, channels, -1).expand(-1, examples, -1, -1)
    by = by.reshape(models * examples, channels, -1)
    height, width = (size + 2 * padding - kernel + 1 for size in x.shape[3:])
    products = torch.bmm(by, _windows().apply(x, kernel, padding))
    return products.view(models, examples, channels, height, width)


@cache
def _windows() -> Any:
    """Return an autograd function from images (A, B, C, H, W) to windows (A B, C k k, H' W')."""
    import torch
    from torch.nn.functional import fold, pad

    class ImageWindows(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, kernel: int, padding: int) -> torch.Tensor:
            ctx.shape, ctx.kernel, ctx.padding = x.shape, kernel, padding
            around = pad(x, (padding,) * 4) if padding else x
            windows = around.unfold(3, kernel, 1).unfold(4, kernel, 1).permute(0, 1, 2, 5, 6, 3, 4)
            return windows.reshape(x.shape[0] * x.shape[1], x.shape[2] * kernel**2, -1)

        @staticmethod
        def backward(ctx: Any, error: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            below = fold(error, ctx.shape[3:], ctx.kernel, padding=ctx.padding)
            return below.view(ctx.shape), None, None

    return ImageWindows
