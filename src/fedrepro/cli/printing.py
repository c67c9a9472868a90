"""Printing of tables and lines by commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import HEAVY_HEAD, SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

console = Console(highlight=False, markup=False)
LONGEST = 10_000  # letters of a line that no terminal has to hold


def show(heads: Sequence[str], rows: Iterable[Sequence[str]], *, narrow: bool = False) -> None:
    """Print a table with column `heads`, as wide as the terminal; at full width to a file or pipe.

    Long texts wrap; if `narrow`, in the first column alone, and without lines around cells.
    """
    first, *others = (Column(name, overflow="fold") for name in heads)
    for column in others:
        column.no_wrap = narrow  # words go on in the next line, not numbers
    table = Table(first, *others, box=SIMPLE_HEAD if narrow else HEAVY_HEAD)
    for row in rows:
        table.add_row(*row)
    wide = Console(highlight=False, markup=False, width=LONGEST, file=console.file)
    (console if console.is_terminal else wide).print(table)


def say(*lines: str) -> None:
    """Print each line without wrapping it, so that it can be copied whole from a terminal."""
    for line in lines:
        console.print(line, soft_wrap=True)


def number(value: float | None) -> str:
    """Return a number as text with four significant digits, and None or nan as a dash."""
    return "–" if value is None or value != value else f"{value:.4g}"
