"""Training procedures: what a client does with its data. Defaults are Table 1 of PFNM (MNIST)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fedrepro.core.registry import register
from fedrepro.core.spec import Arg, Spec
from fedrepro.networks.network import Init

Lr = Annotated[float, Arg("step size", above=0)]
L2 = Annotated[
    float, Arg("coefficient of half the squared norm of all parameters, in the loss", least=0)
]
BatchSize = Annotated[int, Arg("minibatch size", "examples", least=1)]
Epochs = Annotated[int, Arg("passes over a client's data", "epochs", least=1)]
WeightSd = Annotated[float, Arg("standard deviation of the initial weights", least=0)]
Bias = Annotated[float, Arg("initial biases")]
Start = Annotated[
    Init,
    Arg("normal: by weight_sd and bias; fan_in: uniform within one over the root of the inputs"),
]
Shared = Annotated[bool, Arg("every client of a trial starts from the same weights")]


@dataclass(frozen=True)
class Settings:
    """A training procedure with all its numbers; `optimiser` is adam or sgd."""

    optimiser: str
    lr: float
    l2: float
    batch_size: int
    epochs: int
    weight_sd: float
    bias: float
    shared_init: bool
    init: Init = "normal"
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    amsgrad: bool = False
    momentum: float = 0.0


@register("training", "adam", version=1, title="Adam")
def adam(
    *,
    lr: Lr = 0.01,
    l2: L2 = 1e-6,
    batch_size: BatchSize = 32,
    epochs: Epochs = 10,
    amsgrad: Annotated[bool, Arg("AMSGrad, as in the authors' code")] = True,
    beta1: Annotated[float, Arg("decay of the first moment", least=0, most=1)] = 0.9,
    beta2: Annotated[float, Arg("decay of the second moment", least=0, most=1)] = 0.999,
    eps: Annotated[float, Arg("added to the denominator", above=0)] = 1e-8,
    weight_sd: WeightSd = 0.1,
    bias: Bias = 0.1,
    shared_init: Shared = False,
    init: Start = "normal",
) -> Settings:
    """Adam, each client from its own start. Source: PFNM, supplement Table 1 and authors' code."""
    return Settings(
        optimiser="adam",
        lr=lr,
        l2=l2,
        batch_size=batch_size,
        epochs=epochs,
        weight_sd=weight_sd,
        bias=bias,
        shared_init=shared_init,
        init=init,
        beta1=beta1,
        beta2=beta2,
        eps=eps,
        amsgrad=amsgrad,
    )


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
) -> Settings:
    """Stochastic gradient descent, with heavy-ball momentum if wished."""
    return Settings(
        optimiser="sgd",
        lr=lr,
        l2=l2,
        batch_size=batch_size,
        epochs=epochs,
        weight_sd=weight_sd,
        bias=bias,
        shared_init=shared_init,
        init=init,
        momentum=momentum,
    )


def settings_of(training: Spec) -> Settings:
    """The numbers of a training spec."""
    found = training.component.fn(**training.values)
    assert isinstance(found, Settings)
    return found
