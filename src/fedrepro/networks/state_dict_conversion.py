"""State dicts of plain PyTorch modules: converted to networks of this package, and back.

If a user names no model, fully connected layers are assumed, as PyTorch keeps them: weights are
(out, in), layers in the order of creation, with ReLU between. A model that is a `torch.nn.Module`
is created, to learn which tensors it has. Faulty state dicts and counts raise FedreproError.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedrepro.core.errors import FedreproError, shown
from fedrepro.core.method_kinds import MIXED, MODULE, STATE, WHICH
from fedrepro.core.spec import Component, Spec
from fedrepro.core.user_component_files import MODULES as OUTSIDE
from fedrepro.networks.layers import Arrays, Parameter, Pass, Shape, Tensors
from fedrepro.networks.network import Network, dense_spec
from fedrepro.networks.predict import network_of
from fedrepro.networks.user_torch_modules import ModuleNetwork, created_module

if TYPE_CHECKING:
    import torch

StateDict = Mapping[str, Any]  # names to torch tensors or NumPy arrays
Layers = dict[str, dict[str, np.ndarray]]  # by name, inputs first: weight (out, in), bias (out,)
WRAPPER = re.compile(r"^(?:module|_orig_mod)\.")  # of DataParallel and torch.compile
CHECKPOINT = ("state_dict", "model_state_dict", "model")  # keys of a state dict in checkpoints
PARTS = ("weight", "bias")
MOST_EXAMPLES = 10**12  # of a client and class: sums of them are numbers of 64 bits


@dataclass(frozen=True)
class StackedModels:
    """The state dicts of J clients as one model's stacked tensors: tensors[name] is (J, *shape).

    shape: of one example. layers: their names in the state dicts. widths: each client's hidden
    units, if these differ.
    """

    model: Spec
    shape: Shape
    classes: int
    tensors: dict[str, np.ndarray]
    layers: tuple[str, ...] = ()
    widths: tuple[tuple[int, ...], ...] | None = None


def stack(
    state_dicts: Sequence[StateDict],
    models: Sequence[Spec] = (),
    shape: Shape | None = None,
    names: Sequence[str] | None = None,
) -> StackedModels:
    """Stack the state dicts of J clients, as plain PyTorch saves them, into tensors (J, *shape).

    `models` are the clients' modules, one for all or one for each, which need the `shape` of one
    example; by default fully connected networks with ReLU, whose hidden widths may differ. Errors
    call the state dicts by `names`.
    """
    named = list(names or (f"state dict {place}" for place in range(len(state_dicts))))
    for key in CHECKPOINT:
        state_dicts = [
            s[key] if isinstance(s, Mapping) and isinstance(s.get(key), Mapping) else s
            for s in state_dicts
        ]
    if len(models) > 1:
        return _mixed(state_dicts, models, shape, named)
    model = models[0] if models else None
    if model and model.component.meta.get(MODULE):
        if not shape:
            said = f"{named[0]}: model '{model.name}' needs the shape of one example, which a state"
            raise FedreproError(f"{said} dict does not hold (shape=…, --shape 1,28,28)")
        return _stacked_module(state_dicts, model, shape, named)
    clients = [_layers(state, at) for state, at in zip(state_dicts, named, strict=True)]
    first = clients[0]
    form = names, biased, inputs, classes = _form(first)
    shape = shape or (inputs,)
    if math.prod(shape) != inputs:
        raise FedreproError(f"{named[0]} has {_words(first)}, which take no examples of {shape}")
    for own, where in zip(clients, named, strict=True):
        if _form(own) != form:
            said = f"{where} has {_words(own)}, where {named[0]} has {_words(first)}"
            fix = "only networks of one architecture are combined; name that of each by --model"
            raise FedreproError(f"{said}: {fix}")
    each = tuple(tuple(len(own[name]["weight"]) for name in names[:-1]) for own in clients)
    widths = each if len(set(each)) > 1 else None
    spec = dense_spec(np.max(each, axis=0).tolist(), biased)
    if model and not widths and model != spec:
        said = f"{named[0]} has {_words(first)}, that is {spec.token}"
        raise FedreproError(f"{said}, and not '{model.token}'")
    tensors = dict[str, np.ndarray]()
    for place, name in enumerate(names):
        for part in PARTS[: 1 + biased]:
            arrays = [own[name][part].T for own in clients]
            # zeros behind those of narrower networks are hidden units without any effect
            most = np.max([array.shape for array in arrays], axis=0)
            padded = [np.pad(array, [(0, n) for n in most - array.shape]) for array in arrays]
            tensors[f"{part}{place}"] = np.stack(padded)
    return StackedModels(spec, shape, classes, tensors, names, widths)


def unstack(
    model: Spec,
    tensors: Arrays,
    layers: Sequence[str] | None = None,
    widths: Sequence[Sequence[int]] | None = None,
) -> list[dict[str, Any]]:
    """Convert m networks, stacked tensors (m, *shape), to float32 state dicts of torch tensors.

    Layers get the names `layers`; by default, or if the model has more or fewer, they are numbered
    as in an `nn.Sequential` with ReLU between. `widths` are each network's numbers of hidden units,
    if these vary. Raises FedreproError if `model` has a layer that cannot be written.
    """
    import torch

    if model.name == MIXED:
        found, specs = list[dict[str, Any]](), model.component.meta["specs"]
        for i, k in enumerate(tensors[WHICH].argmax(axis=1)):
            own = {n.partition(".")[2]: v[[i]] for n, v in tensors.items() if n.startswith(f"{k}.")}
            found += unstack(specs[k], own, model.component.meta["layers"][k])
        return found
    networks = range(len(next(iter(tensors.values()))))
    if model.component.meta.get(MODULE):
        form = model.component.meta.get(STATE) or {name: StoredTensor(name) for name in tensors}
        return [{key: held.of(tensors, i) for key, held in form.items()} for i in networks]
    places = range(sum(name.startswith("weight") for name in tensors))
    parts = PARTS if "bias0" in tensors else PARTS[:1]
    if set(tensors) != {f"{part}{place}" for part in parts for place in places}:
        said = "only fully connected layers and convolutions are written as a state dict,"
        raise FedreproError(f"{said} and model '{model.name}' has others")
    if len(layers or ()) != len(places):
        layers = [str(2 * place) for place in places]  # with ReLU between
    state_dicts = []
    for network in networks:
        state, ends = {}, (None, *(widths[network] if widths else ()), None)
        for place, name in enumerate(layers or ()):
            for part in parts:
                value = tensors[f"{part}{place}"][network]
                if widths:  # the rest stands for no units
                    cut = slice(ends[place]), slice(ends[place + 1])
                    value = value[cut[2 - value.ndim :]]
                value = value.T if value.ndim == 2 else value
                key = f"{name}.{part}" if name else part
                state[key] = torch.from_numpy(np.array(value, np.float32, order="C"))
        state_dicts.append(state)
    return state_dicts


def checked_counts(counts: Any, clients: int, classes: int) -> np.ndarray | None:
    """Check label counts that a user gives; return int64 (clients, classes), or None for None."""
    if counts is None:
        return None
    table = np.asarray(counts)
    if table.shape != (clients, classes):
        said = f"label counts have the shape {table.shape}, and a row per network and a column per"
        raise FedreproError(f"{said} class are needed, ({clients}, {classes})")
    valid = table.dtype.kind in "iuf" and ((table >= 0) & (table <= MOST_EXAMPLES)).all()
    if not valid or (table != np.floor(table)).any() or not table.any():
        said = "label counts are whole numbers, not below 0, not all 0"
        raise FedreproError(f"{said}, at most {MOST_EXAMPLES:,}")
    return table.astype(np.int64)


def array_of(value: Any, key: str, where: str) -> np.ndarray:
    """Convert a state dict's `value` to float32; errors name its `key` and the dict, `where`."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float().numpy() if value.is_floating_point() else value.numpy()
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        raise FedreproError(f"{where}: '{key}' holds no floating-point numbers")
    with np.errstate(over="ignore"):  # what is too large for single precision is refused below
        array = value.astype(np.float32)
    if not np.isfinite(array).all():
        raise FedreproError(f"{where}: '{key}' has a number that is not finite; leave it out")
    return array


