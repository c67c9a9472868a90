"""Minibatch descent of one network, compiled by Numba: forward pass, backward pass, optimiser step.

Every operation is written out and none reordered, so a model's bytes are the same on every
processor. One compilation serves networks of any depth and width. A model lies in memory as in
`step_arrays_losses_variational.py`. Matrices are (array, offset, row stride). In arguments `rows`
is how many predictions are computed at once, `room` has work buffers, and `by` is the machine
address of the function that multiplies matrices. A layer has n inputs and m outputs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fedrepro.core.portable_ops import elementary_functions_random_cpu_modes as elementary
from fedrepro.core.portable_ops.compiled_functions_and_products import (
    PLAIN,
    Array,
    by_type,
    clear,
    compiled,
    fma,
    inner,
    padded_to,
    product,
    row_of,
    transpose,
)
from fedrepro.core.portable_ops.padding_and_alignment import LINE
from fedrepro.networks import compiled_convolutions, compiled_lstm_and_prediction
from fedrepro.networks.compiled_lstm_and_prediction import forward_body
from fedrepro.training import compiled_representation_matching
from fedrepro.training import step_arrays_losses_variational as a
from fedrepro.training.step_arrays_losses_variational import (
    SGD,
    Model,
    NetArrays,
    Scratch,
    StepNumbers,
)

BODIES = (compiled_convolutions, compiled_lstm_and_prediction, compiled_representation_matching)


@partial(compiled, calls=(*compiled_convolutions.CALLS, *BODIES, a))
def train_model(
    data: a.Data,
    order: a.StepOrder,
    net: NetArrays,
    descent: StepNumbers,
    model: Model,
    room: Scratch,
    taken: int,
    losses: Array,
) -> int:
    """Train one model in place on the minibatches `order`; return how many predictions were right.

    Each step's loss is written to `losses` (steps,). `taken` counts the optimiser's earlier steps.
    """
    before = elementary.flush()
    right = spreads = 0
    to = model.weights if descent.direct else model.gradient
    lower = net.maps[0]  # numbers of the body, which adds to its gradient
    for s in range(len(losses)):
        rows = order.rows[order.ends[s] : order.ends[s + 1]]
        share = 1.0 / len(rows)
        step = -descent.lr * share if descent.direct else share
        spreads = a.draw(net, model, order, s, room)
        losses[s] = 0.0
        clear(model.gradient, 0, lower)
        for piece in range(-(-len(rows) // order.piece)):
            part = rows[piece * order.piece : (piece + 1) * order.piece]
            add = descent.direct or piece > 0
            if net.kept < 1:
                elementary.words(
                    order.keys[order.places[s, 0]], order.places[s, 1], piece, 0, room.words
                )
            first, after = order.ends[s] + piece * order.piece, len(part)
            after += first
            crops, by = order.crops[first:after], (data.scale, data.inverse)
            forward_body(net.body, model.weights, data.inputs, part, by, crops, room.body, room.x)
            for following in order.rows[after : after + order.piece]:  # into the cache, in time
                row = data.inputs[following]
                for j in range(0, len(row), LINE // data.inputs.itemsize):
                    elementary.prefetch_line(row, j)
            count = len(part) * net.each
            forward(net, model.used, count, room, room.x, room.activations, net.kept)
            loss, hits = a.evaluate_rows(net, data, part, room)
            losses[s] += loss * share
            right += hits
            for term in net.entropies:
                a.add_entropy(net, count, term, room)
            a.scale(net, count, step / net.each, room.errors)
            matched = match(net, model, to, add, count, step, room)
            backward(net, model, to, add, count, room, matched)
            a.learn_body(
                net.body, model.weights, model.gradient, len(part), room.body, room.x, room.below
            )
        if descent.direct:
            for k in range(lower):
                model.weights[k] += model.gradient[k]
        else:
            move(net, descent, model, taken + s + 1, spreads)
    elementary.restore(before)
    return right


@inner
def move(net: NetArrays, descent: StepNumbers, model: Model, step: int, spreads: int) -> None:
    """Update all weights by the optimiser's step `step`, from 1 on, in strips that fit the cache.

    `spreads` is 0, in variational networks the offset from a mean to its spread, log(exp(σ) - 1).
    """
    number, first = model.weights.dtype.type, 0
    rate, root = descent.lr, number(1)  # step size, and factor on second moments
    if descent.kind != SGD:
        rate = number(descent.lr / (1.0 - power(descent.beta1, step)))
        root = number(1.0 / np.sqrt(1.0 - power(descent.beta2, step)))
    while first < len(model.weights) - spreads:
        end = net.size if first < net.size else len(model.weights)
        last = min(first + a.STRIP, end)
        a.variational_gradients(net, model, first, last, descent.share)
        for at in range(0, spreads + 1, net.size):
            descend(descent, (rate, root), model, at + first, at + last, first < net.size)
        first = last


@inner
def forward(
    net: NetArrays, weights: Array, rows: int, room: Scratch, x: Array, outputs: Array, kept: Any
) -> None:
    """Run affine layers, with ReLU between, on inputs `x` of `rows` predictions, into `outputs`.

    Layer l's outputs begin at net.activations[l]. Dropout keeps a share `kept` of hidden units.
    """
    inputs, words_before, nothing = (x, 0, net.sizes[0]), 0, outputs.dtype.type(0)
    for layer in range(len(net.maps)):
        n, m = net.sizes[layer], net.sizes[layer + 1]
        out = outputs, net.activations[layer], row_of(m)
        affine(net.by, net.biased, weights, (net.maps[layer], n, m), rows, inputs, out, room)
        if layer + 1 < len(net.maps):
            hidden = outputs[out[1] : out[1] + rows * out[2]]
            for i in range(len(hidden)):  # NaN stays NaN, so that a diverged training shows
                hidden[i] = nothing if hidden[i] < nothing else hidden[i]
            if kept < 1:
                drop(hidden, m, room.words.view(np.uint32)[words_before:], kept)
                words_before += (net.rows * m + 1) // 2 * 2
        inputs = out


@inner
def affine(
    by: int, biased: bool, weights: Array, of: Any, rows: int, inputs: Any, out: Any, room: Scratch
) -> None:
    """Compute out (rows, m) = inputs (rows, n) @ weight, plus a bias if `biased`, for one layer.

    `of` is (offset of weight (n, m) in `weights`, n, m); the bias follows the weight there.
    """
    at, n, m = of
    row = row_of(m)
    bias = (weights, at + n * row, 0) if biased else (room.zeros, 0, 0)
    left, weight = (inputs[0], inputs[1], inputs[2], 1), (weights, at, row)
    product(by, out, bias, left, weight, (rows, n, padded_to(m)))


@inner
def drop(hidden: Array, m: int, drawn: Array, kept: Any) -> None:
    """Apply dropout to `hidden` (rows, m): 0 where uint32 `drawn` ≥ kept · 2³², rest / kept."""
    row, below = row_of(m), np.uint32(np.rint(np.float64(kept) * 2.0**32))
    nothing, larger = hidden.dtype.type(0), hidden.dtype.type(1) / kept
    for i in range(len(hidden) // row):
        for j in range(m):
            value = hidden[i * row + j]
            hidden[i * row + j] = value * larger if drawn[i * m + j] < below else nothing


def _match(net: Any, model: Any, to: Any, add: Any, rows: Any, step: Any, room: Any) -> Any:
    # an activation is counted from the input of the affine maps, 0
    last, across, number = len(net.maps), padded_to(rows), room.errors.dtype.type
    x, lowest = a.match_images(net, model, to, add, rows, step, room)
    forward(net, model.received, rows, room, x, room.theirs, number(1))
    for j in range(len(net.pairs)):
        source, target = net.pairs[j]
        of = net.pair_maps[j], net.sizes[source], net.sizes[target]
        inputs = room.activations, net.activations[source - 1], row_of(of[1])
        back = room.back, 0, row_of(of[2])
        affine(net.by, True, model.weights, of, rows, inputs, back, room)
        theirs = (
            (room.theirs, net.activations[target - 1], back[2]) if target else (lowest, 0, of[2])
        )
        rectified = target < last and (target > 0 or net.maps[0] > 0)
        gap(rows, of[2], back, theirs, rectified, number(step * net.pair_shares[j]))
        backprop_input(net.by, model.weights, of, rows, back, room)
        for i in range(rows):
            at, below = inputs[1] + i * inputs[2], i
            for k in range(of[1]):
                before = room.errors[at + k] if source == last else number(0)
                room.errors[at + k] = before + room.below[below]
                below += across
        accumulate_gradient(net.by, to, add, True, of, rows, inputs, back, room.zeros)
    return True


def _match_nothing(*_: Any) -> Any:
    return False


# writes errors of activations by representation matching, and updates its maps f_j; returns whether
# there are any
match = by_type(_match, {a.Nothing: _match_nothing}, "pairs")


@inner
def gap(rows: int, m: int, back: Any, theirs: Any, hidden: bool, each: Any) -> None:
    """Replace output `back` (rows, m) of a matching map by the gradient (back - theirs) · `each`.

    `theirs` (rows, m) are the received network's activations, which the map predicts; `each` is a
    factor. If `hidden`, a ReLU follows the map: the gradient is 0 where `back` is not above 0.
    """
    (values, _, row), (other, at, other_row) = back, theirs
    nothing = values.dtype.type(0)
    for i in range(rows):
        for k in range(m):
            value = values[i * row + k]
            off = hidden and value <= nothing
            values[i * row + k] = nothing if off else (value - other[at + i * other_row + k]) * each
        clear(values, i * row + m, (i + 1) * row)


@inner
def backward(
    net: NetArrays, model: Model, to: Array, add: bool, rows: int, room: Scratch, matched: bool
) -> None:
    """Backpropagate the logits' gradients; write (or `add`) gradients of all affine maps to `to`.

    room.errors has the logits' gradients, and gets those of hidden units, 0 where a unit is 0. With
    representation matching (`matched`) they are added to gradients that units have already.
    """
    across, errors, number = padded_to(rows), room.errors, room.errors.dtype.type
    nothing, larger = number(0), number(1) / net.kept
    for layer in range(len(net.maps) - 1, -1, -1):
        n, m = net.sizes[layer], net.sizes[layer + 1]
        of, above = (net.maps[layer], n, m), (errors, net.activations[layer], row_of(m))
        inputs = room.x, 0, n
        if layer or net.maps[0] > 0:
            backprop_input(net.by, model.used, of, rows, above, room)
        if layer:
            inputs = room.activations, net.activations[layer - 1], row_of(n)
            transpose((room.below, 0, across), n, rows, (room.turned, 0, inputs[2]))
            for i in range(rows):
                at = inputs[1] + i * inputs[2]
                for j in range(n):
                    k = PLAIN(at + j)
                    error = room.turned[PLAIN(i * inputs[2] + j)] * larger
                    if matched:
                        error += errors[k]
                    errors[k] = error if room.activations[k] > nothing else nothing
                clear(errors, at + n, at + inputs[2])
        accumulate_gradient(net.by, to, add, net.biased, of, rows, inputs, above, room.zeros)


@inner
def backprop_input(by: int, weights: Array, of: Any, rows: int, errors: Any, room: Scratch) -> None:
    """Compute the loss's gradient by a layer's inputs: room.below = weight @ errorsᵀ, (n, rows).

    `of` is (offset of weight (n, m) in `weights`, n, m); `errors` (rows, m): gradients by outputs.
    """
    (at, n, m), (values, first, row), across = of, errors, padded_to(rows)
    transpose((values, first, row), rows, m, (room.turned, 0, across))
    product(by, (room.below, 0, across), (room.zeros, 0, 0), (weights, at, row_of(m), 1),
            (room.turned, 0, across), (n, m, across))  # fmt: skip


@inner
def accumulate_gradient(
    by: int, to: Array, add: bool, biased: bool, of: Any, rows: int, inputs: Any, errors: Any,
    zeros: Array,
) -> None:  # fmt: skip
    """Write (or `add`) a layer's gradients to `to`: of its weight, and of its bias if `biased`.

    These are inputsᵀ @ errors, and the sum of `errors` over rows: `inputs` (rows, n), `errors`
    (rows, m), gradients by outputs. `of` is (offset in `to`, n, m), and `zeros` a row of zeros.
    """
    (at, n, m), (values, first, row) = of, errors
    width = padded_to(m)
    begin = (to, at, row) if add else (zeros, 0, 0)
    turned = inputs[0], inputs[1], 1, inputs[2]
    product(by, (to, at, row), begin, turned, errors, (n, rows, width))
    if not biased:
        return
    bias = at + n * row
    if not add:
        clear(to, bias, bias + width)
    for i in range(rows):
        for j in range(width):
            to[PLAIN(bias + j)] += values[PLAIN(first + i * row + j)]


@inner
def power(base: float, exponent: int) -> float:
    """Compute base ** exponent by squaring, so that the bits are the same on every processor."""
    product = 1.0
    while exponent:
        if exponent % 2:
            product *= base
        base, exponent = base * base, exponent // 2
    return product


@inner
def descend(
    descent: StepNumbers, rates: Any, model: Model, first: int, last: int, received: bool
) -> None:
    """Update weights `first` to `last` - 1 of a model by one step of SGD, Adam or AMSGrad.

    `rates` are (step size, factor on square roots of second moments), with bias correction.
    `received` says whether the penalties that involve the received weights apply to these weights.
    """
    rate, root = rates
    weights, gradient = model.weights[first:last], model.gradient[first:last]
    number = weights.dtype.type
    if len(model.summed):
        summed = model.summed[first:last]
        for k in range(len(gradient)):
            summed[k] += gradient[k]
    start = model.received[first:last]
    if received and descent.pull != 0:
        for k in range(len(gradient)):
            gradient[k] += descent.pull * (weights[k] - start[k])
    if received and descent.shift != 0:
        for k in range(len(gradient)):
            gradient[k] += descent.shift * start[k]
    moment, square, largest = model.moments
    moment, square, largest = moment[first:last], square[first:last], largest[first:last]
    l2, new = descent.l2, number(1.0 - descent.beta1)
    old_square, new_square = number(descent.beta2), number(1.0 - descent.beta2)
    if descent.kind == SGD and descent.momentum == 0:
        for k in range(len(gradient)):
            weights[k] = fma(-rate, decayed(l2, weights[k], gradient[k]), weights[k])
    elif descent.kind == SGD:  # v = momentum · v + g; w = w - lr · v
        for k in range(len(gradient)):
            g = decayed(l2, weights[k], gradient[k])
            moment[k] = fma(descent.momentum, moment[k], g)
            weights[k] = fma(-rate, moment[k], weights[k])
    else:  # m and v are running means of g and g²; w = w - rate · m / (√v · root + eps)
        for k in range(len(gradient)):
            g = decayed(l2, weights[k], gradient[k])
            moment[k] = fma(new, g - moment[k], moment[k])
            v = square[k] = fma(old_square, square[k], new_square * g * g)
            if descent.kind == a.AMSGRAD:  # by the largest v so far
                v = largest[k] = largest[k] if v < largest[k] else v
            weights[k] -= rate * moment[k] / fma(np.sqrt(v), root, descent.eps)


@inner
def decayed(l2: Any, weight: Any, gradient: Any) -> Any:
    return gradient if l2 == 0 else fma(l2, weight, gradient)  # of the penalty l2/2 · weight²
