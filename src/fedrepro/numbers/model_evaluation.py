"""Evaluate a global model: accuracy on splits of examples, sizes, and cost of a prediction.

A belief has means of a variational network's weights by name, and spreads s: sd is log(1 + e^s).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.api import GlobalModel, Tensors, Traffic
from fedrepro.core.metrics import Number
from fedrepro.core.rng import RngKey
from fedrepro.networks.network import Network
from fedrepro.networks.predict import gated, network_of, predict_belief, probabilities
from fedrepro.training.training_examples import Examples, tensor_of

if TYPE_CHECKING:
    import torch

SAMPLES, ALONG = 10, 5  # draws of the weights that a prediction averages, at the end and before
BINS = 15  # of confidence, for the calibration error
LEAST = float(np.finfo(np.float32).tiny)  # a likelihood of 0 would be an infinite loss
QUANTILES = {"spread_q05": 0.05, "spread_q50": 0.5, "spread_q95": 0.95}
Splits = Mapping[str, "EvaluationSplit"]  # by name, such as test
WORST = {"accuracy": np.min, "nll": np.max, "calibration_error": np.max}


@dataclass(frozen=True)
class Draws:
    """How a variational network predicts: mean over `samples` draws of weights by key `place`."""

    place: RngKey
    samples: int = SAMPLES


@dataclass(frozen=True)
class EvaluationSplit:
    """Examples to evaluate on, of input `shape`; rows[j] are indices of client j's own, if any."""

    examples: Examples
    labels: np.ndarray
    shape: tuple[int, ...]
    classes: int
    rows: Sequence[np.ndarray] = ()


def correct(model: GlobalModel, split: EvaluationSplit, draws: Draws | None = None) -> np.ndarray:
    """Mark right predictions, bool (N, P), P per example; NaN, (N, 1), if not `model.finite`."""
    if not model.finite:
        return np.full((len(split.labels), 1), np.nan)
    network = network_of(model.model, split.shape, split.classes)
    scores = class_scores(network, model, split.examples, draws)
    if scores.isnan().any():
        return np.full((len(split.labels), 1), np.nan)
    right: np.ndarray = scores.argmax(1).cpu().numpy() == _asked(network, split, scores)
    return right.reshape(len(split.labels), -1)


def _asked(network: Network, split: EvaluationSplit, scores: torch.Tensor) -> np.ndarray:
    labels = network.asked(split.examples.inputs, tensor_of(split.labels).to(scores.device))
    return labels.cpu().numpy()


def class_scores(
    network: Network, model: GlobalModel, examples: Examples, draws: Draws | None
) -> torch.Tensor:
    """Return scores of K classes, (N * P, K), for P predictions (as of characters) per example.

    They are probabilities; shares of votes if `model.ties`; logits if `model.gate` weighs several
    networks by example. With `draws`, a variational network averages over draws of its weights.
    """
    arguments = network, model.tensors, model.weights, examples
    if model.gate:
        return gated(network, model.tensors, model.gate, examples)
    if model.ties:
        return probabilities(*arguments, model.ties)
    if network.kind != "variational" or draws is None:
        return probabilities(*arguments)
    parts = []
    for i in range(model.networks):
        tensors = {name: value[i] for name, value in model.tensors.items()}
        place = draws.place if model.networks == 1 else draws.place.at(client=i)
        scores = predict_belief(network, tensors, examples, draws.samples, place)
        share = scores.new_ones(network.classes) / model.networks
        if model.weights is not None:
            share = scores.new_tensor(model.weights[i])
        parts.append(share * scores)
    return sum(parts[1:], parts[0])


def measure(model: GlobalModel, splits: Splits, draws: Draws | None = None) -> list[Number]:
    """Return a model's final metrics: accuracy on each of `splits`, size, and `model.diagnostics`.

    With `draws` a variational network has a further accuracy, with mean weights. Accuracy on
    validation examples of clients leaves out the ones that the method was fitted to.
    """
    numbers: list[Number] = []
    for name, split in splits.items():
        right, by_rows = correct(model, split, draws), split.rows
        counted = right
        if name == "client_validation" and model.unseen is not None:
            by_rows = [rows[left] for rows, left in zip(by_rows, model.unseen, strict=True)]
            counted = right[np.concatenate(by_rows)]
        numbers.append(Number("accuracy", float(counted.mean()), name))
        numbers += [Number("accuracy_of_means", v, name) for v in _by_means(model, split, draws)]
        numbers += on_own([right] * len(by_rows), name, by_rows)
    numbers += size(model, next(iter(splits.values())), draws.samples if draws else 1)
    numbers += [Number(name, value) for name, value in sorted(model.diagnostics.items())]
    return numbers


def measure_alone(
    models: Sequence[GlobalModel], splits: Splits, draws: Draws | None = None
) -> tuple[list[Number], list[float]]:
    """Return (mean and worst metrics of clients' `models` on `splits`, test accuracy by client)."""
    numbers, each = list[Number](), dict[str, list[float]]()
    drawn = [draws and replace(draws, place=draws.place.at(client=j)) for j in range(len(models))]
    for name, split in splits.items():
        answers = [correct(model, split, own) for model, own in zip(models, drawn, strict=True)]
        each[name] = [float(right.mean()) for right in answers]
        found = {
            "accuracy": float(np.mean(each[name])),
            "accuracy_worst": float(np.min(each[name])),
        }
        if means := [mean for model in models for mean in _by_means(model, split, draws)]:
            found["accuracy_of_means"] = float(np.mean(means))
        numbers += [Number(metric, value, name) for metric, value in found.items()]
        numbers += on_own(answers, name, split.rows)
    numbers += size(models[0], next(iter(splits.values())), draws.samples if draws else 1)
    return numbers, each.get("test", [])


