"""Exponentials, logarithms and roots of torch tensors on the CPU without MKL.

torch's exp, log, sqrt, erf, tan, atan, log2, log10 and logsumexp go by MKL's vector functions,
whose bytes differ between processors of Intel and AMD. So do a power of 0.5, which is sqrt there,
and the gradient of one of 1.5. exp2, expm1, log1p, other powers, tanh, sigmoid, softplus, softmax
and log_softmax are torch's own, and do not. All of these but `root` can be differentiated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def exponential(x: torch.Tensor) -> torch.Tensor:
    """Compute e**x; its relative error grows to |x| roundings."""
    return (x * math.log2(math.e)).exp2()


def logarithm(x: torch.Tensor) -> torch.Tensor:
    """Compute log x by the C library."""
    import torch

    return torch.xlogy(torch.ones_like(x), x)


def root(x: torch.Tensor) -> torch.Tensor:
    """Compute the square root, rounded correctly on the CPU; without a gradient."""
    import torch

    detached = x.detach()
    return (
        torch.from_numpy(np.sqrt(detached.numpy()))
        if detached.device.type == "cpu"
        else detached.sqrt()
    )


def log_sum_exp(x: torch.Tensor) -> torch.Tensor:
    """Compute log sum_k e**x_k over the last axis; NaN where any x is not finite."""
    top = x.amax(-1, keepdim=True)
    terms = ((x - top) * math.log2(math.e)).exp2_()
    # the largest term is 1, so what is added to it is at least 0
    return (terms.sum(-1) - 1).log1p().add(top.squeeze(-1))
