"""State dicts of users' `torch.nn.Module`s: parameters, tied ones, and buffers.

Buffers that are equal at all clients and that training does not change stay with the module. All
others, such as running statistics, are among its tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.core.artifacts import one_line
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import STATE
from fedrepro.core.spec import Spec
from fedrepro.networks.layers import Arrays, Shape
from fedrepro.networks.predict import network_of
from fedrepro.networks.torch_modules import ModuleNetwork

if TYPE_CHECKING:
    import torch

StateDict = Mapping[str, Any]  # names to torch tensors or NumPy arrays
WRAPPER = re.compile(r"(?:module|_orig_mod)\.")  # of DataParallel and torch.compile


@dataclass(frozen=True)
class StackedModels:
    """The state dicts of J clients, stacked (see `LocalModels`): tensors[name] is (J, *shape)."""

    model: Spec
    shape: Shape
    classes: int
    tensors: dict[str, np.ndarray]
    layers: tuple[str, ...] = ()
    widths: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class StateForm:
    """The keys in state dicts of a user's PyTorch module, to read and write its models.

    names: {key: name of its tensor}; keys of tied weights share one. fixed: {key: buffer} that all
    state dicts share. varying: {name: type} of other buffers.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, torch.Tensor] = field(default_factory=dict)
    varying: Mapping[str, torch.dtype] = field(default_factory=dict)

    def of(self, model: Spec) -> Spec:
        """Attach these state dict keys to `model`; varying buffers become tensors of a model."""
        item = model.component
        return replace(model, component=replace(item, meta={**item.meta, STATE: self}))

    def written(self, tensors: Arrays, network: int) -> dict[str, Any]:
        """Convert network number `network` of stacked tensors (m, *shape) to a state dict."""
        import torch

        state = {}
        for key, name in self.names.items():
            if key in self.fixed:
                state[key] = self.fixed[key].clone()
            else:
                value = torch.from_numpy(np.array(tensors[name][network], np.float32))
                state[key] = value.to(self.varying.get(name, torch.float32))
        return state


def stacked_module(
    state_dicts: Sequence[Any], model: Spec, shape: Shape, where: Sequence[str]
) -> StackedModels:
    """Stack J state dicts, named `where`, that a user's module loads; see `StateForm`.

    Prefixes of wrappers, such as 'module.', are left out.
    """
    for state, name in zip(state_dicts, where, strict=True):
        if not isinstance(state, Mapping) or not any(getattr(v, "ndim", 0) for v in state.values()):
            raise FedreproError(f"{name} is not a state dict, or holds no tensors")
    network = _network_that_loads(state_dicts[0], StateForm().of(model), shape)
    given = []
    for state, name in zip(state_dicts, where, strict=True):
        forms = [(_faults(own, network.module), own) for _, own in unprefixed(state)]
        faults, own = min(forms, key=lambda form: len(form[0]))
        if faults:
            raise FedreproError(f"{name} {faults[0]}: a file must hold what '{model.token}' saves")
        given.append(own)
    form, tensors = _stacked(given, network, where)
    return StackedModels(form.of(model), shape, network.classes, tensors)


def _network_that_loads(state: StateDict, model: Spec, shape: Shape) -> ModuleNetwork:
    """Return the network of a module with as many classes as it needs to load a state dict.

    Only the module knows which axis of a tensor counts the classes: all sizes are tried, the last
    tensor's first. If none fits, the first network that can be created is returned.
    """
    made, failed = list[ModuleNetwork](), FedreproError("a state dict holds no sizes")
    sizes = [n for v in [*state.values()][::-1] for n in getattr(v, "shape", ()) if n]
    for classes in dict.fromkeys(map(int, sizes)):
        try:
            network = network_of(model, shape, classes)
        except FedreproError as error:
            failed = error
            continue
        assert isinstance(network, ModuleNetwork)
        made.append(network)
        if not all(_faults(own, network.module) for _, own in unprefixed(state)):
            return network
    if not made:
        raise failed
    return made[0]


