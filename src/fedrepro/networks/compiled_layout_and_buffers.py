"""Networks for compiled code: memory layout, buffers, and outputs of convolutions or LSTMs.

These layers are a network's body; affine maps follow. A model is one flat array of its tensors
(`Rows`). Representation matching (H. Mostafa, 2019) is a loss on the outputs of layers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedrepro.core.portable_ops.padding_and_alignment import PAD, aligned, padded_to, row_of
from fedrepro.networks import layers as kinds
from fedrepro.networks.layers import Convolution2d, Dropout, Embedding, Lstm, Relu, Shape, Tensors
from fedrepro.networks.network import Network

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Parts:
    """The layers of a network that compiled code can run: convolutions or LSTMs, then affine maps.

    sizes: (inputs, hidden…, outputs) of the affine maps, with ReLU between. image: (C, H, W) of the
    first map's input after convolutions, else (). convolutions: (layer, its input's shape, whether
    pooled) of each. drawn: whether the affine maps are variational (Bayesian), with no body below.
    """

    sizes: tuple[int, ...]
    biased: bool = True
    image: Shape = ()
    convolutions: tuple[tuple[Convolution2d, Shape, bool], ...] = ()
    embedding: Embedding | None = None
    recurrent: tuple[Lstm, ...] = ()
    drawn: bool = False

    @property
    def below(self) -> int:
        """Return the number of layers with weights below the affine maps."""
        return len(self.convolutions) + len(self.recurrent) + (self.embedding is not None)


def parts_of(network: Network) -> Parts | None:
    """Return a network's layers for compiled code, leaving out dropout; None if unsupported."""
    layers, convolutions, shape = list(network.layers), [], network.shape
    if not all(map(kinds.of_package, layers)):
        return None
    embedding: Embedding | None = None
    recurrent: list[Lstm] = []
    while layers and isinstance(layers[0], Convolution2d):
        convolution, pooled = layers[0], [type(layer) for layer in layers[2:3]] == [kinds.MaxPool]
        if not isinstance((*layers, None)[1], Relu) or convolution.padding >= convolution.kernel:
            return None
        convolutions.append((convolution, shape, pooled))
        for layer in layers[: 2 + pooled]:
            shape = layer.output(shape)
        if min(shape) < 1:
            return None
        del layers[: 2 + pooled]
    if layers and isinstance(layers[0], Embedding):
        embedding = layers.pop(0)  # type: ignore[assignment]
        while layers and isinstance(layers[0], Lstm):
            recurrent.append(layers.pop(0))  # type: ignore[arg-type]
        ends = [lstm.last for lstm in recurrent]
        each = isinstance((*layers, None)[0], kinds.EachPosition)
        if any(ends[:-1]) or ends[-1:] != [not each] or len({one.units for one in recurrent}) > 1:
            return None
        layers = layers[not ends[-1] :]
        shape = (recurrent[-1].units,)
    dropout = any(isinstance(layer, Dropout) for layer in layers)
    maps = [layer for layer in layers if isinstance(layer, kinds.Affine | kinds.Variational)]
    if not maps or layers[-1] is not maps[-1]:
        return None
    drawn = isinstance(maps[-1], kinds.Variational)
    turns = (type(maps[-1]), Relu, Dropout) if dropout else (type(maps[-1]), Relu)
    if any(not isinstance(layer, turns[at % len(turns)]) for at, layer in enumerate(layers)):
        return None
    if drawn and (dropout or convolutions or recurrent):
        return None
    biased = {layer.biased for layer in maps}
    biased |= {convolution.biased for convolution, _, _ in convolutions}
    if len(biased) > 1:
        return None
    return Parts(
        (math.prod(shape), *(layer.units for layer in maps)),
        biased.pop(),
        shape if convolutions else (),
        tuple(convolutions),
        embedding,
        tuple(recurrent),
        drawn,
    )


Array = np.ndarray[Any, Any]
Turned = Mapping[str, tuple[Shape, tuple[int, ...]]]
PREDICTED = 64  # examples that are predicted at once


