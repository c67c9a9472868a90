"""Parts of the compiled steps: records of arrays, variational weights, the loss.

A model is a flat array: kernels or recurrent layers first (`networks/compiled_convolutions.py`,
`compiled_lstm_and_prediction.py`), then weight (n, m) and bias (m,) of each affine map, padded with
zeros to `row_of(m)`. Activations (P, m) of P predictions and their errors (gradients of the loss)
lie likewise. All numbers are float32 or all float64, except the inputs. The body below the affine
maps is nothing, convolutions or recurrent layers, by the type of `NetArrays.body`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedrepro.core.portable_ops.compiled_functions_and_products import (
    Array,
    by_type,
    clear,
    compiled,
    fma,
    inner,
    nothing,
    padded_to,
    row_of,
)
from fedrepro.core.portable_ops.elementary_functions_random_cpu_modes import (
    exp_of,
    log_of,
    softplus_of,
    words,
)
from fedrepro.networks.compiled_convolutions import CALLS, learn_kernels
from fedrepro.networks.compiled_layout_and_buffers import Convolutions, Images
from fedrepro.networks.compiled_lstm_and_prediction import (
    LstmBuffers,
    Recurrent,
    backpropagate_through_time,
)
from fedrepro.training import compiled_representation_matching as matching

SGD, ADAM, AMSGRAD = range(3)


class Nothing(NamedTuple):
    """An empty record in place of a part that a network lacks."""

    size: int = 0


class Data(NamedTuple):
    """The data set: inputs (N, D), uint8 or floating, and targets.

    Targets: labels (N,) or probabilities (N, K). Networks get inputs · `inverse` (1 / `scale`).
    """

    inputs: Array
    targets: Array
    scale: Any
    inverse: Any


class StepOrder(NamedTuple):
    """The minibatches of a training: step s uses examples rows[ends[s] : ends[s + 1]].

    A step on more than `piece` rows computes them in parts. Its random numbers come from its
    epoch's key, keys[places[s, 0]] (2,), and its number in the epoch, places[s, 1]. crops: int64
    codes, how the image of each row is flipped and shifted, or empty.
    """

    rows: Array
    ends: Array
    piece: int
    keys: Array
    places: Array
    crops: Array


class NetArrays(NamedTuple):
    """A network's architecture: the body (convolutions or LSTMs, if any), then L affine maps.

    sizes (L + 1,): number of inputs of the first map, then of outputs of each map. maps (L,):
    offsets of their weights in the flat model; activations (L,): of their outputs in a Scratch.
    rows, each: number of predictions of a minibatch and of an example. Representation matching
    predicts the received network's activations by maps f_j, which `given` has for images. J affine
    ones are here: pairs (J, 2), indices of source and target activation; pair_maps (J,), offsets of
    weights. pair_shares (J,): gradient factors, 2 · coefficient, divided by the target's size if a
    mean. kept: probability that dropout keeps a unit, 1 without dropout. entropies: (coefficient,
    least entropy) of each entropy term. Variational networks draw random weights: tensors (T, 3)
    are offset, rows and columns of each; table: `normal_pairs`, to draw normal numbers. size:
    number of weights, or of means of random weights. by: address of the matrix product.
    """

    body: Convolutions | Recurrent | Nothing
    sizes: Array
    maps: Array
    activations: Array
    rows: int
    each: int
    biased: bool
    pairs: Array | Nothing
    pair_maps: Array
    pair_shares: Array
    given: matching.Maps | Nothing
    kept: Any
    entropies: Array
    tensors: Array | Nothing
    table: Array
    size: int
    by: int


class StepNumbers(NamedTuple):
    """The constants of an optimiser, in the dtype of the model.

    kind: SGD, ADAM or AMSGRAD; lr, …, eps: its settings. direct: whether plain SGD changes weights
    without storing a gradient. pull, shift: pull · (w - start) + shift · start is added to the
    gradient by weights w, where start are the received weights. share: factor of the KL divergence.
    """

    kind: int
    direct: bool
    lr: Any
    l2: Any
    momentum: Any
    beta1: float
    beta2: float
    eps: Any
    pull: Any
    shift: Any
    share: Any


class Model(NamedTuple):
    """The buffers of one model: weights (S,), gradient, received weights.

    summed: sum of gradients over steps, or empty. moments: of the optimiser, (S,) or empty. used:
    the weights that a step computes with, for a variational network a random draw. Then `weights`
    are means, followed by standard deviations before softplus, each (S / 2,). deviation: the
    standard deviations of that draw. prior, prior_deviation: means and deviations of its prior.
    """

    weights: Array
    gradient: Array
    received: Array
    summed: Array
    moments: tuple[Array, Array, Array]
    used: Array
    deviation: Array
    prior: Array
    prior_deviation: Array


class Scratch(NamedTuple):
    """The work buffers of a compiled training step.

    body, given: buffers of convolutions or LSTMs, and of matching of images. x: inputs (P, n) of
    affine maps for P predictions; activations, errors: outputs of all affine maps, and the loss's
    gradients by these. For matching by affine maps, theirs: the received network's
    activations; back: the maps' predictions of them. turned: a matrix transposed; below: gradients
    by a layer's inputs. shift: log-sum-exp of logits. words: random numbers.
    """

    body: Images | LstmBuffers | Nothing
    given: matching.MatchBuffers | Nothing
    x: Array
    activations: Array
    errors: Array
    theirs: Array
    back: Array
    turned: Array
    below: Array
    shift: Array
    zeros: Array
    words: Array


STRIP = 4096  # numbers of a model that are moved while they are in the first cache
DRAWN = 2**15  # random numbers at a time


def _draw(net: Any, model: Any, order: Any, step: Any, room: Any) -> Any:
    # θ = μ + σ ε, σ = log(1 + exp(ρ)); ε goes where ρ's gradient will be
    before, noise = 0, model.gradient[net.size :]
    epoch, inside = order.places[step]
    key = order.keys[epoch]
    for t in range(len(net.tensors)):
        at, rows, columns = net.tensors[t]
        for first in range(0, rows * columns, DRAWN):
            count = min(DRAWN, rows * columns - first)
            drawn = room.words[: -(-count // 8)]
            words(key, inside, 0, before, drawn)
            before += len(drawn)
            scatter_normals(drawn.view(np.uint16), net.table, columns, first, count, noise[at:])
    for first in range(0, net.size, STRIP):
        part = slice(first, min(first + STRIP, net.size))
        means, spreads = model.weights[part], model.weights[net.size :][part]
        deviation, used, ours = model.deviation[part], model.used[part], noise[part]
        for k in range(len(means)):
            s = softplus_of(spreads[k])
            deviation[k] = s
            used[k] = fma(s, ours[k], means[k])
    return net.size


def _drawn_not(*_: Any) -> Any:
    return 0


# draws the weights of a step, if they are random; returns how many numbers lie before the spreads
draw = by_type(_draw, {Nothing: _drawn_not}, "tensors")


@inner
def scatter_normals(
    places: Array, table: Array, columns: int, first: int, count: int, out: Array
) -> None:
    """Write `count` standard normal numbers to `out`, a matrix of `columns` columns, rows padded.

    Random `places` choose pairs of `table` (`normal_pairs`). `first`, their start, omits padding.
    """
    row = row_of(columns)
    if row == columns and count % 2 == 0:
        pairs = out[first : first + count].view(table.dtype)
        for k in range(len(pairs)):
            pairs[k] = table[places[k]]
        return
    for k in range(count):
        pair, i = table[places[k // 2]], first + k
        out[i // columns * row + i % columns] = pair.imag if k % 2 else pair.real


def _gradients_of_draws(net: Any, model: Any, first: Any, last: Any, share: Any) -> None:
    # With `share` of KL(N(μ, σ²) ‖ N(m, s²)) in the loss ∂μ = g + share (μ - m) / s² and
    # ∂ρ = (g ε + share (σ - s)(σ + s) / (s² σ)) · exp(ρ - σ), where the last factor is the slope of
    # the softplus; it is exactly zero where both deviations are equal. Source: P2P, eq. (8).
    size = net.size
    means, spreads = model.weights[first:last], model.weights[size + first : size + last]
    at_means, at_spreads = model.gradient[first:last], model.gradient[size + first : size + last]
    deviation, prior = model.deviation[first:last], model.prior[first:last]
    prior_deviation = model.prior_deviation[first:last]
    for k in range(len(means)):
        g, s, p = at_means[k], deviation[k], prior_deviation[k]
        inverse = share / (p * p)
        at_means[k] = fma(means[k] - prior[k], inverse, g)
        pull = (s - p) * (s + p) * inverse / s
        at_spreads[k] = fma(g, at_spreads[k], pull) * exp_of(spreads[k] - s)


# turns the gradient at drawn weights, and the noise, into gradients of means and spreads
variational_gradients = by_type(_gradients_of_draws, {Nothing: nothing}, "tensors")


@partial(compiled, calls=CALLS)
def softplus(spread: Array, out: Array) -> None:
    for k in range(len(spread)):
        out[k] = softplus_of(spread[k])


@inner
def label_of(values: Array) -> int:
    best = 0  # the index of the largest value; of several the first
    for k in range(1, len(values)):
        if values[k] > values[best]:
            best = k
    return best


@inner
def label_in(targets: Array, row: int) -> Any:
    return targets[row] if targets.ndim == 1 else label_of(targets[row])  # the likeliest


@inner
def at_outputs(targets: Array, rows: Array, net: NetArrays, room: Scratch) -> tuple[float, int]:
    """Write gradients of cross-entropies by the logits of room.activations to room.errors.

    Prediction i has the target targets[rows[i]]. Returns the sum of losses, and how many are right.
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
        log, highest, label = log_of(np.float64(total)), np.float64(top), label_in(targets, rows[i])
        room.shift[i] = number(highest + log)
        hits += label == label_of(logits[:classes])
        each = number(1) / total
        for k in range(width):
            error[k] *= each
        # Numba compiles one of the branches, by the type of the targets
        if targets.ndim == 1:
            loss += log - (np.float64(logits[label]) - highest)
            error[label] -= number(1)
        else:
            crossed = 0.0
            for k in range(targets.shape[1]):
                share = targets[rows[i], k]
                crossed += share * (log - (np.float64(logits[k]) - highest))
                error[k] -= share
            loss += crossed
    return loss, hits


