"""Any `torch.nn.Module` as a network.

Models run one by one, so this package's own layers are faster. PyTorch multiplies matrices, so
bytes are equal on one machine only, as results' provenance notes (`core/provenance.py`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedrepro.core.checksummed_files import one_line
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import MODULE, STATE
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.core.user_component_files import opened_files
from fedrepro.networks.layers import Parameter, Pass, Plain, Shape, Tensors
from fedrepro.networks.network import IMAGE, Init, Network

if TYPE_CHECKING:
    import torch

F = TypeVar("F", bound=Callable[..., Any])

TRIED = 3  # examples that a module is tried with
NEAR = 1e-4  # up to which two ways of computing a score are the same


def module(name: str, *, version: int = 1, title: str = "", **reads: Any) -> Callable[[F], F]:
    """Return a decorator that registers a maker of a `torch.nn.Module` as the model `name`.

    The maker gets `shape`, that of one example, such as (C, H, W), and the number of `classes`.
    Keyword-only arguments annotated by an `Arg` are its parameters. It returns a module that maps
    (B, *shape) to logits (B, classes). `title` names the model in errors on files of weights. Raise
    `version` when results change. Further keywords become properties of the component. If the maker
    reads a file, pass reads=f, where f(parameter values) returns its checksum.
    """
    return register("model", name, version, None, title=title or name, **{MODULE: True}, **reads)


def network_of_module(model: Spec, shape: Shape, classes: int) -> Network:
    """Return `model`'s module as a network, tried on examples; FedreproError if it is unfit."""
    made = created_module(model, shape, classes)
    for key, value in made.named_parameters():
        if not value.requires_grad:
            said = f"model '{model.name}': {key} is frozen (requires_grad=False)"
            raise FedreproError(f"{said}, and here all are trained; make it a buffer")
    form = model.component.meta.get(STATE, {})  # of StoredTensor, as its state dicts have them
    fixed = {key: held.fixed for key, held in form.items() if held.fixed is not None}
    if fixed:
        made.load_state_dict(fixed, strict=False)
    varying = dict.fromkeys(k.name for k in form.values() if k.dtype and k.fixed is None)
    return replace(_tried(model, made, _of_images(shape), classes), varying=tuple(varying))


def created_module(model: Spec, shape: Shape, classes: int) -> torch.nn.Module:
    """Create the module of `model`, not tried yet; FedreproError if its maker gives no fit one."""
    import torch

    shape = _of_images(shape)
    # buffers that it draws are the same in every job
    with _saying(model, shape), _seeded(0, torch.device("cpu")), opened_files() as files:
        made = model.component.fn(shape, classes, **model.values)
    model.component.require_declared(files)
    if not isinstance(made, torch.nn.Module):
        kind = type(made).__name__
        raise FedreproError(f"model '{model.name}' gives a {kind}: let it give a torch.nn.Module")
    for key, value in (*made.named_parameters(), *made.named_buffers()):
        if torch.nn.parameter.is_lazy(value):
            raise FedreproError(f"model '{model.name}': {key} has no shape yet, give its size")
        if value.is_complex() and isinstance(value, torch.nn.Parameter):
            raise FedreproError(f"model '{model.name}': {key} is complex, make it two real ones")
    return made


def _of_images(shape: Shape) -> Shape:
    return (1, *shape) if len(shape) == IMAGE - 1 else shape


@dataclass(frozen=True)
class OwnModule(Plain):
    """The only layer of a `ModuleNetwork`; `held`: numbers in all submodules' outputs together."""

    classes: int
    held: int

    def output(self, shape: Shape) -> Shape:
        return (self.classes,)


