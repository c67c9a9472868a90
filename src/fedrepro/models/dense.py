"""Fully connected ReLU networks as plain arrays: shapes, initial values, and prediction.

A network of sizes (D, L1, …, K) has tensors weight0 (D, L1), bias0 (L1), weight1 (L1, L2), …;
orientation is input × output. Everything here takes a leading dimension of networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.errors import FedreproError
from fedrepro.registry import components
from fedrepro.rng import Rng
from fedrepro.spec import Spec

if TYPE_CHECKING:
    import torch

EVALUATION_ROWS = 2500


@dataclass(frozen=True)
class Dense:
    """A fully connected network with layer sizes (inputs, hidden…, classes)."""

    sizes: tuple[int, ...]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensor names and shapes, in order."""
        found: dict[str, tuple[int, ...]] = {}
        for layer, (fan_in, fan_out) in enumerate(zip(self.sizes, self.sizes[1:], strict=False)):
            found[f"weight{layer}"] = (fan_in, fan_out)
            found[f"bias{layer}"] = (fan_out,)
        return found

    @property
    def layers(self) -> int:
        return len(self.sizes) - 1

    def initial(self, rng: Rng, weight_sd: float, bias: float) -> dict[str, np.ndarray]:
        """Weights from N(0, weight_sd²), biases constant; float32. Source: PFNM, Table 1."""
        generator = rng.stream("initial-weights")
        return {
            name: generator.normal(0.0, weight_sd, shape).astype(np.float32)
            if name.startswith("weight")
            else np.full(shape, bias, np.float32)
            for name, shape in self.shapes.items()
        }


def architecture(model: Spec, inputs: int, classes: int) -> Dense:
    """The network that a model spec describes for these inputs and classes."""
    found = model.component.fn(inputs, classes, **model.values)
    assert isinstance(found, Dense)
    return found


def dense_spec(hidden: tuple[int, ...]) -> Spec:
    """The spec of a fully connected network with these hidden widths (none: logistic)."""
    if not hidden:
        return components("model")["logistic"].spec()
    return components("model")["mlp"].spec({"hidden": list(hidden)})


def widths(tensors: Mapping[str, np.ndarray]) -> tuple[int, ...]:
    """Hidden widths, read off the tensors (leading dimension: networks)."""
    layers = sum(name.startswith("weight") for name in tensors)
    return tuple(tensors[f"weight{layer}"].shape[2] for layer in range(layers - 1))


def logits(tensors: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Outputs before softmax. x: (N, D); tensors[name]: (*shape) of one network. Returns (N, K)."""
    import torch

    layers = sum(name.startswith("weight") for name in tensors)
    for layer in range(layers):
        x = torch.addmm(tensors[f"bias{layer}"], x, tensors[f"weight{layer}"])
        if layer < layers - 1:
            x = x.relu_()
    return x


def probabilities(
    tensors: Mapping[str, np.ndarray], weights: np.ndarray | None, x: torch.Tensor
) -> torch.Tensor:
    """Class scores sum_i weights[i] * softmax(logits_i), in batches of rows.

    tensors[name]: (m, *shape); weights: (m, K) or None (every network counts 1/m); x: (N, D).
    Returns (N, K) on x's device. Source: PFNM, supplement 4.1 (uniform and weighted ensemble).
    """
    import torch

    count = len(next(iter(tensors.values())))
    held = {k: torch.from_numpy(np.ascontiguousarray(v)).to(x) for k, v in tensors.items()}
    classes = next(reversed(held.values())).shape[-1]
    share = torch.full((count, classes), 1.0 / count) if weights is None else torch.tensor(weights)
    share = share.to(x)
    out = torch.zeros(len(x), classes, dtype=x.dtype, device=x.device)
    for start in range(0, len(x), EVALUATION_ROWS):
        rows = slice(start, start + EVALUATION_ROWS)
        for i in range(count):
            network = {name: value[i] for name, value in held.items()}
            out[rows] += share[i] * torch.softmax(logits(network, x[rows]), dim=1)
    return out


def require_dense(tensors: Mapping[str, np.ndarray], what: str) -> None:
    """An error if these are not the tensors of a fully connected network."""
    if "weight0" not in tensors or "bias0" not in tensors:
        raise FedreproError(f"{what} works on fully connected networks (mlp, logistic) only")
