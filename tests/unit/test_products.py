"""Products without MKL: as torch's, whatever lies transposed, alone or in company."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from fedrepro.core.portable_ops.torch_ops import (
    exponential,
    logarithm,
    multiplied,
    portable_affine,
    root,
)

SIZES = [(3, 5, 4), (1, 1, 1), (10, 600, 512), (10, 512, 600)]
KINDS = [torch.float32, torch.float64]


def drawn(*shape: int, kind: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(kind)


def close(found: torch.Tensor, wanted: torch.Tensor, inner: int) -> bool:
    """Within what sums of so many rounded terms may differ."""
    return bool(torch.allclose(found.double(), wanted.double(), rtol=1e-5, atol=2e-6 * inner))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_a_product_is_that_of_torch(kind, size, turned):
    n, k, m = size
    a = drawn(k, n, kind=kind).T if turned[0] else drawn(n, k, kind=kind)
    b = drawn(m, k, kind=kind).T if turned[1] else drawn(k, m, kind=kind)
    assert close(multiplied(a, b), a @ b, k)


@pytest.mark.parametrize("size", SIZES)
def test_a_model_has_the_same_bytes_alone_and_in_a_stack(size):
    n, k, m = size
    a, b = drawn(3, n, k, kind=torch.float32), drawn(3, m, k, kind=torch.float32).transpose(1, 2)
    whole = multiplied(a, b)
    for i in range(3):
        assert torch.equal(multiplied(a[i], b[i]), whole[i])
        assert torch.equal(multiplied(a[i : i + 1], b[i : i + 1])[0], whole[i])


def test_an_affine_map_has_the_gradients_of_its_equation_that_were_asked_for():
    given = [drawn(2, 3, 4), drawn(2, 4, 5), drawn(2, 5)]
    assert torch.autograd.gradcheck(portable_affine, [value.requires_grad_() for value in given])
    x, weight, bias = drawn(1, 3, 4), drawn(1, 4, 5).requires_grad_(), drawn(1, 5)
    portable_affine(x, weight, bias).sum().backward()
    assert x.grad is None
    assert weight.grad is not None


def test_exponentials_are_those_of_torch():
    x = torch.linspace(-30, 5, 2001)
    assert torch.allclose(exponential(x), x.exp(), rtol=4e-6)
    positive = x.exp()
    assert torch.allclose(logarithm(positive), positive.log(), rtol=1e-6, atol=1e-6)
    assert torch.equal(root(positive), positive.double().sqrt().float())
    assert torch.autograd.gradcheck(logarithm, drawn(6).abs().add(0.1).requires_grad_())


@pytest.mark.nightly
def test_of_jobs_that_need_the_same_code_one_compiles_it(tmp_path):
    code = (
        "import numpy as np; from fedrepro.training.step_arrays_and_losses import softplus\n"
        "softplus(np.ones(3), np.ones(3)); print(sum(softplus.stats.cache_misses.values()))"
    )
    given = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    start = [sys.executable, "-c", code]
    jobs = [subprocess.Popen(start, env=given, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sorted(job.communicate()[0].strip() for job in jobs) == ["0", "0", "1"]