class Rows:
    """The order of a model's tensors in one flat array, as compiled code reads a model.

    `shapes` are the tensors' shapes, by name. Rows of a tensor are padded to whole vector
    registers. `turned` has reordered tensors: {name: (shape, order)}; axis k in memory is axis
    order[k] of the tensor reshaped to `shape`, which may split an axis a · b into a and b.
    """

    def __init__(self, shapes: Mapping[str, Shape], turned: Turned) -> None:
        self.shapes, self.turned, self.size = shapes, turned, 0
        self.offsets: dict[str, int] = {}
        for name in shapes:
            self.offsets[name] = self.size
            *rows, last = self._in_memory(name)[0]
            self.size += math.prod(rows) * row_of(last)

    def _in_memory(self, name: str) -> tuple[Shape, tuple[int, ...]]:
        """Return (shape in memory, order): axis k in memory is axis order[k] of the tensor."""
        shape = self.shapes[name]
        axes, order = self.turned.get(name, (shape, tuple(range(len(shape)))))
        return tuple(axes[axis] for axis in order), order

    def views(self, flat: Array) -> dict[str, Array]:
        """View a model's flat array as tensors (*shape) by name, with axes in their usual order."""
        tensors = {}
        for name, at in self.offsets.items():
            (*rows, last), order = self._in_memory(name)
            row = row_of(last)
            part = flat[at : at + math.prod(rows) * row].reshape(*rows, row)[..., :last]
            tensors[name] = part.transpose(np.argsort(order))
        return tensors

    def flat(self, tensors: Tensors, dtype: Any) -> Array:
        """Copy a model's tensors to one flat array (size,); tensors that are not given are zero."""
        weights = np.zeros(self.size, dtype)
        for name, view in self.views(weights).items():
            if name in tensors:
                view[...] = tensors[name].detach().cpu().numpy().reshape(view.shape)
        return weights


def turned_in(network: Network, parts: Parts) -> dict[str, tuple[Shape, tuple[int, ...]]]:
    """Return {name: (shape, order)} of tensors whose axes are reordered in memory, for `Rows`."""
    turned: dict[str, tuple[Shape, tuple[int, ...]]] = {}
    below, recurrent = len(parts.convolutions), {str(k + 1) for k in range(len(parts.recurrent))}
    kernels = {f"weight{k}" for k in range(below)}
    for name, shape in network.shapes.items():
        if name in kernels:
            turned[name] = shape, (2, 3, 1, 0)
        elif below and name == f"weight{below}":
            turned[name] = (*parts.image, shape[1]), (1, 2, 0, 3)
        elif re.sub(r"weight|recurrent", "", name) in recurrent:
            turned[name] = shape, (1, 0)
    return turned


def body_of(
    network: Network,
    parts: Parts,
    offsets: Mapping[str, int],
    rows: int,
    dtype: Any,
    matched: bool = False,
) -> tuple[Any, Any]:
    """Return (Convolutions, Images) or (Recurrent, LstmBuffers): the memory layout, and buffers.

    Buffers of `dtype` hold `rows` examples; `offsets` are where tensors begin in a flat model, by
    name. `matched` adds the buffer Images.extra, for representation matching.
    """
    if parts.convolutions:
        return convolutions_of(parts, offsets, rows, dtype, matched)
    from fedrepro.networks.compiled_lstm_and_prediction import recurrent_of  # which loads Numba

    return recurrent_of(network, parts, offsets, rows, dtype)


class CompiledBody:
    """The convolutions or recurrent layers of a network with weights `tensors` (*shape), compiled.

    Up to `rows` examples are computed at once. layers: how many of network.layers these are, with
    ReLU and pooling. x: the latest outputs, of `seen` examples, flat, as compiled code orders them.
    """

    def __init__(
        self, network: Network, parts: Parts, tensors: Tensors, rows: int, dtype: Any
    ) -> None:
        layout = Rows(network.shapes, turned_in(network, parts))
        self.parts, self.rows, self.predictions = parts, rows, network.predictions
        self.offsets, self.weights = layout.offsets, layout.flat(tensors, dtype)
        self.body, self.room = body_of(network, parts, layout.offsets, rows, dtype)
        convolved = sum(2 + pooled for *_, pooled in parts.convolutions)
        self.layers = convolved or parts.below + (not parts.recurrent[-1].last)

    def outputs(self, x: torch.Tensor) -> torch.Tensor:
        """Compute outputs of x (N, D) on the CPU: a row (units,) per example, or per character."""
        import torch

        from fedrepro.networks.compiled_lstm_and_prediction import predict

        inputs = np.ascontiguousarray(x.detach().numpy())
        size = self.predictions * self.parts.sizes[0]
        self.seen, self.x = len(inputs), np.zeros(len(inputs) * size + PAD, inputs.dtype)
        predict(self.body, self.weights, inputs, self.rows, self.room, self.x)
        found = torch.from_numpy(self.x[: self.seen * size])
        if self.parts.convolutions:  # (H, W, C) to (C, H, W)
            channels, height, width = self.parts.image
            images = found.view(-1, height, width, channels).permute(0, 3, 1, 2)
            return images.reshape(self.seen, -1)
        if self.predictions > 1:  # (T, B, units) to (B, T, units), as many rows at a time
            pieces = torch.split(found, self.rows * size)
            shape = self.predictions, -1, self.parts.sizes[0]
            found = torch.cat([piece.view(shape).transpose(0, 1).reshape(-1) for piece in pieces])
        return found.view(-1, self.parts.sizes[0])


