"""Count the processors that this process may use, which may be fewer than the machine has.

The Makefile runs this file before there is an environment: it imports the standard library alone.
"""

from __future__ import annotations

import os
from contextlib import suppress

CGROUPS = "/sys/fs/cgroup"


def usable_cores(cgroups: str = CGROUPS, own: str = "/proc/self/cgroup") -> int:
    """Return the number of CPU cores that this process may use (`taskset`, SLURM, control groups).

    A limit on processor time, as of `docker --cpus`, counts down to whole cores, at least 1.
    `cgroups` and `own` are the folder and file in which Linux states such limits.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # not on a Mac
    given = len(affinity(0)) if affinity else os.cpu_count() or 1
    folder = next((line[3:] for line in file_text(own).splitlines() if line.startswith("0::")), "/")
    while True:
        quota, _, period = file_text(f"{cgroups}{folder.rstrip('/')}/cpu.max").partition(" ")
        if quota.isdecimal() and period.strip().isdecimal():
            given = max(1, min(given, int(quota) // int(period)))
        if folder in ("/", ""):
            return given
        folder = os.path.dirname(folder)


def file_text(path: str) -> str:
    """Return the text of a system's file; empty if it cannot be read."""
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


if __name__ == "__main__":
    print(usable_cores())
