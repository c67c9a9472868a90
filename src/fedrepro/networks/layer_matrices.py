"""Fully connected layers and convolutions as matrices, for methods that merge layer by layer.

A convolution is a fully connected layer on patches of its input, one for each of its groups. With a
bias the matrix has a last row, whose input is always 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.networks.layers import Affine, Arrays, Convolution2d
from fedrepro.networks.network import Network
from fedrepro.networks.torch_modules import ModuleNetwork

if TYPE_CHECKING:
    import torch

TRIED = 3  # examples that a module is tried with


@dataclass(frozen=True)
class LayerMatrix:
    """How the tensors of a layer form a matrix (inputs [+ 1 for the bias], outputs).

    weight, bias: names of the tensors. kernel: (channels in, height, width) of a convolution, else
    None. turned: whether a fully connected layer's weight is (outputs, inputs), as in PyTorch.
    group, groups: of a grouped convolution. places: positions of the kernel in an image, or vectors
    per example.
    """

    weight: str
    bias: str | None
    kernel: tuple[int, ...] | None = None
    turned: bool = False
    group: int = 0
    groups: int = 1
    places: int = 1

    @property
    def key(self) -> str:
        return self.weight if self.groups == 1 else f"{self.weight}, group {self.group}"

    def of(self, tensors: Arrays) -> np.ndarray:
        """Arrange weight and bias, (…, *shape), as a matrix (…, inputs [+ 1], outputs)."""
        weight = tensors[self.weight]
        if self.groups > 1:
            weight = np.split(weight, self.groups, axis=-4)[self.group]
        if self.kernel:
            # (…, out, in, k, k), in the order in which patches list their pixels
            weight = np.moveaxis(weight, -4, -1)
            weight = weight.reshape(*weight.shape[:-4], -1, weight.shape[-1])
        elif self.turned:
            weight = weight.swapaxes(-1, -2)
        if self.bias is None:
            return weight
        bias = np.split(tensors[self.bias], self.groups, axis=-1)[self.group]
        return np.concatenate([weight, bias[..., None, :]], axis=-2)

    def tensors(self, matrix: np.ndarray) -> dict[str, np.ndarray]:
        """Convert a layer's matrix back to arrays by name, with the outputs of its group alone."""
        biases = {} if self.bias is None else {self.bias: matrix[..., -1, :]}
        weight = matrix if self.bias is None else matrix[..., :-1, :]
        if self.kernel:
            weight = weight.reshape(*weight.shape[:-2], *self.kernel, weight.shape[-1])
            weight = np.moveaxis(weight, -1, -4)
        elif self.turned:
            weight = weight.swapaxes(-1, -2)
        return {self.weight: weight, **biases}


def tensors_of_matrices(layers: Sequence[LayerMatrix], matrices: Arrays) -> dict[str, np.ndarray]:
    """Convert layers' matrices (by `key`, some or all) to tensors (*shape) by name (weight0)."""
    parts: dict[str, list[np.ndarray]] = {}
    for layer in layers:
        if layer.key in matrices:
            for name, value in layer.tensors(matrices[layer.key]).items():
                parts.setdefault(name, []).append(value)
    return {k: v[0] if len(v) == 1 else np.concatenate(v) for k, v in parts.items()}


def layer_matrices(network: Network) -> tuple[LayerMatrix, ...]:
    """Describe a network's layers as matrices, inputs first, for methods that merge by layer.

    Layers of a `torch.nn.Module` are its `Linear` and `Conv2d` submodules, in the order of calls.
    FedreproError says that a network has other layers, such as recurrent ones.
    """
    if isinstance(network, ModuleNetwork):
        return _of_module(network)
    matrices = []
    for layer, shape, names in network.places:
        if isinstance(layer, Affine | Convolution2d):
            kernel = None
            if isinstance(layer, Convolution2d):
                kernel = (shape[0], layer.kernel, layer.kernel)
            places = math.prod(layer.output(shape)[1:])
            matrices.append(LayerMatrix(names["weight"], names.get("bias"), kernel, places=places))
        elif names:
            raise FedreproError(
                f"layers of this {network.kind} network are not all fully connected layers or "
                "convolutions, and only these have matrices: choose mlp, logistic or cnn"
            )
    return tuple(matrices)


def parts_with_matrices(network: ModuleNetwork) -> list[tuple[str, str | None, Any]]:
    """Return a module's `Linear` and `Conv2d` layers: (weight name, bias name or None, layer)."""
    import torch

    named: dict[int, str] = {id(value): name for name, value in network.module.named_parameters()}
    return [
        (named[id(part.weight)], named.get(id(part.bias)), part)
        for part in network.module.modules()
        if isinstance(part, torch.nn.Linear | torch.nn.Conv2d) and id(part.weight) in named
    ]


def called_on(given: tuple[Any, ...], named: Mapping[str, Any]) -> torch.Tensor:
    """Return a layer's input from the positional and keyword arguments of its call."""
    return given[0] if given else named["input"]  # type: ignore[no-any-return]


def windows(part: Any, x: torch.Tensor) -> tuple[int, int]:
    """Return in how many rows and columns of windows a `Conv2d` sees images x (…, H, W)."""
    left, right, top, bottom = part._reversed_padding_repeated_twice
    pads = (top + bottom, left + right)
    counts = (
        (size + pad - dilation * (k - 1) - 1) // stride + 1
        for size, pad, dilation, k, stride in zip(
            x.shape[-2:], pads, part.dilation, part.kernel_size, part.stride, strict=True
        )
    )
    return next(counts), next(counts)