# What a row of `layers` holds. Of the map before its pooling: height, width, channels; channels of
# what it is given; side of the kernel; whether it is pooled. Where begin its weight, its kernel
# turned round, its inputs; numbers of one of these and of a row of it; what its pooling chose; its
# errors, of these the first inside the zeros, and how wide they are with them. Where its lists
# begin: starts of windows, numbers of a window, windows of errors (if errors are listed, the
# inputs' places in `Images.image`) and how many, and where its values go. Whether errors for its
# inputs are computed for each window and then added up. Where begin errors that are added to those
# of what it gives. Whether its errors are listed, without zeros. Where its kernel's gradient begins
# in `Images.turned`, and the lists of the outputs' windows and of rows of `turned`.
(HEIGHT, WIDTH, CHANNELS, BELOW, KERNEL, POOLED, WEIGHT, FLIPPED, IMAGE, NEXT, ROW, CHOSEN, UPPER,
 INSIDE, ACROSS, WINDOWS, WINDOW, BACK, SPOTS, TARGETS, ADDED, EXTRA,
 LISTED, TURNED, CORNERS, OWN, FIELDS) = range(27)  # fmt: skip

SPOTS_OF_CELL = 5  # positions in a window of 2 × 2, and `NOWHERE`


class Convolutions(NamedTuple):
    """The memory layout of a network's convolutions, for compiled code.

    layers: int64 (L, 26), a row for each layer, whose columns HEIGHT, WIDTH, … are sizes and
    offsets, in buffers or in `lists`. lists: int64, offsets of windows and outputs in buffers.
    image: (channels, height, width, zeros around) of an input. by, sparse: machine addresses of
    matrix products, with all numbers and with lists of nonzero gradients (0 if no layer has these).
    """

    layers: Array
    lists: Array
    image: tuple[int, int, int, int]
    biased: bool
    by: int
    sparse: int


class ErrorLists(NamedTuple):
    """Two lists of one example's nonzero gradients by a convolution's outputs before its pooling.

    By output position: amounts, the gradients; channels, the channel of each; which, where its
    kernel begins in the layer's part of `Images.flipped`; firsts (positions + 1,), each position's
    first index. By channel: own, the gradients; seats, where the input window of each begins in an
    image; starts, ends: a channel's range. counts, buckets: for sorting.
    """

    amounts: Array
    which: Array
    channels: Array
    firsts: Array
    own: Array
    seats: Array
    starts: Array
    ends: Array
    counts: Array
    buckets: Array


class Images(NamedTuple):
    """Flat work buffers of compiled convolutions, for several examples.

    images: inputs of all layers and examples, with zeros around; chosen: places of maxima in pooled
    windows; extra: gradients of representation matching, or empty. For one example: out, a layer's
    outputs before pooling; lower, upper: the loss's gradients by outputs after and before pooling;
    errors: lists of the nonzero ones before pooling; image: gradients by a layer's inputs, zeros
    around. flipped: kernels arranged for backpropagation; turned: transposed kernel gradients.
    zeros, one: 0s, 1.
    """

    images: Array
    chosen: Array
    out: Array
    upper: Array
    lower: Array
    flipped: Array
    zeros: Array
    one: Array
    extra: Array
    turned: Array
    image: Array
    errors: ErrorLists


