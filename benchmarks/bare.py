"""The bare float32 products of steps of dense networks, by each library that has them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch

# a (m, k), b (k, n), out (m, n)
Multiply = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


def by_onednn(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> object:
    """There is no way to hand it an output."""
    return torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], "")


LIBRARIES: dict[str, Multiply] = {
    "MKL": lambda a, b, out: torch.mm(a, b, out=out),
    "OpenBLAS": lambda a, b, out: np.matmul(a.numpy(), b.numpy(), out=out.numpy()),
    "oneDNN": by_onednn,
}

Operands = list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


def of_map(batch: int, low: int, high: int, below: bool, learned: bool = True) -> Operands:
    """x @ w, xᵀ @ e and e @ wᵀ of an affine map; below: something is below it that learns."""
    x, w, e = torch.rand(batch, low), torch.rand(low, high), torch.rand(batch, high)
    found = [(x, w, torch.empty_like(e))]
    if learned:
        found.append((x.t(), e, torch.empty_like(w)))
    if below:
        found.append((e, w.t(), torch.empty_like(x)))
    return found


def of_network(batch: int, sizes: Sequence[int]) -> Operands:
    """Those of a whole step."""
    pairs = enumerate(itertools.pairwise(sizes))
    return [one for place, (low, high) in pairs for one in of_map(batch, low, high, place > 0)]


def repeated(operands: Operands, steps: int, multiply: Multiply) -> Callable[[], None]:
    """All of them so many times, on data in the cache."""

    def run() -> None:
        with torch.inference_mode():
            for _ in range(steps):
                for one in operands:
                    multiply(*one)

    return run
