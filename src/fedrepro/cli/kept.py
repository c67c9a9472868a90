"""Figures that were there stay where drawing them anew fails.

Snakemake removes the files of a job before it runs and after it failed. So a workflow links them
elsewhere when it starts, and when it fails puts back what is gone. They then are as old as a file
can be (a time of 0 is none to Snakemake), so that the next run draws them again.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

KEPT = Path(".fedrepro/drawn")
REPORTS = Path("reports")
SCALES = ("tiny", "quick", "paper")


def keep(reports: Path = REPORTS, kept: Path = KEPT) -> None:
    """Link every file of a drawn exhibit, reports/SCALE/PAPER/…, under `kept`."""
    shutil.rmtree(kept, ignore_errors=True)
    for scale in SCALES:
        for path in (reports / scale).glob("*/*.*"):
            if path.is_file() and path.parent.name not in ("partitions", "site"):
                _link(path, kept / path.relative_to(reports))


def put_back(reports: Path = REPORTS, kept: Path = KEPT) -> list[Path]:
    """Put back what is gone of it, and return where."""
    gone = []
    for path in sorted(kept.glob("*/*/*.*")):
        place = reports / path.relative_to(kept)
        if not place.exists():
            _link(path, place)
            os.utime(place, (1, 1))
            gone.append(place)
    return gone


def _link(path: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, place)
    except OSError:  # a file system without links
        shutil.copy2(path, place)
