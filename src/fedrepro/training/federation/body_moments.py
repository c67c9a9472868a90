"""Moments and Fisher information of the convolutions of one network, compiled, on the CPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedrepro.core.portable_ops.aligned_buffers import PAD, aligned, padded_to, row_of
from fedrepro.networks.memory_layout import Parts, Rows, body_of, parts_of, turned_in
from fedrepro.networks.network import Network

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, Any]


class BodyMoments:
    """The convolutions of a network on some examples after another, at most `rows` at a time.

    layers: of the network that these are. Matrices have rows as in `networks.matrices`.
    """

    def __init__(
        self, network: Network, parts: Parts, tensors: Mapping[str, torch.Tensor], rows: int
    ) -> None:
        layout = Rows(network.shapes, turned_in(network, parts))
        dtype = next(iter(tensors.values())).numpy().dtype
        self.parts, self.kernels = parts, [layer for layer, _, _ in parts.convolutions]
        self.weights = layout.flat(tensors, dtype)
        self.body, self.room = body_of(network, parts, layout.offsets, rows, dtype)
        self.x = np.zeros(rows * parts.sizes[0] + PAD, dtype)
        self.offsets = [layout.offsets[f"weight{k}"] for k in range(parts.below)]
        self.layers = sum(2 + pooled for *_, pooled in parts.convolutions)
        self.seen = 0

    @classmethod
    def of(
        cls, network: Network, tensors: Mapping[str, torch.Tensor], device: str, rows: int
    ) -> Self | None:
        """Make it, or None for a network without known convolutions, or on a GPU."""
        parts = parts_of(network)
        if device != "cpu" or parts is None or not parts.convolutions:
            return None
        return cls(network, parts, tensors, rows)

    def look(self, x: torch.Tensor) -> torch.Tensor:
        """Compute what the convolutions give of x (n, D): (n, C · H · W)."""
        import torch

        from fedrepro.networks.convolution_moments import record_convolutions

        self.seen = len(x)
        record_convolutions(
            self.body, self.weights, np.ascontiguousarray(x.numpy()), self.room, self.x
        )
        channels, height, width = self.parts.image
        given = self.x[: self.seen * self.parts.sizes[0]].reshape(-1, height, width, channels)
        return torch.from_numpy(given.transpose(0, 3, 1, 2).reshape(self.seen, -1))

    def moments(self, wanted: Collection[int]) -> dict[int, Array]:
        """Sum a aᵀ over the examples and places, divided by the places: (D, D) of these layers."""
        from fedrepro.networks.convolution_moments import add_moments

        found = {}
        for layer in wanted:
            kernel, (below, *_), _ = self.parts.convolutions[layer]
            k = kernel.kernel
            run, length = padded_to(k * below), k * k * below
            scratch = aligned((length + 1) * k * run, self.x.dtype)
            sums = np.zeros(len(scratch))
            add_moments(self.body, layer, self.seen, self.room, scratch, sums)
            whole = sums.reshape(length + 1, k, run)[:, :, : k * below].reshape(length + 1, length)
            place = np.arange(length).reshape(k * k, below).T.ravel()  # (k, k, C) to (C, k, k)
            rows = np.append(place, length)
            moment = whole[np.ix_(rows, place)]
            count = float(self.seen * self._places(layer))
            if kernel.biased:
                moment = np.concatenate([moment, np.append(moment[-1], count)[:, None]], axis=1)
            found[layer] = (moment if kernel.biased else moment[:-1]) / self._places(layer)
        return found

    def _places(self, layer: int) -> int:
        convolution, shape, _ = self.parts.convolutions[layer]
        _, height, width = convolution.output(shape)
        return height * width

    def learn(self, errors: Sequence[Array], squares: bool) -> list[Array]:
        """Sum over examples, places and errors (n, C · H · W) of what the body gives.

        Of each layer the sum of g gᵀ, (outputs, outputs); or of the squares of its gradients,
        (inputs, outputs).
        """
        from fedrepro.networks.convolution_moments import add_errors

        dtype, channels = self.x.dtype, [layer.channels for layer in self.kernels]
        starts = np.cumsum([0, *(c * row_of(c) for c in channels)])
        factors = np.zeros(0 if squares else int(starts[-1]))
        total = np.zeros(len(self.weights) * squares)
        scratch = aligned(max(len(factors), len(total)), dtype)
        for error in errors:
            c, height, width = self.parts.image
            turned = (
                error.reshape(-1, c, height, width).transpose(0, 2, 3, 1).reshape(self.seen, -1)
            )
            add_errors(
                self.body, self.weights, np.ascontiguousarray(turned), self.room, self.x, factors,
                starts, scratch, total,
            )  # fmt: skip
        if not squares:
            return [
                factors[at : at + c * row_of(c)].reshape(c, -1)[:, :c]
                for at, c in zip(starts[:-1], channels, strict=True)
            ]
        return [self._matrix(layer, total) for layer in range(len(self.kernels))]

    def _matrix(self, layer: int, flat: Array) -> Array:
        """Pick the matrix of a layer (inputs [+ 1], outputs) from a model."""
        kernel, (below, *_), _ = self.parts.convolutions[layer]
        k, c, at = kernel.kernel, kernel.channels, self.offsets[layer]
        rows = k * k * below + kernel.biased
        whole = flat[at : at + rows * row_of(c)].reshape(rows, -1)[:, :c]
        place = np.arange(k * k * below).reshape(k * k, below).T.ravel()
        return whole[[*place, *range(k * k * below, rows)]]