def convolutions_of(
    parts: Parts, offsets: Mapping[str, int], rows: int, dtype: Any, matched: bool
) -> tuple[Convolutions, Images]:
    """Return the memory layout of a network's convolutions, and work buffers for compiled code.

    Buffers of `dtype` hold `rows` examples; `offsets` are where tensors begin in the model, by
    name. `matched` adds the buffer `extra`, for representation matching.
    """
    # Numba takes half a second to import
    from fedrepro.core.portable_ops.convolution_pooling_sparse_products import (
        LANE_BYTES,
        multiplier_at,
        sparse_multiplier,
    )

    lists, convs = list[Array](), np.zeros((len(parts.convolutions), FIELDS), np.int64)

    def add(values: Array) -> int:
        """Append memory offsets to `Convolutions.lists`; return the index at which they begin."""
        lists.append(values.ravel())
        return sum(map(len, lists[:-1]))

    # 0, 1, …: columns of a matrix as rows; a single row begins at the first
    add(np.arange(max(layer.channels for layer, _, _ in parts.convolutions)))
    images = chosen = flipped = upper = out = lower = widest = extra = turned = listed = spread = 0
    positions, taken, lanes = 0, 0, LANE_BYTES // np.dtype(dtype).itemsize
    for place, (layer, (below, height, width), pooled) in enumerate(parts.convolutions):
        c, k, edge, channels = convs[place], layer.kernel, layer.padding, layer.channels
        row, stride = (width + 2 * edge) * below, row_of(channels)
        c[HEIGHT], c[WIDTH] = height + 2 * edge - k + 1, width + 2 * edge - k + 1
        c[CHANNELS], c[BELOW], c[KERNEL], c[POOLED] = channels, below, k, pooled
        c[LISTED] = pooled and below % lanes == 0
        if c[LISTED]:
            images = -(-images // lanes) * lanes  # vectors of its inputs lie in whole lines
        c[WEIGHT], c[FLIPPED] = offsets[f"weight{place}"], flipped
        c[CHOSEN], c[UPPER] = chosen, upper
        c[IMAGE], c[NEXT], c[ROW] = images, (height + 2 * edge) * row, row
        images += rows * int(c[NEXT]) + PAD  # what fills up channels goes over the end
        flipped += k * k * stride * row_of(below)
        low = row_of(below)
        # whose columns would fill a part of a vector
        c[ADDED] = not edge and low == PAD and not c[LISTED]
        if c[LISTED]:
            c[TURNED], turned = turned, turned + channels * k * k * below
            c[CORNERS] = add(_grid(c[HEIGHT] // 2 * 2, c[WIDTH] // 2 * 2, row, below))
            c[OWN] = add(np.arange(channels) * k * k * below)
            listed = max(listed, int(c[HEIGHT] // 2 * (c[WIDTH] // 2)) * channels)
            taken = max(taken, int(c[WIDTH] // 2 * SPOTS_OF_CELL) * channels)
            spread, positions = max(spread, int(c[NEXT])), max(positions, int(c[HEIGHT] * c[WIDTH]))
        # zeros around errors that go further back
        around = k - 1 - edge if place and not c[ADDED] else 0
        c[ACROSS] = c[WIDTH] + 2 * around
        c[INSIDE] = upper + around * (c[ACROSS] + 1) * stride
        upper += int((c[HEIGHT] + 2 * around) * c[ACROSS]) * stride
        c[WINDOWS] = add(_grid(c[HEIGHT], c[WIDTH], row, below))
        c[WINDOW] = add(np.add.outer(_grid(k, k, row, below), np.arange(below)))
        tall, broad = (c[HEIGHT], c[WIDTH]) if c[ADDED] else (height, width)
        back = _grid(tall, broad, c[ACROSS] * stride, stride)
        if c[LISTED]:
            back = edge * (row + below) + _grid(height, width, row, below)
        c[BACK], c[SPOTS] = add(back), tall * broad
        after, (_, high, wide) = 0, parts.image
        if place + 1 < len(convs):
            above, (_, high, wide), _ = parts.convolutions[place + 1]
            after = above.padding
        chosen += rows * high * wide * stride * pooled
        c[EXTRA], extra = extra, extra + rows * high * wide * stride * matched
        row = (wide + 2 * after) * channels
        c[TARGETS] = add(after * (row + channels) + _grid(high, wide, row, channels))
        across = max(stride, k * k * low * int(c[ADDED]))  # numbers of a window of errors
        out = max(out, int(c[HEIGHT] * c[WIDTH]) * across)
        out = max(out, channels * padded_to(k * below))  # a row of a kernel
        lower = max(lower, height * width * low, high * wide * stride)
        widest = max(widest, across, low)
    lowest, (channels, height, width), _ = parts.convolutions[0]
    image, by = (channels, height, width, lowest.padding), multiplier_at(np.dtype(dtype).name)
    sparse = sparse_multiplier(np.dtype(dtype).name).address if listed else 0
    laid_out = Convolutions(convs, np.concatenate(lists), image, parts.biased, by.address, sparse)
    amounts, places = (aligned(listed, kind) for kind in (dtype, np.int64))
    of_channels = np.zeros(int(convs[:, CHANNELS].max()), np.int64)
    counts, buckets = np.zeros(positions * SPOTS_OF_CELL, np.int64), np.zeros(taken, np.int64)
    errors = ErrorLists(
        amounts, places, places.copy(), np.zeros(positions + 1, np.int64),
        amounts.copy(), places.copy(), of_channels, of_channels.copy(), counts, buckets,
    )  # fmt: skip
    sizes = {"images": images, "out": out, "upper": upper, "lower": lower, "flipped": flipped}
    sizes |= {"zeros": widest, "extra": extra, "turned": turned, "image": spread}
    buffers = {name: aligned(size, dtype) for name, size in sizes.items()}
    one, chose = np.ones(1, dtype), np.zeros(chosen, np.uint8)
    return laid_out, Images(chosen=chose, one=one, errors=errors, **buffers)


def _grid(height: int, width: int, row: int, each: int) -> Array:
    places: Array = np.add.outer(np.arange(height) * row, np.arange(width) * each)
    return places