def _layers(state: Any, where: str) -> Layers:
    """Read layers {name: {"weight": (out, in), "bias": (out,)}}; errors call the dict `where`."""
    if not isinstance(state, Mapping) or not state:
        raise FedreproError(f"{where} is not a state dict: it holds {shown(type(state).__name__)}")
    found: Layers = {}
    for key, value in state.items():
        name, _, part = str(key).rpartition(".")
        array = array_of(value, str(key), where)
        if part not in PARTS or array.ndim != (2 if part == "weight" else 1):
            said = f"{where}: '{key}', {array.shape}, is not of a fully connected layer"
            fix = "name the class of its network, as in --model nets.py:Net --shape 1,28,28"
            raise FedreproError(f"{said}: {fix}")
        found.setdefault(name, {})[part] = array
    biased = any("bias" in held for held in found.values())
    for name, held in found.items():
        for part in PARTS[: 1 + biased]:
            if part not in held:
                said = f"{where}: layer '{name}' has no {part}, as others have"
                raise FedreproError(f"{said}; add one of zeros")
        weight = held["weight"]
        if biased and len(held["bias"]) != len(weight):
            said = f"{where}: layer '{name}' has a weight {weight.shape} and {len(held['bias'])}"
            raise FedreproError(f"{said} biases: if it is stored as (in, out), transpose it")
    weights = [held["weight"] for held in found.values()]
    if any(len(a) != b.shape[1] for a, b in pairwise(weights)):
        said = f"{where} has {_words(found)}, where one does not take what the one before gives"
        raise FedreproError(f"{said}: sort the layers, or name the network by --model")
    return found


