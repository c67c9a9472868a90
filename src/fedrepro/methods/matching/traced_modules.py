"""Modules as the arrays that matching works on: which axes share an order of units, by tracing.

torch.fx records the calls of a forward pass. The output of a convolution or an affine map has
units of its own; a tensor that is added to it has the same ones, as in a residual network; inputs
and classes keep their order. A layer that would not let units change places is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedrepro.core.artifacts import one_line
from fedrepro.core.errors import FedreproError
from fedrepro.methods.matching.network_arrays import UnitArrays
from fedrepro.methods.matching.pfnm_atoms import Array, Ints
from fedrepro.methods.matching.unit_fusion import barycentre
from fedrepro.methods.matching.unit_permutations import UnitSets
from fedrepro.networks.torch_modules import ModuleNetwork

if TYPE_CHECKING:
    import torch

FIXED = 0  # the inputs and the classes, whose order is given
ADDED = {"add", "add_", "iadd", "sub", "mul", "mul_", "imul", "div", "truediv"}
KEPT = {
    "relu", "relu_", "relu6", "gelu", "silu", "elu", "leaky_relu", "tanh", "sigmoid", "hardtanh",
    "hardswish", "dropout", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "contiguous",
    "clone", "mean",
}  # fmt: skip
FLATTENED = {"flatten", "view", "reshape"}
KEPT_PARTS = {
    "ReLU", "ReLU6", "LeakyReLU", "GELU", "SiLU", "ELU", "Tanh", "Sigmoid", "Hardtanh", "Hardswish",
    "Softplus", "Dropout", "Dropout2d", "MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "Identity",
    "AdaptiveMaxPool2d",
}  # fmt: skip


class Use(NamedTuple):
    """An axis of a tensor that lists units, each at `places` neighbours.

    `counted` ones are part of the agreement; `gives` is True for a layer's output, False for its
    input.
    """

    name: str
    axis: int
    places: int
    counted: bool = True
    gives: bool = True


@dataclass(frozen=True)
class Traced:
    """All tensors of a module, as tuples in the order of `names`.

    `uses` are the axes of each hidden set of units, in the order in which sets are first given;
    `heads` tensors whose first axis is the classes, `largest` buffers that count.
    """

    names: tuple[str, ...]
    uses: tuple[tuple[Use, ...], ...]
    heads: tuple[str, ...]
    largest: tuple[str, ...] = ()

    def networks(self, tensors: Mapping[str, np.ndarray]) -> list[UnitArrays]:
        """Convert stacked tensors (J, *shape) to the networks of J clients, float64."""
        arrays = [tensors[name].astype(np.float64) for name in self.names]
        return list(zip(*arrays, strict=True))

    def tensors(self, network: UnitArrays) -> dict[str, np.ndarray]:
        """Convert a network to stacked tensors of one model, float32 (1, *shape)."""
        pairs = zip(self.names, network, strict=True)
        return {name: np.asarray(value, np.float32)[None] for name, value in pairs}

    def layers(self, network: UnitArrays) -> int:
        """Count the sets of units."""
        return len(self.uses)

    def width(self, network: UnitArrays, layer: int) -> int:
        """Count the units of a set."""
        use = self.uses[layer][0]
        return int(network[self.names.index(use.name)].shape[use.axis]) // use.places

    @property
    def uncounted(self) -> set[int]:
        """Places of tensors that are permuted along, such as running statistics."""
        uses = [use for each in self.uses for use in each]
        counted = {use.name for use in uses if use.counted}
        held = {use.name for use in uses} - counted
        return {at for at, name in enumerate(self.names) if name in held}

    @property
    def units(self) -> UnitSets:
        """Itself."""
        return self

    def rows(self, network: UnitArrays, use: Use) -> Array:
        """Return a tensor's rows of each unit: (units, …) as a matrix."""
        value = np.moveaxis(network[self.names.index(use.name)], use.axis, 0)
        return value.reshape(len(value) // use.places, -1)

    def agreement(self, model: UnitArrays, network: UnitArrays, layer: int) -> Array:
        """Compute inner products of the units of two networks; see `UnitSets`."""
        products = (
            self.rows(model, use) @ self.rows(network, use).T
            for use in self.uses[layer]
            if use.counted
        )
        return np.asarray(sum(products))

    def rises(self, model: UnitArrays, before: UnitArrays, after: UnitArrays) -> bool:
        """Return whether a network agrees better; tensors may have one set of units on two axes."""
        counted = {use.name for uses in self.uses for use in uses if use.counted}
        at = [self.names.index(name) for name in counted]
        return bool(sum(float((model[i] * (after[i] - before[i])).sum()) for i in at) > 0)

    def times(self, network: UnitArrays, layer: int, matrix: Array) -> UnitArrays:
        """Replace a set's units by sums: unit b becomes sum_a M_ab unit a."""
        arrays = list(network)
        for use in self.uses[layer]:
            at = self.names.index(use.name)
            value = np.moveaxis(arrays[at], use.axis, 0)
            new = (matrix.T @ value.reshape(len(matrix), -1)).reshape(-1, *value.shape[1:])
            arrays[at] = np.moveaxis(new, 0, use.axis)
        return tuple(arrays)

    def permuted(self, network: UnitArrays, layer: int, order: Ints) -> UnitArrays:
        """Reorder the units of a set; the network predicts the same."""
        arrays = list(network)
        for use in self.uses[layer]:
            rows = (order[:, None] * use.places + np.arange(use.places)).reshape(-1)
            at = self.names.index(use.name)
            arrays[at] = np.take(arrays[at], rows, axis=use.axis)
        return tuple(arrays)

    def mean(
        self, networks: Sequence[UnitArrays], share: Array, towards: Array | None = None
    ) -> UnitArrays:
        """Average tensors by share (J,), those of classes by `towards` (J, K)."""
        made = []
        for name, values in zip(self.names, zip(*networks, strict=True), strict=True):
            value = np.stack(values)
            if name in self.largest:
                made.append(value.max(axis=0))
            elif towards is not None and name in self.heads:
                made.append(
                    (towards.reshape(*towards.shape, *[1] * (value.ndim - 2)) * value).sum(0)
                )
            else:
                made.append(np.tensordot(share, value, 1))
        return tuple(made)

    def fused(
        self, networks: Sequence[UnitArrays], share: Array, towards: Array, order: Ints, sweeps: int
    ) -> UnitArrays:
        """Fuse networks by optimal transport of units, set after set; see `unit_fusion.fused`.

        A unit is the inputs of the first layers that give it, and its own numbers; layers that give
        the same units later, as behind a shortcut, are carried by the same plan.
        """
        current = list(networks)
        for layer, uses in enumerate(self.uses):
            # what a layer takes has to be carried before it is compared
            waiting = {u.name for later in self.uses[layer:] for u in later if not u.gives}
            ready = [u for u in uses if u.counted and u.gives and u.name not in waiting]
            measures = [np.hstack([self.rows(net, use) for use in ready]) for net in current]
            ranked = [m[np.argsort(-(m**2).sum(1), kind="stable")] for m in measures]
            width = self.width(networks[0], layer)
            start = np.concatenate([ranked[j] for j in order])[:width]
            _, plans = barycentre(measures, start, share, sweeps)
            pairs = zip(current, plans, strict=True)
            current = [self.times(net, layer, plan) for net, plan in pairs]
        return self.mean(current, share, towards)


@lru_cache(16)
def traced(network: ModuleNetwork, name: str) -> Traced:
    """Find the axes of a module that list units; errors call it `name`.

    Raises:
        FedreproError: For a module that cannot be traced, or naming the layer that stops it.
    """
    import torch
    from torch.fx.passes.shape_prop import ShapeProp

    network.module.eval()
    try:
        graph = torch.fx.symbolic_trace(network.module)
        with torch.no_grad():
            ShapeProp(graph).propagate(torch.zeros(2, *network.shape))
    except Exception as error:  # another's code, which may branch on what it is given
        raise FedreproError(
            f"model '{name}' cannot be traced, so nobody knows which layers share units "
            f"({type(error).__name__}: {one_line(error)}): take a method that matches none"
        ) from error
    walk = _Walk(network, name)
    for node in graph.graph.nodes:
        walk.visit(node)
    roots = dict.fromkeys(walk.root(unit) for unit in range(1, len(walk.parent)))
    grouped = {root: [u for unit, u in walk.found if walk.root(unit) == root] for root in roots}
    uses = tuple(tuple(each) for root, each in grouped.items() if root != FIXED and each)
    return Traced(tuple(network.shapes), uses, walk.heads, network.counts)


class _Given(NamedTuple):
    """Output of a call: the units that its axis 1 lists, each at `places` neighbours."""

    unit: int
    places: int = 1


@dataclass
class _Walk:
    """A walk along a module's calls; `parent` maps each set of units to one that contains it."""

    network: ModuleNetwork
    name: str
    parent: list[int] = field(default_factory=lambda: [FIXED])
    found: list[tuple[int, Use]] = field(default_factory=list)
    given: dict[Any, _Given | None] = field(default_factory=dict)
    heads: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        module = self.network.module
        self.parts = dict(module.named_modules())
        held = [*module.named_parameters(), *module.named_buffers()]
        self.named = {id(value): name for name, value in held}

    def root(self, unit: int) -> int:
        """Return the largest set that contains a set."""
        while self.parent[unit] != unit:
            unit = self.parent[unit]
        return unit

    def new(self) -> int:
        self.parent.append(len(self.parent))
        return len(self.parent) - 1

    def join(self, one: int, other: int) -> int:
        """Make both one set, the older of the two."""
        low, high = sorted((self.root(one), self.root(other)))
        self.parent[high] = low
        return low

    def stop(self, layer: str, why: str) -> FedreproError:
        return FedreproError(
            f"model '{self.name}' cannot be matched: {layer} {why}; take another network, or a "
            "method that matches no units"
        )

    def visit(self, node: torch.fx.Node) -> None:
        """Note the output of a call, and the axes of its tensors."""
        inputs = [self.given[arg] for arg in node.all_input_nodes]
        known = [value for value in inputs if value is not None]
        if node.op == "output":
            last = {self.root(value.unit) for value in known} - {FIXED}
            self.heads = tuple(u.name for at, u in self.found if u.gives and self.root(at) in last)
            for value in known:
                self.join(value.unit, FIXED)
            return
        meta: Any = node.meta.get("tensor_meta")
        if node.op == "placeholder" or (node.op == "get_attr" and math.prod(meta.shape) > 1):
            self.given[node] = _Given(FIXED)
        elif node.op == "get_attr" or not hasattr(meta, "shape"):
            self.given[node] = None  # a size, or another number
        elif node.op == "call_module":
            self.given[node] = self._part(str(node.target), node, known[0])
        else:
            target = node.target if isinstance(node.target, str) else node.target.__name__
            self.given[node] = self._function(target.rpartition(".")[2], node, known)

    def _before(self, node: torch.fx.Node) -> tuple[int, ...]:
        """Return the shape of a call's first tensor."""
        metas: list[Any] = [arg.meta.get("tensor_meta") for arg in node.all_input_nodes]
        return next(tuple(meta.shape) for meta in metas if hasattr(meta, "shape"))

    def _function(self, called: str, node: torch.fx.Node, known: list[_Given]) -> _Given:
        if all(self.root(value.unit) == FIXED for value in known):
            return _Given(FIXED)
        shape, before = node.meta["tensor_meta"].shape, self._before(node)
        if called in ADDED and len({value.places for value in known}) == 1:
            # what is laid over all units, as a map of one channel, has units of its own
            wide = [
                self.given[arg]
                for arg in node.all_input_nodes
                if (meta := arg.meta.get("tensor_meta")) and tuple(meta.shape[1:2]) == shape[1:2]
            ]
            units = [value.unit for value in wide if value] or [FIXED]
            for unit in units[1:]:
                self.join(units[0], unit)
            return _Given(units[0], known[0].places)
        if called in FLATTENED and len(shape) == 2 and shape[0] == before[0]:
            return _Given(known[0].unit, known[0].places * math.prod(before[2:]))
        over = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        axes = over if isinstance(over, tuple | list) else (over,)
        mixes = called == "mean" and bool({None, 1, 1 - len(before)} & set(axes))
        if called in KEPT and len(known) == 1 and shape[:2] == before[:2] and not mixes:
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
            out = given.unit if depthwise else self.new()
            if id(part.weight) not in self.named:
                raise self.stop(layer, "has a weight that is computed of others")
            if not depthwise:
                self._note(given.unit, part.weight, 1, given.places, gives=False)
            for own in (part.weight, part.bias):
                self._note(out, own, 0, 1)
            return _Given(out)
        if isinstance(part, nn.Flatten) and part.start_dim == 1:
            return _Given(given.unit, given.places * math.prod(before[2:]))
        if self.root(given.unit) == FIXED and not list(part.parameters()):
            return given
        channels = isinstance(part, nn.GroupNorm) and part.num_groups in (1, part.num_channels)
        rows = isinstance(part, nn.LayerNorm) and len(before) == 2
        norms = nn.modules.batchnorm._BatchNorm | nn.modules.instancenorm._InstanceNorm
        if isinstance(part, norms) or channels or rows:
            for called in ("weight", "bias", "running_mean", "running_var"):
                value = getattr(part, called, None)
                self._note(given.unit, value, 0, given.places, not called.startswith("running"))
            return given
        if isinstance(part, nn.GroupNorm):
            raise self.stop(layer, f"has {part.num_groups} groups, which channels cannot leave")
        if kind in KEPT_PARTS:
            return given
        raise self.stop(layer, "is of an unknown kind, whose units may depend on their places")

    def _note(
        self,
        unit: int,
        value: Any,
        axis: int,
        places: int,
        counted: bool = True,
        gives: bool = True,
    ) -> None:
        """Note an axis that lists these units; a part that is called again has one set."""
        name = self.named.get(id(value), "")
        if name not in self.network.shapes:
            return
        use = Use(name, axis, places, counted, gives)
        for before, other in self.found:
            if other == use:
                self.join(before, unit)
                return
        self.found.append((unit, use))
