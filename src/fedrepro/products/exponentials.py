"""Exponentials and logarithms of torch tensors on the CPU without MKL.

torch's exp, log, sqrt, erf, tan, atan, log2, log10 and logsumexp go by MKL's vector functions,
whose bytes differ between processors of Intel and AMD; exp2, expm1, log1p, pow, tanh, sigmoid,
softplus, softmax and log_softmax are torch's own, and do not. All of these can be differentiated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# what goes by MKL's vector functions on the CPU, as torch's operators are called
BY_MKL = frozenset(
    f"aten::{name}{place}"
    for name in (
        *("acos", "asin", "atan", "erf", "erfc", "erfinv", "exp", "log", "log10", "log2"),
        *("sqrt", "tan", "trunc", "logsumexp"),
    )
    for place in ("", "_")
)


def exponential(x: torch.Tensor) -> torch.Tensor:
    """e**x; its relative error grows to |x| roundings."""
    return (x * math.log2(math.e)).exp2()


def logarithm(x: torch.Tensor) -> torch.Tensor:
    """log x, of the C library."""
    import torch

    return torch.xlogy(torch.ones_like(x), x)


def log_sum_exp(x: torch.Tensor) -> torch.Tensor:
    """log sum_k e**x_k over the last axis; not a number where any x is not finite."""
    top = x.amax(-1, keepdim=True)
    each = ((x - top) * math.log2(math.e)).exp2_()
    # the largest term is 1, so what is added to it is at least 0
    return (each.sum(-1) - 1).log1p().add(top.squeeze(-1))
