"""`fedrepro bench NAME`: the benchmarks of a clone, each a script of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fedrepro.core.errors import FedreproError, unknown

FOLDER = Path("benchmarks")


def names() -> list[str]:
    """The scripts that say how they are run as a benchmark."""
    return [
        path.stem
        for path in sorted(FOLDER.glob("*.py"))
        if f"fedrepro bench {path.stem}" in path.read_text()
    ]


def run_benchmark(name: str, words: Sequence[str]) -> int:
    """Run one benchmark in its own process; its exit status is 1 if it misses a target."""
    if not FOLDER.is_dir():
        raise FedreproError(f"there is no folder {FOLDER}; start in the root of the repository")
    if name not in names():
        raise unknown("benchmark", name, names())
    script = FOLDER / f"{name}.py"
    return subprocess.run([sys.executable, str(script), *words]).returncode
