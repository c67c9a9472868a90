"""`fedrepro bench NAME`: the benchmarks of a checkout, each a script of its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fedrepro.core.errors import FedreproError, unknown

FOLDER = Path("benchmarks")


def names() -> list[str]:
    """List the scripts of `benchmarks` that `fedrepro bench` runs: their text has the command."""
    return [
        path.stem
        for path in sorted(FOLDER.glob("*.py"))
        if f"fedrepro bench {path.stem}" in path.read_text(encoding="utf-8")
    ]


def require_clone() -> None:
    """Refuse to go on outside a checkout: the package has no benchmarks."""
    if not FOLDER.is_dir():
        raise FedreproError(
            f"the folder {FOLDER} is missing: only a checkout has the benchmarks; start in its root"
        )


def overview() -> str:
    """List every benchmark with the first sentence of its script."""
    require_clone()
    lines = ["Usage: fedrepro bench NAME [OPTIONS]; bench NAME --help says what it measures.", ""]
    for name in names():
        docstring = (
            ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))) or ""
        )
        lines.append(f"  {name:11} {' '.join(docstring.split(chr(10) * 2)[0].split())}")
    return "\n".join(lines)


def run_benchmark(name: str, arguments: Sequence[str]) -> int:
    """Run one benchmark in its own process; its exit status is 1 if it misses a target."""
    require_clone()
    if name not in names():
        raise unknown("benchmark", name, names())
    script = FOLDER / f"{name}.py"
    return subprocess.run([sys.executable, str(script), *arguments]).returncode
