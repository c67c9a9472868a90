"""Convolutional networks: convolutions with ReLU and pooling, then fully connected layers."""

from __future__ import annotations

from typing import Annotated, Literal

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.networks.layers import Affine, Convolution2d, Dropout, Layer, MaxPool, Relu
from fedrepro.networks.network import Network


@register("model", "cnn", version=2, title="convolutional network")
def cnn(
    shape: tuple[int, ...],
    classes: int,
    *,
    channels: Annotated[
        tuple[int, ...], Arg("output channels of each convolution", "channels", least=1)
    ] = (32, 64),
    kernel: Annotated[int, Arg("side of the convolutions' kernels", "pixels", least=1)] = 5,
    padding: Annotated[
        Literal["same", "valid"], Arg("same: zeros around an image keep its size; valid: none")
    ] = "same",
    pool_every: Annotated[int, Arg("convolutions before each 2×2 max-pooling", least=1)] = 1,
    pools: Annotated[
        int | None, Arg("number of 2×2 max-poolings, none for as many as fit", least=0, later=True)
    ] = None,
    hidden: Annotated[
        tuple[int, ...] | None,
        Arg("units of each fully connected hidden layer, none for no such layer", "units", least=1),
    ] = (512,),
    dropout: Annotated[
        float, Arg("dropout of fully connected hidden units", least=0, most=0.95)
    ] = 0.0,
    bias: Annotated[bool, Arg("whether layers have biases", later=True)] = True,
) -> Network:
    """Build a convolutional network: convolutions with ReLU, max pooling, fully connected layers.

    Networks of papers, written with changed parameters, in which @ joins the values of a list:
    cnn: FedAvg on MNIST (section 3; 1,663,370 parameters).
    cnn+hidden~1024: RM on CIFAR-10 (section 4, which does not state the padding).
    cnn+channels~64@64@64@64+hidden~1024+kernel~3+pool_every~2: RM on keywords.
    cnn+channels~32@64@128+kernel~3: GEMS, appendix B.1.
    cnn+hidden~128+kernel~3+padding~valid+pool_every~2: Apple's pfl on CIFAR-10 (1,626,442).
    cnn+channels~128@128@128+hidden~none+kernel~3+padding~valid+pools~2: DENSE's code on CIFAR-10.
    cnn+bias~false+channels~6@16+hidden~120@84+padding~valid: FedFisher's LeNet (44,190 parameters
    on images of 28 × 28).
    """
    image = (1, *shape) if len(shape) == 2 else shape
    if len(image) != 3:
        said = f"model 'cnn' works on images, not on inputs of shape {shape}"
        raise FedreproError(f"{said}; choose mlp or logistic, or another data set")
    if padding == "same" and kernel % 2 == 0:
        said = f"model 'cnn' keeps the size of images with odd kernels alone, not with {kernel}"
        raise FedreproError(f"{said}: give another kernel, or padding~valid")
    layers: list[Layer] = []
    for place, count in enumerate(channels, start=1):
        edge = kernel // 2 if padding == "same" else 0
        layers += [Convolution2d(count, kernel, edge, bias), Relu()]
        if place % pool_every == 0 and (pools is None or place // pool_every <= pools):
            layers.append(MaxPool())
    for units in hidden or ():
        layers += [Affine(units, bias), Relu()]
        if dropout:
            layers.append(Dropout(dropout))
    network = Network(image, (*layers, Affine(classes, bias)), "convolutional")
    if min(min(layer.output(at)) for layer, at, _ in network.places) < 1:
        said = f"model 'cnn' leaves nothing of images of {image[1]}×{image[2]} pixels"
        raise FedreproError(f"{said}: use fewer convolutions, a smaller kernel, or padding~same")
    return network
