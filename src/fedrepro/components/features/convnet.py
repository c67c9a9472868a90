"""Features of a small convolutional network that is trained for it (GEMS, appendix B.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import numpy as np

from fedrepro.components.features._images import (
    best_device,
    channels_rows_columns,
    tensor_of,
    through,
)
from fedrepro.core.errors import FedreproError
from fedrepro.core.portable_ops.torch_ops import portable_affine
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.prepared import Arrays
from fedrepro.data.stratify import stratified_sample

if TYPE_CHECKING:
    import torch

FILTERS = (32, 64, 128)
HIDDEN = 512


@register("feature", "convnet", version=2)
def convnet(
    images: Arrays,
    *,
    share: Annotated[
        float, Arg("share of the training examples to train on", above=0, most=1)
    ] = 0.66,
    epochs: Annotated[int, Arg("passes over them", least=1)] = 10,
    lr: Annotated[float, Arg("step size of Adam", above=0)] = 1e-3,
    batch: Annotated[int, Arg("examples per step", least=1)] = 32,
) -> Mapping[str, np.ndarray]:
    """Three convolutions trained on 66 % of the training data, cut before the last two layers.

    GEMS, appendix B.1: 3×3 kernels with 32, 64 and 128 filters, each with ReLU and 2×2 max pooling,
    then a dense layer of 512 and the output; the two dense layers are cut off, which leaves 128
    values for each place of the last pooling. The text trains on "66 % of the data": here of the
    training split alone, drawn by class, so that nothing of validation and test is seen. It gives
    no padding (none here, as Keras has it), step size, batch size or number of epochs: those of its
    own networks (Adam, 0.001, 32), and ten passes. Seeded; the draw does not depend on a run.
    Shapes: {split: float32 (N, 128·h·w)}.
    """
    import torch

    device = best_device()
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(int(RngKey(0).stream("convnet-start").integers(2**62)))
        trunk, head = _network(images)
        _train(trunk, head, images, _rows(images, share), epochs, lr, batch, device)
    return through(trunk, images, device)


def _rows(images: Arrays, share: float) -> np.ndarray:
    labels = images.y["train"]
    count = max(1, round(share * labels.size))
    generator = RngKey(0).stream("convnet-share")
    return stratified_sample(labels, count, len(images.classes), generator)[0]


def _network(images: Arrays) -> tuple[torch.nn.Module, torch.nn.Module]:
    from torch import Tensor, nn

    class Dense(nn.Linear):
        """A linear layer by products that have the same bytes on other processors."""

        def forward(self, x: Tensor) -> Tensor:
            return portable_affine(x[None], self.weight.T[None], self.bias[None])[0]

    channels, *sides = channels_rows_columns(images)
    trunk = nn.Sequential()
    for filters in FILTERS:
        trunk.extend([nn.Conv2d(channels, filters, 3), nn.ReLU(), nn.MaxPool2d(2)])
        channels, sides = filters, [(side - 2) // 2 for side in sides]
    if min(sides) < 1:
        raise FedreproError(
            f"features 'convnet' need images of at least 22×22 pixels, not {images.shape}: "
            "choose larger ones, or leave `features` out"
        )
    places = channels * sides[0] * sides[1]
    head = nn.Sequential(
        nn.Flatten(), Dense(places, HIDDEN), nn.ReLU(), Dense(HIDDEN, len(images.classes))
    )
    return trunk, head


def _train(
    trunk: torch.nn.Module,
    head: torch.nn.Module,
    images: Arrays,
    rows: np.ndarray,
    epochs: int,
    lr: float,
    batch: int,
    device: str,
) -> None:
    import torch

    network = torch.nn.Sequential(trunk, head).to(device)
    # fused: other kinds take roots by MKL
    optimiser = torch.optim.Adam(network.parameters(), lr=lr, fused=True)
    generator = RngKey(0).stream("convnet-order")
    for _ in range(epochs):
        order = generator.permutation(rows)
        for first in range(0, order.size, batch):
            chosen = order[first : first + batch]
            outputs = network(tensor_of(images, "train", chosen, device))
            labels = torch.from_numpy(images.y["train"][chosen]).to(device)
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(outputs, labels).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