@lru_cache(32)
def _of_module(network: ModuleNetwork) -> tuple[LayerMatrix, ...]:
    import torch

    found: dict[str, list[LayerMatrix]] = {}

    def note(
        weight: str, bias: str | None, part: Any, given: Any, named: Any, out: torch.Tensor
    ) -> None:
        linear = isinstance(part, torch.nn.Linear)
        rows = len(out) % TRIED if linear and out.dim() == 2 else len(out) - TRIED
        if rows or not (linear or out.dim() == 4):
            raise FedreproError(
                f"layer '{weight}' is called on {tuple(out.shape)} for {TRIED} examples: let "
                "its first axis count examples, or take a method that averages or ensembles"
            )
        if linear:
            places = out.numel() // TRIED // out.shape[-1]
            found[weight] = [LayerMatrix(weight, bias, None, True, places=places)]
            return
        if (due := windows(part, called_on(given, named))) != tuple(out.shape[-2:]):
            raise FedreproError(
                f"layer '{weight}' has outputs of {tuple(out.shape[-2:])} pixels where its padding "
                f"and stride give {due}: let its `padding` say how it pads, or take a method that "
                "averages or ensembles"
            )
        kernel = (part.in_channels // part.groups, *part.kernel_size)
        found[weight] = [
            LayerMatrix(weight, bias, kernel, False, g, part.groups, math.prod(out.shape[2:]))
            for g in range(part.groups)
        ]

    hooks = [
        part.register_forward_hook(partial(note, weight, bias), with_kwargs=True)
        for weight, bias, part in parts_with_matrices(network)
    ]
    try:
        with torch.no_grad():
            network.module.eval()
            network.module(torch.zeros(TRIED, *network.shape))
    finally:
        for hook in hooks:
            hook.remove()
    return tuple(layer for layers in found.values() for layer in layers)


def patch_moment(
    images: np.ndarray, kernel: tuple[int, int], padding: tuple[int, int, int, int], ones: bool
) -> np.ndarray:
    """Sum the outer products of all patches of images that a kernel sees by steps of one pixel.

    The images are float32 (n, C, H, W), the kernel (kh, kw), the padding zeros at top, bottom, left
    and right. A patch lists channel, row, column, and with `ones` a 1 as for a bias: the result is
    float64 (C kh kw, C kh kw), or one larger.

    Two places of the kernel share a product with all pairs as far apart: for each distance it is
    taken once over the pixels that all places see, and each place adds the edges that it sees.
    Nothing is subtracted, so that a pixel that is always zero has a moment of zero.
    """
    (n, channels, rows, columns), (kh, kw), (top, bottom, left, right) = (
        images.shape, kernel, padding,
    )  # fmt: skip
    high, wide = rows + top + bottom - kh + 1, columns + left + right - kw + 1  # windows
    # zeros behind each row and image, so that a shift past an end meets them
    tall = rows + max(top + bottom, kh - 1)
    broad = columns + max(left + right, kw - 1)
    flat = np.zeros((n * tall * broad + kh * broad + kw, channels), images.dtype)
    padded = flat[: n * tall * broad].reshape(n, tall, broad, channels)
    padded[:, top : top + rows, left : left + columns] = images.transpose(0, 2, 3, 1)
    # rows and columns that not every place of the kernel sees, and the pixels between them
    ends = [at for at in range(top, top + rows) if at < kh - 1 or at >= high]
    sides = [at for at in range(left, left + columns) if at < kw - 1 or at >= wide]

    inner = flat[: n * tall * broad].copy()
    middle = inner.reshape(padded.shape)
    middle[:, ends] = 0
    middle[:, :, sides] = 0
    lines = slice(max(kh - 1, top), max(kh - 1, top, min(high, top + rows)))
    posts = slice(max(kw - 1, left), max(kw - 1, left, min(wide, left + columns)))

    def inside(first: int, window: int, edges: list[int]) -> list[int]:
        return [at for at in edges if first <= at < first + window]

    @cache
    def product(down: int, over: int, row: int | None, column: int | None) -> np.ndarray:
        """Sum x[y, x] x[y + down, x + over]ᵀ between the edges, or on a row, a column, or both."""
        shift = down * broad + over
        if row is None and column is None:
            size = n * tall * broad
            return np.asarray((inner.T @ flat[shift : shift + size]).astype(np.float64))
        other = np.lib.stride_tricks.as_strided(flat[shift:], padded.shape, padded.strides)
        part = (slice(None), lines if row is None else row, posts if column is None else column)
        a, b = (one[part].reshape(-1, channels) for one in (padded, other))
        return np.asarray((a.T @ b).astype(np.float64))

    places = [(y, x) for y in range(kh) for x in range(kw)]
    moment = np.zeros((len(places), channels, len(places), channels))
    for i, (y, x) in enumerate(places):
        ys, xs = inside(y, high, ends), inside(x, wide, sides)
        for j, (below, behind) in enumerate(places[i:], i):
            apart = below - y, behind - x
            block = product(*apart, None, None).copy()
            for row in ys:
                block += product(*apart, row, None)
            for column in xs:
                block += product(*apart, None, column)
                for row in ys:
                    block += product(*apart, row, column)
            moment[i, :, j] = block
            moment[j, :, i] = block.T
    length = channels * len(places)
    found = moment.transpose(1, 0, 3, 2).reshape(length, length)
    if not ones:
        return found
    sums = padded.sum(axis=0, dtype=np.float64)
    of_place = [sums[y : y + high, x : x + wide].sum(axis=(0, 1)) for y, x in places]
    last = np.append(np.transpose(of_place).ravel(), float(n * high * wide))
    return np.block([[found, last[:-1, None]], [last[None]]])
