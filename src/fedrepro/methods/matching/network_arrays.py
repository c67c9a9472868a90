"""Networks as the arrays that matching works on.

A network is a tuple of arrays (weight0, bias0, weight1, bias1, ...), weights as inputs × outputs.
Where an output unit meets an input unit at several places, a weight has three axes, (inputs,
places, outputs): those of a kernel, or the pixels of a map that a fully connected layer takes. So a
channel is a unit as any other. A layer without a bias has one of zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.spec import Spec
from fedrepro.methods.matching.pfnm_atoms import Array
from fedrepro.networks.layer_matrices import LayerMatrix, layer_matrices
from fedrepro.networks.network import IMAGE
from fedrepro.networks.predict import network_of
from fedrepro.networks.torch_modules import ModuleNetwork

if TYPE_CHECKING:
    from fedrepro.methods.matching.traced_modules import Traced
    from fedrepro.methods.matching.unit_permutations import UnitSets

UnitArrays = tuple[Array, ...]


def networks_of(
    tensors: Mapping[str, np.ndarray], widths: Sequence[Sequence[int]] | None = None
) -> list[UnitArrays]:
    """Split stacked tensors weight0 (J, D, L), bias0, … into the networks of J clients, float64.

    `widths` are the hidden units of each client, lowest layer first, if tensors are padded to more
    units. Raises FedreproError if the networks have no biases, by which units are compared too.
    """
    names = tensor_names(len(tensors))
    if set(names) != set(tensors):
        said = "units are matched by weights and biases here, and these networks have no biases"
        raise FedreproError(f"{said}: take weight_matching, ot_fusion or c2m3")
    stacked = [np.asarray(tensors[name], dtype=np.float64) for name in names]
    networks: list[UnitArrays] = list(zip(*stacked, strict=True))
    for at, own in enumerate(widths or ()):  # the rest stands for no units
        ends = [slice(units) for units in (None, *own, None)]
        networks[at] = tuple(
            block[ends[k // 2 + 1]] if k % 2 else block[ends[k // 2], ends[k // 2 + 1]]
            for k, block in enumerate(networks[at])
        )
    return networks


def tensors_of(network: UnitArrays) -> dict[str, np.ndarray]:
    """Convert a network's arrays to float32 tensors by name: weight0 (1, D, L), bias0 (1, L), …."""
    named = zip(tensor_names(len(network)), network, strict=True)
    return {name: value[None].astype(np.float32) for name, value in named}


def tensor_names(count: int) -> list[str]:
    return [f"{kind}{layer}" for layer in range(count // 2) for kind in ("weight", "bias")]


def hidden_layers(network: UnitArrays) -> int:
    return len(network) // 2 - 1


def class_shares(label_counts: np.ndarray) -> Array:
    """Return each client's share of all examples of each class, (J, K); 1 / J where none are."""
    counts = np.asarray(label_counts, dtype=np.float64)
    totals = counts.sum(axis=0)
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), 1.0 / len(counts))


def shares_towards(label_counts: np.ndarray, by_class: bool) -> tuple[Array, Array]:
    """Return clients' weights for averaging networks, (J,), and their output layers, (J, K).

    Both are clients' shares of all examples; if `by_class`, the second of examples of each class.
    """
    share = label_counts.sum(axis=1) / label_counts.sum()
    by_size = np.tile(share[:, None], label_counts.shape[1])
    return share, class_shares(label_counts) if by_class else by_size


