"""Stochastic gradient descent. Minibatches and starts are those of Table 1 of PFNM (MNIST)."""

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
    """Stochastic gradient descent, with heavy-ball momentum if wished."""
    return Settings("sgd", **locals())
