"""Multilayer perceptron with ReLU and a softmax output, of any depth."""

from __future__ import annotations

from typing import Annotated

from fedrepro.models.dense import Dense
from fedrepro.registry import register
from fedrepro.spec import Arg


@register("model", "mlp", version=1, title="multilayer perceptron")
def mlp(
    inputs: int,
    classes: int,
    *,
    hidden: Annotated[tuple[int, ...], Arg("units of each hidden layer", "units", least=1)] = (50,),
) -> Dense:
    """Fully connected ReLU layers. Source: PFNM, section 3 (one hidden layer of 50 units)."""
    return Dense((inputs, *hidden, classes))
