"""Training procedures: what a client does with its data, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrepro.core.spec import Spec
from fedrepro.networks.network import Init

Augment = Literal["none", "crop_flip"]


@dataclass(frozen=True)
class Settings:
    """A training procedure with all its numbers; `optimiser` is adam or sgd.

    batch_size: None takes all of a client's examples in each step. augment: crop_flip trains on
    random crops and mirror images (`augment.py`). patience: epochs without a rise of its running
    training accuracy after which a client stops, 0 for never (`stopping.py`).
    """

    optimiser: str
    lr: float
    l2: float
    batch_size: int | None
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
    augment: Augment = "none"
    patience: int = 0

    @property
    def remembered(self) -> tuple[str, ...]:
        """Names of the buffers that the optimiser goes on with."""
        if self.optimiser == "sgd":
            return ("velocity",) if self.momentum else ()
        return ("first", "second", "largest") if self.amsgrad else ("first", "second")


def settings_of(training: Spec) -> Settings:
    """Read the numbers of a training spec."""
    settings = training.component.fn(**training.values)
    assert isinstance(settings, Settings)
    return settings
