"""Numbers that several training procedures have."""

from __future__ import annotations

from typing import Annotated

from fedrepro.core.spec import Arg
from fedrepro.networks.network import Init
from fedrepro.training.procedure import Augment

Lr = Annotated[float, Arg("step size", above=0)]
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
        "normal: by weight_sd and bias; fan_in: uniform within one over the root of the inputs; "
        "glorot: uniform within the root of six over inputs and outputs, biases by bias"
    ),
]
Augmented = Annotated[
    Augment,
    Arg("crop_flip: random crops within 4 pixels of zeros around an image, and mirror images"),
]
Patience = Annotated[
    int,
    Arg(
        "epochs without a rise of its running training accuracy after which a client stops, 0 for "
        "never",
        "epochs",
        least=0,
        later=True,
    ),
]
Shared = Annotated[bool, Arg("every client of a trial starts from the same weights")]
