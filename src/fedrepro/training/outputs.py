"""Losses at the outputs of a dense network and their errors, in the compiled steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import overload

from fedrepro.products.compiled import Array, exp_of, inner, log_of, padded_to, row_of
from fedrepro.training.records import Net, Room


def loss_of(targets: Array, row: int, logits: Array, shift: Any, total: float) -> Any:
    """Compute the cross-entropy of a row, and find its label."""
    raise NotImplementedError


@inner
def label_of(values: Array) -> int:
    """Find the first of the largest values."""
    best = 0
    for k in range(1, len(values)):
        if values[k] > values[best]:
            best = k
    return best


@overload(loss_of, jit_options={"error_model": "numpy"})
def _loss_of(targets: Any, row: Any, logits: Any, top: Any, log: Any) -> Callable[..., Any]:
    def labels(targets: Any, row: Any, logits: Any, top: Any, log: Any) -> Any:
        label = targets[row]
        return log - (np.float64(logits[label]) - top), label

    def shares(targets: Any, row: Any, logits: Any, top: Any, log: Any) -> Any:
        target, loss = targets[row], 0.0
        for k in range(len(target)):
            loss += target[k] * (log - (np.float64(logits[k]) - top))
        return loss, label_of(target)

    return labels if targets.ndim == 1 else shares


def label_in(targets: Array, row: int) -> int:
    """Find the label of a row, or the largest of its shares."""
    raise NotImplementedError


@overload(label_in, jit_options={"error_model": "numpy"})
def _label_in(targets: Any, row: Any) -> Callable[..., Any]:
    def label(targets: Any, row: Any) -> Any:
        return targets[row]

    def largest(targets: Any, row: Any) -> Any:
        return label_of(targets[row])

    return label if targets.ndim == 1 else largest


def subtract(targets: Array, row: int, error: Array) -> Any:
    """Subtract the shares of a row, or one at its label, from what is predicted."""
    raise NotImplementedError


@overload(subtract, jit_options={"error_model": "numpy"})
def _subtract(targets: Any, row: Any, error: Any) -> Callable[..., Any]:
    def labels(targets: Any, row: Any, error: Any) -> Any:
        error[targets[row]] -= error.dtype.type(1)

    def shares(targets: Any, row: Any, error: Any) -> Any:
        for k in range(targets.shape[1]):
            error[k] -= targets[row, k]

    return labels if targets.ndim == 1 else shares


@inner
def at_outputs(targets: Array, rows: Array, net: Net, room: Room) -> tuple[float, int]:
    """Write the errors of the logits of cross-entropy, for examples of weight one.

    Returns the sum of the cross-entropies, and how many predictions are right.
    """
    classes, at = net.sizes[-1], net.activations[-1]
    width, row = padded_to(classes), row_of(classes)
    number = room.errors.dtype.type
    loss, hits = 0.0, 0
    for i in range(len(rows)):
        logits = room.activations[at + i * row : at + i * row + width]
        error = room.errors[at + i * row : at + i * row + width]
        top = logits[0]
        for k in range(1, classes):
            top = max(top, logits[k])
        for k in range(width):
            error[k] = exp_of(logits[k] - top)
        total = number(0)
        for k in range(classes):
            total += error[k]
        log = log_of(np.float64(total))
        room.shift[i] = number(np.float64(top) + log)
        example_loss, label = loss_of(targets, rows[i], logits, np.float64(top), log)
        loss += example_loss
        hits += label == label_of(logits[:classes])
        each = number(1) / total
        for k in range(width):
            error[k] *= each
        subtract(targets, rows[i], error)
    return loss, hits


@inner
def add_entropy(net: Net, rows: int, term: Array, room: Room) -> None:
    """Add the errors of coefficient · max(0, least - H), for examples of weight one.

    dH/dt_k = -p_k (log p_k + H). A term holds its coefficient, least, and whether the maximum is
    over the minibatch's mean.
    """
    classes, at = net.sizes[-1], net.activations[-1]
    row = row_of(classes)
    number = room.errors.dtype.type
    mean = 0.0
    for i in range(rows):
        negative = number(0)  # -H
        for k in range(classes):
            log = room.activations[at + i * row + k] - room.shift[i]
            negative += exp_of(log) * log
        room.negative[i] = negative
        mean += np.float64(negative) / rows
    for i in range(rows):
        negative = room.negative[i]
        if (mean if term[2] else negative) >= -term[1]:
            for k in range(classes):
                log = room.activations[at + i * row + k] - room.shift[i]
                pull = exp_of(log) * (log - negative)
                room.errors[at + i * row + k] += number(term[0]) * pull


@inner
def scale(net: Net, rows: int, step: float, errors: Array) -> None:
    """Multiply errors of the logits by the weight of an example; what fills up rows gets 0."""
    classes, at = net.sizes[-1], net.activations[-1]
    width, row = padded_to(classes), row_of(classes)
    each = errors.dtype.type(step)
    for i in range(rows):
        error = errors[at + i * row : at + i * row + width]
        for k in range(width):
            error[k] *= each
        for k in range(classes, width):
            error[k] = 0
