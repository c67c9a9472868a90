"""How many models train together: as many as the cache holds, or the memory of a GPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedrepro.networks.layers import Convolution2d
from fedrepro.training.procedure import Procedure

if TYPE_CHECKING:
    import torch

# What a step reads and writes should stay in the last cache level: weights, gradients and three
# optimiser states.
CPU_BLOCK_BYTES = 8 * 2**20
BUFFERS = 5
# activations wait for the backward pass beside their gradients, and kernels need room of their own
SEEN_AT_ONCE = 3


def block_size(procedure: Procedure, size: int, device: torch.device, models: int) -> int:
    """Models of so many floats per block: what fits the cache on the CPU, or half the free memory
    of the GPU. Blocks are made equally large, because a small one costs nearly as many kernels.
    A GPU holds the activations of a whole block as well.
    """
    import torch

    each = BUFFERS * size * 4
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        most = max(1, free // 2 // (each + SEEN_AT_ONCE * activations(procedure) * 4))
    else:
        most = max(1, CPU_BLOCK_BYTES // each)
    blocks = -(-models // most)
    return -(-models // blocks)


def activations(procedure: Procedure) -> int:
    """Floats of one model's activations in a step, windows of convolutions included."""
    places = procedure.network.places
    outputs = sum(math.prod(layer.output(shape)) for layer, shape, _ in places)
    windows = sum(
        shape[0] * layer.kernel**2 * math.prod(layer.output(shape)[1:])
        for layer, shape, _ in places
        if isinstance(layer, Convolution2d)
    )
    return procedure.rows * (outputs + windows)
