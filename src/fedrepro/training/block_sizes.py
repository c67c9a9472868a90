"""How many models train together: as many as the cache holds, or the memory of a GPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedrepro.core.gpus import slots
from fedrepro.networks.layers import Convolution2d
from fedrepro.networks.torch_modules import OwnModule
from fedrepro.training.flat_layout import Layout
from fedrepro.training.procedure import Procedure

if TYPE_CHECKING:
    import torch

BUFFERS = 5  # weights, gradients and three optimiser states
# activations wait for the backward pass with their gradients, and kernels need room of their own
SEEN_AT_ONCE = 3


def block_size(procedure: Procedure, device: torch.device, models: int) -> int:
    """Count the models of a block: one on the CPU, or what fits half of a job's share of the GPU.

    Blocks are made equally large, because a small one costs nearly as many kernels. A GPU holds the
    activations of a whole block as well. All of its memory counts and not what is free, so that a
    run that goes on is cut as before.
    """
    import torch

    if device.type != "cuda":
        return 1
    each = 4 * (BUFFERS * Layout(procedure.shapes).size + SEEN_AT_ONCE * activations(procedure))
    _, memory = torch.cuda.mem_get_info(device)
    most = max(1, memory // slots() // 2 // each)
    return -(-models // -(-models // most))


def activations(procedure: Procedure) -> int:
    """Floats of one model's activations in a step, windows of convolutions included.

    Terms of the loss are taken to hold as many again.
    """
    places = procedure.network.places
    outputs = sum(
        layer.held if isinstance(layer, OwnModule) else math.prod(layer.output(shape))
        for layer, shape, _ in places
    )
    windows = sum(
        shape[0] * layer.kernel**2 * math.prod(layer.output(shape)[1:])
        for layer, shape, _ in places
        if isinstance(layer, Convolution2d)
    )
    return procedure.rows * (outputs + windows) * (2 if procedure.losses else 1)
