"""Networks as the arrays that matching works on.

A network is a tuple of arrays (weight0, bias0, weight1, bias1, ...), weights as inputs × outputs.
Where an output unit meets an input unit at several places, a weight has three axes, (inputs,
places, outputs): those of a kernel, or the pixels of a map that a fully connected layer takes. So a
channel is a unit as any other. A layer without a bias has one of zeros.

A torch.nn.Module keeps its tensors as arrays. torch.fx records the calls of a forward pass, to find
which axes list the same hidden units: the output of a convolution or an affine map has units of its
own; a tensor that is added to it has the same ones, as in a residual network; inputs and classes
keep their order. A layer that would not let units change places is refused by name.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedrepro.core.checksummed_files import one_line
from fedrepro.core.errors import FedreproError
from fedrepro.core.spec import Spec
from fedrepro.methods.matching.pfnm_atoms_and_rewards import Array
from fedrepro.methods.matching.unit_permutations import UnitSets, Use, chain
from fedrepro.networks.layer_matrices import LayerMatrix, layer_matrices
from fedrepro.networks.network import IMAGE
from fedrepro.networks.predict import network_of
from fedrepro.networks.user_torch_modules import ModuleNetwork

if TYPE_CHECKING:
    import torch

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
    """Return clients' shares of each class by `label_counts`, (J, K); 1 / J for an absent class."""
    counts = np.asarray(label_counts, dtype=np.float64)
    totals = counts.sum(axis=0)
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), 1.0 / len(counts))


def shares_towards(label_counts: np.ndarray, by_class: bool) -> tuple[Array, Array]:
    """Return clients' weights for averaging networks, (J,), and their output layers, (J, K).

    By `label_counts` (J, K) both are shares of all examples; with `by_class` the second are by
    class.
    """
    share = label_counts.sum(axis=1) / label_counts.sum()
    by_size = np.tile(share[:, None], label_counts.shape[1])
    return share, class_shares(label_counts) if by_class else by_size


@dataclass(frozen=True)
class Blocks:
    """A converter of named tensors to tuples of arrays for matching hidden units, and back.

    layers: lowest first. maps: whether each is fully connected and takes feature maps (C, H, W).
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


@dataclass(frozen=True)
class Traced:
    """Converts a torch module's tensors (`names`) to arrays, and lists sets of hidden `units`."""

    names: tuple[str, ...]
    units: UnitSets

    def networks(self, tensors: Mapping[str, np.ndarray]) -> list[UnitArrays]:
        """Convert stacked weights, by name (J, *shape), to J networks: tuples of float64 arrays."""
        return list(zip(*(tensors[name].astype(np.float64) for name in self.names), strict=True))

    def tensors(self, network: UnitArrays) -> dict[str, np.ndarray]:
        """Convert a network's arrays back to float32 tensors by name, (1, *shape)."""
        pairs = zip(self.names, network, strict=True)
        return {name: np.asarray(value, np.float32)[None] for name, value in pairs}

    def place(self, weight: str) -> int:
        return self.names.index(weight)


def units_of(model: Spec, shape: tuple[int, ...], classes: int) -> Blocks | Traced:
    """Return a converter between a model's tensors and the arrays by which units are matched.

    `shape` is of one input, `classes` counts outputs. FedreproError if units cannot be permuted.
    """
    network = network_of(model, shape, classes)
    if isinstance(network, ModuleNetwork):
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
    """Compute the strength (L,) of units of hidden layer number `layer`, 0 the lowest.

    It is the norm of incoming weights and bias, times that of outgoing weights. Scaling a ReLU
    unit's incoming weights, and its outgoing ones by the inverse, does not change it.
    """
    below, bias, above = network[2 * layer : 2 * layer + 3]
    way_in = np.vstack([below.reshape(-1, len(bias)), bias])
    way_out = above.reshape(len(bias), -1)
    return np.asarray(np.linalg.norm(way_in, axis=0) * np.linalg.norm(way_out, axis=1))


def pruned(network: UnitArrays, units: int) -> UnitArrays:
    """Keep the `units` units of each hidden layer with the largest |weights in| · |weights out|."""
    blocks = list(network)
    for layer in range(hidden_layers(network)):
        chosen = np.sort(np.argsort(-strength(network, layer), kind="stable")[:units])
        blocks[2 * layer] = blocks[2 * layer][:, chosen]
        blocks[2 * layer + 1] = blocks[2 * layer + 1][chosen]
        blocks[2 * layer + 2] = blocks[2 * layer + 2][chosen]
    return tuple(blocks)


