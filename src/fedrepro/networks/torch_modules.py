"""Any `torch.nn.Module` as a network.

On the CPU one model is computed after another, on a GPU a block of them by `torch.vmap` where the
module allows it. Networks of this package's layers are faster, and methods that match units need
them. Products are PyTorch's own, so bytes are those of one machine: origins say so
(`core/provenance.py`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedrepro.core.artifacts import one_line
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import MODULE, STATE
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.networks.layers import Parameter, Pass, Shape, Tensors
from fedrepro.networks.network import IMAGE, Init, Network

if TYPE_CHECKING:
    import torch

F = TypeVar("F", bound=Callable[..., Any])

TRIED = 3  # examples that a module is tried with
NEAR = 1e-4  # up to which two ways of computing a score are the same


def module(name: str, *, version: int = 1, title: str = "") -> Callable[[F], F]:
    """Register a user's class or function that returns a `torch.nn.Module` as a model (decorator).

    The class or function is called with `shape`, of one example, (channels, height, width) for an
    image, and `classes`; keyword-only arguments annotated with an `Arg` can be set where the model
    is chosen. The module maps (B, *shape) to logits (B, classes). Raise `version` when results
    change, so that they are computed again.
    """
    return register("model", name, version, None, title=title or name, **{MODULE: True})


def network_of_module(model: Spec, shape: Shape, classes: int) -> Network:
    """Return the network of a model that is a `torch.nn.Module`, after a trial on a few examples.

    `shape` is that of one example, `classes` the number of logits.

    Raises:
        FedreproError: the model returns no module, or one that cannot be trained and averaged.
    """
    import torch

    input_shape = (1, *shape) if len(shape) == IMAGE - 1 else shape
    make = partial(model.component.fn, input_shape, classes, **model.values)
    # buffers that it draws are the same in every job
    with _saying(model.name, input_shape), _seeded(0, torch.device("cpu")):
        made = make()
    if not isinstance(made, torch.nn.Module):
        kind = type(made).__name__
        raise FedreproError(f"model '{model.name}' gives a {kind}: let it give a torch.nn.Module")
    _require_trainable(model.name, made)
    form = model.component.meta.get(STATE)
    if form is not None:
        made.load_state_dict(dict(form.fixed), strict=False)
    layer = _tried(model.name, made, input_shape, classes)
    if form is not None:
        layer = replace(layer, varying=tuple(form.varying))
    return ModuleNetwork(input_shape, (layer,), "module", make=make)


@dataclass(frozen=True, eq=False)
class OwnModule:
    """A user's `torch.nn.Module` as a single layer, with sizes measured on a few examples.

    Attributes:
        module, shape, classes: the module, the shape of one input, and the number of classes.
        widest, held: how many numbers the largest output of a submodule has, and how many all
            outputs have together, for one example.
        products: multiplications for one example.
        draws: whether training is random, or differs from prediction, as with dropout.
        moving: buffers that training changes, such as BatchNorm's running statistics.
        varying: other buffers that differ between models; all these are tensors of a model.
    """

    module: torch.nn.Module
    shape: Shape
    classes: int
    widest: int
    held: int
    products: int
    draws: bool
    moving: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()

    @property
    def buffers(self) -> tuple[str, ...]:
        """Return the names of the module's buffers that are tensors of each model, like weights."""
        return tuple(dict.fromkeys((*self.varying, *self.moving)))

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the module's parameters, and buffers that are tensors of each model, by name."""
        return _tensors(self.module, self.buffers)

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        """Describe each of the module's tensors by name, as a `Parameter`; `shape` is not used."""
        return {
            name: Parameter(tuple(value.shape), math.prod(value.shape[1:]))
            for name, value in self.tensors.items()
        }

    def output(self, shape: Shape) -> Shape:
        """Return the shape (classes,) of one example's output; `shape` is not used."""
        return (self.classes,)

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor:
        """Compute logits of A models, (A, B, *shape) to (A, B, classes); training updates buffers.

        Raises:
            FedreproError: the minibatch is too small for a layer of the module.
        """
        import torch

        if self.module.training != (run.noise is not None):
            self.module.train(run.noise is not None)
        seeds = [None] * len(x) if run.noise is None else run.noise.seeds(len(x))
        if len(x) > 1 and self.together:
            with _seeded(seeds[0], x.device):
                stacked: torch.Tensor = torch.vmap(self.logits, randomness="different")(
                    {**tensors}, x
                )
            return stacked
        logits = []
        for model, seed in enumerate(seeds):
            held = {name: value[model] for name, value in tensors.items()}
            count = run.rows[model] if run.rows else len(x[model])
            with _seeded(seed, x.device):
                try:
                    own = self.logits(held, x[model][:count])
                except ValueError as error:
                    raise FedreproError(
                        f"a model that is a torch.nn.Module cannot train on {count} examples at "
                        f"once ({one_line(error)}): choose another batch_size"
                    ) from error
            logits.append(torch.nn.functional.pad(own, (0, 0, 0, len(x[model]) - count)))
        return torch.stack(logits)

    def logits(self, tensors: Tensors, x: torch.Tensor) -> torch.Tensor:
        """Compute logits (B, classes) of x (B, *shape) by one model, tensors (*shape) by name."""
        import torch

        # as data, so that writing there is not differentiated
        kept = {name: tensors[name].data for name in self.buffers}
        buffers = {
            name: kept.get(name, value).to(
                x.device, x.dtype if value.is_floating_point() else value.dtype
            )
            for name, value in self.module.named_buffers()
        }
        logits: torch.Tensor = torch.func.functional_call(self.module, {**tensors, **buffers}, (x,))
        for name in self.moving if self.module.training else ():
            if buffers[name] is not kept[name]:  # whole numbers are copies
                kept[name].copy_(buffers[name])
        return logits

    @cached_property
    def together(self) -> bool:
        """Return whether `torch.vmap` can compute several models at once with this module."""
        import torch

        if self.moving:
            return False
        pair = {name: torch.stack([v.detach().float()] * 2) for name, v in self.tensors.items()}
        try:
            torch.vmap(self.logits, randomness="different")(pair, torch.zeros(2, 1, *self.shape))
        except Exception:  # a module may do anything that it does not know
            return False
        return True