def _words(layers: Layers) -> str:
    lacks = "" if _form(layers)[1] else " without bias"
    return ", ".join(f"{name} {held['weight'].shape}{lacks}" for name, held in layers.items())


def _form(layers: Layers) -> tuple[tuple[str, ...], bool, int, int]:
    """Return (names of layers, whether they have biases, number of inputs, number of classes)."""
    held = [*layers.values()]
    return tuple(layers), "bias" in held[0], held[0]["weight"].shape[1], len(held[-1]["weight"])


class StoredTensor(NamedTuple):
    """A value in state dicts of a user's PyTorch module: a model's tensor `name`, or `fixed`.

    Tied weights, one tensor under several keys, have one name. dtype: a buffer's type; None for
    float32 weights. fixed: a buffer, equal at all clients, that training does not change.
    """

    name: str
    dtype: torch.dtype | None = None
    fixed: torch.Tensor | None = None

    def of(self, tensors: Arrays, network: int) -> torch.Tensor:
        """Return this tensor of network number `network`, from `tensors` (m, *shape) or `fixed`."""
        import torch

        if self.fixed is not None:
            return self.fixed.clone()
        value = torch.from_numpy(np.array(tensors[self.name][network], np.float32))
        return value.to(self.dtype or torch.float32)


def _stacked_module(
    states: Sequence[Any], model: Spec, shape: Shape, where: Sequence[str]
) -> StackedModels:
    """Stack J state dicts that the module `model` loads; errors call them by the names `where`."""
    import torch

    for state, name in zip(states, where, strict=True):
        if not isinstance(state, Mapping) or not any(getattr(v, "ndim", 0) for v in state.values()):
            raise FedreproError(f"{name} is not a state dict, or holds no tensors")
    network = _network_that_loads(states[0], where[0], model, shape)
    assert isinstance(network, ModuleNetwork)
    module = network.module
    states = [_loadable(*each, module, model) for each in zip(states, where, strict=True)]
    stored = module.state_dict(keep_vars=True)
    held, tensors = dict[int, StoredTensor](), dict[str, np.ndarray]()
    for name, own in (*module.named_parameters(), *module.named_buffers()):
        buffer = not isinstance(own, torch.nn.Parameter)
        made = buffer and name not in stored  # by the module itself, when it is created
        if made and name not in network.buffers:
            continue
        values, here = [own if made else state[name] for state in states], StoredTensor(name)
        if buffer:
            values = [torch.as_tensor(value).detach().cpu().to(own.dtype) for value in values]
            same = all(torch.equal(values[0], value) for value in values[1:])
            fixed = values[0] if same and name not in network.buffers else None
            here = StoredTensor(name, own.dtype, fixed)
            if own.is_complex() and fixed is None:
                raise FedreproError(f"{where[0]}: '{name}' is complex, make it two real ones")
            values = [value.float() for value in values]
        if here.fixed is None:
            arrays = [array_of(value, name, at) for value, at in zip(values, where, strict=True)]
            tensors[name] = np.stack(arrays)
        held[id(own)] = here
    form = {key: held[id(value)] for key, value in stored.items()}
    known = replace(model.component, meta={**model.component.meta, STATE: form})
    return StackedModels(replace(model, component=known), shape, network.classes, tensors)


def _network_that_loads(state: StateDict, name: str, model: Spec, shape: Shape) -> Network:
    """Return the network of a module with as many classes as it needs to load a state dict."""
    unlike, unfit = list[FedreproError](), list[FedreproError]()
    sizes = [n for v in [*state.values()][::-1] for n in getattr(v, "shape", ()) if n]
    for classes in dict.fromkeys(map(int, sizes)):
        faults = unlike
        try:
            _loadable(state, name, created_module(model, shape, classes), model)
            faults = unfit
            return network_of(model, shape, classes)
        except FedreproError as error:
            faults.append(error)
    raise [*unfit, *unlike, FedreproError("a state dict holds no sizes")][0]


