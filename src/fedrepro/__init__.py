"""fedrepro: which way of combining models trained on separate data works, and at what cost."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# what people call by the package's name; loaded when it is asked for
OFFERED = {"combine": "fedrepro.stages.combine", "results": "fedrepro.numbers.results"}


def _steady_products(cpu: str = "/proc/cpuinfo") -> None:
    """Let MKL give the same bytes wherever a matrix lies in memory.

    Unless a branch is named, a product can differ in its last bit from one buffer to another (found
    on AMD EPYCs with and without AVX-512), and what is trained would depend on what is trained
    beside it. MKL reads the variable at its first product, so it is set on import; one that is set
    already stays. The widest branch that the processor has is named, so no speed is lost.
    """
    try:
        with open(cpu) as lines:
            flags = next((line.split() for line in lines if line.startswith("flags")), [])
    except OSError:  # not Linux
        return
    if "avx2" in flags:
        os.environ.setdefault("MKL_CBWR", "AVX512" if "avx512f" in flags else "AVX2")


_steady_products()


def __getattr__(name: str) -> Any:
    if name not in OFFERED:
        raise AttributeError(f"module 'fedrepro' has no attribute '{name}'")
    return getattr(import_module(OFFERED[name]), name)
