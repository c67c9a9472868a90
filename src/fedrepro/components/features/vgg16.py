"""Features of VGG-16 trained on ImageNet.

K. Simonyan, A. Zisserman. Very deep convolutional networks for large-scale image recognition.
ICLR 2015.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import numpy as np

from fedrepro.components.features._images import best_device, channels_rows_columns, through
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.data.prepared import Arrays

if TYPE_CHECKING:
    import torch

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


@register("feature", "vgg16", version=1)
def vgg16(
    images: Arrays,
    *,
    size: Annotated[
        int, Arg("side to which images are resized first", unit="pixels", least=32)
    ] = 32,
) -> Mapping[str, np.ndarray]:
    """The convolutional part of VGG-16 with ImageNet weights from torchvision.

    GEMS, appendix B.1, for CIFAR-10; layer and input size are not given there. Here: everything
    before the dense layers, for images of 32×32 as they are, which gives 512 values. Grey images
    count as three equal channels. Shapes: {split: float32 (N, 512·(size/32)²)}.
    Errors: FedreproError for data that are not images, or if the weights cannot be had.
    """
    channels_rows_columns(images)
    return through(_network(_weights(), size), images, best_device())


def _weights() -> Mapping[str, torch.Tensor]:
    """The ImageNet weights: from torch's own cache of files, or else its server."""
    import torch
    from torchvision.models import VGG16_Weights

    try:
        state: Mapping[str, torch.Tensor] = VGG16_Weights.IMAGENET1K_V1.get_state_dict(
            progress=False, check_hash=True
        )
    except (OSError, RuntimeError) as error:
        url = VGG16_Weights.IMAGENET1K_V1.url
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FedreproError(
            f"the ImageNet weights of VGG-16 cannot be had ({reason}): go online, or put "
            f"{url.rsplit('/', 1)[1]} from {url} into {torch.hub.get_dir()}/checkpoints, "
            "and start again"
        ) from error
    return state


def _network(state: Mapping[str, torch.Tensor], size: int) -> torch.nn.Module:
    import torch
    from torchvision import models
    from torchvision.transforms import v2

    # without memory at first: the dense layers are 90 % of the weights, and not used
    with torch.device("meta"):
        part = models.vgg16(init_weights=False).features
    weights = {
        k.removeprefix("features."): v for k, v in state.items() if k.startswith("features.")
    }
    part.load_state_dict(weights, assign=True)
    return torch.nn.Sequential(
        v2.Resize((size, size), antialias=True),
        v2.Lambda(lambda batch: batch.expand(-1, 3, -1, -1)),
        v2.Normalize(MEAN, DEVIATION),
        part,
    )
