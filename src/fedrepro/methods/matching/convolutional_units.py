"""Networks with convolutions as the arrays that matching works on.

As in `networks`, (weight0, bias0, weight1, …), weights as inputs × outputs. Where an output unit
meets an input unit at several places, a weight has three axes, (inputs, places, outputs): those of
a kernel, or the pixels of a map that a fully connected layer takes. So a channel is a unit as any
other. A layer without a bias has one of zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.spec import Spec
from fedrepro.methods.matching.networks import UnitArrays
from fedrepro.methods.matching.rewards import Array
from fedrepro.networks.layer_matrices import LayerMatrix, layer_matrices
from fedrepro.networks.network import IMAGE
from fedrepro.networks.predict import network_of
from fedrepro.networks.torch_modules import ModuleNetwork

if TYPE_CHECKING:
    from fedrepro.methods.matching.traced_modules import Traced
    from fedrepro.methods.matching.unit_permutations import UnitSets


@dataclass(frozen=True)
class Blocks:
    """Which tensors are which arrays: `layers` from inputs to outputs.

    `maps` are True for fully connected layers that take maps.
    """

    layers: tuple[LayerMatrix, ...]
    maps: tuple[bool, ...]

    def networks(self, tensors: Mapping[str, np.ndarray]) -> list[UnitArrays]:
        """Convert stacked tensors (J, *shape) to the networks of J clients, float64."""
        arrays: list[Array] = []
        below = 0
        for layer, of_maps in zip(self.layers, self.maps, strict=True):
            weight = LayerMatrix(layer.weight, None, layer.kernel).of(tensors).astype(np.float64)
            count = layer.kernel[0] if layer.kernel else below
            if layer.kernel or of_maps:
                weight = weight.reshape(len(weight), count, -1, weight.shape[-1])
            below = weight.shape[-1]
            bias = np.zeros((len(weight), below))
            if layer.bias is not None:
                bias = tensors[layer.bias].astype(np.float64)
            arrays += [weight, bias]
        return list(zip(*arrays, strict=True))

    @property
    def units(self) -> UnitSets:
        """The chain of layers."""
        from fedrepro.methods.matching.unit_permutations import CHAIN

        return CHAIN

    def mean(
        self, networks: Sequence[UnitArrays], share: Array, towards: Array | None = None
    ) -> UnitArrays:
        """Average weights by share (J,), those to classes by `towards` (J, K)."""
        from fedrepro.methods.matching.unit_permutations import mean_network

        return mean_network(networks, share, towards)

    def tensors(self, network: UnitArrays) -> dict[str, np.ndarray]:
        """Convert a network to stacked tensors of one model, float32 (1, *shape)."""
        tensors: dict[str, np.ndarray] = {}
        for place, layer in enumerate(self.layers):
            weight, bias = network[2 * place], network[2 * place + 1]
            kernel = (len(weight), *layer.kernel[1:]) if layer.kernel else None
            matrix = weight.reshape(-1, weight.shape[-1])
            tensors |= LayerMatrix(layer.weight, None, kernel).tensors(matrix)
            if layer.bias is not None:
                tensors[layer.bias] = bias
        return {
            name: np.ascontiguousarray(value[None], np.float32) for name, value in tensors.items()
        }


def units_of(model: Spec, shape: tuple[int, ...], classes: int) -> Blocks | Traced:
    """Make the arrays of a model's networks; raises as `blocks_of`, and for modules as `traced`."""
    network = network_of(model, shape, classes)
    if isinstance(network, ModuleNetwork):
        from fedrepro.methods.matching.traced_modules import traced

        return traced(network, model.name)
    return blocks_of(model, shape, classes)


def blocks_of(model: Spec, shape: tuple[int, ...], classes: int) -> Blocks:
    """Make the arrays of networks of layers; raises as `layer_matrices`."""
    network = network_of(model, shape, classes)
    layers = layer_matrices(network)
    shapes = [input_shape for _, input_shape, names in network.places if names]
    maps = (
        len(input_shape) == IMAGE and not layer.kernel
        for input_shape, layer in zip(shapes, layers, strict=True)
    )
    return Blocks(layers, tuple(maps))


def widths_of(network: UnitArrays) -> tuple[int, ...]:
    """Return the units of each hidden layer, the lowest first."""
    return tuple(len(bias) for bias in network[1:-2:2])


def incoming(weight: Array) -> Array:
    """Reshape a weight to rows of each unit's inputs: (inputs · places, outputs)."""
    return weight.reshape(-1, weight.shape[-1])


def outgoing(weight: Array) -> Array:
    """Reshape a weight to a row for each unit's outputs: (inputs, places · outputs)."""
    return weight.reshape(len(weight), -1)


def orders_of(before: UnitArrays, after: UnitArrays) -> list[np.ndarray]:
    """Find the order of hidden units that makes one network the other, which is it permuted.

    int64 (L,) of each hidden layer: unit i after was unit order[i] before.
    """
    orders: list[np.ndarray] = []
    below: np.ndarray | None = None
    for layer in range(len(before) // 2 - 1):
        weight = before[2 * layer] if below is None else before[2 * layer][below]
        units = _units(weight, before[2 * layer + 1])
        places: dict[bytes, list[int]] = {}
        for place, unit in enumerate(units):
            places.setdefault(unit.tobytes(), []).append(place)
        after_units = _units(after[2 * layer], after[2 * layer + 1])
        below = np.array([places[unit.tobytes()].pop(0) for unit in after_units], np.int64)
        orders.append(below)
    return orders


def _units(weight: Array, bias: Array) -> Array:
    return np.ascontiguousarray(np.vstack([incoming(weight), bias]).T) + 0.0
