"""Processor, memory, disk and cluster, as the system reports them; nothing is computed.

The machine may lack nearly everything, so an observation says in words that a fact is unknown, and
no error is raised.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fedrepro.core.diagnostics.observation import Observation
from fedrepro.core.diagnostics.usable_cores import usable_cores
from fedrepro.core.provenance import versions

GIB = 2**30
LEAST_FREE = GIB  # of disk; a run that begins with less is soon stopped by it
# by which libraries choose how to compute, on x86-64 and on ARM
FLAGS = (
    *("avx", "avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "asimd", "asimdhp", "bf16", "sve", "sve2"),
)
CPUINFO = Path("/proc/cpuinfo")
MEMINFO = Path("/proc/meminfo")
CGROUPS = Path("/sys/fs/cgroup")
SLURM_SECONDS = 5  # to wait for its controller


def facts() -> Iterator[Observation]:
    """Observe versions, processor, cores, memory, disk and SLURM."""
    yield Observation("system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield Observation(
        "versions", ", ".join(f"{name} {version}" for name, version in versions().items())
    )
    yield processor()
    yield cores()
    yield memory()
    yield from disk()
    yield slurm()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _line(text: str, *names: str) -> str:
    """Return the rest of the line that begins with the first of these names that is found."""
    for name in names:
        match = re.search(rf"^{name}\s*:\s*(.+)$", text, re.MULTILINE)
        if match:
            return match[1].strip()
    return ""


def processor(cpuinfo: Path | None = None) -> Observation:
    """Observe the processor's name and the flags that decide how libraries compute."""
    cpuinfo = cpuinfo or CPUINFO
    name = _line(_text(cpuinfo), "model name", "Hardware") or platform.processor()
    flags = _line(_text(cpuinfo), "flags", "Features").split()
    relevant = " ".join(flag for flag in FLAGS if flag in flags) or "none that matter"
    detail = relevant if flags else f"{cpuinfo} does not tell its flags"
    return Observation("processor", f"{name or 'without a name'} ({detail})")


def cores() -> Observation:
    """Observe how many cores the machine has, and how many this process may use."""
    total = os.cpu_count() or 1
    usable = usable_cores()
    fewer = f", {usable} of them for this process" if usable < total else ""
    return Observation("cores", f"{total}{fewer}")


def memory(meminfo: Path | None = None, cgroups: Path | None = None) -> Observation:
    """Observe total memory, free memory, and the limit of a container or a batch job."""
    text = _text(meminfo or MEMINFO)
    total, free = (_line(text, name).split() for name in ("MemTotal", "MemAvailable"))
    if not (total and free):
        return Observation("memory", "the system does not tell")
    sizes = [int(size[0]) * 1024 for size in (total, free)]
    sentence = f"{sizes[0] / GIB:.1f} GiB, {sizes[1] / GIB:.1f} free"
    limits = [_text((cgroups or CGROUPS) / name).strip() for name in LIMITS]
    limit = min((int(value) for value in limits if value.isdecimal()), default=0)
    limited = f", limited to {limit / GIB:.1f}" if 0 < limit < sizes[0] else ""
    return Observation("memory", sentence + limited)


LIMITS = ("memory.max", "memory/memory.limit_in_bytes")  # of the two kinds of control groups


def disk(least: int = LEAST_FREE) -> Iterator[Observation]:
    """Observe the free room for results and for temporary files."""
    for what, folder in (("results", "."), ("temporary files", tempfile.gettempdir())):
        try:
            free = shutil.disk_usage(folder).free
        except OSError as error:
            yield Observation("disk", f"none for {what}: {error.strerror}", wrong=True)
            continue
        sentence = f"{free / GIB:.1f} GiB free for {what}"
        short = f": too little, {least / GIB:.0f} are needed; free some, or start elsewhere"
        yield Observation("disk", sentence + (short if free < least else ""), free < least)


def slurm() -> Observation:
    """Observe whether jobs can be submitted to SLURM, and whether it keeps accounts of them."""
    if not shutil.which("sbatch"):
        return Observation("SLURM", "none")
    try:
        output = subprocess.run(
            ["scontrol", "show", "config"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=SLURM_SECONDS,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Observation("SLURM", f"sbatch is there, but scontrol does not answer ({error})")
    kind = re.search(r"^AccountingStorageType\s*=\s*(\S+)", output, re.MULTILINE)
    version = re.search(r"^SLURM_VERSION\s*=\s*(\S+)", output, re.MULTILINE)
    if kind is None:
        return Observation("SLURM", "sbatch is there, but its controller does not answer")
    without = kind[1].endswith("none") or kind[1] == "(null)"
    return Observation("SLURM", f"{version[1] if version else 'of unknown version'}, " + (
        "without accounting" if without else "with accounting"
    ))  # fmt: skip
