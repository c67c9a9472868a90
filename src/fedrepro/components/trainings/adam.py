"""Adam and AMSGrad. Defaults are Table 1 of PFNM (MNIST)."""

from __future__ import annotations

from typing import Annotated

from fedrepro.components.trainings._numbers import (
    L2,
    Augmented,
    BatchSize,
    Bias,
    Epochs,
    Lr,
    Patience,
    Shared,
    Start,
    WeightSd,
)
from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.training.procedure import Settings


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
    augment: Augmented = "none",
    patience: Patience = 0,
) -> Settings:
    """Adam, each client from its own start. Source: PFNM, supplement Table 1 and authors' code."""
    return Settings("adam", **locals())
