"""`fedrepro bench NAME`: the benchmarks of a clone, each a script of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fedrepro.errors import FedreproError, unknown

FOLDER = Path("benchmarks")
NAMES = ("training", "matching", "rounds", "planning", "memory", "quick")


def run_benchmark(name: str, words: Sequence[str]) -> int:
    """Run one benchmark in its own process; its exit status is 1 if it misses a target."""
    if name not in NAMES:
        raise unknown("benchmark", name, NAMES)
    script = FOLDER / f"{name}.py"
    if not script.is_file():
        raise FedreproError(f"there is no {script}; start in the root of the repository")
    return subprocess.run([sys.executable, str(script), *words]).returncode
