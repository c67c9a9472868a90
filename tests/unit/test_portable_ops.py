"""Initial weights are NumPy's draws, and convolutions of stacks are PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrepro.core.portable_ops.torch_ops import convolved
from fedrepro.core.rng import RngKey
from fedrepro.networks.network import dense


@pytest.mark.parametrize("sizes", [(5, 3), (784, 50, 10), (3, 4, 4, 2)])
def test_networks_begin_with_what_numpy_would_draw(sizes):
    rng = RngKey(3, 1, client=2)
    generator = rng.stream("initial-weights")
    for name, value in dense(sizes).initial(rng, 0.3, 0.1).items():
        if name.startswith("bias"):
            assert (value == np.float32(0.1)).all()
        else:
            drawn = generator.normal(0.0, 0.3, value.shape).astype(np.float32)
            assert value.tobytes() == drawn.tobytes()


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_outputs_and_gradients_are_those_of_grouped_convolutions(padding, kernel):
    generator = torch.Generator().manual_seed(kernel)
    shapes = (3, 4, 2, 9, 7), (3, 5, 2, kernel, kernel)
    x, weight = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in shapes
    )
    own = convolved(x, weight, padding)
    each = zip(x, weight, strict=True)
    theirs = torch.stack([torch.conv2d(a, b, padding=padding) for a, b in each])
    torch.testing.assert_close(own, theirs)
    error = torch.randn(own.shape, generator=generator, dtype=torch.float64)
    slopes = (torch.autograd.grad(made, (x, weight), error) for made in (own, theirs))
    torch.testing.assert_close(*slopes)
