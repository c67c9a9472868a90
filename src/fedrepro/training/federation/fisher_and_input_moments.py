"""Statistics of a client's data in terms of its network: moments of inputs, Fisher information.

a is the input of a layer, with a 1 behind it if there is a bias, and g the gradient of a log
probability by the layer's output before its non-linearity. A convolution has such a pair at each of
the L positions of its kernel. Matrices have rows as in `networks.layer_matrices`. A layer's key is
its weight's name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.portable_ops.padding_and_alignment import aligned, padded_to, row_of
from fedrepro.core.portable_ops.torch_ops import exponential, logarithm
from fedrepro.networks import layer_matrices as matrices
from fedrepro.networks.compiled_layout_and_buffers import Array, CompiledBody, parts_of
from fedrepro.networks.layers import Convolution2d, Layer, Pass, Tensors
from fedrepro.networks.network import Network
from fedrepro.networks.user_torch_modules import ModuleNetwork
from fedrepro.training.training_examples import Examples

if TYPE_CHECKING:
    import torch


class BodyMoments(CompiledBody):
    """Computes Fisher information and input moments of a network's convolutions, by compiled code.

    Call `outputs` first. Of the examples of its latest call `moments` sums products of inputs, and
    `learn` products or squares of gradients; no weight changes.
    """

    def moments(self, wanted: Collection[int]) -> dict[int, Array]:
        """Sum a aᵀ over examples, mean over positions: {index of `wanted` convolution: (D, D)}."""
        from fedrepro.networks.compiled_convolutions import add_moments  # which loads Numba

        found = {}
        for layer in wanted:
            kernel, shape, _ = self.parts.convolutions[layer]
            k, below = kernel.kernel, shape[0]
            run, length = padded_to(k * below), k * k * below
            scratch = aligned((length + 1) * k * run, self.x.dtype)
            sums = np.zeros(len(scratch))
            add_moments(self.body, layer, self.seen, self.room, scratch, sums)
            whole = sums.reshape(length + 1, k, run)[:, :, : k * below].reshape(length + 1, length)
            place = _places(k, below)
            moment = whole[np.ix_(np.append(place, length), place)]
            positions = math.prod(kernel.output(shape)[1:])
            if kernel.biased:
                count = float(self.seen * positions)
                moment = np.concatenate([moment, np.append(moment[-1], count)[:, None]], axis=1)
            found[layer] = (moment if kernel.biased else moment[:-1]) / positions
        return found

    def learn(self, errors: Sequence[Array], squares: bool) -> list[Array]:
        """Backpropagate gradients through the convolutions; return a matrix for each convolution.

        `errors` are gradients (n, C · H · W) by the `outputs`, an array for each label. A matrix
        (channels, channels) is the sum of g gᵀ over labels, examples and positions, for gradients g
        by its output. With `squares` it sums squared gradients by its weights (inputs, channels).
        """
        from fedrepro.networks.compiled_convolutions import add_errors  # which loads Numba

        channels = [layer.channels for layer, _, _ in self.parts.convolutions]
        starts = np.cumsum([0, *(c * row_of(c) for c in channels)])
        factors = np.zeros(0 if squares else int(starts[-1]))
        total = np.zeros(len(self.weights) * squares)
        scratch = aligned(max(len(factors), len(total)), self.x.dtype)
        for error in errors:
            turned = error.reshape(-1, *self.parts.image).transpose(0, 2, 3, 1)
            turned = turned.reshape(self.seen, -1)
            add_errors(
                self.body, self.weights, np.ascontiguousarray(turned), self.room, self.x, factors,
                starts, scratch, total,
            )  # fmt: skip
        if squares:
            return [self._matrix(layer, total) for layer in range(len(channels))]
        return [
            factors[at : at + c * row_of(c)].reshape(c, -1)[:, :c]
            for at, c in zip(starts[:-1], channels, strict=True)
        ]

    def _matrix(self, layer: int, flat: Array) -> Array:
        kernel, (below, *_), _ = self.parts.convolutions[layer]
        k, c, at = kernel.kernel, kernel.channels, self.offsets[f"weight{layer}"]
        rows = k * k * below + kernel.biased
        whole = flat[at : at + rows * row_of(c)].reshape(rows, -1)[:, :c]
        return whole[[*_places(k, below), *range(k * k * below, rows)]]


def _places(k: int, below: int) -> Array:
    return np.arange(k * k * below).reshape(k * k, below).T.ravel()  # from (k, k, C) to (C, k, k)


# Labels that gradients are taken at: the model's own, all of them by their probabilities, or those
# of the data ("empirical").
Labels = Literal["model", "data"]
TOGETHER = 500  # examples: patches of a convolution are many times its input
OF_MODULE = 100  # of a module, all of whose layers may be convolutions


# a module's layer, inputs (n, …), outputs
Call = tuple[Any, "torch.Tensor", "torch.Tensor"]
Calls = dict[str, list[Call]]  # by the names of layers' weights


@dataclass(frozen=True)
class _Seen:
    """The inputs and outputs of one layer in a forward pass on `count` (n) examples."""

    matrix: matrices.LayerMatrix
    count: int
    calls: list[Call]

    @property
    def outs(self) -> list[torch.Tensor]:
        return [out for *_, out in self.calls]

    def rows(self) -> np.ndarray:
        """Return the layer's inputs over all its calls: (n, L, D), at L positions of an example."""
        import torch
        from torch.nn import functional

        each = []
        for part, x, _ in self.calls:
            if self.matrix.kernel:
                mode = "constant" if part.padding_mode == "zeros" else part.padding_mode
                x = functional.pad(x, part._reversed_padding_repeated_twice, mode=mode)
                how = part.kernel_size, part.dilation, 0, part.stride
                each.append(functional.unfold(x, *how).transpose(1, 2))
            else:
                each.append(x.reshape(self.count, -1, x.shape[-1]))
        rows = torch.cat(each, dim=1)
        if self.matrix.bias:
            rows = torch.cat([rows, rows.new_ones(*rows.shape[:2], 1)], dim=2)
        return np.ascontiguousarray(rows.cpu().numpy())

    def second_moment(self) -> np.ndarray:
        """Sum a aᵀ over examples, a: inputs (D,); take the mean over positions: float64 (D, D)."""
        inputs = self.rows()
        return np.asarray(_square(inputs) / inputs.shape[1])

    def gradients(self, values: Sequence[torch.Tensor]) -> np.ndarray:
        """Reshape gradients by a layer's outputs, one tensor for each call, to (n, L, outputs)."""
        each = []
        for value in values:
            if self.matrix.kernel:
                gradient = value.reshape(-1, *value.shape[-3:]).flatten(2).transpose(1, 2)
            else:
                gradient = value.reshape(self.count, -1, value.shape[-1])
            each.append(gradient.cpu().numpy())
        return np.ascontiguousarray(each[0] if len(each) == 1 else np.concatenate(each, axis=1))


