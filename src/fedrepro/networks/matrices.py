"""Fully connected layers and convolutions as matrices, their biases among the rows.

A convolution is a fully connected layer on patches of its input. With a bias the matrix has a last
row, whose input is always 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.networks.layers import Affine, Convolution2d
from fedrepro.networks.network import Network


@dataclass(frozen=True)
class LayerMatrix:
    """The names of a layer's tensors. kernel: (channels in, side, side) of a convolution."""

    weight: str
    bias: str | None
    kernel: tuple[int, ...] | None = None

    def of(self, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
        """Tensors (…, *shape) as one matrix: (…, inputs [+ 1], outputs), in their type."""
        weight = tensors[self.weight]
        if self.kernel:
            # (…, out, in, k, k), in the order in which patches list their pixels
            weight = np.moveaxis(weight, -4, -1)
            weight = weight.reshape(*weight.shape[:-4], -1, weight.shape[-1])
        if self.bias is None:
            return weight
        return np.concatenate([weight, tensors[self.bias][..., None, :]], axis=-2)

    def tensors(self, matrix: np.ndarray) -> dict[str, np.ndarray]:
        """The inverse of `of`."""
        biases = {} if self.bias is None else {self.bias: matrix[..., -1, :]}
        weight = matrix if self.bias is None else matrix[..., :-1, :]
        if self.kernel:
            weight = weight.reshape(*weight.shape[:-2], *self.kernel, weight.shape[-1])
            weight = np.moveaxis(weight, -1, -4)
        return {self.weight: weight, **biases}


def layer_matrices(network: Network) -> tuple[LayerMatrix, ...]:
    """The layers that have tensors, from inputs to outputs.

    Errors: FedreproError for a network with other layers, as recurrent ones.
    """
    matrices = []
    for layer, shape, names in network.places:
        if isinstance(layer, Affine | Convolution2d):
            kernel = None
            if isinstance(layer, Convolution2d):
                kernel = (shape[0], layer.kernel, layer.kernel)
            matrices.append(LayerMatrix(names["weight"], names.get("bias"), kernel))
        elif names:
            raise FedreproError(
                f"layers of this {network.kind} network are not all fully connected layers or "
                "convolutions, of which alone there are matrices: choose mlp, logistic or cnn"
            )
    return tuple(matrices)