@dataclass(frozen=True)
class ModuleNetwork(Network):
    """A network that is one `torch.nn.Module`, with sizes measured on a few examples.

    model: makes initialised modules. module: holds buffers that models share. widest: numbers in
    the largest submodule's output; products: multiplications (both for one example). draws: whether
    training is random or unlike prediction, as with dropout. moving: buffers that training changes,
    as BatchNorm's statistics; varying: others that differ between models. Models have both.
    channels_last: whether images on a CPU are given in that memory format, which is faster.
    """

    model: Spec = field(kw_only=True)
    module: torch.nn.Module = field(kw_only=True)
    widest: int = field(kw_only=True)
    products: int = field(kw_only=True)
    draws: bool = field(kw_only=True)
    moving: tuple[str, ...] = field(kw_only=True)
    channels_last: bool = field(kw_only=True)
    varying: tuple[str, ...] = ()

    @cached_property
    def buffers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.varying, *self.moving)))

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the module's own tensors (*shape) by name, with the values it was created with."""
        own = {name: self.module.get_buffer(name) for name in self.buffers}
        named = {**dict(self.module.named_parameters()), **own}
        return {name: value.detach() for name, value in named.items()}

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        shapes = {name: tuple(value.shape) for name, value in self.tensors.items()}
        return {name: Parameter(shape, math.prod(shape[1:])) for name, shape in shapes.items()}

    @cached_property
    def counts(self) -> tuple[str, ...]:
        return tuple(k for k in self.buffers if not self.tensors[k].is_floating_point())

    @cached_property
    def norms(self) -> tuple[str, ...]:
        owners = {name.rpartition(".")[0] for name in self.moving}
        return tuple(name for name in self.shapes if name.rpartition(".")[0] in owners)

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor:
        """Compute logits (A, B, K) of A models for x (A, B, D); in training also update buffers."""
        import torch

        x = x.reshape(*x.shape[:2], *self.shape)
        run.record(x)
        if self.module.training != (run.noise is not None):
            self.module.train(run.noise is not None)
        seeds = [None] * len(x) if run.noise is None else run.noise.seeds(len(x))
        logits = []
        for model, seed in enumerate(seeds):
            held = {name: value[model] for name, value in tensors.items()}
            count = run.rows[model] if run.rows else len(x[model])
            with _seeded(seed, x.device):
                try:
                    own = self.of_one(held, x[model][:count])
                except ValueError as error:
                    said = f"the module cannot train on {count} examples at once"
                    fix = "choose another batch_size"
                    raise FedreproError(f"{said} ({one_line(error)}): {fix}") from error
            logits.append(torch.nn.functional.pad(own, (0, 0, 0, len(x[model]) - count)))
        out: torch.Tensor = torch.stack(logits)
        run.record(out)
        return out

    def of_one(self, tensors: Tensors, x: torch.Tensor) -> torch.Tensor:
        """Compute logits (B, classes) of x (B, *shape) by one model, tensors (*shape) by name."""
        import torch

        # as data, so that writing there is not differentiated
        kept = {name: tensors[name].data for name in self.buffers}
        buffers, shared = {}, {}
        for name, value in self.module.named_buffers():
            dtype = x.dtype if value.is_floating_point() else value.dtype
            buffers[name] = kept.get(name, value).to(x.device, dtype)
            if name not in kept and self.module.training:
                shared[name], buffers[name] = buffers[name], buffers[name].clone()
        if self.channels_last and x.device.type == "cpu":
            x = x.contiguous(memory_format=torch.channels_last)
        logits: torch.Tensor = torch.func.functional_call(self.module, {**tensors, **buffers}, (x,))
        if late := [name for name, value in shared.items() if not value.equal(buffers[name])]:
            said = f"model '{self.model.name}': training changes {late[0]} in later steps alone"
            raise FedreproError(f"{said}: let it change from the first step on")
        for name in self.moving if self.module.training else ():
            if buffers[name] is not kept[name]:  # whole numbers are copies
                kept[name].copy_(buffers[name])
        return logits

    def initial(
        self, rng: RngKey, weight_sd: float, bias: float, init: Init = "normal"
    ) -> dict[str, np.ndarray]:
        """Draw float32 weights by the module's own code with seed `rng`; ignore other arguments."""
        import torch

        with _seeded(int(rng.stream("initial-weights").integers(2**63)), torch.device("cpu")):
            made = self.model.component.fn(self.shape, self.classes, **self.model.values)
        begun = replace(self, module=made).tensors
        return {k: v.cpu().float().numpy().copy() for k, v in begun.items()}