def input_moments(
    network: Network, tensors: Tensors, examples: Examples, only: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """Compute each layer's mean of a aᵀ over examples and positions, a: its inputs (D,).

    Returns symmetric float32 matrices (D, D) by the layer's key, for the layers `only`, by default
    all; tensors of layers above these are not needed. With `only`, a module stops when it has
    called each of these layers, so that later calls do not count.
    """
    import torch

    order = [layer.key for layer in matrices.layer_matrices(network)]
    wanted = [weight for weight in order if only is None or weight in only]
    sums: dict[str, np.ndarray] = {}
    body = _body(network, tensors, examples)
    compiled = order[: len(body.parts.convolutions)] if body else []
    above = [key for key in wanted if key not in compiled]
    for _, x in _batches(network, examples, body):
        if body:
            layers = [layer for layer, weight in enumerate(compiled) if weight in wanted]
            for place, moment in body.moments(layers).items():
                _add(sums, order[place], moment)
        if above:
            with torch.no_grad():
                seen, _ = _forward(network, tensors, x, above if only else None, body)
            for layer in seen:
                _add(sums, layer.matrix.key, layer.second_moment())
    return {name: _sent(value / len(examples.targets)) for name, value in sums.items()}


def _body(network: Network, tensors: Tensors, examples: Examples) -> BodyMoments | None:
    if not any(isinstance(layer, Convolution2d) for layer in network.layers):
        return None
    if (parts := parts_of(network)) is None:
        fix = "let a ReLU follow each, and affine layers all, or make it a torch.nn.Module"
        raise FedreproError(f"of this network's convolutions no moments are computed: {fix}")
    return BodyMoments(network, parts, tensors, min(TOGETHER, len(examples.targets)), examples.kind)


def _batches(
    network: Network, examples: Examples, body: BodyMoments | None
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield (slice of rows, x), x inputs or outputs of `body`: on the CPU but for torch modules."""
    module = isinstance(network, ModuleNetwork)
    together = OF_MODULE if module else TOGETHER
    for at in range(0, len(examples.targets), together):
        rows = slice(at, at + together)
        x = examples.scaled(rows) if module else examples.scaled(rows).cpu()
        yield rows, body.outputs(x) if body else x


def kronecker_factors(
    network: Network, tensors: Tensors, examples: Examples, labels: Labels = "model"
) -> dict[str, np.ndarray]:
    """Compute the Kronecker factors A and G of each layer's Fisher information, for K-FAC.

    A, under the layer's key, is the mean of a aᵀ over examples and positions, a: inputs. G, under
    `errors_of(key)`, is the mean over examples of g gᵀ summed over positions, g = d log p(y) / d
    output; both are float32, symmetric. `labels`: "model" averages over y by the model's
    probabilities, "data" takes the true y. Source: Martens and Grosse, 2015; for convolutions
    Grosse and Martens, 2016, up to a factor that moves between A and G.
    """
    sums: dict[str, np.ndarray] = {}
    body, order = _body(network, tensors, examples), matrices.layer_matrices(network)
    for seen, layer_errors, below in _errors(network, tensors, examples, labels, body):
        if body:
            for k, moment in body.moments(range(len(body.parts.convolutions))).items():
                _add(sums, order[k].key, moment)
            for k, factor in enumerate(body.learn(below, squares=False)):
                _add(sums, errors_of(order[k].key), factor)
        for layer, errors in zip(seen, layer_errors, strict=True):
            _add(sums, layer.matrix.key, layer.second_moment())
            for error in errors:
                _add(sums, errors_of(layer.matrix.key), _square(error))
    return {name: _sent(value / len(examples.targets)) for name, value in sums.items()}


def errors_of(key: str) -> str:
    """Return the name under which a client sends the Kronecker factor G of the layer `key`."""
    return f"errors of {key}"


def diagonal_fisher(
    network: Network, tensors: Tensors, examples: Examples, labels: Labels = "model"
) -> dict[str, np.ndarray]:
    """Compute the diagonal of the Fisher information of each weight, float32 (*shape) by name.

    Weights and biases of linear and convolutional layers have it, other tensors are left out. F_k
    averages (d log p(y | x) / d w_k)² over examples, and over y by the model's probabilities;
    `labels` "data" takes the true y. Source: Matena and Raffel, NeurIPS 2022, section 3.
    """
    sums: dict[str, np.ndarray] = {}
    body, order = _body(network, tensors, examples), matrices.layer_matrices(network)
    for seen, layer_errors, below in _errors(network, tensors, examples, labels, body):
        for k, squares in enumerate(body.learn(below, squares=True) if body else ()):
            _add(sums, order[k].key, squares)
        for layer, errors in zip(seen, layer_errors, strict=True):
            inputs = layer.rows()
            for error in errors:
                # at one place the square of a product is the product of squares
                if layer.matrix.kernel is None and inputs.shape[1] == 1:
                    squares = (inputs[:, 0] ** 2).T @ error[:, 0] ** 2
                else:
                    squares = ((inputs.transpose(0, 2, 1) @ error) ** 2).sum(axis=0)
                _add(sums, layer.matrix.key, squares)
    count = len(examples.targets)
    made = matrices.tensors_of_matrices(order, {key: total / count for key, total in sums.items()})
    return {name: np.ascontiguousarray(value, np.float32) for name, value in made.items()}


def _forward(
    network: Network,
    tensors: Tensors,
    x: torch.Tensor,
    only: Sequence[str] | None,
    body: BodyMoments | None,
) -> tuple[list[_Seen], torch.Tensor]:
    """Run a network, or what follows `body`, on x (n, D); return its layers' calls, logits."""
    layers = [
        layer for layer in matrices.layer_matrices(network) if only is None or layer.key in only
    ]
    calls: Calls = {layer.weight: [] for layer in layers}
    if isinstance(network, ModuleNetwork):
        logits = _run_module(network, tensors, x, only is not None, calls)
    else:
        above = network.evaluated[body.layers if body else 0 :]
        logits = _run_layers(above, tensors, x, only is not None, calls)
    found = [_Seen(layer, len(x), calls[layer.weight]) for layer in layers]
    return [layer for layer in found if layer.calls], logits


def _run_layers(
    layers: Sequence[tuple[Layer, dict[str, str]]],
    tensors: Tensors,
    x: torch.Tensor,
    moments: bool,
    calls: Calls,
) -> torch.Tensor:
    """Run `layers` on x, noting inputs and outputs in `calls`; return logits (1, n, K)."""
    x = x.unsqueeze(0)
    for layer, names in layers:
        weight, given = names.get("weight", ""), x.detach()[0]
        if moments and weight == [*calls][-1]:
            calls[weight].append((None, given, x))
            return x
        held = {local: tensors[name].cpu().unsqueeze(0) for local, name in names.items()}
        x = layer.forward(held, x, Pass())
        if weight in calls:
            if not (moments or x.requires_grad):
                x.requires_grad_()
            calls[weight].append((None, given, x))
    return x


class _ReachedError(Exception):
    """Stops the forward pass of a module at the input of the last requested layer."""


def _run_module(
    network: ModuleNetwork, tensors: Tensors, x: torch.Tensor, moments: bool, calls: Calls
) -> torch.Tensor:
    """Run a module on x (n, D), noting inputs and outputs in `calls`; return logits (1, n, K)."""

    def note(weight: str, part: Any, given: Any, out: torch.Tensor) -> torch.Tensor:
        if weight not in calls:
            return out
        if not (moments or out.requires_grad):
            out.requires_grad_()
        calls[weight].append((part, given[0].detach().clone(), out))
        if moments and all(calls.values()):
            raise _ReachedError
        return out.clone()  # what is changed in place behind it stays its own

    whole = {**{k: v.to(x) for k, v in network.tensors.items()}, **tensors}
    network.module.eval()
    with ExitStack() as hooks, suppress(_ReachedError):
        for weight, _, part in matrices.parts_with_matrices(network):
            hooks.enter_context(part.register_forward_hook(partial(note, weight)))
        return network.of_one(whole, x.view(len(x), *network.shape)).unsqueeze(0)
    return x


def _errors(
    network: Network, tensors: Tensors, examples: Examples, labels: Labels, body: BodyMoments | None
) -> Iterator[tuple[list[_Seen], list[list[np.ndarray]], list[np.ndarray]]]:
    """Yield (layers, gradients of log p(y) by their outputs, and by the body's) for each batch."""
    import torch

    for rows, x in _batches(network, examples, body):
        if body:
            x.requires_grad_()
        with torch.enable_grad():
            seen, logits = _forward(network, tensors, x, None, body)
        shares = torch.softmax(logits.detach(), -1)
        outs = [out for layer in seen for out in layer.outs] + [x] * (body is not None)
        each: list[list[np.ndarray]] = [[] for _ in seen]
        below: list[np.ndarray] = []
        for by in _by_labels(shares, examples.targets[rows], labels):
            # of a number: gradients of a tensor would import sympy, which takes seconds
            along = (logits * by).sum()
            gradients = torch.autograd.grad(
                along, outs, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            values = iter(gradients)
            for layer, into in zip(seen, each, strict=True):
                into.append(layer.gradients([next(values) for _ in layer.outs]))
            if body:
                below.append(gradients[-1].numpy())
        yield seen, each, below


def _by_labels(
    shares: torch.Tensor, targets: torch.Tensor, labels: Labels
) -> Iterator[torch.Tensor]:
    """Yield d log p(y) / d logits (1, n, K), p `shares`: at `targets`, or for all y times √p(y)."""
    import torch

    classes = shares.shape[-1]
    if labels == "data":
        yield torch.nn.functional.one_hot(targets.to(shares.device), classes)[None] - shares
        return
    identity = torch.eye(classes, dtype=shares.dtype, device=shares.device)
    for label in range(classes):
        root = exponential(logarithm(shares[..., label, None]) / 2)  # torch's own goes by MKL
        yield root * (identity[label] - shares)


def _square(rows: np.ndarray) -> np.ndarray:
    """Sum the outer products a aᵀ over all vectors a of `rows` (n, L, D): float64 (D, D)."""
    flat = rows.reshape(-1, rows.shape[-1])
    return np.asarray((flat.T @ flat).astype(np.float64))


def _add(sums: dict[str, np.ndarray], name: str, value: np.ndarray) -> None:
    sums[name] = sums[name] + value if name in sums else value.astype(np.float64)


def _sent(matrix: np.ndarray) -> np.ndarray:
    # exactly symmetric, so that half of it is sent
    return np.asarray(((matrix + matrix.T) / 2).astype(np.float32))
