"""Select the AVX2 kernels of numerical libraries, so that all CPUs with AVX2 compute equal bytes.

A command does so by environment variables when it begins, since NumPy and PyTorch read them once,
when they are loaded; its child processes inherit them. `import fedrepro` selects nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

# as the provenance of results has it
PORTABLE, NOT_PINNED = "portable", "not pinned"
BRANCHES: Mapping[str, str] = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    # the kernels of NumPy beyond X86_V3
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}
NEEDED = frozenset({"avx2", "fma"})
READERS = frozenset({"numpy", "torch"})  # which read the variables once

_taken = NOT_PINNED


def pin(cpu: str = "/proc/cpuinfo") -> str:
    """Make NumPy and PyTorch use AVX2 kernels, by environment variables; return the mode as text.

    Variables that are set stay. If NumPy or PyTorch is loaded already, none is set. If the file
    `cpu` lists no AVX2, none is set either, and our values from a parent process are removed. The
    mode is 'portable', 'not pinned' or 'portable but for NAME=VALUE', which the user had set.
    """
    global _taken  # libraries read their variables once for a process as well
    if not flags(cpu) >= NEEDED:  # a process on another machine may have set these
        for name in (name for name, due in BRANCHES.items() if os.environ.get(name) == due):
            del os.environ[name]
    unset = BRANCHES.keys() - os.environ.keys()
    if flags(cpu) >= NEEDED and not (unset and READERS & sys.modules.keys()):
        os.environ.update((name, BRANCHES[name]) for name in unset)
        other = [f"{k}={os.environ[k]}" for k, due in BRANCHES.items() if os.environ[k] != due]
        _taken = f"{PORTABLE} but for {' '.join(other)}" if other else PORTABLE
    return _taken


def active_mode() -> str:
    """Return 'portable' if `pin` selected this process's CPU kernels, else 'not pinned'.

    'portable but for NAME=VALUE' names what the user set. 'portable' processes compute equal bytes.
    """
    return _taken


@cache
def flags(cpu: str = "/proc/cpuinfo") -> frozenset[str]:
    """Return the features (avx2, fma, …) of an x86-64 processor from file `cpu`; empty if none."""
    if os.uname().machine not in ("x86_64", "AMD64"):
        return frozenset()
    with suppress(OSError), open(cpu, encoding="utf-8") as lines:  # not on a Mac
        return frozenset(next((line.split() for line in lines if line.startswith("flags")), []))
    return frozenset()
