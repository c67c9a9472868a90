"""How models are fine-tuned on a public sample: the key `tune` of an exhibit's method.

As a token it is `tune+examples~100@1000+repetitions~5`, one setting for each value of a list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fedrepro.core.spec import Arg, Component, Spec

KIND = "tune"


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """Parameters of fine-tuning a method's final model on a labelled sample at the server."""

    examples: Annotated[
        int, Arg("size of the public sample, drawn from all validation examples", least=1)
    ] = 1000
    repetitions: Annotated[int, Arg("samples of each size, each of a new tuning", least=1)] = 1
    epochs: Annotated[int, Arg("passes over the sample", "epochs", least=1)] = 5
    lr: Annotated[float, Arg("step size, in the place of the local training's", above=0)] = 0.01
    layers: Annotated[
        Literal["all", "last"], Arg("what moves: all layers, or the output layer alone")
    ] = "all"
    patience: Annotated[
        int,
        Arg(
            "epochs without a rise of running accuracy on the sample that end it, 0 for none",
            "epochs",
            least=0,
        ),
    ] = 0


TUNE = Component(KIND, "tune", 1, FineTuning)


def finetuning_of(spec: Spec) -> FineTuning:
    """Return the parameters of fine-tuning in `spec`, one value each, as a FineTuning object."""
    return spec.component.make(FineTuning, **spec.single().values)
