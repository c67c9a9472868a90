"""Local training by Adam, AMSGrad and SGD. Defaults are from Table 1 of PFNM (MNIST), and its code.

Initial weights are normal with deviation weight_sd, biases are `bias`, unless `init` is fan_in or
glorot. `l2` weighs half the squared norm in the loss. `augment` crop_flip crops and mirrors images.
A client stops after `patience` epochs without a rise of its training accuracy (0: never).
"""

from __future__ import annotations

from typing import Annotated

from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.networks.network import Init
from fedrepro.training.training_settings_and_procedures import Augment, Settings

Lr = Annotated[float, Arg("learning rate", above=0)]
L2 = Annotated[
    float, Arg("coefficient of half the squared norm of all parameters, in the loss", least=0)
]
BatchSize = Annotated[
    int | None, Arg("minibatch size, none for all of a client's data", "examples", least=1)
]
Epochs = Annotated[int, Arg("passes over a client's data", "epochs", least=1)]
WeightSd = Annotated[float, Arg("standard deviation of the initial weights", least=0)]
Bias = Annotated[float, Arg("initial biases")]
Start = Annotated[
    Init,
    Arg(
        "initial weights. normal: by weight_sd and bias; fan_in: uniform within ±1/√inputs, "
        "biases too; glorot: uniform within ±√(6/(inputs + outputs)), biases by bias"
    ),
]
Augmented = Annotated[
    Augment,
    Arg("crop_flip: random crops within 4 pixels of zeros around an image, and mirror images"),
]
Patience = Annotated[
    int,
    Arg(
        "a client stops after this many epochs without a rise of its training accuracy, 0 for "
        "never",
        "epochs",
        least=0,
        later=True,
    ),
]
Shared = Annotated[bool, Arg("every client of a trial starts from the same weights")]


@register("training", "adam", version=1, title="Adam")
def adam(
    *,
    lr: Lr = 0.01,
    l2: L2 = 1e-6,
    batch_size: BatchSize = 32,
    epochs: Epochs = 10,
    amsgrad: Annotated[bool, Arg("use AMSGrad, as the authors' code does")] = True,
    beta1: Annotated[float, Arg("decay of the mean gradient", least=0, most=1)] = 0.9,
    beta2: Annotated[float, Arg("decay of the mean of squared gradients", least=0, most=1)] = 0.999,
    eps: Annotated[float, Arg("number added to the denominator of a step", above=0)] = 1e-8,
    weight_sd: WeightSd = 0.1,
    bias: Bias = 0.1,
    shared_init: Shared = False,
    init: Start = "normal",
    augment: Augmented = "none",
    patience: Patience = 0,
) -> Settings:
    """Train by Adam, each client from its own random start weights unless `shared_init`."""
    return Settings("adam", **locals())


@register("training", "sgd", version=1, title="SGD")
def sgd(
    *,
    lr: Lr = 0.1,
    l2: L2 = 0.0,
    batch_size: BatchSize = 32,
    epochs: Epochs = 10,
    momentum: Annotated[float, Arg("heavy-ball momentum", least=0, most=1)] = 0.0,
    weight_sd: WeightSd = 0.1,
    bias: Bias = 0.1,
    shared_init: Shared = False,
    init: Start = "normal",
    augment: Augmented = "none",
    patience: Patience = 0,
) -> Settings:
    """Train by stochastic gradient descent, with heavy-ball `momentum` if it is not 0."""
    return Settings("sgd", **locals())