@inner
def add_entropy(net: NetArrays, rows: int, term: Array, room: Scratch) -> None:
    """Add the gradient of coefficient · max(0, least - H) to room.errors of `rows` predictions.

    `term` is (coefficient, least). For logits t and probabilities p, dH/dt_k = -p_k (log p_k + H).
    """
    classes, at = net.sizes[-1], net.activations[-1]
    row = row_of(classes)
    number = room.errors.dtype.type
    for i in range(rows):
        negative = number(0)  # -H
        for k in range(classes):
            log = room.activations[at + i * row + k] - room.shift[i]
            negative += exp_of(log) * log
        if negative >= -term[1]:
            for k in range(classes):
                log = room.activations[at + i * row + k] - room.shift[i]
                pull = exp_of(log) * (log - negative)
                room.errors[at + i * row + k] += number(term[0]) * pull


@inner
def scale(net: NetArrays, rows: int, step: float, errors: Array) -> None:
    """Multiply the logits' gradients `errors` of `rows` predictions by `step`; set padding to 0."""
    classes, at = net.sizes[-1], net.activations[-1]
    width, row = padded_to(classes), row_of(classes)
    each = errors.dtype.type(step)
    for i in range(rows):
        error = errors[at + i * row : at + i * row + width]
        for k in range(width):
            error[k] *= each
        clear(error, classes, len(error))