def on_own(answers: Sequence[np.ndarray], name: str, rows: Sequence[np.ndarray]) -> list[Number]:
    """Return `accuracy_clients` on split `name`, mean of clients' hits answers[j][rows[j]]."""
    if not rows:
        return []
    # a client may have been given none to validate with
    each = [float(hits[own].mean()) for hits, own in zip(answers, rows, strict=True) if len(own)]
    return [Number("accuracy_clients", float(np.mean(each)), name)]


def _by_means(model: GlobalModel, split: EvaluationSplit, draws: Draws | None) -> list[float]:
    if draws is None or network_of(model.model, split.shape, split.classes).kind != "variational":
        return []
    return [float(correct(model, split).mean())]


def size(model: GlobalModel, split: EvaluationSplit, samples: int = 1) -> list[Number]:
    """Count parameters, hidden units, and forward passes (`samples` per network if variational)."""
    network = network_of(model.model, split.shape, split.classes)
    widths = model.widths
    units = network.hidden_units(model.tensors) if widths is None else sum(map(sum, widths))
    passes = samples if network.kind == "variational" else 1
    return [
        *([] if units is None else [Number("hidden_units", float(units))]),
        Number("parameters", float(model.trained(network.buffers))),
        Number("forward_passes", float(model.networks * passes)),
    ]


def communication(rounds: int, sent: Traffic) -> list[Number]:
    """Return metrics of a run: exchanges with the server (`rounds`), messages and bytes `sent`."""
    numbers = {"rounds": rounds, "messages": sent.messages_up + sent.messages_down}
    numbers |= {"bytes_up": sent.bytes_up, "bytes_down": sent.bytes_down}
    return [Number(name, float(value)) for name, value in numbers.items()]


def predicted(
    network: Network, belief: Tensors, split: EvaluationSplit, samples: int, rng: RngKey
) -> tuple[np.ndarray, np.ndarray]:
    """Return (class scores (n, K), means over `samples` draws of weights by `rng`; labels (n,))."""
    scores = predict_belief(network, belief, split.examples, samples, rng)
    return scores.cpu().numpy(), _asked(network, split, scores).reshape(-1)


def scored(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return "accuracy", "nll" (log-loss), "calibration_error" of probabilities `scores` (n, K)."""
    likelihood = scores[np.arange(len(labels)), labels].astype(np.float64)
    right = np.where(np.isnan(likelihood), np.nan, scores.argmax(1) == labels)
    return {
        "accuracy": float(right.mean()),
        "nll": float(-np.log(np.maximum(likelihood, LEAST)).mean()),
        "calibration_error": calibration_error(scores, labels),
    }


def calibration_error(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the sum over 15 bins b of n_b / n |accuracy_b - confidence_b|, for n rows of `scores`.

    A bin has the n_b rows whose highest score is in one 15th of [0, 1]; confidence_b is the mean of
    these. Source: Guo et al., On calibration of modern neural networks, 2017, eq. (3).
    """
    confidence = scores.max(1).astype(np.float64)
    right = scores.argmax(1) == labels
    bins = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    gaps = np.bincount(bins, right - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / len(labels))


def accuracy_of_means(network: Network, belief: Tensors, split: EvaluationSplit) -> float:
    """Return a variational network's accuracy with its weights at their means in `belief`."""
    means = {name: value[None] for name, value in belief.items()}
    scores = probabilities(network, means, None, split.examples)
    return scored(scores.cpu().numpy(), _asked(network, split, scores).reshape(-1))["accuracy"]


def spreads(network: Network, belief: Tensors) -> dict[str, float]:
    """Return 5, 50 and 95 % quantiles of weights' sds, as "spread_q05"; {} if not variational."""
    names = [name for name, item in network.parameters.items() if item.role == "spread"]
    if not names:
        return {}
    deviations = np.concatenate([np.logaddexp(0, belief[name].ravel()) for name in names])
    quantiles = np.quantile(deviations, list(QUANTILES.values()))  # one at a time, digits differ
    return dict(zip(QUANTILES, quantiles.tolist(), strict=True))


def of_all(nodes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Average metrics over `nodes` of a graph; add the worst node's, such as "accuracy_worst"."""
    by_name = {name: [node[name] for node in nodes] for name in nodes[0]}
    means = {name: float(np.mean(values)) for name, values in by_name.items()}
    worst = {name: take(by_name[name]) for name, take in WORST.items() if name in by_name}
    return means | {f"{name}_worst": float(value) for name, value in worst.items()}


def confusion(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Count predictions by `scores` (n, K) in a confusion matrix, int64 (K, K): labels as rows."""
    counts = np.zeros((scores.shape[1],) * 2, np.int64)
    np.add.at(counts, (labels, scores.argmax(1)), 1)
    return counts


def strange(network: Network, tensors: Tensors) -> tuple[int, str] | None:
    """Return (node, "weight", "mean" or "spread") of a value not finite in `tensors`, or None."""
    for name, value in tensors.items():
        finite = np.isfinite(value).reshape(len(value), -1).all(1)
        if not finite.all():
            what = "mean" if network.kind == "variational" else "weight"
            spread = network.parameters[name].role == "spread"
            return int(finite.argmin()), "spread" if spread else what
    return None
