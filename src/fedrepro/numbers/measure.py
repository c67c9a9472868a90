"""From a global model to numbers: accuracy on splits, sizes, cost of a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedrepro.api import GlobalModel, Traffic
from fedrepro.networks.predict import network_of, probabilities, votes
from fedrepro.training.examples import Examples, tensor_of


@dataclass(frozen=True)
class EvaluationSplit:
    """Examples of one shape, their labels (N,) and, for training data, each client's rows."""

    examples: Examples
    labels: np.ndarray
    shape: tuple[int, ...]
    classes: int
    rows: Sequence[np.ndarray] = ()


Values = list[tuple[str, str | None, float]]  # metric, split, value


def correct(model: GlobalModel, split: EvaluationSplit) -> np.ndarray:
    """Whether each prediction is right, bool (N, predictions of an example).

    Not a number throughout for a model that is not finite.
    """
    if not model.finite:
        return np.full((len(split.labels), 1), np.nan)
    network = network_of(model.model, split.shape, split.classes)
    given = network, model.tensors, model.weights, split.examples
    scores = votes(*given, model.ties) if model.ties else probabilities(*given)
    labels = tensor_of(split.labels).to(scores.device)
    asked = network.asked(split.examples.inputs, labels).cpu().numpy()
    found: np.ndarray = scores.argmax(1).cpu().numpy() == asked
    return found.reshape(len(split.labels), -1)


def measure(model: GlobalModel, splits: Mapping[str, EvaluationSplit]) -> Values:
    """Accuracy on each split, sizes, and what the method reports of itself."""
    numbers: Values = []
    for name, split in splits.items():
        right = correct(model, split)
        numbers.append(("accuracy", name, float(right.mean())))
        if split.rows:
            # a client may have been given none to validate with
            own = [float(right[rows].mean()) for rows in split.rows if len(rows)]
            numbers.append(("accuracy_clients", name, float(np.mean(own))))
    numbers += size(model, next(iter(splits.values())))
    numbers += [(name, None, value) for name, value in sorted(model.diagnostics.items())]
    return numbers


def measure_alone(
    models: Sequence[GlobalModel], splits: Mapping[str, EvaluationSplit]
) -> tuple[Values, list[float]]:
    """Clients that predict by themselves: the mean and the worst, and each one's test accuracy."""
    each = [float(correct(model, splits["test"]).mean()) for model in models]
    numbers: Values = [
        ("accuracy", "test", float(np.mean(each))),
        ("accuracy_worst", "test", min(each)),
    ]
    return numbers + size(models[0], splits["test"]), each


def size(model: GlobalModel, split: EvaluationSplit) -> Values:
    """Parameters and forward passes of what predicts, and its hidden units if it has such."""
    units = network_of(model.model, split.shape, split.classes).hidden_units(model.tensors)
    numbers: Values = [] if units is None else [("hidden_units", None, float(units))]
    parameters = sum(value.size for value in model.tensors.values())
    return [
        *numbers,
        ("parameters", None, float(parameters)),
        ("forward_passes", None, float(model.networks)),
    ]


def communication(rounds: int, sent: Traffic) -> Values:
    """The cost of a run: its exchanges with the server, and all messages of them."""
    return [
        ("rounds", None, float(rounds)),
        ("messages", None, float(sent.messages_up + sent.messages_down)),
        ("bytes_up", None, float(sent.bytes_up)),
        ("bytes_down", None, float(sent.bytes_down)),
    ]
