"""Finished runs that were brought from another machine stand in for those that are not here."""

from __future__ import annotations

from pathlib import Path

RESULTS = "results/"
BROUGHT = ".fedrepro/runs/"  # where `fedrepro restore` puts what lay in results


def brought(path: str) -> str:
    """Where a file of results goes that was brought."""
    return BROUGHT + path.removeprefix(RESULTS)


def at_hand(path: str, root: Path = Path()) -> str:
    """The file of results, or the one that was brought if only that is there.

    root: the working folder that both are named from.
    """
    other = brought(path)
    return other if (root / other).exists() and not (root / path).exists() else path
