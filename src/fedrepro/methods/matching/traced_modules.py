"""A torch.nn.Module traced, to find which axes of its tensors list the same hidden units.

torch.fx records the calls of a forward pass. The output of a convolution or an affine map has
units of its own; a tensor that is added to it has the same ones, as in a residual network; inputs
and classes keep their order. A layer that would not let units change places is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedrepro.core.artifacts import one_line
from fedrepro.core.errors import FedreproError
from fedrepro.methods.matching.network_arrays import UnitArrays
from fedrepro.methods.matching.unit_permutations import UnitSets, Use
from fedrepro.networks.torch_modules import ModuleNetwork

if TYPE_CHECKING:
    import torch

FIXED = 0  # the inputs and the classes, whose order is given
# names of functions and of parts, in small letters without underscores
ADDED = {"add", "iadd", "sub", "mul", "imul", "div", "truediv"}
KEPT = {
    "relu", "relu6", "gelu", "silu", "elu", "leakyrelu", "tanh", "sigmoid", "hardtanh", "hardswish",
    "softplus", "dropout", "dropout2d", "maxpool2d", "avgpool2d", "adaptiveavgpool2d",
    "adaptivemaxpool2d", "identity", "contiguous", "clone", "mean",
}  # fmt: skip
FLATTENED = {"flatten", "view", "reshape"}


@dataclass(frozen=True)
class Traced:
    """A traced torch module: its tensors' names in order, and which axes list the same units."""

    names: tuple[str, ...]
    units: UnitSets

    def networks(self, tensors: Mapping[str, np.ndarray]) -> list[UnitArrays]:
        """Convert stacked weights, by name (J, *shape), to J networks: lists of float64 weights."""
        arrays = [tensors[name].astype(np.float64) for name in self.names]
        return list(zip(*arrays, strict=True))

    def tensors(self, network: UnitArrays) -> dict[str, np.ndarray]:
        """Convert a network's arrays back to float32 tensors by name, (1, *shape)."""
        pairs = zip(self.names, network, strict=True)
        return {name: np.asarray(value, np.float32)[None] for name, value in pairs}

    def place(self, weight: str) -> int:
        return self.names.index(weight)


@lru_cache(16)
def traced(network: ModuleNetwork, name: str) -> Traced:
    """Trace a torch module, called `name`, to find which axes of its tensors list the same units.

    Raises:
        FedreproError: the module cannot be traced, or has a layer whose units cannot be permuted.
    """
    import torch
    from torch.fx.passes.shape_prop import ShapeProp

    network.module.eval()
    try:
        graph = torch.fx.symbolic_trace(network.module)
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
    given = [(walk.sets[unit], use.at) for use, unit in walk.found.items() if use.gives]
    heads = tuple((at, 0) for root, at in given if root in hidden)  # they list the classes
    for unit in last:
        walk.sets.merge(unit, FIXED)
    uses: dict[int, list[Use]] = {walk.sets[unit]: [] for unit in range(1, len(walk.sets))}
    for use, unit in walk.found.items():
        if not walk.fixed(unit):
            uses[walk.sets[unit]].append(use)
    counts = tuple(map(walk.names.index, network.counts))
    sets = tuple(tuple(each) for each in uses.values() if each)
    return Traced(tuple(walk.names), UnitSets(sets, heads, counts))


class _Given(NamedTuple):
    """A traced call's output: axis 1 has `places` entries for each unit of set number `unit`."""

    unit: int
    places: int = 1


class _Walk:
    """A walk along a module's traced calls that finds sets of units which must be permuted alike.

    sets: the numbers of sets, joined where two prove to be one. found: {a parameter's axis that
    lists units: the number of their set}. given: the output of each visited call.
    """

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
        if node.op == "placeholder" or (node.op == "get_attr" and math.prod(meta.shape) > 1):
            self.given[node] = _Given(FIXED)
        elif node.op == "get_attr" or not hasattr(meta, "shape"):
            return  # a size, or another number, has no units
        elif node.op == "call_module":
            self.given[node] = self._part(str(node.target), node, known[0])
        else:
            target = node.target if isinstance(node.target, str) else node.target.__name__
            self.given[node] = self._function(target.rpartition(".")[2], node, known)

    def _before(self, node: torch.fx.Node) -> tuple[int, ...]:
        """Return the shape of the first input of a traced call that is a tensor."""
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
                self.given.get(arg)
                for arg in node.all_input_nodes
                if (meta := arg.meta.get("tensor_meta")) and tuple(meta.shape[1:2]) == shape[1:2]
            ]
            units = [value.unit for value in wide if value] or [FIXED]
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
        before = self._before(node)
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
        if isinstance(part, nn.Flatten) and part.start_dim == 1:
            return _Given(given.unit, given.places * math.prod(before[2:]))
        if self.fixed(given.unit) and not list(part.parameters()):
            return given
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
        """Record that an axis of the parameter `value` lists the units of set number `unit`.

        It has `places` entries per unit; `kind` has fields of `Use`: counted (units are compared by
        it), gives (it is a layer's output). If another call has recorded the axis, sets are joined.
        """
        name = self.named.get(id(value), "")
        if name in self.names:
            use = Use(self.names.index(name), axis, places, **kind)
            self.sets.merge(self.found.setdefault(use, unit), unit)
