"""MKL is asked for products that do not depend on where matrices lie."""

from __future__ import annotations

import os

import pytest

from fedrepro import _steady_products


@pytest.mark.parametrize(
    ("flags", "before", "after"),
    [
        ("fpu avx avx2 fma", None, "AVX2"),
        ("fpu avx avx2 fma", "COMPATIBLE", "COMPATIBLE"),
        ("fpu avx avx2 avx512f", None, "AVX512"),
        ("fpu avx avx2 avx512f", "AVX2", "AVX2"),
        ("fpu avx", None, None),
    ],
)
def test_a_branch_is_named_where_it_is_needed(tmp_path, monkeypatch, flags, before, after):
    monkeypatch.delenv("MKL_CBWR", raising=False)
    if before:
        monkeypatch.setenv("MKL_CBWR", before)
    cpu = tmp_path / "cpuinfo"
    cpu.write_text(f"processor\t: 0\nflags\t\t: {flags}\nbogomips\t: 1\n")
    # a change of the copy is undone with it
    monkeypatch.setattr(os, "environ", dict(os.environ))
    _steady_products(str(cpu))
    assert os.environ.get("MKL_CBWR") == after


def test_a_machine_that_does_not_say_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("MKL_CBWR", raising=False)
    _steady_products(str(tmp_path / "none"))
    assert "MKL_CBWR" not in os.environ
