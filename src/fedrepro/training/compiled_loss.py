"""Losses at the outputs of a dense network and their errors, in the compiled steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrepro.portable_ops.compiled_math import Array, exp_of, inner, log_of, padded_to, row_of
from fedrepro.training.compiled_types import Net, Scratch


@inner
def label_of(values: Array) -> int:
    """Find the first of the largest values."""
    best = 0
    for k in range(1, len(values)):
        if values[k] > values[best]:
            best = k
    return best


@inner
def label_in(targets: Array, row: int) -> Any:
    """Find the label of a row, or the largest of its shares."""
    return targets[row] if targets.ndim == 1 else label_of(targets[row])


@inner
def loss_of(targets: Array, row: int, logits: Array, top: Any, log: Any) -> Any:
    """Compute the cross-entropy of a row by the logarithm of the sum of exp(logits - top)."""
    # Numba compiles one of the branches, by the type of the targets
    if targets.ndim == 1:
        return log - (np.float64(logits[targets[row]]) - top)
    loss = 0.0
    for k in range(targets.shape[1]):
        loss += targets[row, k] * (log - (np.float64(logits[k]) - top))
    return loss


@inner
def subtract(targets: Array, row: int, error: Array) -> None:
    """Subtract the shares of a row, or one at its label, from what is predicted."""
    if targets.ndim == 1:
        error[targets[row]] -= error.dtype.type(1)
    else:
        for k in range(targets.shape[1]):
            error[k] -= targets[row, k]


@inner
def at_outputs(targets: Array, rows: Array, net: Net, room: Scratch) -> tuple[float, int]:
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
        loss += loss_of(targets, rows[i], logits, np.float64(top), log)
        hits += label_in(targets, rows[i]) == label_of(logits[:classes])
        each = number(1) / total
        for k in range(width):
            error[k] *= each
        subtract(targets, rows[i], error)
    return loss, hits


@inner
def add_entropy(net: Net, rows: int, term: Array, room: Scratch) -> None:
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
