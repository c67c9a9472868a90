"""Count the processors that this process may use, which may be fewer than the machine has.

The Makefile runs this file before there is an environment: it imports the standard library alone.
"""

import os


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use, as `taskset` or SLURM limits it."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on a Mac
    return len(affinity(0)) if affinity else os.cpu_count() or 1


if __name__ == "__main__":
    print(usable_cores())