@dataclass(frozen=True)
class ModuleNetwork(Network):
    """A network that is one `torch.nn.Module`; `make` returns a new, initialised module."""

    make: Callable[[], torch.nn.Module] = field(kw_only=True)

    @property
    def _module(self) -> OwnModule:
        (layer,) = self.layers
        assert isinstance(layer, OwnModule)
        return layer

    @property
    def module(self) -> torch.nn.Module:
        """Return the PyTorch module itself, which holds the buffers that all models share."""
        return self._module.module

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the module's own tensors (*shape) by name, with the values it was created with."""
        return {name: value.detach() for name, value in self._module.tensors.items()}

    def of_one(self, tensors: Tensors, x: torch.Tensor) -> torch.Tensor:
        """Compute logits (B, classes) of x (B, *shape) by one model, tensors (*shape) by name.

        The module stays in its current mode, training or prediction.
        """
        return self._module.logits(tensors, x)

    @property
    def buffers(self) -> tuple[str, ...]:
        """Return the names of tensors that no gradient changes, such as running statistics."""
        return self._module.buffers

    @cached_property
    def counts(self) -> tuple[str, ...]:
        """Return the names of the module's buffers of integers, such as a count of batches."""
        held = dict(self.module.named_buffers())
        return tuple(name for name in self.buffers if not held[name].is_floating_point())

    @cached_property
    def norms(self) -> tuple[str, ...]:
        """Return names of tensors in layers whose buffers training changes, such as BatchNorm."""
        owners = {name.rpartition(".")[0] for name in self._module.moving}
        return tuple(name for name in self.shapes if name.rpartition(".")[0] in owners)

    @cached_property
    def places(self) -> tuple[tuple[OwnModule, Shape, dict[str, str]], ...]:
        """Return the module as the only layer, with its input shape and its tensors' names."""
        names = self._module.parameters(self.shape)
        return ((self._module, self.shape, {name: name for name in names}),)

    @property
    def draws(self) -> bool:
        return self._module.draws

    @property
    def products(self) -> int:
        return self._module.products

    @property
    def widest(self) -> int:
        return self._module.widest

    def initial(
        self, rng: RngKey, weight_sd: float, bias: float, init: Init = "normal"
    ) -> dict[str, np.ndarray]:
        """Draw initial weights of one model by the module's own code: float32 (*shape) by name.

        PyTorch's generator is seeded from the random key `rng`; all other arguments are ignored.
        """
        import torch

        with _seeded(int(rng.stream("initial-weights").integers(2**63)), torch.device("cpu")):
            begun = _tensors(self.make(), self.buffers)
        weights = {k: v.detach().cpu().float().numpy().copy() for k, v in begun.items()}
        if {name: value.shape for name, value in weights.items()} != self.shapes:
            raise FedreproError(
                "a model that is a torch.nn.Module has other parameters each time that it is made: "
                "let its shapes follow from what it is given"
            )
        return weights


