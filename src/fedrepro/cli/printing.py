"""Printing of tables and lines by commands."""

from __future__ import annotations

from rich.console import Console
from rich.table import Column, Table

console = Console(highlight=False, markup=False)
LONGEST = 10_000  # letters of a line that no terminal has to hold


def terminal_table(*columns: str) -> Table:
    """Return an empty table for the terminal with these column heads; long texts wrap."""
    return Table(*(Column(name, overflow="fold") for name in columns))


def show(table: Table) -> None:
    """Print a table as wide as the terminal, or in full width to a file or a pipe."""
    wide = Console(highlight=False, markup=False, width=LONGEST, file=console.file)
    (console if console.is_terminal else wide).print(table)


def say(line: str) -> None:
    """Print one line without wrapping it, so that it can be copied whole from a terminal."""
    console.print(line, soft_wrap=True)


def number(value: float | None) -> str:
    """Return a number as text with four significant digits, and None or nan as a dash."""
    return "–" if value is None or value != value else f"{value:.4g}"
