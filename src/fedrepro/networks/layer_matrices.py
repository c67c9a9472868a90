"""Fully connected layers and convolutions as matrices, for methods that merge layer by layer.

A convolution is a fully connected layer on patches of its input. With a bias the matrix has a last
row, whose input is always 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.networks.layers import Affine, Arrays, Convolution2d
from fedrepro.networks.network import Network
from fedrepro.networks.user_torch_modules import NEAR, TRIED, ModuleNetwork

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class LayerMatrix:
    """The arrangement of a layer's tensors as a matrix (inputs [+ 1 for the bias], outputs).

    weight, bias: names of the tensors; the weight's name is also the layer's `key`. kernel:
    (channels in, height, width) of a convolution, else None. turned: whether a fully connected
    layer's weight is (outputs, inputs), as in PyTorch. places: how many vectors of one example are
    multiplied by the matrix, such as the positions of a kernel in an image.
    """

    weight: str
    bias: str | None
    kernel: tuple[int, ...] | None = None
    turned: bool = False
    places: int = 1

    @property
    def key(self) -> str:
        return self.weight

    def of(self, tensors: Arrays) -> np.ndarray:
        """Arrange weight and bias from `tensors`, (…, *shape), as (…, inputs [+ 1], outputs)."""
        weight = tensors[self.weight]
        if self.kernel:
            # (…, out, in, k, k), in the order in which patches list their pixels
            weight = np.moveaxis(weight, -4, -1)
            weight = weight.reshape(*weight.shape[:-4], -1, weight.shape[-1])
        elif self.turned:
            weight = weight.swapaxes(-1, -2)
        if self.bias is None:
            return weight
        return np.concatenate([weight, tensors[self.bias][..., None, :]], axis=-2)

    def tensors(self, matrix: np.ndarray) -> dict[str, np.ndarray]:
        """Convert `matrix`, (…, inputs [+ 1], outputs), back to weight and bias by tensor name."""
        biases = {} if self.bias is None else {self.bias: matrix[..., -1, :]}
        weight = matrix if self.bias is None else matrix[..., :-1, :]
        if self.kernel:
            weight = weight.reshape(*weight.shape[:-2], *self.kernel, weight.shape[-1])
            weight = np.moveaxis(weight, -1, -4)
        elif self.turned:
            weight = weight.swapaxes(-1, -2)
        return {self.weight: weight, **biases}


def tensors_of_matrices(layers: Sequence[LayerMatrix], matrices: Arrays) -> dict[str, np.ndarray]:
    """Convert matrices of some of `layers`, {layer.key: matrix}, to tensors (*shape) by name."""
    made: dict[str, np.ndarray] = {}
    for layer in layers:
        if layer.key in matrices:
            made |= layer.tensors(matrices[layer.key])
    return made


def layer_matrices(network: Network) -> tuple[LayerMatrix, ...]:
    """Describe a network's layers as matrices, inputs first, for methods that merge by layer.

    Of a `torch.nn.Module` these are the `Linear` and `Conv2d` submodules, in the order of calls;
    convolutions of several groups and other layers with weights are left out. Raises FedreproError
    if a network of this package has other layers with weights, such as recurrent ones.
    """
    if isinstance(network, ModuleNetwork):
        return _of_module(network)
    matrices = []
    for layer, shape, names in network.places:
        if type(layer) in (Affine, Convolution2d):
            kernel = None
            if isinstance(layer, Convolution2d):
                kernel = (shape[0], layer.kernel, layer.kernel)
            places = math.prod(layer.output(shape)[1:])
            matrices.append(LayerMatrix(names["weight"], names.get("bias"), kernel, places=places))
        elif names:
            said = f"layers of this {network.kind} network are not all fully connected layers or"
            fix = "only these have matrices: choose mlp, logistic or cnn"
            raise FedreproError(f"{said} convolutions, and {fix}")
    return tuple(matrices)


def parts_with_matrices(network: ModuleNetwork) -> list[tuple[str, str | None, Any]]:
    """List (weight name, bias name or None, submodule) of a module's layers with matrices."""
    from torch import nn

    named: dict[int, str] = {id(value): name for name, value in network.module.named_parameters()}
    others = (m for m in network.module.modules() if not isinstance(m, nn.Linear | nn.Conv2d))
    shared = {id(value) for part in others for value in part.parameters(recurse=False)}
    return [
        (named[id(part.weight)], named.get(id(part.bias)), part)
        for part in network.module.modules()
        if isinstance(part, nn.Linear | nn.Conv2d)
        and getattr(part, "groups", 1) == 1
        and id(part.weight) in named.keys() - shared
    ]


@lru_cache(32)
def _of_module(network: ModuleNetwork) -> tuple[LayerMatrix, ...]:
    import torch

    found: dict[str, LayerMatrix] = {}

    def note(weight: str, bias: str | None, part: Any, given: Any, out: torch.Tensor) -> None:
        linear = isinstance(part, torch.nn.Linear)
        rows = len(out) % TRIED if linear and out.dim() == 2 else len(out) - TRIED
        if rows or not (linear or out.dim() == 4):
            fix = "let its first axis count examples, or take a method that averages or ensembles"
            said = f"layer '{weight}' is called on {tuple(out.shape)} for {TRIED} examples"
            raise FedreproError(f"{said}: {fix}")
        call = torch.nn.Linear.forward if linear else torch.nn.Conv2d.forward
        due = call(part, given[0]) if given else out.new_zeros(0)
        if due.shape != out.shape or not torch.allclose(due, out, NEAR, NEAR, True):
            fix = "pass it one input by position and let its `padding` say how it pads"
            said = f"layer '{weight}' does not give what its input, weight and padding give"
            raise FedreproError(f"{said}: {fix}, or take a method that averages or ensembles")
        kernel = None if linear else (part.in_channels, *part.kernel_size)
        places = out.numel() // TRIED // out.shape[-1 if linear else 1]
        layer = LayerMatrix(weight, bias, kernel, linear, places)
        if found.setdefault(weight, layer).bias != bias:
            said = f"layers that share the weight '{weight}' have biases of their own"
            raise FedreproError(f"{said}: take a method that averages or ensembles")

    with torch.no_grad(), ExitStack() as hooks:
        for weight, bias, part in parts_with_matrices(network):
            hooks.enter_context(part.register_forward_hook(partial(note, weight, bias)))
        network.module.eval()
        own = {name: value.float() for name, value in network.tensors.items()}
        count = TRIED * math.prod(network.shape)
        network.of_one(own, torch.arange(count).reshape(TRIED, *network.shape) % 2.0)
    if not found:
        said = "the module calls no Linear or Conv2d, so nothing of it is a matrix"
        raise FedreproError(f"{said}: take a method that averages or ensembles")
    return tuple(found.values())