def _tried(model: Spec, made: torch.nn.Module, shape: Shape, classes: int) -> ModuleNetwork:
    """Run the module `made` on a few examples; return it as a network, with sizes and buffers."""
    import torch

    who = f"model '{model.name}'"
    drawn = np.random.default_rng(0).integers(0, 2, (TRIED, *shape))
    x = torch.from_numpy(drawn.astype(np.float32))
    sizes: list[tuple[int, int]] = []

    def note(part: torch.nn.Module, _: Any, out: Any) -> None:
        """Record a submodule's output size and number of multiplications, for one example."""
        if isinstance(out, torch.Tensor) and out.dim() > 1:
            places = {2: math.prod(out.shape[1:-1]), 4: math.prod(out.shape[2:])}
            weights = [weight for weight in part.parameters(recurse=False) if weight.dim() > 1]
            products = sum(weight.numel() * places.get(weight.dim(), 1) for weight in weights)
            sizes.append((out[0].numel(), products))

    with torch.no_grad(), _seeded(0, x.device), _saying(model, shape):
        copied = copy.deepcopy(made).float()
        hooks = [part.register_forward_hook(note) for part in copied.eval().modules()]
        scores = _required(copied(x), TRIED, classes, who)
        for hook in hooks:
            hook.remove()
        if (scores >= 0).all() and ((scores.sum(1) - 1).abs() < NEAR).all():
            raise FedreproError(f"{who} gives probabilities: leave out its last softmax")
        singles = [_required(copied(x[[row]]), 1, classes, who) for row in range(TRIED)]
        last = _takes_channels_last(copied, x, scores)
        before, held = torch.get_rng_state(), dict(copied.named_buffers())
        trained = _required(copied.train()(x), TRIED, classes, f"{who} in training")
        drew = not torch.equal(before, torch.get_rng_state())
    if x._version:  # PyTorch counts writes
        raise FedreproError(f"{who} writes into its input: let it work on a copy")
    after = dict(copied.named_buffers())
    if lost := [key for key, value in held.items() if after[key] is not value]:
        fix = f"change it in place, as in self.{lost[0]}.copy_(…)"
        raise FedreproError(f"{who} assigns {lost[0]} another tensor in training: {fix}")
    moving = tuple(
        k for k, v in made.named_buffers() if not torch.equal(v.to(after[k].dtype), after[k])
    )
    if lost := [key for key in moving if after[key].is_complex()]:
        raise FedreproError(f"{who}: training changes {lost[0]}, which is complex: make it two")
    if not torch.allclose(scores, torch.cat(singles), NEAR, NEAR):
        said = f"{who} gives an example other scores among others than alone"
        raise FedreproError(f"{said}; take GroupNorm, LayerNorm or BatchNorm with statistics")
    outputs, products = zip(*sizes, strict=True)
    return ModuleNetwork(
        shape,
        (OwnModule(classes, sum(outputs)),),  # type: ignore[arg-type]  # it has no forward
        "module",
        model=model,
        module=made,
        widest=max(outputs),
        products=sum(products),
        draws=drew or bool(moving) or not torch.allclose(scores, trained, NEAR, NEAR),
        moving=moving,
        channels_last=last,
    )


def _takes_channels_last(made: torch.nn.Module, x: torch.Tensor, scores: torch.Tensor) -> bool:
    """Tell whether `made` gives `scores` of images x in channels_last; those with .view may not."""
    import torch

    if not any(isinstance(part, torch.nn.Conv2d) for part in made.modules()):
        return False
    with _seeded(0, x.device):
        try:
            x = x.contiguous(memory_format=torch.channels_last)
            found = made(x)
            copy.deepcopy(made).train()(x)
        except Exception:  # it is another's code
            return False
    return torch.allclose(scores, found, NEAR, NEAR)


def _required(scores: Any, count: int, classes: int, who: str) -> torch.Tensor:
    """Return a network's output `scores`; raise FedreproError if not (count, classes) logits."""
    import torch

    if not isinstance(scores, torch.Tensor) or scores.shape != (count, classes):
        found = getattr(scores, "shape", None)
        form = f"a {type(scores).__name__}" if found is None else f"shape {tuple(found)}"
        fix = f"{classes} classes: let its forward give logits, of shape (examples, classes)"
        raise FedreproError(f"{who} gives {form} for {count} examples of {fix}")
    return scores


@contextmanager
def _saying(model: Spec, shape: Shape) -> Iterator[None]:
    try:
        yield
    except FedreproError:
        raise
    except Exception as error:  # it is another's code
        said = f"model '{model.name}' fails on examples of shape {shape}"
        raise FedreproError(f"{said}: {type(error).__name__}, {one_line(error)}") from error


@contextmanager
def _seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Seed PyTorch's generator within a `with` block, then restore it; with None change nothing."""
    import torch

    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices, enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        yield
