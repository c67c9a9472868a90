"""Time the quick scale from nothing, and say how much of it is start-up and Snakemake.

    .venv/bin/fedrepro bench quick [--cores 2]

The workflow runs in a fresh copy of the tree, so nothing is there yet: once with a preloaded
process, as by default, and once with every job starting by itself. What does not compute is

- Snakemake: a run of as many jobs that do nothing,
- the plan: a dry run, beyond that of those empty jobs,
- start-up: for every job, starting a stage that only says what it can do; shared by the cores. If
  jobs start by themselves, a Python that imports what jobs import at most,
- loading: the preloaded process until everything is there, on one of the cores.

Parts of these overlap, so the share is an upper bound.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness

SNAKEMAKE = Path(sys.executable).with_name("snakemake")
STAGE = "import sys; from fedrepro.cli.main import main; sys.exit(main())"
IMPORTS = "import torch, numpy, pyarrow, fedrepro"
LOADING = (
    "import importlib as i; from fedrepro.cli.preload_server import MODULES;"
    "[*map(i.import_module, MODULES)]"
)
SKIPPED = (
    ".venv*",
    ".git",
    ".snakemake",
    ".fedrepro",
    ".*_cache",
    "results",
    "reports",
    "resources",
    "logs",
)
NOTHING = """
rule all:
    input: expand("{{i}}.txt", i=range({jobs}))
rule job:
    output: "{{i}}.txt"
    shell: "touch {{output}}"
"""


def main() -> int:
    parser = harness.options(__doc__, runs=1)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--scale", default="quick")
    given = parser.parse_args()
    work = [SNAKEMAKE, "--cores", str(given.cores), "--config", f"scale={given.scale}"]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        copy(home / "plan")
        jobs = count_jobs(run([*work, "-n"], home / "plan")[0])
        empty = nothing(home / "nothing", jobs)
        planning = seconds(5, [*work, "-n"], home / "plan")
        planning -= seconds(5, [SNAKEMAKE, "-n"], empty)
        snakemake = run([SNAKEMAKE, "--cores", str(given.cores)], empty)[1]
        contenders = {
            "preloaded": lambda: whole(home, work, "1"),
            "each job by itself": lambda: whole(home, work, "0"),
        }
        measured = harness.in_turn(contenders, given.runs, warm=False)
    by_itself = seconds(5, [sys.executable, "-P", "-c", IMPORTS])
    parts = {
        "preloaded": {
            "snakemake": snakemake,
            "plan": planning,
            "start_up": handed_over() * jobs / given.cores,
            "loading": seconds(3, [sys.executable, "-P", "-c", LOADING]) / given.cores,
        },
        "each job by itself": {
            "snakemake": snakemake,
            "plan": planning,
            "start_up": by_itself * jobs / given.cores,
        },
    }
    shares = {name: sum(p.values()) / harness.median(measured[name]) for name, p in parts.items()}
    return harness.conclude(
        "quick" if given.scale == "quick" else f"quick-{given.scale}",
        given.results,
        {"jobs": jobs, "cores": given.cores, "scale": given.scale, "runs": given.runs},
        measured,
        [
            harness.Target(
                "share of start-up and Snakemake", shares["preloaded"], 0.25, at_least=False
            )
        ],
        share={name: round(share, 3) for name, share in shares.items()},
        seconds_not_computing={
            name: {key: round(value, 2) for key, value in p.items()} for name, p in parts.items()
        },
    )


def copy(folder: Path) -> Path:
    shutil.copytree(harness.ROOT, folder, ignore=shutil.ignore_patterns(*SKIPPED))
    return folder


def whole(home: Path, work: list[str | Path], preload: str) -> harness.Timed:
    """The workflow from nothing."""
    folder = copy(home / "run")
    _, took = run(work, folder, FEDREPRO_PRELOAD=preload)
    shutil.rmtree(folder)
    return harness.Timed(took)


def nothing(folder: Path, jobs: int) -> Path:
    """A workflow of as many jobs without order or work."""
    folder.mkdir()
    (folder / "Snakefile").write_text(NOTHING.format(jobs=jobs), encoding="utf-8")
    return folder


def handed_over() -> float:
    """Median seconds of a stage that does nothing, run by a preloaded process."""
    from fedrepro.cli import preload_server

    lifeline = preload_server.start_server(preload_server.FEW)
    if lifeline is None:
        return seconds(5, [sys.executable, "-P", "-c", IMPORTS])
    words = [sys.executable, "-P", "-c", STAGE, "job", "--help"]
    run(words)
    time.sleep(10)  # until everything is loaded
    found = seconds(15, words)
    os.close(lifeline)
    return found


def seconds(times: int, command: list[str | Path], folder: Path | None = None) -> float:
    return statistics.median(run(command, folder)[1] for _ in range(times))


def run(
    command: list[str | Path], folder: Path | None = None, **environment: str
) -> tuple[str, float]:
    """What a command printed, and the seconds it took; its own words if it fails."""
    began = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=folder or harness.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
    took = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, command))} failed: {done.returncode}")
    return done.stdout, took


def count_jobs(plan: str) -> int:
    """Jobs that start a process, from the table of a dry run: all but the target rule."""
    total = re.search(r"^total +(\d+)$", plan, re.MULTILINE)
    if total is None:
        sys.exit(f"{plan}\nfound no number of jobs in the dry run")
    targets = len(re.findall(r"^all +1$", plan, re.MULTILINE))
    return int(total[1]) - min(targets, 1)


if __name__ == "__main__":
    harness.main(main)