def _tensors(made: torch.nn.Module, buffers: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return a module's parameters, and its buffers whose names are in `buffers`, by name."""
    held = dict(made.named_buffers())
    return {**dict(made.named_parameters()), **{name: held[name] for name in buffers}}


def _require_trainable(name: str, made: torch.nn.Module) -> None:
    """Raise FedreproError if a module has no parameters, or one that cannot be trained."""
    import torch

    parameters = dict(made.named_parameters())
    faults = [] if parameters else [" has no parameters, so that nothing can be trained"]
    for key, value in parameters.items():
        if isinstance(value, torch.nn.UninitializedParameter):
            faults.append(f": {key} has no shape yet, give its size")
        elif not value.is_floating_point():
            faults.append(f": {key} holds no floating-point numbers")
        elif not value.requires_grad:
            faults.append(
                f": {key} is frozen (requires_grad=False), and here all parameters are trained; "
                "make it a buffer (register_buffer)"
            )
    if faults:
        raise FedreproError(f"model '{name}'{faults[0]}")


def _tried(name: str, made: torch.nn.Module, shape: Shape, classes: int) -> OwnModule:
    """Run a module on a few examples; return it as a layer, with sizes, products and buffers.

    Raises FedreproError unless the outputs are one score per class and, for an example, do not
    depend on the other examples of its batch. `name` names the module in errors.
    """
    import torch

    drawn = np.random.default_rng(0).integers(0, 2, (TRIED, *shape))
    x = torch.from_numpy(drawn.astype(np.float32))
    copied = copy.deepcopy(made).float()
    sizes: list[tuple[int, int]] = []

    def note(part: torch.nn.Module, _: Any, out: Any) -> None:
        """Record the size of a submodule's output, and its multiplications, for one example.

        Called after the submodule. A matrix is multiplied once for each position of a sequence, a
        kernel for each of an image.
        """
        if isinstance(out, torch.Tensor) and out.dim() > 1:
            places = {2: math.prod(out.shape[1:-1]), 4: math.prod(out.shape[2:])}
            weights = [weight for weight in part.parameters(recurse=False) if weight.dim() > 1]
            products = sum(weight.numel() * places.get(weight.dim(), 1) for weight in weights)
            sizes.append((out[0].numel(), products))

    with torch.no_grad(), _seeded(0, x.device), _saying(name, shape):
        hooks = [part.register_forward_hook(note) for part in copied.eval().modules()]
        try:
            scores = copied(x)
        finally:
            for hook in hooks:
                hook.remove()
        if not isinstance(scores, torch.Tensor) or scores.shape != (TRIED, classes):
            found = getattr(scores, "shape", None)
            form = f"a {type(scores).__name__}" if found is None else f"shape {tuple(found)}"
            raise FedreproError(
                f"model '{name}' gives {form} for {TRIED} examples of {classes} classes: let its "
                "forward give logits, of shape (examples, classes)"
            )
        if (scores >= 0).all() and ((scores.sum(1) - 1).abs() < NEAR).all():
            raise FedreproError(
                f"model '{name}' gives probabilities: leave out its last softmax, for the loss has "
                "one"
            )
        alone = torch.cat([copied(x[[row]]) for row in range(TRIED)])
        before = torch.get_rng_state()
        trained = copied.train()(x)
        drew = not torch.equal(before, torch.get_rng_state())
    if x._version:  # PyTorch counts writes
        raise FedreproError(
            f"model '{name}' writes into its input, so that others would see other examples: let "
            "it work on a copy, as in x = x - 0.5, and without inplace=True in its first layer"
        )
    after = dict(copied.named_buffers())
    moving = tuple(k for k, v in made.named_buffers() if not torch.equal(v, after[k].to(v.dtype)))
    if not torch.allclose(scores, alone, NEAR, NEAR):
        raise FedreproError(
            f"model '{name}' gives an example other scores among others than alone, as BatchNorm "
            "without running statistics does; take GroupNorm or LayerNorm"
        )
    draws = drew or bool(moving) or not torch.allclose(scores, trained, NEAR, NEAR)
    outputs, products = zip(*sizes, strict=True)
    sums = max(outputs), sum(outputs), sum(products)
    layer = OwnModule(made, shape, classes, *sums, draws, moving)
    _require_in_place(name, layer, x)
    return layer


def _require_in_place(name: str, layer: OwnModule, x: torch.Tensor) -> None:
    """Raise FedreproError if training replaces a buffer by a new tensor instead of changing it."""
    import torch

    before = {key: layer.tensors[key].detach().clone().float() for key in layer.moving}
    after = {key: value.detach().clone().float() for key, value in layer.tensors.items()}
    if layer.moving:
        with torch.no_grad(), _seeded(0, x.device):
            layer.module.train()
            layer.logits(after, x)
    for key in layer.moving:
        if torch.equal(before[key], after[key]):
            raise FedreproError(
                f"model '{name}' assigns {key} another tensor in training, which is lost: change "
                f"the buffer in place, as in self.{key}.copy_(…)"
            )


@contextmanager
def _saying(name: str, shape: Shape) -> Iterator[None]:
    try:
        yield
    except FedreproError:
        raise
    except Exception as error:  # it is another's code
        raise FedreproError(
            f"model '{name}' fails on examples of shape {shape}: {type(error).__name__}, "
            f"{one_line(error)}"
        ) from error


@contextmanager
def _seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Seed PyTorch's generator within a `with` block, then restore it; with None change nothing."""
    import torch

    if seed is None:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
