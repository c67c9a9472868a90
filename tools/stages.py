"""Run the jobs of exhibits on a machine without Snakemake, or for as long as it is lent.

    .venv/bin/python tools/stages.py list fedlpa/table-1-cifar10 --device cuda --out jobs.json
    python3 tools/stages.py run jobs.json --jobs 8 --seconds 550

The first writes down the commands that Snakemake would run, with the files that each reads and
writes. The second needs what the stages import and no more: it runs those whose files are
not there, many at once, each after those that it reads from. It stops after so many seconds, and
begun again it goes on. A job that is cut off leaves nothing. What is to be downloaded and prepared
comes first, so a machine without a network needs `results/*/datasets` and the partitions brought.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from fedrepro.machine.cores import usable_cores

STAGES = ("prepare", "partition", "tune", "train", "federate", "aggregate", "peer", "simulate")
WRITTEN = ("--out", "--timings", "--global-model", "--state")
# of a prepared data set, which is a folder
WRITTEN_LAST = "dataset.json"
SHELL = "Shell command: "
FOREVER = 1e7


def main(words: list[str]) -> int:
    """List or run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="write down the jobs; needs Snakemake")
    listing.add_argument("exhibits", nargs="+")
    listing.add_argument("--scale", default="paper")
    listing.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    listing.add_argument("--out", type=Path, default=Path("jobs.json"))
    running = commands.add_parser("run", help="run those that are not done")
    running.add_argument("list", type=Path)
    running.add_argument("--jobs", type=int, default=usable_cores(), help="at once")
    running.add_argument("--seconds", type=float, default=FOREVER, help="stop after so many")
    given = parser.parse_args(words)
    if given.command == "list":
        jobs = listed(given.exhibits, given.scale, given.device)
        given.out.write_text(json.dumps(jobs, indent=1) + "\n", encoding="utf-8")
        print(f"{len(jobs)} jobs: {given.out}")
        return 0
    return run(json.loads(given.list.read_text(encoding="utf-8")), given.jobs, given.seconds)


def listed(exhibits: list[str], scale: str, device: str) -> list[dict[str, Any]]:
    """The jobs of exhibits that are not done, with the files that they write and read."""
    settings = [f"exhibits=[{','.join(exhibits)}]", f"scale={scale}", f"device={device}"]
    command = ["snakemake", "-n", "-p", "--nolock", "--cores", "1", "--config", *settings]
    found = subprocess.run(
        [sys.executable, "-P", "-m", *command],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if found.returncode:
        sys.exit(f"snakemake does not plan these:\n{found.stdout[-2000:]}{found.stderr[-2000:]}")
    lines = found.stdout.splitlines() + found.stderr.splitlines()
    return jobs_of([line[len(SHELL) :] for line in lines if line.startswith(SHELL)])


def jobs_of(commands: list[str]) -> list[dict[str, Any]]:
    """Stages among shell commands, each once, with what they write and which of these they read."""
    jobs = []
    for command in dict.fromkeys(commands):
        words = shlex.split(command)
        if words[:2] == ["fedrepro", "stage"] and words[2] in STAGES:
            at = [i + 1 for i, word in enumerate(words) if word in WRITTEN]
            log = words.index("2>") + 1
            writes = [words[i] for i in at]
            if words[2] == "prepare":
                writes = [f"{out}/{WRITTEN_LAST}" for out in writes]
            names = [w for i, w in enumerate(words) if "/" in w and i not in {*at, log}]
            jobs.append(
                {"words": words[1 : log - 1], "log": words[log], "writes": writes, "names": names}
            )
    made = [out for job in jobs for out in job["writes"]]
    for job in jobs:
        names = job.pop("names")
        job["reads"] = [out for out in made if any(_within(out, name) for name in names)]
    return sorted(jobs, key=lambda job: STAGES.index(job["words"][1]))


def _within(file: str, name: str) -> bool:
    """Whether a file is what is named, or lies in that folder, or the other way round."""
    one, other = Path(file).parts, Path(name).parts
    count = min(len(one), len(other))
    return one[:count] == other[:count]


def run(jobs: list[dict[str, Any]], at_once: int, seconds: float) -> int:
    """Run what is not done; return how many jobs failed or were left, at most 1."""
    end = time.monotonic() + seconds
    left = [job for job in jobs if not done(job)]
    failed = 0
    running: dict[Future[int], dict[str, Any]] = {}
    with ThreadPoolExecutor(at_once) as pool:
        while time.monotonic() < end:
            written = {out for job in running.values() for out in job["writes"]}
            ready = [job for job in left if ready_to_run(job) and not written & {*job["reads"]}]
            for job in ready[: at_once - len(running)]:
                left.remove(job)
                running[pool.submit(one, job, end)] = job
            if not running:
                break
            for future in wait(running, end - time.monotonic(), FIRST_COMPLETED).done:
                job, status = running.pop(future), future.result()
                print(f"{status or 'done'}: {' '.join(job['words'][:2])} {job['log']}", flush=True)
                failed += status != 0
    print(f"{sum(map(done, jobs))} of {len(jobs)} jobs are done, {failed} failed")
    return int(not all(map(done, jobs)))


def done(job: dict[str, Any]) -> bool:
    """Whether all that a job writes is there."""
    return all(Path(out).exists() for out in job["writes"])


def ready_to_run(job: dict[str, Any]) -> bool:
    """Whether all that a job reads of others is there."""
    return all(Path(file).exists() for file in job["reads"])


def one(job: dict[str, Any], end: float) -> int:
    """Run a job, at most until then; its exit status, 124 if it was cut off."""
    for file in [*job["writes"], job["log"]]:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
    own = {**os.environ, "OMP_NUM_THREADS": "1"}
    with Path(job["log"]).open("w", encoding="utf-8") as log:
        command = [sys.executable, "-P", "-m", "fedrepro", *job["words"]]
        process = subprocess.Popen(command, stderr=log, env=own)
        try:
            return process.wait(end - time.monotonic())
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return 124


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
