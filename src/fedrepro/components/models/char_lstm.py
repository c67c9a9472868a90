"""Next-character prediction with two layers of LSTM."""

from __future__ import annotations

from typing import Annotated, Literal

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.networks.layers import Affine, EachPosition, Embedding, Layer, Lstm
from fedrepro.networks.network import Network


@register("model", "char_lstm", version=2, title="character LSTM")
def char_lstm(
    shape: tuple[int, ...],
    classes: int,
    *,
    embedding: Annotated[int, Arg("numbers in the vector of a character", least=1)] = 8,
    units: Annotated[int, Arg("units of each recurrent layer", "units", least=1)] = 256,
    layers: Annotated[int, Arg("number of recurrent layers", least=1, most=100)] = 2,
    predict: Annotated[
        Literal["last", "all"],
        Arg("the character after a window, or the next one after each of its characters"),
    ] = "last",
) -> Network:
    """Build a next-character network: embedding, LSTM layers, softmax. Source: FedAvg, section 3.

    Inputs are windows of character codes, and the codes are the classes. With predict~all, loss and
    accuracy are means over all positions of a window; windows that overlap less (`stride` of the
    data set) then contain as much information in fewer examples.
    """
    if len(shape) != 1:
        said = f"model 'char_lstm' reads windows of characters, not inputs of shape {shape}"
        raise FedreproError(f"{said}; choose mlp or cnn, or a data set of text")
    last = predict == "last"
    recurrent: list[Layer] = [Lstm(units, last and i == layers - 1) for i in range(layers)]
    if not last:
        recurrent.append(EachPosition())
    return Network(shape, (Embedding(classes, embedding), *recurrent, Affine(classes)), "recurrent")
