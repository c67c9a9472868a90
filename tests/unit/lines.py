"""Which lines of src the tests run, in all workers of a run, counted by SlipCover.

Counting costs a few percent, where coverage.py costs a quarter on Python 3.11. Processes that a
test starts are not counted.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TextIO

import slipcover

SOURCES = Path(__file__).parents[2] / "src"
# what Numba compiles is not run by Python, and it cannot read what has probes in it
COMPILED = re.compile(
    r"^@inner\b|\bnumba\.(njit|cfunc)\b|\bby_address\(|= compiled\(|\(compiled,|^@overload",
    re.MULTILINE,
)
OMIT = [
    str(path)
    for path in SOURCES.rglob("*.py")
    if COMPILED.search(path.read_text()) or path.match("core/portable_ops/padding_and_alignment.py")
]
NOT_MEANT_TO_RUN = ["raise NotImplementedError", r"\.\.\.$"]


class Counter:
    """Counts from now on, in modules that are imported later."""

    def __init__(self, whole: bool) -> None:
        """whole: files that are never imported count as well."""
        source = [str(SOURCES)]
        self.counted = slipcover.Slipcover(
            source=source if whole else None, omit=OMIT, exclude_also=NOT_MEANT_TO_RUN
        )
        matcher = slipcover.FileMatcher(sources=source, omit=OMIT)
        slipcover.ImportManager(self.counted, matcher).__enter__()
        self.others: list[str] = []
        self.add = self.others.append  # what another process counted

    def found(self) -> str:
        return json.dumps(self.counted.get_coverage())

    def together(self) -> dict[str, Any]:
        merged: dict[str, Any] = self.counted.get_coverage()
        for found in self.others:
            slipcover.merge_coverage(merged, json.loads(found))
        return merged


def percent(counted: dict[str, Any]) -> float:
    return float(counted["summary"]["percent_covered"])


def show(counted: dict[str, Any], out: TextIO) -> None:
    slipcover.print_coverage(counted, outfile=out, skip_covered=True, missing_width=80)