def _loadable(state: StateDict, name: str, module: torch.nn.Module, model: Spec) -> StateDict:
    """Return `state` without prefixes of DataParallel and torch.compile, as `module` loads it."""
    stored = module.state_dict()
    for key in (key for key in stored if key.rpartition(".")[2] == "_extra_state"):
        said = f"model '{model.name}' saves '{key}', which cannot be combined"
        raise FedreproError(f"{said}: take out its get_extra_state")
    due = {key: tuple(value.shape) for key, value in stored.items()}
    while not due.keys() & state.keys():
        inner = {WRAPPER.sub("", str(key)): value for key, value in state.items()}
        if inner.keys() == state.keys():
            break
        state = inner
    names = module.state_dict(keep_vars=True)  # a file may hold tied tensors under one name alone
    tied = {id(value): state[key] for key, value in names.items() if key in state}
    state = {k: tied[id(v)] for k, v in names.items() if id(v) in tied} | dict(state)
    found = {key: tuple(getattr(value, "shape", (-1,))) for key, value in state.items()}
    wrong = [f"no '{key}' of shape {form}" for key, form in due.items() if found.get(key) != form]
    wrong += [f"'{key}', which the model has not" for key in found if key not in due]
    if wrong:
        own = model.component
        users = own.fn.__module__.startswith(OUTSIDE)
        whose = f" ({own.meta['title']} of {os.path.relpath(own.file)})" if users else ""
        said = f"{name} has {wrong[0]}: a file must hold what '{model.token}'{whose} saves"
        raise FedreproError(said)
    return state


@dataclass(frozen=True)
class MixedNetwork(Network):
    """Several architectures (its members) as one network, so that models of all can be stacked.

    The tensor weight0 of member k is called k.weight0. A model has zeros for other members'
    tensors; one more tensor, one-hot, tells which member it is a model of.
    """

    members: tuple[Network, ...] = ()

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        own = {
            f"{k}.{name}": parameter
            for k, member in enumerate(self.members)
            for name, parameter in member.parameters.items()
        }
        return {**own, WHICH: Parameter((len(self.members),), 1)}

    @property
    def classes(self) -> int:
        return self.members[0].classes

    @cached_property
    def buffers(self) -> tuple[str, ...]:
        return (*(f"{k}.{name}" for k, m in enumerate(self.members) for name in m.buffers), WHICH)

    @cached_property
    def widest(self) -> int:
        return max(member.widest for member in self.members)

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor:
        import torch

        logits = []
        for i, k in enumerate(tensors[WHICH].argmax(dim=1).tolist()):
            own = {name: tensors[f"{k}.{name}"][i] for name in self.members[k].parameters}
            logits.append(self.members[k].logits(own, x[i]))
        return torch.stack(logits)


def _mixed(
    state_dicts: Sequence[StateDict],
    models: Sequence[Spec],
    shape: Shape | None,
    named: Sequence[str],
) -> StackedModels:
    """Stack state dicts of different `models` into a `MixedNetwork`; errors call them `named`."""
    if len(models) != len(named):
        said = f"{len(models)} networks are named for {len(named)} models"
        raise FedreproError(f"{said}: name one, or that of each")
    kinds = list(dict.fromkeys(models))
    at = [[j for j, model in enumerate(models) if model == kind] for kind in kinds]
    read = [
        stack([state_dicts[j] for j in own], [kind], shape, names=[named[j] for j in own])
        for kind, own in zip(kinds, at, strict=True)
    ]
    if len(kinds) == 1:
        return read[0]
    forms = {(one.shape, one.classes) for one in read}
    if len(forms) > 1 or any(one.widths for one in read):
        either = " or ".join(f"{form} to {classes} classes" for form, classes in forms)
        fix = "let all have one --shape and the same classes"
        raise FedreproError(f"the networks take and give {either}: {fix}")
    tensors = {}
    for k, one in enumerate(read):
        for name, value in one.tensors.items():
            held = tensors[f"{k}.{name}"] = np.zeros((len(models), *value.shape[1:]), np.float32)
            held[at[k]] = value
    tensors[WHICH] = np.eye(len(kinds), dtype=np.float32)[[kinds.index(m) for m in models]]
    specs = tuple(one.model for one in read)

    def mixed(shape: Shape, classes: int) -> Network:
        members = tuple(network_of(spec, shape, classes) for spec in specs)
        return MixedNetwork(shape, (), "mixed", members=members)

    title, layers = " or ".join(spec.token for spec in specs), [one.layers for one in read]
    meta = {"title": title, "specs": specs, "layers": layers}
    ((form, classes),) = forms
    return StackedModels(Component("model", MIXED, 1, mixed, meta).spec(), form, classes, tensors)