FIXED = 0  # the inputs and the classes, whose order is given
# names of functions and of parts, in small letters without underscores
ADDED = {"add", "iadd", "sub", "mul", "imul", "div", "truediv"}
KEPT = {
    "relu", "relu6", "gelu", "silu", "elu", "leakyrelu", "tanh", "sigmoid", "hardtanh", "hardswish",
    "softplus", "dropout", "dropout2d", "maxpool2d", "avgpool2d", "adaptiveavgpool2d",
    "adaptivemaxpool2d", "identity", "contiguous", "clone", "mean",
}  # fmt: skip
FLATTENED = {"flatten", "view", "reshape"}


@lru_cache(16)
def traced(network: ModuleNetwork, name: str) -> Traced:
    """Trace a torch module, called `name`, to find which axes of its tensors list the same units.

    Raises FedreproError if it cannot be traced, or has a layer whose units cannot be permuted.
    """
    import torch
    from torch.fx.passes.shape_prop import ShapeProp

    try:
        graph = torch.fx.symbolic_trace(copy.deepcopy(network.module).eval().float())
        with torch.no_grad():
            ShapeProp(graph).propagate(torch.zeros(2, *network.shape))
    except Exception as error:  # another's code, which may branch on what it is given
        said = f"model '{name}' cannot be traced, so nobody knows which layers share units"
        raise FedreproError(f"{said} ({type(error).__name__}: {one_line(error)})") from error
    walk = _Walk(network, name)
    *calls, output = graph.graph.nodes
    for node in calls:
        walk.visit(node)
    last = [walk.given[arg].unit for arg in output.all_input_nodes if arg in walk.given]
    hidden = {walk.sets[unit] for unit in last if not walk.fixed(unit)}
    given = [(walk.sets[unit], use) for use, unit in walk.found.items() if use.gives]
    heads = tuple((use.at, use.axis) for root, use in given if root in hidden)  # axes of classes
    for unit in last:
        walk.sets.merge(unit, FIXED)
    uses: dict[int, list[Use]] = {walk.sets[unit]: [] for unit in range(1, len(walk.sets))}
    for use, unit in walk.found.items():
        if not walk.fixed(unit):
            uses[walk.sets[unit]].append(use)
    counts = tuple(map(walk.names.index, network.counts))
    if not (sets := tuple(tuple(each) for each in uses.values() if each)):
        raise walk.stop("it", "has no hidden units that may change places")
    return Traced(tuple(walk.names), UnitSets(sets, heads, counts))


class _Given(NamedTuple):
    """Units along axis 1 of a call's output: `unit`, their set's number; `places` entries each."""

    unit: int
    places: int = 1


