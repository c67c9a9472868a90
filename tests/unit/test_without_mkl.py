"""That nothing goes by MKL, which tests of golden numbers ask, is asked in a way that sees it."""

from __future__ import annotations

import torch
from asked import asked_of_mkl, by_mkl


def test_a_product_by_mkl_would_be_seen():
    with asked_of_mkl() as found:
        one = torch.ones(4, 4)
        one @ one
        one.exp()
    assert found == ["SGEMM", "aten::exp"]
    with asked_of_mkl() as found:
        one + one
    assert found == []


def test_a_root_by_mkl_would_be_seen():
    asked = {"pow": (1.0, 0.5), "sqrt_": (1.0,), "exp": (1.0,)}
    assert all(by_mkl(f"aten::{name}", words) for name, words in asked.items())
    other = {"pow": (1.0, 1.5), "mul": (1.0, 0.5)}
    assert not any(by_mkl(f"aten::{name}", words) for name, words in other.items())
