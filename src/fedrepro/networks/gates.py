"""A gate: a small network that makes one prediction of the logits of several networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.networks.network import Network
from fedrepro.networks.predict import Scaled

if TYPE_CHECKING:
    import torch

Gate = Mapping[str, np.ndarray]


def gated_logits(gate: Gate, logits: np.ndarray) -> np.ndarray:
    """Compute the gate's output, (n, K), from the logits of m networks side by side, (n, m · K).

    The gate is weight0 (m · K, H), bias0 (H,), weight1 (H, K), bias1, with ReLU between; or one
    layer.
    """
    x = logits
    layers = len(gate) // 2
    for place in range(layers):
        x = x @ gate[f"weight{place}"] + gate[f"bias{place}"]
        x = np.maximum(x, 0) if place + 1 < layers else x
    return x


def joint_logits(
    network: Network, tensors: Mapping[str, np.ndarray], examples: Scaled
) -> np.ndarray:
    """Compute the logits of m networks, tensors (m, *shape), side by side: float32 (n, m · K)."""
    import torch

    device, dtype = examples.inputs.device, examples.dtype
    loaded = {
        name: torch.from_numpy(np.ascontiguousarray(value)).to(device, dtype)
        for name, value in tensors.items()
    }
    count, batches = len(next(iter(loaded.values()))), []
    with torch.no_grad():
        for start in range(0, len(examples.inputs), network.prediction_rows):
            x = examples.scaled(slice(start, start + network.prediction_rows))
            logits = [network.logits({k: v[i] for k, v in loaded.items()}, x) for i in range(count)]
            batches.append(torch.cat(logits, dim=1).float().cpu().numpy())
    return np.concatenate(batches)


def gated(
    network: Network, tensors: Mapping[str, np.ndarray], gate: Gate, examples: Scaled
) -> torch.Tensor:
    """Compute class scores (N, K): the gate's logits."""
    import torch

    return torch.from_numpy(gated_logits(gate, joint_logits(network, tensors, examples)))
