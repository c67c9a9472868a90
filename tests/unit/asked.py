"""Products that torch asks MKL for, and torch's operators that go by MKL's vector functions."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# what goes by MKL's vector functions on the CPU, as torch's operators are called
BY_MKL = frozenset(
    f"aten::{name}{place}"
    for name in (
        *("acos", "asin", "atan", "erf", "erfc", "erfinv", "exp", "log", "log10", "log2"),
        *("sqrt", "tan", "trunc", "logsumexp"),
    )
    for place in ("", "_")
)


def by_mkl(operator: str, arguments: Sequence[object]) -> bool:
    of_half = operator in ("aten::pow", "aten::pow_") and list(arguments[1:2]) == [0.5]
    return operator in BY_MKL or of_half


class _Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if by_mkl(func._schema.name, args):
            self.seen.add(func._schema.name)
        return func(*args, **(kwargs or {}))


@contextmanager
def asked_of_mkl() -> Iterator[list[str]]:
    """Names of the functions and operators, which the list holds at the end."""
    found: list[str] = []
    operators = _Operators()
    with tempfile.TemporaryFile("w+") as said, _printed_to(said.fileno()):
        with torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON), operators:
            yield found
        ctypes.CDLL(None).fflush(None)
        said.seek(0)
        lines = [line for line in said if line.startswith("MKL_VERBOSE") and "oneMKL" not in line]
    found += sorted({line.split("(")[0].removeprefix("MKL_VERBOSE ") for line in lines})
    found += sorted(operators.seen)


@contextmanager
def _printed_to(descriptor: int) -> Iterator[None]:
    """What C prints goes there meanwhile."""
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    before = os.dup(1)
    os.dup2(descriptor, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(before, 1)
        os.close(before)
