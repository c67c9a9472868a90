"""Images as extractors read them: batches of tensors, on the GPU if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.data.prepared import SPLITS, Arrays

if TYPE_CHECKING:
    import torch

BATCH = 256


def channels_rows_columns(images: Arrays) -> tuple[int, int, int]:
    """Return the shape of one image with its channels first.

    Raises:
        FedreproError: If the examples are not images.
    """
    shape = images.shape if len(images.shape) == 3 else (1, *images.shape)
    if images.kind != "image" or len(shape) != 3:
        raise FedreproError(
            f"features are made of images, not of {images.kind} of shape {images.shape}: "
            "leave `features` out for this data set"
        )
    return shape[0], shape[1], shape[2]


def best_device() -> str:
    """cuda if there is a GPU, else cpu: features are computed once, and worth it."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def tensor_of(images: Arrays, split: str, rows: np.ndarray, device: str) -> torch.Tensor:
    """Images of a split in [0, 1]: float32 (rows, channels, height, width)."""
    import torch

    picked = np.asarray(images.x[split][rows], np.float32) / np.float32(images.scale)
    shaped = picked.reshape(len(rows), *channels_rows_columns(images))
    return torch.from_numpy(shaped).to(device)


def through(network: torch.nn.Module, images: Arrays, device: str) -> dict[str, np.ndarray]:
    """Pass every image through the network, batch by batch: {split: float32 (N, D)}."""
    import torch

    network.to(device).eval()

    def of_split(split: str) -> Iterator[np.ndarray]:
        count = len(images.x[split])
        # an empty split goes through as an empty batch, so that its width is right
        for first in range(0, max(count, 1), BATCH):
            rows = np.arange(first, min(first + BATCH, count))
            yield network(tensor_of(images, split, rows, device)).flatten(1).cpu().numpy()

    with torch.inference_mode():
        return {split: np.concatenate(list(of_split(split))) for split in SPLITS}
