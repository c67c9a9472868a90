"""Prediction by one network, a mixture of several, or a gate over their logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedrepro.core.method_kinds import MODULE
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Component, Spec
from fedrepro.networks.network import Network

if TYPE_CHECKING:
    import torch


class Scaled(Protocol):
    """Examples to predict: inputs as stored, (N, D), and how to scale inputs for a network."""

    @property
    def inputs(self) -> torch.Tensor: ...
    @property
    def dtype(self) -> torch.dtype:
        """Return the torch type in which networks compute predictions."""

    def scaled(self, rows: slice) -> torch.Tensor:
        """Return the inputs of the examples `rows`, scaled for a network: floating (n, D)."""


Gate = Mapping[str, np.ndarray]  # a small network on the logits of several
TIE = 1e-9  # below the difference of any two shares of votes


def network_of(model: Spec, shape: tuple[int, ...], classes: int) -> Network:
    """Return the network of a configured model, for inputs of `shape` and a number of classes."""
    return _network_of(model, model.component, tuple(shape), classes)


@lru_cache(128)
def _network_of(model: Spec, component: Component, shape: tuple[int, ...], classes: int) -> Network:
    """Build a network, cached; `component` is a key of the cache as its file may have changed."""
    if component.meta.get(MODULE):
        from fedrepro.networks.torch_modules import network_of_module

        return network_of_module(model, shape, classes)
    return component.make(Network, shape, classes, **model.values)


def predict_belief(
    network: Network, tensors: Mapping[str, np.ndarray], examples: Scaled, samples: int, rng: RngKey
) -> torch.Tensor:
    """Return class probabilities (N·predictions, K) of a Bayesian network, means over weight draws.

    `tensors` (*shape) are means and spreads of the network's weights, which are drawn `samples`
    times by the random key `rng`. An ordinary network predicts once, with its weights. Source: P2P,
    section 5.2, which does not give the number of draws.
    """
    return probabilities(network, draws_of(network, tensors, samples, rng), None, examples)


def draws_of(
    network: Network, tensors: Mapping[str, np.ndarray], samples: int, rng: RngKey
) -> dict[str, np.ndarray]:
    """Draw a Bayesian network's weights from N(mean, softplus(spread)²): (samples, *shape) by name.

    `tensors` are means and spreads. Weights of an ordinary network are returned once, (1, *shape).
    """
    if network.kind != "variational":
        return {name: value[None] for name, value in tensors.items()}
    generator = rng.stream("predictive-weights")
    draws = {}
    for name, parameter in network.parameters.items():
        if parameter.role == "spread":
            draws[name] = np.repeat(tensors[name][None], samples, axis=0)
            continue
        noise = generator.standard_normal((samples, *parameter.shape), np.float32)
        deviation = np.logaddexp(0, tensors[f"{name}_spread"])
        draws[name] = tensors[name] + deviation * noise
    return draws


def probabilities(
    network: Network,
    tensors: Mapping[str, np.ndarray],
    weights: np.ndarray | None,
    examples: Scaled,
) -> torch.Tensor:
    """Return class scores of a mixture: sum_i weights[i] * softmax(logits_i), (N·predictions, K).

    `tensors` are those of m networks, (m, *shape); `weights` are (m, K), or None for 1/m each.
    Scores are on the examples' device. Source: PFNM, supplement 4.1 (uniform and weighted
    ensemble).
    """
    import torch

    softmax = partial(torch.softmax, dim=1)
    return _summed(network, tensors, weights, examples, softmax, examples.dtype)


def votes(
    network: Network,
    tensors: Mapping[str, np.ndarray],
    weights: np.ndarray | None,
    examples: Scaled,
    rng: RngKey,
) -> torch.Tensor:
    """Return weighted votes, sum_i weights[i] * [network i predicts class k], for each class k.

    The result is float64 (N·predictions, K). `tensors` are those of m networks, (m, *shape);
    `weights` are (m, K), or None for 1/m each. Random numbers below TIE, from key `rng`, break
    ties.
    """
    import torch

    def each(logits: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(logits).scatter_(1, logits.argmax(1, keepdim=True), 1)

    scores = _summed(network, tensors, weights, examples, each, torch.float64)
    drawn = rng.stream("vote-ties").random(scores.shape)
    return scores.add_(torch.from_numpy(drawn).to(scores.device), alpha=TIE)


def _summed(
    network: Network,
    tensors: Mapping[str, np.ndarray],
    weights: np.ndarray | None,
    examples: Scaled,
    scores: Callable[[torch.Tensor], torch.Tensor],
    summing: torch.dtype,
) -> torch.Tensor:
    """Compute sum_i weights[i] * scores(logits_i), (N·predictions, K), in the type `summing`."""
    import torch

    held = loaded(tensors, examples)
    count, device = len(next(iter(held.values()))), examples.inputs.device
    classes = network.classes
    even = np.full((count, classes), 1.0 / count)
    share = torch.from_numpy(even if weights is None else weights).to(device, summing)
    total = len(examples.inputs)
    predictions = network.predictions
    out = torch.zeros(total * predictions, classes, dtype=summing, device=device)
    with torch.no_grad():
        for start in range(0, total, network.prediction_rows):
            rows = slice(start, start + network.prediction_rows)
            x = examples.scaled(rows)
            out_rows = slice(predictions * rows.start, predictions * rows.stop)
            for i in range(count):
                model = {name: value[i] for name, value in held.items()}
                out[out_rows] += share[i] * scores(network.logits(model, x))
    return out


def loaded(tensors: Mapping[str, np.ndarray], examples: Scaled) -> dict[str, torch.Tensor]:
    """Convert a model's arrays to torch tensors, of the type and on the device of `examples`."""
    import torch

    device, dtype = examples.inputs.device, examples.dtype
    return {
        name: torch.from_numpy(np.asarray(value, order="C")).to(device, dtype)
        for name, value in tensors.items()
    }


def gated_logits(gate: Gate, logits: np.ndarray) -> np.ndarray:
    """Return the output (n, K) of a gate network on the logits (n, m · K) of m other networks.

    `gate` has weight0 (m · K, H), bias0 (H,), weight1 (H, K), bias1 (K,), with ReLU between; or
    weight0 and bias0 alone.
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

    held = loaded(tensors, examples)
    count, batches = len(next(iter(held.values()))), []
    with torch.no_grad():
        for start in range(0, len(examples.inputs), network.prediction_rows):
            x = examples.scaled(slice(start, start + network.prediction_rows))
            logits = [network.logits({k: v[i] for k, v in held.items()}, x) for i in range(count)]
            batches.append(torch.cat(logits, dim=1).float().cpu().numpy())
    return np.concatenate(batches)


def gated(
    network: Network, tensors: Mapping[str, np.ndarray], gate: Gate, examples: Scaled
) -> torch.Tensor:
    """Return class scores (N, K) of a gate network on the logits of m networks, (m, *shape)."""
    import torch

    return torch.from_numpy(gated_logits(gate, joint_logits(network, tensors, examples)))
