"""Products of torch tensors on the CPU by OpenBLAS or oneDNN, never by MKL.

MKL, which torch multiplies by, gives other bytes on processors of Intel than on those of AMD. These
two give the same where their branches are named (`core/arithmetic.py`), and are as fast: OpenBLAS,
of NumPy and SciPy, costs a microsecond to call; oneDNN 15, but multiplies a few rows by a large
matrix that lies transposed in half to four fifths of its time. A stack of models is multiplied one
by one, so bytes do not depend on company. On other devices all is torch's own.

Shapes: matrices, or stacks of them with models first. float32, and float64 by OpenBLAS alone.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

# numbers of a matrix that lies transposed from which oneDNN is faster (10 or 50 rows)
LARGE = 2**18


def multiplied(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, (n, k) by (k, m) or stacks of both, into `out` if it is given; not differentiable."""
    import torch

    if a.device.type != "cpu":
        return torch.matmul(a, b, out=out)
    if _by_onednn(b, out):
        if b.dim() == 2:
            return _onednn(a.detach(), b.detach())
        return torch.stack([_onednn(*pair) for pair in zip(a.detach(), b.detach(), strict=True)])
    left, right = a.detach().numpy(), b.detach().numpy()
    if out is None:
        return torch.from_numpy(np.matmul(left, right))
    np.matmul(left, right, out=out.detach().numpy())
    return out


def _by_onednn(b: torch.Tensor, out: torch.Tensor | None) -> bool:
    """Whether the second factor is a large matrix that lies transposed, whose product is new."""
    import torch

    return (
        out is None
        and b.shape[-1] * b.shape[-2] >= LARGE
        and b.dtype == torch.float32
        and b.stride(-2) == 1
        and b.stride(-1) == b.shape[-2]
    )


def _onednn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b for a matrix b that lies transposed."""
    import torch

    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(a, b.T, None, "none", [], "")
    return product


def add_product(onto: torch.Tensor, a: torch.Tensor, b: torch.Tensor, factor: float) -> None:
    """onto += factor · a @ b, in the product itself: (n, m), (n, k), (k, m) or stacks of them."""
    if onto.device.type != "cpu":
        (onto.addmm_ if onto.dim() == 2 else onto.baddbmm_)(a, b, alpha=factor)
        return
    arrays = [value.detach().numpy() for value in (onto, a, b)]
    if onto.dim() == 2:
        _add(arrays[0], arrays[1], arrays[2], factor)
        return
    for target, left, right in zip(*arrays, strict=True):
        _add(target, left, right, factor)


def _add(onto: np.ndarray, a: np.ndarray, b: np.ndarray, factor: float) -> None:
    """BLAS takes columns first, so it is told of the transposed matrices: ontoᵀ += factor bᵀ aᵀ."""
    from scipy.linalg import blas

    gemm = blas.sgemm if onto.dtype == np.float32 else blas.dgemm
    turned = [not value.T.flags.f_contiguous for value in (b, a)]
    factors = [value if turn else value.T for value, turn in zip((b, a), turned, strict=True)]
    result = gemm(
        factor,
        *factors,
        beta=1.0,
        c=onto.T,
        trans_a=turned[0],
        trans_b=turned[1],
        overwrite_c=1,
    )
    if not np.shares_memory(result, onto):
        onto[...] = result.T


def affine(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x @ weight + bias, to be differentiated: (A, B, n), (A, n, m) and (A, m) to (A, B, m)."""
    import torch

    if x.device.type != "cpu":
        return torch.baddbmm(bias.unsqueeze(1), x, weight)
    output: torch.Tensor = _affine().apply(x, weight, bias)
    return output


@cache
def _affine() -> Any:
    """The autograd function; made on first use, because torch comes later."""
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
