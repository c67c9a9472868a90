"""Observations about a machine, one line each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Observation:
    """One line about a machine: its subject `what`, and the observation in words.

    With `wrong`, results cannot be trusted or runs fail until it is fixed.
    """

    what: str
    words: str
    wrong: bool = False


def why(error: BaseException) -> str:
    """Return an error's kind and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
