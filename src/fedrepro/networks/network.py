"""A network: a sequence of layers, evaluated for many models at once.

Tensors are named by their layer's number among the layers that have tensors: weight0, bias0,
weight1, … A fully connected network of sizes (D, L1, …, K) has weight0 (D, L1), bias0 (L1), weight1
(L1, L2), …, all (inputs, outputs). Tensors of A or m models are stacked, (m, *shape).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.networks import layers as kinds
from fedrepro.networks.layers import Affine, Arrays, Dropout, Layer, Parameter, Pass, Shape, Tensors

if TYPE_CHECKING:
    import torch

Init = Literal["normal", "fan_in", "glorot"]
Kind = Literal["dense", "convolutional", "recurrent", "variational", "module", "mixed"]

IMAGE = 3  # axes of what a convolution gives: channels, height, width
TEXT = 2  # axes of what a recurrent layer is given: letters, inputs
# what says how wide a layer is
WIDTHS = {Affine: "units", kinds.Variational: "units", kinds.Convolution2d: "channels"}
PREDICTION_FLOATS = 2**24
PREDICTION_ROWS = 2500


@dataclass(frozen=True)
class Network:
    """A neural network without weights: layers that compute many models at once.

    shape: of one input. kind: of its layers, or "module", or "mixed" for several architectures.
    prior_sd: standard deviation of the prior, normal with mean 0, of variational layers' weights.
    """

    shape: Shape
    layers: tuple[Layer, ...]
    kind: Kind = "dense"
    prior_sd: float | None = None

    @cached_property
    def places(self) -> tuple[tuple[Layer, Shape, dict[str, str]], ...]:
        """Return (layer, input shape, {own tensor name: name in the model}) of each layer."""
        shape, place = self.shape, 0
        placed: list[tuple[Layer, Shape, dict[str, str]]] = []
        for layer in self.layers:
            local = layer.parameters(shape)
            named = {name: re.sub("^[a-z]+", rf"\g<0>{place}", name) for name in local}
            earlier = {name for _, _, names in placed for name in names.values()}
            if taken := earlier & {*named.values()}:
                said = f"two layers have a tensor '{min(taken)}'"
                raise FedreproError(f"{said}: begin its name with a small letter")
            placed.append((layer, shape, named))
            place += bool(local)
            shape = layer.output(shape)
        return tuple(placed)

    @cached_property
    def evaluated(self) -> tuple[tuple[Layer, dict[str, str]], ...]:
        """Return (layer, its tensors' names) in order of evaluation: max pooling before ReLU."""
        pairs = [(layer, names) for layer, _, names in self.places]
        for i in range(len(pairs) - 1):
            if type(pairs[i][0]) is kinds.Relu and type(pairs[i + 1][0]) is kinds.MaxPool:
                pairs[i], pairs[i + 1] = pairs[i + 1], pairs[i]
        return tuple(pairs)

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        return {
            name: layer.parameters(shape)[local]
            for layer, shape, names in self.places
            for local, name in names.items()
        }

    @property
    def shapes(self) -> dict[str, Shape]:
        return {name: parameter.shape for name, parameter in self.parameters.items()}

    @property
    def dropout(self) -> float:
        """Return the share of hidden units that dropout leaves out in training, or 0."""
        return max((layer.rate for layer in self.layers if isinstance(layer, Dropout)), default=0.0)

    @cached_property
    def products(self) -> int:
        """Count the multiplications in the prediction of one example."""
        total = 0
        for layer, shape, _ in self.places:
            weights = sum(math.prod(one.shape) for one in layer.parameters(shape).values())
            out = layer.output(shape)
            letters = shape[0] if self.kind == "recurrent" and len(shape) == TEXT else 1
            total += weights * (math.prod(out[1:]) if len(out) == IMAGE else letters)
        return total

    @cached_property
    def buffers(self) -> tuple[str, ...]:
        """Return names of tensors that no gradient changes, such as BatchNorm's statistics."""
        return ()

    @cached_property
    def counts(self) -> tuple[str, ...]:
        """Return the names of buffers of integers, such as a count of batches."""
        return ()

    @cached_property
    def norms(self) -> tuple[str, ...]:
        """Return the names of tensors in layers with running statistics, such as BatchNorm."""
        return ()

    @cached_property
    def draws(self) -> bool:
        """Return whether training draws random numbers (dropout, variational weights)."""
        noisy = (Dropout, kinds.Variational)
        # a user's layer may draw
        return any(isinstance(one, noisy) or not kinds.of_package(one) for one in self.layers)

    def hidden_units(self, tensors: Arrays) -> int | None:
        """Sum hidden units over m networks, tensors (m, *shape); None if not fully connected."""
        if self.kind not in ("dense", "variational"):
            return None
        shapes = [v.shape for k, v in tensors.items() if re.fullmatch(r"weight\d+", k)]
        return sum(int(shape[0] * shape[-1]) for shape in shapes[:-1])

    def fitted(self, tensors: Arrays) -> Network:
        """Copy the network, as wide as `tensors` (m, *shape); FedreproError if they do not fit."""
        layers = []
        for layer, _, names in self.places:
            width = WIDTHS.get(type(layer))
            out = 1 if isinstance(layer, kinds.Convolution2d) else -1
            changes = {width: tensors[names["weight"]].shape[out]} if width else {}
            layers.append(replace(layer, **changes) if changes else layer)  # type: ignore[type-var]
        network = replace(self, layers=tuple(layers))
        shapes = {name: value.shape[1:] for name, value in tensors.items()}
        if shapes != network.shapes:
            said = f"tensors of shapes {shapes} are not those of one {self.kind} network"
            raise FedreproError(said)
        return network

    @property
    def classes(self) -> int:
        layer, shape, _ = self.places[-1]
        return math.prod(layer.output(shape))

    @cached_property
    def predictions(self) -> int:
        """Return the number of predictions per example: 1, or one per character of a text."""
        each = (shape[0] for one, shape, _ in self.places if isinstance(one, kinds.EachPosition))
        return next(each, 1)

    def asked(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the target of every prediction, (…, B·predictions), from labels y and inputs x.

        x is (…, B, D); y is (…, B), or (…, B, K) class probabilities. With a prediction per
        character, the targets are the next characters, and after the last one the label.
        """
        import torch

        if self.predictions == 1:
            return y
        return torch.cat([x[..., 1:].to(y.dtype), y.unsqueeze(-1)], -1).flatten(-2)

    def weighed(self, weight: torch.Tensor) -> torch.Tensor:
        """Spread weights of examples (…, B) evenly over their predictions: (…, B·predictions)."""
        if self.predictions == 1:
            return weight
        return weight.repeat_interleave(self.predictions, -1) / self.predictions

    @cached_property
    def widest(self) -> int:
        """Count the numbers of the largest layer output for one example."""
        return max(math.prod(layer.output(shape)) for layer, shape, _ in self.places)

    def initial(
        self, rng: RngKey, weight_sd: float, bias: float, init: Init = "normal"
    ) -> dict[str, np.ndarray]:
        """Draw initial weights of one model by the key `rng`: tensors (*shape) by name, float32.

        init "normal": weights from N(0, weight_sd²), constant biases `bias` (PFNM, Table 1).
        "fan_in": weights and biases uniform within ±1/√fan_in, embeddings from N(0, 1). "glorot":
        weights uniform within ±√(6/(fan_in + fan_out)), embeddings from N(0, 1), constant biases.
        """
        generator = rng.stream("initial-weights")
        return {
            name: _start(own, generator, weight_sd, bias, init)
            for name, own in self.parameters.items()
        }

    def forward(self, tensors: Tensors, x: torch.Tensor, run: Pass) -> torch.Tensor:
        """Compute logits (A, B · predictions, K) of A models for x (A, B, D).

        `tensors` are (A, *shape) by name. `run` has options, and records activations if asked to.
        """
        x = x.reshape(*x.shape[:2], *self.shape)
        run.record(x)
        for layer, names in self.evaluated:
            x = layer.forward({local: tensors[name] for local, name in names.items()}, x, run)
        run.record(x)
        return x

    def logits(self, tensors: Tensors, x: torch.Tensor) -> torch.Tensor:
        """Compute one model's logits (N·predictions, K) for x (N, D); tensors (*shape) by name."""
        import torch

        lifted = {name: tensors[name].unsqueeze(0) for name in self.parameters}
        if x.device.type == "cpu" and not torch.is_grad_enabled():
            from fedrepro.networks import compiled_layout_and_buffers as compiled

            parts = compiled.parts_of(self)
            if parts is not None and parts.below:
                rows, dtype = min(compiled.PREDICTED, len(x)), x.detach().numpy().dtype
                body = compiled.CompiledBody(self, parts, tensors, rows, dtype)
                out = body.outputs(x).unsqueeze(0)
                for layer, _, names in self.places[body.layers :]:
                    held = {local: lifted[name] for local, name in names.items()}
                    out = layer.forward(held, out, Pass())
                return out.squeeze(0)
        return self.forward(lifted, x.unsqueeze(0), Pass()).squeeze(0)

    @property
    def prediction_rows(self) -> int:
        """Return how many examples to predict at once, so that activations stay within 64 MB."""
        return max(1, min(PREDICTION_ROWS, PREDICTION_FLOATS // self.widest))


def dense(sizes: tuple[int, ...], dropout: float = 0.0) -> Network:
    """Return the dense ReLU network of `sizes` (inputs, hidden…, outputs), `dropout` its rate."""
    layers: list[Layer] = []
    for units in sizes[1:-1]:
        layers += [Affine(units), kinds.Relu(), *([Dropout(dropout)] if dropout else [])]
    return Network((sizes[0],), (*layers, Affine(sizes[-1])))


def dense_spec(hidden: Sequence[int], bias: bool = True) -> Spec:
    """Return the Spec (model and its parameters) of a fully connected network, widths `hidden`."""
    if not hidden:
        return components("model")["logistic"].spec()
    return components("model")["mlp"].spec({"hidden": list(hidden), "bias": bias})


def widths(tensors: Arrays) -> tuple[int, ...]:
    """Return the hidden widths of fully connected networks, from tensors (m, *shape) by name."""
    layers = sum(name.startswith("weight") for name in tensors)
    return tuple(tensors[f"weight{layer}"].shape[2] for layer in range(layers - 1))


def _start(
    parameter: Parameter, generator: np.random.Generator, weight_sd: float, bias: float, init: Init
) -> np.ndarray:
    role, shape = parameter.role, parameter.shape
    if role == "spread" or (role == "bias" and init != "fan_in"):
        return np.full(shape, parameter.start if role == "spread" else bias, np.float32)
    if init == "normal":
        return generator.normal(0.0, weight_sd, shape).astype(np.float32)
    if role == "table":
        return generator.standard_normal(shape, np.float32)
    fans = parameter.fan_in + math.prod(shape[2:]) * math.prod(shape) // parameter.fan_in
    limit = math.sqrt(6 / fans) if init == "glorot" else 1 / math.sqrt(parameter.fan_in)
    return generator.uniform(-limit, limit, shape).astype(np.float32)


def split(network: Network) -> tuple[Network, Network]:
    """Split a network in two: its hidden layers, and its output layer with dropout before it.

    Tensors of the second are weight0 and bias0. Raises FedreproError if the last layer is not fully
    connected, or predicts every character of a text.
    """
    if not isinstance(network.layers[-1], Affine) or network.predictions > 1:
        said = f"the last layer of this {network.kind} network is not an affine map"
        raise FedreproError(f"{said}, so it cannot be trained alone; train all layers")
    cut = len(network.layers) - 1
    while cut and isinstance(network.layers[cut - 1], Dropout):
        cut -= 1
    hidden = replace(network, layers=network.layers[:cut])
    return hidden, Network(network.places[-1][1], network.layers[cut:], network.kind)


def hidden_layers(inputs: int, body: Arrays) -> Network:
    """Return the network of ReLU layers `body`: weight0 (1, inputs, units), bias0 (1, units), …."""
    widths = (body[f"bias{place}"].shape[-1] for place in range(len(body) // 2))
    network = dense((inputs, *widths, 1))
    return replace(network, layers=network.layers[:-1])
