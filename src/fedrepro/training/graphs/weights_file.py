"""Weights in a csv file: a line for each node, numbers joined by commas."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedrepro.core.errors import FedreproError, shown


def read_graph(path: Path) -> list[list[float]]:
    """Read the numbers of each line.

    Raises:
        FedreproError: For a missing or a garbled file.
    """
    try:
        text = _bytes(path).decode()
    except UnicodeDecodeError:
        raise FedreproError(
            f"{path} is not a text of numbers; write a line for each node"
        ) from None
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise FedreproError(f"{path} is empty; write a line for each node, such as 0.25,0.75")
    return [
        [_number(cell, path, line) for cell in text.split(",")]
        for line, text in enumerate(lines, start=1)
    ]


def checksum_of_graph(path: Path) -> str:
    """Return the SHA-256 of a file, as a spec has it.

    Raises:
        FedreproError: For a file that cannot be read.
    """
    return f"sha256:{hashlib.sha256(_bytes(path)).hexdigest()}"


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        names = ", ".join(sorted(file.stem for file in path.parent.glob("*.csv"))) or "none"
        raise FedreproError(f"{path} is missing; graphs there are {names}") from None
    except OSError as error:
        raise FedreproError(f"{path} cannot be read ({error.strerror})") from None


def _number(cell: str, path: Path, line: int) -> float:
    try:
        return float(cell)
    except ValueError:
        raise FedreproError(
            f"{path}, line {line}: {shown(cell.strip())} is not a number; lines are numbers joined "
            "by commas"
        ) from None
