"""Where a result comes from: versions, revision, machine; nothing depends on the time of day."""

from __future__ import annotations

import functools
import os
import platform
import resource
import subprocess
import sys
import time
from importlib import metadata
from typing import Any

import fedrepro

PACKAGES = ("numpy", "scipy", "pyarrow", "torch", "scikit-learn")


@functools.cache
def revision() -> str:
    """The git revision of the working folder, with -dirty if tracked files differ; else unknown."""
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    try:
        out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return out.stdout.strip()


@functools.cache
def versions() -> dict[str, str]:
    """Versions of fedrepro, Python and the packages that compute."""
    found = {"fedrepro": fedrepro.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def provenance(seed: int | None = None, **parts: Any) -> dict[str, Any]:
    """What goes into the metadata of every table."""
    return {"versions": versions(), "revision": revision(), "seed": seed, **parts}


def spent() -> dict[str, float]:
    """What this process took: seconds of processor time, and bytes of memory at its peak.

    Processor time does not depend on what else the machine does. Memory counts mapped data sets
    and, in a job that was forked from a preloaded process, the libraries that it found there.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"cpu_seconds": time.process_time(), "peak_bytes": peak}


def machine() -> dict[str, Any]:
    """The machine in words, for records of measured times; no host name."""
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            cpu = next((x.split(":")[1].strip() for x in file if "model name" in x), cpu)
    except OSError:
        pass
    return {
        "system": platform.system(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
    }
