"""One exception for everything a person can mend: a sentence that says what, where and how."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedreproError(Exception):
    """A sentence for people. The command line prints it without a traceback and exits 2."""


def unknown(what: str, name: str, known: Iterable[str], where: str = "") -> FedreproError:
    """The error for a name that is not among `known`: it names the nearest one and all others."""
    options = sorted(known)
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    place = f" in {where}" if where else ""
    return FedreproError(
        f"unknown {what} '{name}'{place}: {hint}known are {', '.join(options) or 'none'}"
    )
