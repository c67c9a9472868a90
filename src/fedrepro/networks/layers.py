"""Layers that compute A models at once, each model with its own tensors.

Shapes: B examples of each model, C channels, H × W pixels, T letters of a text. `forward` takes
tensors (A, *shape) by the layer's own names, such as weight, and inputs (A, B, …).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from fedrepro.core.portable_ops.torch_ops import convolved, portable_affine

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]
Arrays = Mapping[str, np.ndarray]  # by the names of tensors
Tensors = Mapping[str, "torch.Tensor"]
# grouped: all models by one call. unfolded: as batched products, for GPUs
Convolution = Literal["grouped", "unfolded"]
MARGIN = 4  # pixels of zeros around an image, within which a crop of its size is taken
SHIFTS = 2 * MARGIN + 1  # of a crop, down and to the right each
# softplus(-3.5) is about 0.03: posteriors start narrow, or their noise would hide the data
SPREAD = -3.5


@dataclass(frozen=True)
class Parameter:
    """A tensor of a layer: its shape, and its role, by which it is initialised.

    role: weight, bias, table (embeddings of letters) or spread (a random weight's deviation is
    softplus(spread); all begin at `start`). fan_in: inputs of each output, or an LSTM's units.
    """

    shape: Shape
    fan_in: int
    role: Literal["weight", "bias", "table", "spread"] = "weight"
    start: float = 0.0


class Noise(Protocol):
    """A source of dropout masks and seeds for a training step of A models, drawn for each model."""

    def kept(self, like: torch.Tensor, share: float) -> torch.Tensor:
        """Draw a dropout mask shaped as `like` (A, …): 1 with probability `share`, else 0."""

    def seeds(self, models: int) -> list[int]:
        """Return a seed for each model, for torch modules that draw random numbers."""


@dataclass(frozen=True)
class Pooled:
    """The argmax of 2×2 max pooling, (A, B, C, H // 2, W // 2), in flat maps; `size` is (H, W)."""

    argmax: torch.Tensor
    size: Shape


@dataclass
class Pass:
    """Options of a forward pass through a network, and records of its activations.

    convolution: "grouped" is one call for all models, "unfolded" matrix products, for GPUs. noise:
    source of random numbers in training; None in prediction. keep: whether to record `activations`
    (the input, the output of each non-linearity after its pooling, the logits) and `pooled` (the
    pooling before each activation, or None). chosen: the latest pooling, not yet recorded. rows:
    each model's number of examples without padding, where running statistics need it, or empty.
    """

    convolution: Convolution = "grouped"
    noise: Noise | None = None
    keep: bool = False
    activations: list[torch.Tensor] = field(default_factory=list)
    pooled: list[Pooled | None] = field(default_factory=list)
    chosen: Pooled | None = None
    rows: Sequence[int] = ()

    def record(self, value: torch.Tensor) -> None:
        if self.keep:
            self.activations.append(value)
            self.pooled.append(self.chosen)
            self.chosen = None


class Layer(Protocol):
    """A layer of a network, which computes A models at once, each with its own tensors."""

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        """Describe each tensor by a name such as "weight"; `shape` is that of one input."""

    def output(self, shape: Shape) -> Shape:
        """Return the shape of the layer's output for one example; `shape` is that of its input."""

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor: ...


def join_models(x: torch.Tensor) -> torch.Tensor:
    """Join A models' inputs along the channel axis, from (A, B, C, …) to (B, A·C, …)."""
    if len(x) == 1:
        # keeps the memory format, which a reshape of the gradient would lose
        return x.squeeze(0)
    return x.transpose(0, 1).flatten(1, 2)


def split_models(x: torch.Tensor, models: int) -> torch.Tensor:
    """Split A models' channels, (B, A·C, …) to (A, B, C, …), a view."""
    if models == 1:
        return x.unsqueeze(0)
    return x.view(len(x), models, -1, *x.shape[2:]).transpose(0, 1)


def of_package(layer: Layer) -> bool:
    """Return whether a layer's class is ours, and not a user's that inherits from one of ours."""
    return type(layer).__module__ == __name__


class Plain:
    """Base of layers without tensors whose outputs have the shape of their inputs, such as ReLU."""

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        return {}

    def output(self, shape: Shape) -> Shape:
        return shape


@dataclass(frozen=True)
class Affine:
    """A fully connected layer x @ weight + bias; weight (inputs, units), bias (units,) or none."""

    units: int
    biased: bool = True

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        fan_in = math.prod(shape)
        bias = {"bias": Parameter((self.units,), fan_in, "bias")} if self.biased else {}
        return {"weight": Parameter((fan_in, self.units), fan_in), **bias}

    def output(self, shape: Shape) -> Shape:
        return (self.units,)

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor:
        weight = tensors["weight"]
        none = weight.new_zeros(len(weight), weight.shape[-1])
        return portable_affine(x.flatten(2), weight, tensors.get("bias", none))


@dataclass(frozen=True)
class Variational:
    """A fully connected layer with weights drawn per minibatch from N(weight, softplus(spread)²).

    start: all initial spreads. Source: P2P (Lalitha et al., 2019), section 5.2 (Bayes by backprop).
    """

    units: int
    start: float = SPREAD
    biased = True

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        """Describe means, weight and bias, and their spreads, weight_spread and bias_spread."""
        means = Affine(self.units).parameters(shape)
        spreads = {
            f"{name}_spread": Parameter(mean.shape, mean.fan_in, "spread", self.start)
            for name, mean in means.items()
        }
        return {**means, **spreads}

    def output(self, shape: Shape) -> Shape:
        return (self.units,)

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor:
        """Compute x @ weight + bias by mean weights, to predict; training uses compiled code."""
        return Affine(self.units).forward(tensors, x, run)


class Relu(Plain):
    """ReLU, max(x, 0), not in place: where x is a view, autograd would have to copy gradients."""

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor:
        out = x.relu()
        run.record(out)
        return out


@dataclass(frozen=True)
class Dropout(Plain):
    """Dropout: in training each input is zero with probability `rate`, others are scaled up."""

    rate: float

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor:
        if run.noise is None or not self.rate:
            return x
        return x * run.noise.kept(x, 1 - self.rate).div_(1 - self.rate)


@dataclass(frozen=True)
class Convolution2d:
    """A convolution with square kernels; weight (channels, input channels, kernel, kernel)."""

    channels: int
    kernel: int
    padding: int = 0
    biased: bool = True

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        fan_in = shape[0] * self.kernel**2
        kernels = (self.channels, shape[0], self.kernel, self.kernel)
        bias = {"bias": Parameter((self.channels,), fan_in, "bias")} if self.biased else {}
        return {"weight": Parameter(kernels, fan_in), **bias}

    def output(self, shape: Shape) -> Shape:
        grown = 2 * self.padding - self.kernel + 1
        return (self.channels, shape[1] + grown, shape[2] + grown)

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor:
        from torch.nn.functional import conv2d

        models = len(x)
        if run.convolution == "unfolded" and models > 1:
            maps = convolved(x, tensors["weight"], self.padding)
            return maps + tensors["bias"][:, None, :, None, None] if self.biased else maps
        inputs, weight = join_models(x), tensors["weight"].flatten(0, 1)
        bias = tensors["bias"].flatten() if self.biased else None
        out = conv2d(inputs, weight, bias, padding=self.padding, groups=models)
        return split_models(out, models)


class MaxPool(Plain):
    """Max pooling of 2×2 windows, to (H // 2, W // 2); an odd last row or column is left out."""

    def output(self, shape: Shape) -> Shape:
        return (shape[0], shape[1] // 2, shape[2] // 2)

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor:
        from torch.nn.functional import max_pool2d

        out, argmax = max_pool2d(x.flatten(0, 1), 2, return_indices=True)
        if run.keep:
            chosen = argmax.view(*x.shape[:2], *argmax.shape[1:])
            run.chosen = Pooled(chosen, tuple(x.shape[-2:]))
        return out.view(*x.shape[:2], *out.shape[1:])


@dataclass(frozen=True)
class Embedding:
    """An embedding: letters (A, B, T), codes 0 … codes-1 as floats, to vectors (A, B, T, size)."""

    codes: int
    size: int

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        return {"table": Parameter((self.codes, self.size), 1, "table")}

    def output(self, shape: Shape) -> Shape:
        return (*shape, self.size)

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor:
        import torch
        from torch.nn.functional import embedding

        first = torch.arange(len(x), device=x.device) * self.codes
        return embedding(x.long() + first[:, None, None], tensors["table"].flatten(0, 1))


@dataclass(frozen=True)
class Lstm:
    """An LSTM layer; its tensors have rows for the input, forget, cell and output gates in turn.

    `last`: whether the output is the state after the last letter alone, else after each letter.
    """

    units: int
    last: bool = False

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        """Describe weight (4 units, inputs), recurrent (4 units, units), bias (4 units,)."""
        wide = 4 * self.units
        return {
            "weight": Parameter((wide, shape[1]), self.units),
            "recurrent": Parameter((wide, self.units), self.units),
            "bias": Parameter((wide,), self.units, "bias"),
        }

    def output(self, shape: Shape) -> Shape:
        return (self.units,) if self.last else (shape[0], self.units)

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor:
        import torch

        weight, recurrent = (tensors[k].transpose(1, 2) for k in ("weight", "recurrent"))
        models, batch, steps, _ = x.shape
        given = portable_affine(x.flatten(1, 2), weight, tensors["bias"])
        none = torch.zeros_like(tensors["bias"])
        state = cell = x.new_zeros(models, batch, self.units)
        states = []
        for own in given.view(models, batch, steps, -1).unbind(2):
            gates = own + portable_affine(state, recurrent, none)
            entry, forget, new, out = gates.chunk(4, -1)
            cell = forget.sigmoid() * cell + entry.sigmoid() * new.tanh()
            state = out.sigmoid() * cell.tanh()
            states.append(state)
        return state if self.last else torch.stack(states, 2)


@dataclass(frozen=True)
class EachPosition(Plain):
    """A layer that makes each text position an example: (A, B, T, units) to (A, B·T, units)."""

    def output(self, shape: Shape) -> Shape:
        return shape[1:]

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor:
        return x.flatten(1, 2)
