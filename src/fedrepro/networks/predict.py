"""Prediction by one network, a mixture of several, or a gate over their logits.

A Bayesian network has a tensor of means, such as weight0, and one of spreads, weight0_spread; a
weight is N(mean, softplus(spread)²). An example has one prediction, or one for each character.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedrepro.core.method_kinds import MODULE
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Component, Spec
from fedrepro.networks.layers import Arrays
from fedrepro.networks.network import Network

if TYPE_CHECKING:
    import torch


class Scaled(Protocol):
    """Examples to predict: `inputs` (N, D) as stored; `scaled` gives rows of them for a network."""

    @property
    def inputs(self) -> torch.Tensor: ...
    @property
    def dtype(self) -> torch.dtype: ...
    def scaled(self, rows: slice) -> torch.Tensor: ...


TIE = 1e-9  # below the difference of any two shares of votes


def network_of(model: Spec, shape: tuple[int, ...], classes: int) -> Network:
    """Return the network of a configured model, for inputs of `shape` and a number of classes."""
    return _network_of(model, model.component, tuple(shape), classes)


@lru_cache(128)
def _network_of(model: Spec, component: Component, shape: tuple[int, ...], classes: int) -> Network:
    """Build a model's network; cached until its registered `component` changes with its file."""
    if component.meta.get(MODULE):
        from fedrepro.networks.user_torch_modules import network_of_module

        return network_of_module(model, shape, classes)
    return component.make(Network, shape, classes, **model.values)


def predict_belief(
    network: Network, tensors: Arrays, examples: Scaled, samples: int, rng: RngKey
) -> torch.Tensor:
    """Return class probabilities (N·predictions, K) of a Bayesian network, means over weight draws.

    `tensors` (*shape) are means and spreads, from which `rng` draws all weights `samples` times.
    Source: P2P (Lalitha et al., 2019), section 5.2, which gives no number of draws.
    """
    return probabilities(network, draws_of(network, tensors, samples, rng), None, examples)


def draws_of(network: Network, tensors: Arrays, samples: int, rng: RngKey) -> dict[str, np.ndarray]:
    """Draw weights (samples, *shape) from means and spreads; (1, *shape) if not Bayesian."""
    if network.kind != "variational":
        return {name: value[None] for name, value in tensors.items()}
    generator = rng.stream("predictive-weights")
    draws = {}
    for name, parameter in network.parameters.items():
        if parameter.role == "spread":
            draws[name] = np.repeat(tensors[name][None], samples, axis=0)
            continue
        noise = generator.standard_normal((samples, *parameter.shape), np.float32)
        draws[name] = tensors[name] + np.logaddexp(0, tensors[f"{name}_spread"]) * noise
    return draws


def probabilities(
    network: Network,
    tensors: Arrays,
    weights: np.ndarray | None,
    examples: Scaled,
    ties: RngKey | None = None,
) -> torch.Tensor:
    """Return class scores of a mixture: sum_i weights[i] * softmax(logits_i), (N·predictions, K).

    `tensors` are those of m networks, (m, *shape); `weights` are (m, K), by network and class, or
    None for 1/m each. With `ties` networks vote: a one-hot vector of the predicted class replaces
    the softmax. Votes are summed as float64; random numbers below 1e-9 (TIE), by the key `ties`,
    break ties. Scores are on the examples' device. Source: PFNM, supplement 4.1 (ensembles).
    """
    import torch

    summing = examples.dtype if ties is None else torch.float64
    count, device = len(next(iter(tensors.values()))), examples.inputs.device
    even = np.full((count, network.classes), 1.0 / count)
    share = torch.from_numpy(even if weights is None else weights).to(device, summing)
    rows, at = len(examples.inputs) * network.predictions, 0
    out = torch.zeros(rows, network.classes, dtype=summing, device=device)
    with torch.no_grad():
        for each in _batches(network, tensors, examples):
            for i, logits in enumerate(each):
                if ties is None:
                    scores = torch.softmax(logits, dim=1)
                else:
                    scores = torch.zeros_like(logits).scatter_(1, logits.argmax(1, keepdim=True), 1)
                out[at : at + len(logits)] += share[i] * scores
            at += len(each[0])
    if ties is None:
        return out
    drawn = ties.stream("vote-ties").random(out.shape)
    return out.add_(torch.from_numpy(drawn).to(device), alpha=TIE)


def _batches(network: Network, tensors: Arrays, examples: Scaled) -> Iterator[list[torch.Tensor]]:
    """Yield the logits of each of m networks, tensors (m, *shape), for some examples at a time."""
    held = loaded(tensors, examples)
    models = [{k: v[i] for k, v in held.items()} for i in range(len(next(iter(held.values()))))]
    for start in range(0, len(examples.inputs), network.prediction_rows):
        x = examples.scaled(slice(start, start + network.prediction_rows))
        yield [network.logits(model, x) for model in models]


def loaded(tensors: Arrays, examples: Scaled) -> dict[str, torch.Tensor]:
    """Convert a model's arrays to torch tensors, of the type and on the device of `examples`."""
    import torch

    device, dtype = examples.inputs.device, examples.dtype
    return {
        name: torch.from_numpy(np.asarray(value, order="C")).to(device, dtype)
        for name, value in tensors.items()
    }


def gated_logits(gate: Arrays, logits: np.ndarray) -> np.ndarray:
    """Return the output (n, K) of a gate network on the logits (n, m · K) of m other networks.

    `gate` has weight0 (m · K, H), bias0 (H,), or also, after a ReLU, weight1 (H, K), bias1 (K,).
    """
    x = logits @ gate["weight0"] + gate["bias0"]
    return np.maximum(x, 0) @ gate["weight1"] + gate["bias1"] if "weight1" in gate else x


def joint_logits(network: Network, tensors: Arrays, examples: Scaled) -> np.ndarray:
    """Compute the logits of m networks, tensors (m, *shape), side by side: float32 (n, m · K)."""
    import torch

    with torch.no_grad():
        batches = [torch.cat(logits, 1) for logits in _batches(network, tensors, examples)]
        return torch.cat(batches).float().cpu().numpy()


def gated(network: Network, tensors: Arrays, gate: Arrays, examples: Scaled) -> torch.Tensor:
    """Return a gate network's scores (N, K) on the logits of m networks, `tensors` (m, *shape)."""
    import torch

    scores = gated_logits(gate, joint_logits(network, tensors, examples))
    return torch.from_numpy(scores).to(examples.inputs.device)