class _Walk:
    """A walk along a module's traced calls: finds sets of units that must be permuted alike."""

    def __init__(self, network: ModuleNetwork, name: str) -> None:
        from scipy.cluster.hierarchy import DisjointSet

        self.name, self.names = name, list(network.shapes)
        self.parts = dict(network.module.named_modules())
        held = [*network.module.named_parameters(), *network.module.named_buffers()]
        self.named = {id(value): name for name, value in held}
        self.sets = DisjointSet([FIXED])
        self.found: dict[Use, int] = {}
        self.given: dict[Any, _Given] = {}

    def fixed(self, unit: int) -> bool:
        return bool(self.sets.connected(unit, FIXED))

    def stop(self, layer: str, why: str) -> FedreproError:
        return FedreproError(
            f"model '{self.name}' cannot be matched: {layer} {why}; take a method that matches none"
        )

    def visit(self, node: torch.fx.Node) -> None:
        """Record the units of a traced call's output, and parameter axes that list them."""
        known = [self.given[arg] for arg in node.all_input_nodes if arg in self.given]
        meta: Any = node.meta.get("tensor_meta")
        if isinstance(meta, tuple | list) and not hasattr(meta, "shape"):
            inner = node.op == "call_module" and list(self.parts[str(node.target)].parameters())
            if inner or not all(self.fixed(value.unit) for value in known):
                raise self.stop(f"'{node.name}'", "gives several tensors")
        if node.op == "placeholder" or (node.op == "get_attr" and math.prod(meta.shape) > 1):
            self.given[node] = _Given(FIXED)
        elif node.op == "get_attr" or not hasattr(meta, "shape"):
            return  # a size, or another number, has no units
        elif node.op == "call_module" and not known:
            return
        elif node.op == "call_module":
            self.given[node] = self._part(str(node.target), node, known[0])
        else:
            target = node.target if isinstance(node.target, str) else node.target.__name__
            self.given[node] = self._function(target.rpartition(".")[2], node, known)

    def _before(self, node: torch.fx.Node) -> tuple[int, ...]:
        metas: list[Any] = [arg.meta.get("tensor_meta") for arg in node.all_input_nodes]
        return next(tuple(meta.shape) for meta in metas if hasattr(meta, "shape"))

    def _function(self, called: str, node: torch.fx.Node, known: list[_Given]) -> _Given:
        if all(self.fixed(value.unit) for value in known):
            return _Given(FIXED)
        shape, before = node.meta["tensor_meta"].shape, self._before(node)
        name = called.replace("_", "")
        if name in ADDED and len({value.places for value in known}) == 1:
            # what is laid over all units, as a map of one channel, has units of its own
            wide = [
                arg
                for arg in node.all_input_nodes
                if (meta := arg.meta.get("tensor_meta"))
                and ((1,) * len(shape) + meta.shape)[1 - len(shape)] == shape[1]  # as broadcast
            ]
            # factors of units that are learned are permuted with them
            root = self.parts[""]
            own: dict[Any, Any] = dict(root.named_buffers(remove_duplicate=False))
            own |= dict(root.named_parameters(remove_duplicate=False))
            at = {
                arg: own[arg.target] for arg in wide if arg.op == "get_attr" and arg.target in own
            }
            named = {a: v for a, v in at.items() if self.named.get(id(v)) in self.names}
            learned = {a: v for a, v in named.items() if v.dim() + 1 >= len(shape)}
            others = [arg for arg in wide if arg in self.given and arg not in learned]
            units = [self.given[arg].unit for arg in others] or [FIXED]
            for value in learned.values():
                self._note(units[0], value, value.dim() + 1 - len(shape), 1)
            for unit in units[1:]:
                self.sets.merge(units[0], unit)
            return _Given(units[0], known[0].places)
        if called in FLATTENED and len(shape) == 2 and shape[0] == before[0]:
            return _Given(known[0].unit, known[0].places * math.prod(before[2:]))
        over = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        axes = over if isinstance(over, tuple | list) else (over,)
        mixes = name == "mean" and bool({None, 1, 1 - len(before)} & set(axes))
        if name in KEPT and len(known) == 1 and shape[:2] == before[:2] and not mixes:
            return known[0]
        raise self.stop(f"the call of {called}", "does not keep units apart as they are")

    def _part(self, name: str, node: torch.fx.Node, given: _Given) -> _Given:
        import torch.nn as nn

        part, kind = self.parts[name], type(self.parts[name]).__name__
        before, shape = self._before(node), node.meta["tensor_meta"].shape
        layer = f"layer '{name}' ({kind})"
        if isinstance(part, nn.Conv2d | nn.Linear):
            depthwise = isinstance(part, nn.Conv2d) and part.groups > 1
            if depthwise and not part.groups == part.in_channels == part.out_channels:
                raise self.stop(layer, "is a convolution of groups, which channels cannot leave")
            if isinstance(part, nn.Linear) and len(before) != 2:
                raise self.stop(layer, f"takes {len(before)} axes, and not examples by units")
            out = given.unit if depthwise else len(self.sets)
            self.sets.add(out)
            if id(part.weight) not in self.named:
                raise self.stop(layer, "has a weight that is computed of others")
            if not depthwise:
                self._note(given.unit, part.weight, 1, given.places, gives=False)
            for own in (part.weight, part.bias):
                self._note(out, own, 0, 1)
            return _Given(out)
        if self.fixed(given.unit) and not list(part.parameters()):
            return given
        if isinstance(part, nn.Flatten) and part.start_dim == 1 and len(shape) == 2:
            return _Given(given.unit, given.places * math.prod(before[2:]))
        channels = isinstance(part, nn.GroupNorm) and part.num_groups in (1, part.num_channels)
        rows = isinstance(part, nn.LayerNorm) and len(before) == 2
        if isinstance(part, nn.modules.batchnorm._NormBase) or channels or rows:
            for called in ("weight", "bias", "running_mean", "running_var"):
                value = getattr(part, called, None)
                counted = not called.startswith("running")
                self._note(given.unit, value, 0, given.places, counted=counted)
            return given
        if isinstance(part, nn.GroupNorm):
            raise self.stop(layer, f"has {part.num_groups} groups, which channels cannot leave")
        if kind.lower() in KEPT:
            return given
        raise self.stop(layer, "is of an unknown kind, whose units may depend on their places")

    def _note(self, unit: int, value: Any, axis: int, places: int, **kind: bool) -> None:
        """Record that an axis of the parameter `value` lists the units of set number `unit`."""
        name = self.named.get(id(value), "")
        if name in self.names:
            use = Use(self.names.index(name), axis, places, **kind)
            self.sets.merge(self.found.setdefault(use, unit), unit)