def _names(module: torch.nn.Module) -> dict[str, str]:
    """Return the name of the parameter or buffer behind each key of a module's state dict."""
    named = [*module.named_parameters(), *module.named_buffers()]
    known = {id(value): name for name, value in named}
    state = module.state_dict(keep_vars=True)
    odd = next((key for key, value in state.items() if id(value) not in known), None)
    if odd is not None:
        raise FedreproError(
            f"the module's state dict holds '{odd}', which is neither a parameter nor a buffer"
        )
    return {key: known[id(value)] for key, value in state.items()}


def _faults(state: StateDict, module: torch.nn.Module) -> list[str]:
    """Return the reasons why a module would not load a state dict, as texts; empty if it would."""
    shapes = {key: tuple(value.shape) for key, value in module.state_dict().items()}
    faults = [
        f"has no '{key}' of shape {shape}"
        for key, shape in shapes.items()
        if tuple(getattr(state.get(key), "shape", (-1,))) != shape
    ]
    return faults + [f"has '{key}', which the model has not" for key in state if key not in shapes]


def _stacked(
    states: Sequence[StateDict], network: ModuleNetwork, where: Sequence[str]
) -> tuple[StateForm, dict[str, np.ndarray]]:
    """Stack parameters, changing buffers: (J, *shape) by name; return (form of keys, tensors)."""
    import torch

    module, names = network.module, _names(network.module)
    fixed: dict[str, torch.Tensor] = {}
    varying: dict[str, torch.dtype] = {}
    given = {name: [state[name] for state in states] for name, _ in module.named_parameters()}
    for name, buffer in module.named_buffers():
        if name not in names:  # it is in no state dict: the module makes it
            continue
        values = [torch.as_tensor(state[name]).detach().cpu().to(buffer.dtype) for state in states]
        if name not in network.buffers and all(torch.equal(values[0], v) for v in values[1:]):
            fixed |= {key: values[0] for key, held in names.items() if held == name}
            continue
        varying[name], given[name] = buffer.dtype, [value.float() for value in values]
    tensors = {
        name: np.stack([array_of(v, name, at) for v, at in zip(values, where, strict=True)])
        for name, values in given.items()
    }
    return StateForm(names, fixed, varying), tensors


def unprefixed(state: Any) -> list[tuple[str, StateDict]]:
    """Return pairs (prefix removed, state dict): as it is, then without wrappers' prefixes.

    Wrappers are DataParallel and torch.compile; they are unwrapped one by one.
    """
    found: list[tuple[str, StateDict]] = [("", state)]
    while isinstance(state, Mapping):
        prefix, inner = found[-1]
        marks = {(WRAPPER.match(str(key)) or [""])[0] for key in inner}
        if len(marks) != 1 or marks == {""}:
            break
        (mark,) = marks
        found.append((prefix + mark, {str(k)[len(mark) :]: v for k, v in inner.items()}))
    return found


def array_of(value: Any, key: str, where: str) -> np.ndarray:
    """Convert a tensor or array to float32, or raise FedreproError: numbers must be finite."""
    if hasattr(value, "detach"):
        try:
            value = value.detach().cpu()
            value = value.float().numpy() if value.is_floating_point() else value.numpy()
        except (RuntimeError, TypeError, NotImplementedError) as error:
            said = f"{where}: '{key}' is not a plain tensor ({one_line(error)})"
            raise FedreproError(f"{said}; store a dense one, not quantised") from None
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        raise FedreproError(f"{where}: '{key}' holds no floating-point numbers")
    with np.errstate(over="ignore"):  # what is too large for single precision is refused below
        array = value.astype(np.float32)
    if not np.isfinite(array).all():
        raise FedreproError(f"{where}: '{key}' has a number that is not finite; leave it out")
    return array
