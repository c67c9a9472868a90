"""Time the quick scale from nothing, and say how much of it is start-up.

    .venv/bin/python benchmarks/quick.py [--cores 2]

The workflow runs in a fresh copy of the tree, so nothing is there yet. Start-up is counted as the
plan of a dry run plus, for every job, a Python that imports what jobs import at most; the sum over
jobs is shared by the cores. Jobs that import less start faster, so the share is an upper bound.
Prints one JSON object and writes it to benchmarks/results/quick.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SNAKEMAKE = Path(sys.executable).parent / "snakemake"
IMPORTS = "import torch, numpy, pyarrow, fedrepro"
SKIPPED = (
    ".venv",
    ".git",
    ".snakemake",
    ".fedrepro",
    ".*_cache",
    "results",
    "reports",
    "resources",
    "logs",
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Time the quick scale from nothing.")
    parser.add_argument("--cores", type=int, default=2)
    cores = parser.parse_args().cores
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*SKIPPED))
        plan, planning = timed([str(SNAKEMAKE), "-n", "--cores", str(cores)], copy)
        jobs = count_jobs(plan)
        _, total = timed([str(SNAKEMAKE), "--cores", str(cores)], copy)
    python = statistics.median(timed([sys.executable, "-c", IMPORTS], ROOT)[1] for _ in range(5))
    startup = planning + python * jobs / cores
    found = {
        "total_seconds": round(total, 1),
        "cores": cores,
        "jobs": jobs,
        "dry_run_seconds": round(planning, 2),
        "python_start_seconds": round(python, 2),
        "startup_seconds": round(startup, 1),
        "startup_share": round(startup / total, 3),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
    }
    text = json.dumps(found, indent=2) + "\n"
    target = ROOT / "benchmarks" / "results" / "quick.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    print(text, end="")
    return 0


def timed(command: list[str], folder: Path) -> tuple[str, float]:
    """What a command printed, and the seconds it took; its own words if it fails."""
    start = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(command)} failed with status {done.returncode}")
    return done.stdout, seconds


def count_jobs(plan: str) -> int:
    """Jobs that start a process, from the table of a dry run: all but the target rule."""
    total = re.search(r"^total +(\d+)$", plan, re.MULTILINE)
    if total is None:
        sys.exit(f"{plan}\nfound no number of jobs in the dry run")
    targets = len(re.findall(r"^all +1$", plan, re.MULTILINE))
    return int(total[1]) - min(targets, 1)


if __name__ == "__main__":
    sys.exit(main())
