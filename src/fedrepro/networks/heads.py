"""Networks in two: hidden layers that stay as they are, and output layers above them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.networks.layers import Affine, Dropout, Relu
from fedrepro.networks.network import Network


def split(network: Network) -> tuple[Network, Network]:
    """Split a network: its hidden layers, and its output layer as a network on their output.

    Dropout before the output layer belongs to the latter, whose tensors have the number 0.

    Raises:
        FedreproError: For a network that does not end in an affine map.
    """
    if not isinstance(network.layers[-1], Affine) or network.predictions > 1:
        raise FedreproError(
            f"the last layer of this {network.kind} network is not an affine map of what the "
            "others give, so it cannot be trained alone; train all layers"
        )
    cut = len(network.layers) - 1
    while cut and isinstance(network.layers[cut - 1], Dropout):
        cut -= 1
    hidden = replace(network, layers=network.layers[:cut])
    return hidden, Network(network.places[-1][1], network.layers[cut:], network.kind)


def hidden_layers(inputs: int, body: Mapping[str, np.ndarray]) -> Network:
    """Make fully connected ReLU layers of these tensors, (1, *shape) each.

    Raises:
        FedreproError: For tensors that are not such layers on `inputs` numbers.
    """
    width, widths = inputs, []
    for place in range(max(1, len(body) // 2)):
        weight, bias = (body.get(f"{name}{place}") for name in ("weight", "bias"))
        if weight is None or bias is None or weight.shape != (1, width, bias.shape[-1]):
            shapes = {name: value.shape for name, value in body.items()}
            raise FedreproError(
                f"hidden layers {shapes} are not fully connected layers of one network on {inputs} "
                "inputs: give weight0 (1, inputs, units), bias0 (1, units), weight1 and so on"
            )
        width = bias.shape[-1]
        widths.append(width)
    layers = tuple(layer for units in widths for layer in (Affine(units), Relu()))
    return Network((inputs,), layers)