def _judge(net: Any, data: Any, rows: Any, room: Any) -> Any:
    return at_outputs(data.targets, rows, net, room)


def _judge_letters(net: Any, data: Any, rows: Any, room: Any) -> Any:
    if not net.body.every:
        return at_outputs(data.targets, rows, net, room)
    # the letter that follows each of those in room.body.codes, (T, B)
    count, body = len(rows), room.body
    last = data.inputs.shape[1] - 1
    for b in range(count):
        for t in range(last):
            body.asked[t * count + b] = body.codes[(t + 1) * count + b]
        body.asked[last * count + b] = label_in(data.targets, rows[b])
    loss, hits = at_outputs(body.asked, body.numbers[: count * net.body.steps], net, room)
    return loss / net.body.steps, hits


# writes the errors of the logits; returns the sum of the losses, and how many are right
evaluate_rows = by_type(_judge, {Recurrent: _judge_letters}, "body")


# adds the gradients of the body, of its type; the last argument are those by its outputs
learn_body = by_type(nothing, {Convolutions: learn_kernels, Recurrent: backpropagate_through_time})


def _match_no_images(
    net: Any, model: Any, to: Any, add: Any, rows: Any, step: Any, room: Any
) -> Any:
    return room.x, room.x


def _match(net: Any, model: Any, to: Any, add: Any, rows: Any, step: Any, room: Any) -> Any:
    matching.features_of(net.body, model.received, rows, room.body, room.given)
    matching.matching_gradients(
        net.body, net.given, model.weights, to, add, rows, step, room.body, room.x, room.given
    )
    return room.given.x, room.given.shown


# writes errors of images by representation matching, and updates its maps f_j; returns what the
# received network passes to its affine layers, and the same in the order of inputs
match_images = by_type(_match_no_images, {matching.Maps: _match}, "given")
