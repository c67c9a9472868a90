"""Measures of what the nodes of a graph believe: of each node, and the mean and the worst."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.api import Tensors
from fedrepro.core.rng import RngKey
from fedrepro.networks.network import Network
from fedrepro.networks.predict import predict_belief, probabilities
from fedrepro.numbers.model_evaluation import EvaluationSplit
from fedrepro.training.examples import tensor_of

if TYPE_CHECKING:
    import torch

BINS = 15  # of confidence, for the calibration error
LEAST = float(np.finfo(np.float32).tiny)  # a likelihood of 0 would be an infinite loss
QUANTILES = {"spread_q05": 0.05, "spread_q50": 0.5, "spread_q95": 0.95}
WORST: dict[str, Callable[[Sequence[float]], float]] = {
    "accuracy": min,
    "nll": max,
    "calibration_error": max,
}


def predicted(
    network: Network, belief: Tensors, split: EvaluationSplit, samples: int, rng: RngKey
) -> tuple[np.ndarray, np.ndarray]:
    """Class scores (n, K) and what was asked, int64 (n,), of one node's belief."""
    return _asked(network, split, predict_belief(network, belief, split.examples, samples, rng))


def _asked(
    network: Network, split: EvaluationSplit, scores: torch.Tensor
) -> tuple[np.ndarray, np.ndarray]:
    labels = tensor_of(split.labels).to(scores.device)
    asked = network.asked(split.examples.inputs, labels).reshape(-1)
    return scores.cpu().numpy(), asked.cpu().numpy()


def scored(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Accuracy, negative log-likelihood and calibration error of predictions (n, K)."""
    likelihood = scores[np.arange(len(labels)), labels].astype(np.float64)
    return {
        "accuracy": float((scores.argmax(1) == labels).mean()),
        "nll": float(-np.log(np.maximum(likelihood, LEAST)).mean()),
        "calibration_error": calibration_error(scores, labels),
    }


def calibration_error(scores: np.ndarray, labels: np.ndarray) -> float:
    """sum_b n_b / n |accuracy_b - confidence_b| over 15 equal bins of the highest score.

    Source: Guo et al., On calibration of modern neural networks, 2017, eq. (3).
    """
    confidence = scores.max(1).astype(np.float64)
    right = scores.argmax(1) == labels
    bins = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    gaps = np.bincount(bins, right - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / len(labels))


def accuracy_of_means(network: Network, belief: Tensors, split: EvaluationSplit) -> float:
    """Accuracy of the network whose weights are the means of a belief."""
    means = {name: value[None] for name, value in belief.items()}
    scores, labels = _asked(network, split, probabilities(network, means, None, split.examples))
    return float((scores.argmax(1) == labels).mean())


def spreads(network: Network, belief: Tensors) -> dict[str, float]:
    """Quantiles over all weights of their standard deviations; none of a network without."""
    names = [name for name, item in network.parameters.items() if item.role == "spread"]
    if not names:
        return {}
    deviations = np.concatenate([np.logaddexp(0, belief[name].ravel()) for name in names])
    quantiles = np.quantile(deviations, list(QUANTILES.values()))
    return dict(zip(QUANTILES, quantiles.tolist(), strict=True))


def of_all(nodes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean over nodes of each number, and the worst of those that have a direction."""
    means = {name: float(np.mean([node[name] for node in nodes])) for name in nodes[0]}
    worst = {
        f"{name}_worst": take([node[name] for node in nodes])
        for name, take in WORST.items()
        if name in means
    }
    return means | worst


def confusion(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Examples of each class (row) and prediction (column), int64 (K, K)."""
    classes = scores.shape[1]
    pairs = labels * classes + scores.argmax(1)
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def strange(network: Network, tensors: Tensors) -> tuple[int, str] | None:
    """Find the first node whose belief is not finite, and its part: mean, spread or weight."""
    for name, value in tensors.items():
        finite = np.isfinite(value).reshape(len(value), -1).all(1)
        if not finite.all():
            spread = network.parameters[name].role == "spread"
            variational = network.kind == "variational"
            what = "spread" if spread else "mean" if variational else "weight"
            return int(np.flatnonzero(~finite)[0]), what
    return None
