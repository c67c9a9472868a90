"""Parts of a network for compiled code, their layout, and outputs of all below the affine maps."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.core.portable_ops.padding_and_alignment import PAD, row_of
from fedrepro.networks.layers import (
    Affine,
    Convolution2d,
    Dropout,
    EachPosition,
    Embedding,
    Lstm,
    MaxPool,
    Relu,
    Shape,
    Tensors,
)
from fedrepro.networks.network import Network

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Parts:
    """The layers of a network that compiled code can run: convolutions or LSTMs, then affine maps.

    `sizes` are (inputs, hidden…, outputs) of the affine maps, with ReLU between; `image` is (C, H,
    W) of their input, or (). Each of `convolutions` is (layer, input's shape, whether pooled).
    """

    sizes: tuple[int, ...]
    biased: bool = True
    image: Shape = ()
    convolutions: tuple[tuple[Convolution2d, Shape, bool], ...] = ()
    embedding: Embedding | None = None
    recurrent: tuple[Lstm, ...] = ()

    @property
    def below(self) -> int:
        """Return the number of layers with weights below the affine maps."""
        return len(self.convolutions) + len(self.recurrent) + (self.embedding is not None)


def parts_of(network: Network) -> Parts | None:
    """Return a network's layers for compiled code, dropout or not; None if it cannot run them."""
    layers, convolutions, shape = list(network.layers), [], network.shape
    embedding: Embedding | None = None
    recurrent: list[Lstm] = []
    while layers and isinstance(layers[0], Convolution2d):
        convolution, pooled = layers[0], [type(layer) for layer in layers[2:3]] == [MaxPool]
        if not isinstance((*layers, None)[1], Relu) or convolution.padding >= convolution.kernel:
            return None
        convolutions.append((convolution, shape, pooled))
        for layer in layers[: 2 + pooled]:
            shape = layer.output(shape)
        del layers[: 2 + pooled]
    if layers and isinstance(layers[0], Embedding):
        embedding = layers.pop(0)  # type: ignore[assignment]
        while layers and isinstance(layers[0], Lstm):
            recurrent.append(layers.pop(0))  # type: ignore[arg-type]
        ends = [lstm.last for lstm in recurrent]
        if not ends or any(ends[:-1]) or ends[-1] == isinstance(layers[0], EachPosition):
            return None
        layers = layers[not ends[-1] :]
        shape = (recurrent[-1].units,)
    dropout = any(isinstance(layer, Dropout) for layer in layers)
    turns = (Affine, Relu, Dropout) if dropout else (Affine, Relu)
    if not layers or not isinstance(layers[-1], Affine):
        return None
    if any(not isinstance(layer, turns[at % len(turns)]) for at, layer in enumerate(layers)):
        return None
    units = [layer.units for layer in layers if isinstance(layer, Affine)]
    kinds = {layer.biased for layer in layers if isinstance(layer, Affine)}
    kinds |= {convolution.biased for convolution, _, _ in convolutions}
    if len(kinds) > 1:
        return None
    return Parts(
        (math.prod(shape), *units),
        kinds.pop(),
        shape if convolutions else (),
        tuple(convolutions),
        embedding,
        tuple(recurrent),
    )


Array = np.ndarray[Any, Any]
PREDICTED = 64  # examples that are predicted at once


class Rows:
    """The order of a model's tensors in one flat array, as compiled code reads a model.

    Rows of a tensor are padded to whole vector registers. `turned` is for tensors with reordered
    axes: (lengths of axes, some split; their order in memory).
    """

    def __init__(
        self,
        shapes: Mapping[str, Shape],
        turned: Mapping[str, tuple[Shape, tuple[int, ...]]] | None = None,
    ) -> None:
        self.shapes, self.offsets, self.size = shapes, {}, 0
        self.turned = turned or {}
        for name in shapes:
            self.offsets[name] = self.size
            *rows, last = self._in_memory(name)[0]
            self.size += math.prod(rows) * row_of(last)

    def _in_memory(self, name: str) -> tuple[Shape, tuple[int, ...]]:
        """Return a tensor's shape in memory, and each axis's index in the usual order of axes."""
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
                view[...] = tensors[name].detach().numpy().reshape(view.shape)
        return weights


def turned_in(network: Network, parts: Parts) -> dict[str, tuple[Shape, tuple[int, ...]]]:
    """Return the tensors that compiled code reorders: {name: (lengths of axes, their order)}."""
    turned: dict[str, tuple[Shape, tuple[int, ...]]] = {}
    below, recurrent = len(parts.convolutions), {str(k + 1) for k in range(len(parts.recurrent))}
    for name, shape in network.shapes.items():
        if name.startswith("weight") and int(name.removeprefix("weight")) < below:
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
    """Return the memory layout of a network's convolutions or LSTMs, and buffers for compiled code.

    `rows` is how many examples are computed at once, `offsets` where tensors begin in the model's
    flat array, by name; `matched` adds a buffer for representation matching.
    """
    # Numba takes half a second to import, so only what needs it does
    from fedrepro.networks.compiled_lstm import recurrent_of
    from fedrepro.networks.convolution_layout import convolutions_of

    if parts.convolutions:
        kernels = [offsets[f"weight{k}"] for k in range(parts.below)]
        return convolutions_of(parts, kernels, rows, dtype, matched)
    names = ("weight", "recurrent", "bias")
    layers = [offsets[f"{name}{k}"] for k in range(1, parts.below) for name in names]
    every, letters = network.predictions > 1, network.shape[0]
    return recurrent_of(parts, [offsets["table0"], *layers], rows, letters, every, dtype)


def body_outputs(
    network: Network, tensors: Tensors, x: torch.Tensor
) -> tuple[torch.Tensor, int] | None:
    """Compute one network's convolutions or recurrent layers: the inputs of its affine maps.

    `tensors` are a model's, (*shape) by name; x is (N, D), floating, on the CPU. Returns these
    inputs (N · predictions, units) and how many layers were computed; None for a network of affine
    maps alone, or that compiled code does not know.
    """
    import torch

    parts = parts_of(network)
    if parts is None or not parts.below:
        return None
    from fedrepro.networks.compiled_forward_and_moments import predict

    inputs = np.ascontiguousarray(x.detach().numpy())
    layout = Rows(network.shapes, turned_in(network, parts))
    weights = layout.flat(tensors, inputs.dtype)
    rows = min(PREDICTED, len(inputs))
    body, buffers = body_of(network, parts, layout.offsets, rows, inputs.dtype)
    size = network.predictions * parts.sizes[0]
    out = np.zeros(len(inputs) * size + PAD, inputs.dtype)
    predict(body, weights, inputs, rows, buffers, out)
    found = torch.from_numpy(out[: len(inputs) * size])
    if parts.convolutions:  # (H, W, C) to (C, H, W)
        channels, height, width = parts.image
        images = found.view(-1, height, width, channels).permute(0, 3, 1, 2)
        return images.reshape(len(inputs), -1), sum(2 + pooled for *_, pooled in parts.convolutions)
    if network.predictions > 1:  # (T, B, units) to (B, T, units), as many rows at a time
        pieces = torch.split(found, rows * size)
        shape = network.predictions, -1, parts.sizes[0]
        found = torch.cat([piece.view(shape).transpose(0, 1).reshape(-1) for piece in pieces])
    return found.view(-1, parts.sizes[0]), parts.below + (network.predictions > 1)
