"""What was found out about a machine, one line each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Observation:
    """One line about a machine: `what` it is about, and what was found, in words.

    wrong: whether results cannot be trusted, or runs will fail, until it is mended.
    """

    what: str
    words: str
    wrong: bool = False


def why(error: BaseException) -> str:
    """The first line of what an error says, with its kind."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
