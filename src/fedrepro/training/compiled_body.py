"""The ends of a network in the compiled steps: the body below its affine maps, and its outputs.

A body is nothing, convolutions, or recurrent layers, by the type of `Net.body`: each of these three
has a compilation of its own, so nobody waits for code of the other two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import overload

from fedrepro.core.portable_ops.compiled_math import (
    Array,
    exp_of,
    inner,
    log_of,
    padded_to,
    row_of,
    scaled,
)
from fedrepro.networks.compiled_convolutions import (
    Convolutions,
    Images,
    features,
    lay_image,
    learn_kernels,
)
from fedrepro.networks.compiled_lstm import Recurrent, Times, lay_letters, learn_unrolled, unrolled
from fedrepro.training.augment import MARGIN, SHIFTS
from fedrepro.training.compiled_matching import Maps, features_of, give_back
from fedrepro.training.compiled_types import Data, Model, Net, Scratch


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


def forward_body(
    net: Net, model: Model, data: Data, rows: Array, crops: Array, room: Scratch
) -> None:
    """Write to room.x, (rows, inputs), what the affine maps are given of these rows."""
    raise NotImplementedError


def evaluate_rows(net: Net, data: Data, rows: Array, room: Scratch) -> tuple[float, int]:
    """Write the errors of the logits; the sum of the losses, and how many predictions are right."""
    raise NotImplementedError


def learn_body(net: Net, model: Model, rows: int, room: Scratch) -> None:
    """Add the gradients of the body over `rows` examples; room.below: errors of room.x."""
    raise NotImplementedError


def predictions(net: Net) -> int:
    """Predictions for an example: one, or one after each letter."""
    raise NotImplementedError


def match_images(
    net: Net, model: Model, to: Array, add: bool, rows: int, step: float, room: Scratch
) -> tuple[Array, Array]:
    """Match representations of images, below the affine layers; see `compiled_steps.match`.

    Write the error of each representation and update the maps between the two networks. Returns
    what the received network passes to its affine layers, and the same in the order of inputs.
    """
    raise NotImplementedError


def _by_body(
    of: Callable[..., Any], plain: Any, convolutions: Any = None, recurrent: Any = None
) -> None:
    _by("body", of, plain, {Convolutions: convolutions or plain, Recurrent: recurrent or plain})


def _by(field: str, of: Callable[..., Any], plain: Any, kinds: dict[Any, Any]) -> None:
    """Let `of` be another function for each type of a field of `net`, its first argument."""

    def chosen(net: Any, *_: Any) -> Any:
        kind = net.types[net.instance_class._fields.index(field)]
        return kinds.get(kind.instance_class, plain)

    overload(of, jit_options={"error_model": "numpy"}, strict=False)(chosen)


@inner
def gather(data: Data, rows: Array, x: Array) -> None:
    """Write the inputs of these rows to x (P · D,)."""
    inputs, scale, inverse = data.inputs, data.scale, data.inverse
    size = inputs.shape[1]
    for i in range(len(rows)):
        to, source = x[i * size : (i + 1) * size], inputs[rows[i]]
        for j in range(size):
            to[j] = scaled(source[j], scale, inverse)


@inner
def gather_images(data: Data, rows: Array, crops: Array, convs: Convolutions, room: Images) -> None:
    """Lay down the images of these rows, moved as `crops` says (`augment.py`), if it says so."""
    mirrored, down, right = 0, 0, 0
    for b in range(len(rows)):
        if len(crops):
            mirrored, shift = divmod(crops[b], SHIFTS * SHIFTS)
            down, right = shift // SHIFTS - MARGIN, shift % SHIFTS - MARGIN
        move = mirrored, down, right
        lay_image(convs, data.inputs[rows[b]], data.scale, data.inverse, move, b, room)


@inner
def gather_letters(data: Data, rows: Array, room: Times) -> None:
    """Write the letters of these rows, windows (T,), to room.codes, (T, B)."""
    for b in range(len(rows)):
        lay_letters(data.inputs[rows[b]], b, len(rows), room)


@inner
def prefetch_rows(data: Data, rows: Array, room: Times) -> None:
    """Write to room.asked, (T, B), the letter that follows each of those in room.codes."""
    last = data.inputs.shape[1] - 1
    for b in range(len(rows)):
        for t in range(last):
            room.asked[t * len(rows) + b] = room.codes[(t + 1) * len(rows) + b]
        room.asked[last * len(rows) + b] = label_in(data.targets, rows[b])


def _look(net: Any, model: Any, data: Any, rows: Any, crops: Any, room: Any) -> None:
    gather(data, rows, room.x)


def _look_at_images(net: Any, model: Any, data: Any, rows: Any, crops: Any, room: Any) -> None:
    gather_images(data, rows, crops, net.body, room.body)
    features(net.body, model.weights, len(rows), room.body, room.x)


def _look_at_letters(net: Any, model: Any, data: Any, rows: Any, crops: Any, room: Any) -> None:
    gather_letters(data, rows, room.body)
    unrolled(net.body, model.weights, len(rows), room.body, room.x)


_by_body(forward_body, _look, _look_at_images, _look_at_letters)


def _judge(net: Any, data: Any, rows: Any, room: Any) -> Any:
    return at_outputs(data.targets, rows, net, room)


def _judge_letters(net: Any, data: Any, rows: Any, room: Any) -> Any:
    if not net.body.every:
        return at_outputs(data.targets, rows, net, room)
    prefetch_rows(data, rows, room.body)
    loss, hits = at_outputs(
        room.body.asked, room.body.numbers[: len(rows) * net.body.steps], net, room
    )
    return loss / net.body.steps, hits


_by_body(evaluate_rows, _judge, recurrent=_judge_letters)


def _learn(net: Any, model: Any, rows: Any, room: Any) -> None:
    pass


def _learn_images(net: Any, model: Any, rows: Any, room: Any) -> None:
    learn_kernels(net.body, model.weights, model.gradient, rows, room.body, room.x, room.below)


def _learn_letters(net: Any, model: Any, rows: Any, room: Any) -> None:
    learn_unrolled(net.body, model.weights, model.gradient, rows, room.body, room.below)


_by_body(learn_body, _learn, _learn_images, _learn_letters)


def _one(net: Any) -> Any:
    return 1


def _of_letters(net: Any) -> Any:
    return net.body.steps if net.body.every else 1


_by_body(predictions, _one, recurrent=_of_letters)


def _nothing(net: Any, model: Any, to: Any, add: Any, rows: Any, step: Any, room: Any) -> Any:
    return room.x, room.x


def _match(net: Any, model: Any, to: Any, add: Any, rows: Any, step: Any, room: Any) -> Any:
    features_of(net.body, model.received, rows, room.body, room.given)
    give_back(
        net.body, net.given, model.weights, to, add, rows, step, room.body, room.x, room.given
    )
    return room.given.x, room.given.shown


_by("given", match_images, _nothing, {Maps: _match})
