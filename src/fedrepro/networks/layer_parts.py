"""Layers of a network as compiled code knows them: a body below affine maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedrepro.networks.layers import Affine, Convolution2d, Dropout, Layer, MaxPool, Relu, Shape
from fedrepro.networks.network import Network
from fedrepro.networks.recurrent import EachPosition, Embedding, Lstm


@dataclass(frozen=True)
class Parts:
    """A network of known layers: convolutions or recurrent ones, then affine maps with ReLU.

    `sizes` are (inputs, hidden…, outputs) of the affine maps; `image` is (C, H, W) of their input,
    or () for a vector. Each of `convolutions` has the shape of its input and whether a pooling
    follows.
    """

    sizes: tuple[int, ...]
    biased: bool = True
    image: Shape = ()
    convolutions: tuple[tuple[Convolution2d, Shape, bool], ...] = ()
    embedding: Embedding | None = None
    recurrent: tuple[Lstm, ...] = ()

    @property
    def below(self) -> int:
        """Layers with tensors below the affine maps."""
        return len(self.convolutions) + len(self.recurrent) + (self.embedding is not None)


def parts_of(network: Network) -> Parts | None:
    """Find the parts of a network; return None for other layers, or another order.

    There may be dropout after every hidden affine map.
    """
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
    units = _affine(layers)
    kinds = {layer.biased for layer in layers if isinstance(layer, Affine)}
    kinds |= {convolution.biased for convolution, _, _ in convolutions}
    if units is None or len(kinds) > 1:
        return None
    return Parts(
        (math.prod(shape), *units),
        kinds.pop(),
        shape if convolutions else (),
        tuple(convolutions),
        embedding,
        tuple(recurrent),
    )


def _affine(layers: Sequence[Layer]) -> list[int] | None:
    """List units of affine maps with ReLU between, and maybe dropout; None for other layers."""
    dropout = any(isinstance(layer, Dropout) for layer in layers)
    turns = (Affine, Relu, Dropout) if dropout else (Affine, Relu)
    for place, layer in enumerate(layers):
        if not isinstance(layer, turns[place % len(turns)]):
            return None
    if not layers or not isinstance(layers[-1], Affine):
        return None
    return [layer.units for layer in layers if isinstance(layer, Affine)]
