"""Nothing that computes multiplies by MKL, or takes exponentials by its vector functions.

MKL says itself which products it is asked for (MKL_VERBOSE=1). Of its vector functions it does not,
so torch's operators that go by them are looked for instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fedrepro  # noqa: F401  # isort: skip  # before the libraries that it names branches to
import pytest

from fedrepro.products.exponentials import by_mkl

sys.path.insert(0, str(Path(__file__).parent))

DONE = "== "


def main() -> None:
    """Compute every component and network, and say after each what torch was asked for."""
    import ctypes

    import test_golden
    import test_golden_bytes as golden
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    torch.set_num_threads(1)
    asked: set[str] = set()

    class Asked(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if by_mkl(func._schema.name, args):
                asked.add(func._schema.name)
            return func(*args, **(kwargs or {}))

    works = {
        f"{kind} {name}": lambda kind=kind, name=name: test_golden.measured(kind, name)
        for kind, name in test_golden.ALL
        if kind != "dataset"
    }
    for model, optimiser in golden.TRAINED:
        works[f"network {model} {optimiser}"] = lambda m=model, o=optimiser: golden.trained(m, o)
    for name, work in works.items():
        asked.clear()
        with Asked():
            work()
        ctypes.CDLL(None).fflush(None)
        print(DONE + name, *sorted(asked), sep="; ", flush=True)


@pytest.fixture(scope="module")
def said() -> dict[str, list[str]]:
    """What MKL was asked for, by what was computed."""
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "MKL_VERBOSE": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in done.stdout.splitlines():
        if line.startswith(DONE):
            name, *functions = line.removeprefix(DONE).split("; ")
            found[name] = lines + functions
            lines = []
        elif line.startswith("MKL_VERBOSE") and "oneMKL" not in line:
            lines.append(line.split("(")[0].removeprefix("MKL_VERBOSE "))
    return found


def test_what_is_computed_goes_by_other_libraries(said):
    by_mkl = {name: sorted(set(lines)) for name, lines in said.items() if lines}
    assert by_mkl == {}


def test_a_product_by_mkl_would_be_seen():
    code = "import torch; a = torch.ones(4, 4); a @ a"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "MKL_VERBOSE": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "SGEMM" in done.stdout


def test_a_root_by_mkl_would_be_seen():
    asked = {"pow": (1.0, 0.5), "sqrt_": (1.0,), "exp": (1.0,)}
    assert all(by_mkl(f"aten::{name}", words) for name, words in asked.items())
    other = {"pow": (1.0, 1.5), "mul": (1.0, 0.5)}
    assert not any(by_mkl(f"aten::{name}", words) for name, words in other.items())


if __name__ == "__main__":
    main()
