"""Residual networks of 8 and 20 layers, images of about 32 × 32; stage one has `width` channels."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fedrepro.core.errors import FedreproError
from fedrepro.core.spec import Arg
from fedrepro.networks.user_torch_modules import module

Norm = Annotated[
    Literal["group", "batch", "none"], Arg("normalisation: GroupNorm of 2 groups, BatchNorm, none")
]
Width = Annotated[int, Arg("channels of the first stage", "channels", least=2)]


@module("resnet20", title="ResNet-20")
def resnet20(
    shape: tuple[int, ...], classes: int, *, norm: Norm = "group", width: Width = 16
) -> Any:
    """Build ResNet-20: three stages of three residual blocks. Source: He et al., 2016, section 4.2.

    Where channels double, a 1×1 convolution is the shortcut (option B): 272,474 parameters on
    CIFAR-10.
    """
    return _made("resnet20", shape, classes, 3, norm, width)


@module("resnet8", title="ResNet-8")
def resnet8(
    shape: tuple[int, ...], classes: int, *, norm: Norm = "group", width: Width = 16
) -> Any:
    """Build ResNet-8: ResNet-20 (He et al., 2016) with one residual block in each of 3 stages."""
    return _made("resnet8", shape, classes, 1, norm, width)


def _made(
    name: str, shape: tuple[int, ...], classes: int, blocks: int, norm: Norm, width: int
) -> Any:
    if len(shape) != 3:
        said = f"model '{name}' works on images, not on inputs of shape {shape}"
        raise FedreproError(f"{said}; choose mlp or logistic, or another data set")
    if norm == "group" and width % 2:
        raise FedreproError(f"model '{name}' has GroupNorm of 2 groups: give an even width")
    from fedrepro.networks.residual import SmallResNet

    return SmallResNet(shape[0], classes, blocks, width, norm)
