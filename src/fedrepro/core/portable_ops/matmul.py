"""Products of torch tensors on the CPU by NumPy's OpenBLAS, never by MKL.

MKL, which torch multiplies by, gives other bytes on processors of Intel than on those of AMD.
OpenBLAS gives the same where its branch is named (`core/cpu_kernels.py`). A stack of models is
multiplied one by one, so bytes do not depend on company. On other devices all is torch's own.

Shapes: matrices, or stacks of them with models first.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def multiplied(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute a @ b, (n, k) by (k, m) or stacks of both, into `out` if given, without gradients."""
    import torch

    if a.device.type != "cpu":
        return torch.matmul(a, b, out=out)
    left, right = a.detach().numpy(), b.detach().numpy()
    if out is None:
        return torch.from_numpy(np.matmul(left, right))
    np.matmul(left, right, out=out.detach().numpy())
    return out


def portable_affine(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute x @ weight + bias, differentiable: (A, B, n), (A, n, m) and (A, m) to (A, B, m)."""
    import torch

    if x.device.type != "cpu":
        return torch.baddbmm(bias.unsqueeze(1), x, weight)
    output: torch.Tensor = _affine().apply(x, weight, bias)
    return output


@cache
def _affine() -> Any:
    """Make the autograd function, on first use, because torch is imported late."""
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
