"""Which branches the libraries take that compute: by them bytes differ between processors.

portable: the branches for AVX2, by name, so that every x86-64 processor that has AVX2 and FMA gives
the same bytes. native: the widest ones of this machine, which other processors may not have.

A library reads its variable once, when it is loaded or first computes, so they are set when
fedrepro is imported, by this module alone, which imports next to nothing. A variable that somebody
set stays, and the arithmetic is told with it. Elsewhere than on such a processor there is nothing
to name, and the arithmetic is native.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache

PORTABLE, NATIVE = "portable", "native"
WISH = "FEDREPRO_ARITHMETIC"  # what people may set for their own processes
OURS = "FEDREPRO_NAMED"  # the variables that were set here, for processes that inherit them
OPTION = "--arithmetic"

BRANCHES: Mapping[str, Mapping[str, str]] = {
    PORTABLE: {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        # what NumPy has beyond X86_V3
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "NUMBA_CPU_NAME": "haswell",
        # LLVM's words for X86_V3; without them Numba adds what the processor has
        "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+cx16,+f16c,+fma,+fxsr,+lzcnt,+mmx,+movbe,"
        "+popcnt,+sahf,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3,+x87,+xsave,+xsaveopt,+64bit",
    },
    NATIVE: {},
}
NEEDED = frozenset({"avx2", "fma"})
READERS = ("numpy", "torch", "numba")  # which read the variables once

_taken = NATIVE


def named(arithmetic: str | None = None, cpu: str = "/proc/cpuinfo") -> str:
    """Name the branches of an arithmetic to the libraries of this process; see `taken`.

    arithmetic: None for what FEDREPRO_ARITHMETIC says, which is portable where it is not set.
    Variables that were named here before, or by the process that started this one, are named anew.
    For another word it warns, and takes portable.
    """
    global _taken  # libraries read their variables once for a process as well
    wish = arithmetic or os.environ.get(WISH) or PORTABLE
    if wish not in BRANCHES:
        _warn(f"arithmetic is portable or native, not {wish!r}: portable is taken")
        wish = PORTABLE
    features = flags(cpu)
    branches = dict(BRANCHES[wish]) if features >= NEEDED else {}
    if wish == NATIVE and features >= NEEDED:
        # MKL's products would depend on where matrices lie, were no branch named
        branches["MKL_CBWR"] = "AVX512" if "avx512f" in features else "AVX2"
    before = {name: os.environ.get(name) for name in BRANCHES[PORTABLE]}
    ours = set(os.environ.get(OURS, "").split())
    for name in ours:
        os.environ.pop(name, None)
    named_now = [name for name in branches if name not in os.environ]
    os.environ.update((name, branches[name]) for name in named_now)
    os.environ[OURS] = " ".join(named_now)
    changed = [name for name, value in before.items() if os.environ.get(name) != value]
    loaded = [name for name in READERS if name in sys.modules]
    if changed and loaded:
        _warn(
            f"{' and '.join(loaded)} was loaded before fedrepro and has chosen how to compute, so "
            f"results are not of {wish} arithmetic and may differ in their last digits: import "
            "fedrepro first"
        )
        _taken = f"{NATIVE}, {' and '.join(loaded)} loaded before fedrepro"
        return _taken
    _taken = _in_words(wish if branches else NATIVE, branches)
    return _taken


def taken() -> str:
    """The arithmetic of this process: portable or native, and what somebody set otherwise.

    Where two processes tell the same, and portable, they give the same bytes.
    """
    return _taken


def of_words(command: Iterable[str]) -> str:
    """The arithmetic that the words of a stage ask for: portable unless they say otherwise."""
    arguments = list(command)
    at = arguments.index(OPTION) + 1 if OPTION in arguments else len(arguments)
    return arguments[at] if at < len(arguments) else PORTABLE


@cache
def flags(cpu: str = "/proc/cpuinfo") -> frozenset[str]:
    """What the kernel says that an x86-64 processor can; nothing elsewhere."""
    if os.uname().machine not in ("x86_64", "AMD64"):
        return frozenset()
    try:
        with open(cpu) as lines:
            return frozenset(next((line.split() for line in lines if line.startswith("flags")), []))
    except OSError:  # not Linux
        return frozenset()


def _in_words(wish: str, branches: Mapping[str, str]) -> str:
    other = [
        f"{name}={os.environ[name]}"
        for name in BRANCHES[PORTABLE]
        if name in os.environ and os.environ[name] != branches.get(name)
    ]
    return f"{wish} but for {' '.join(other)}" if other else wish


def _warn(sentence: str) -> None:
    import warnings

    warnings.warn(sentence, stacklevel=4)