@dataclass(frozen=True)
class Blocks:
    """A converter of named tensors to tuples of arrays for matching hidden units, and back.

    maps: for each layer, whether it is fully connected and its inputs are maps (C, H, W).
    """

    layers: tuple[LayerMatrix, ...]
    maps: tuple[bool, ...]

    def networks(self, tensors: Mapping[str, np.ndarray]) -> list[UnitArrays]:
        """Convert tensors (J, *shape) to J networks, tuples (weight0, bias0, …), float64."""
        arrays: list[Array] = []
        below = 0
        for layer, of_maps in zip(self.layers, self.maps, strict=True):
            weight = LayerMatrix(layer.weight, None, layer.kernel).of(tensors).astype(np.float64)
            count = layer.kernel[0] if layer.kernel else below
            if layer.kernel or of_maps:
                weight = weight.reshape(len(weight), count, -1, weight.shape[-1])
            below = weight.shape[-1]
            none = np.zeros((len(weight), below))
            arrays += [weight, none if layer.bias is None else tensors[layer.bias].astype(float)]
        return list(zip(*arrays, strict=True))

    @property
    def units(self) -> UnitSets:
        from fedrepro.methods.matching.unit_permutations import chain

        return chain(len(self.layers) - 1)

    def place(self, weight: str) -> int:
        return 2 * [layer.weight for layer in self.layers].index(weight)

    def tensors(self, network: UnitArrays) -> dict[str, np.ndarray]:
        """Convert a network's arrays back to named tensors of one model, float32 (1, *shape)."""
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
    """Return a converter of a model's tensors to arrays; raise if units cannot be permuted."""
    network = network_of(model, shape, classes)
    if isinstance(network, ModuleNetwork):
        from fedrepro.methods.matching.traced_modules import traced

        return traced(network, model.name)
    layers = layer_matrices(network)
    shapes = [input_shape for _, input_shape, names in network.places if names]
    maps = (
        len(input_shape) == IMAGE and not layer.kernel
        for input_shape, layer in zip(shapes, layers, strict=True)
    )
    return Blocks(layers, tuple(maps))


def widths_of(network: UnitArrays) -> tuple[int, ...]:
    """Return the number of units in each hidden layer of a network, the lowest layer first."""
    return tuple(len(bias) for bias in network[1:-2:2])


def incoming(weight: Array) -> Array:
    """Reshape a weight to a column of weights per unit: (inputs · positions of a kernel, units)."""
    return weight.reshape(-1, weight.shape[-1])


def outgoing(weight: Array) -> Array:
    """Reshape the weight of the layer above to a row of outgoing weights per unit: (units, …)."""
    return weight.reshape(len(weight), -1)


def side_by_side(networks: Sequence[UnitArrays], bias: Array) -> UnitArrays:
    """Join networks into one that has all their units and sums their outputs, plus `bias` (K,)."""
    # loaded here: planning lists the methods, and must not wait for SciPy
    from scipy.linalg import block_diag

    first, *blocks = zip(*networks, strict=True)
    joined = [np.concatenate(first, axis=1)]
    for at, block in enumerate(blocks[:-1], 1):
        inside = at % 2 == 0 and at + 2 < len(networks[0])  # a weight between hidden layers
        joined.append(block_diag(*block) if inside else np.concatenate(block))
    return (*joined, bias)


def strength(network: UnitArrays, layer: int) -> Array:
    """Compute the strength of hidden units, (L,): norm of incoming times norm of outgoing weights.

    Incoming weights include the bias. Scaling a ReLU unit's incoming weights, and its outgoing ones
    by the inverse, changes neither outputs nor strength.
    """
    way_in = np.vstack([incoming(network[2 * layer]), network[2 * layer + 1]])
    way_out = outgoing(network[2 * layer + 2])
    return np.asarray(np.linalg.norm(way_in, axis=0) * np.linalg.norm(way_out, axis=1))


def pruned(network: UnitArrays, units: int) -> UnitArrays:
    """Keep the `units` units of each hidden layer with the largest weight norms (`strength`)."""
    blocks = list(network)
    for layer in range(hidden_layers(network)):
        chosen = np.sort(np.argsort(-strength(network, layer), kind="stable")[:units])
        blocks[2 * layer] = blocks[2 * layer][:, chosen]
        blocks[2 * layer + 1] = blocks[2 * layer + 1][chosen]
        blocks[2 * layer + 2] = blocks[2 * layer + 2][chosen]
    return tuple(blocks)
