"""What a run asks of SLURM before it submits its first job.

The plugin of Snakemake asks sacct for the states of jobs wherever that is installed. Where SLURM
keeps no accounts sacct answers nothing: the plugin learns of no job's end, and waits in silence. By
squeue it also sees what sacct words otherwise: a job that was cancelled by hand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from fedrepro.core.errors import FedreproError

LOOKS = 180  # seconds: the plugin looks at its jobs at least this often
PATIENCE = 60  # seconds for an answer
ENDING = 300  # seconds for cancelled jobs to end; SLURM kills them after 30, as a rule


def begin(settings: Any, folder: str) -> Iterator[str]:
    """Fit the plugin's settings to the cluster, and end what an earlier run left; sentences on it.

    settings: those of the executor plugin, which reads them at each look. folder: where jobs work.
    Errors: FedreproError where jobs could not be submitted, or their ends not be seen.
    """
    if shutil.which("sbatch") is None:
        raise FedreproError(
            "there is no sbatch here, by which jobs are given to SLURM: start on a login node of "
            "the cluster, or on this machine alone with --cores instead of the slurm profile"
        )
    age = _kept_for()
    if age >= LOOKS + PATIENCE:
        settings.status_command = "squeue"
        # the plugin goes back to sacct if jobs are not kept for three times this long
        first = settings.init_seconds_before_status_checks
        settings.init_seconds_before_status_checks = min(first, age // 3)
    elif silent := _without_accounts():
        raise FedreproError(
            f"SLURM forgets a job {age} s after its end here, and keeps no accounts ({silent}), so "
            "that ends would go unseen: ask its administrator for MinJobAge=300 in slurm.conf, or "
            "let one job do all: sbatch --cpus-per-task 16 --wrap '.venv/bin/snakemake --cores 16'"
        )
    else:
        settings.status_command = "sacct"
        yield (
            f"SLURM forgets a job {age} s after its end here, so the states of jobs are asked of "
            "sacct; by it a job that you cancel is waited for: then stop this run, and start again"
        )
    yield from _end_earlier(settings.jobname_prefix, folder)


def _kept_for() -> int:
    """Seconds for which SLURM knows of a job that has ended."""
    result = _ask("scontrol", "show", "config")
    if result.returncode:
        raise FedreproError(
            f"SLURM does not answer ({_last(result)}): start again when `scontrol ping` says that "
            "its controller is up"
        )
    lines = (line.partition("=") for line in result.stdout.splitlines())
    parts = next((value.split() for key, _, value in lines if key.strip() == "MinJobAge"), ["0"])
    return int(parts[0])


def _without_accounts() -> str:
    """Why sacct tells nothing of jobs, in its words; empty if it does."""
    result = _ask("sacct", "-X", "--noheader", "--starttime", "now", "--name", "none")
    return _last(result) if result.returncode else ""


def _end_earlier(prefix: str, folder: str) -> Iterator[str]:
    """Cancel jobs of an earlier run in this folder that was killed, or whose login ended.

    A job begins by removing what is at its outputs' place: one that still waits would later take
    away files that are in use.
    """
    runs = _runs(prefix, folder) if prefix else {}
    if not runs:
        return
    count = sum(runs.values())
    yield f"an earlier run in this folder left jobs with SLURM ({count}), which are cancelled now"
    for name in runs:
        _ask("scancel", "--name", name)
    deadline = time.monotonic() + ENDING
    while _runs(prefix, folder):
        if time.monotonic() > deadline:
            raise FedreproError(
                f"jobs of an earlier run in this folder do not end: see `squeue --me --name "
                f"{','.join(runs)}`, and start again when it lists none"
            )
        time.sleep(0.5)


def _runs(prefix: str, folder: str) -> dict[str, int]:
    """Jobs that wait or run by the name of their run, for runs of this folder."""
    result = _ask("squeue", "--me", "--noheader", "--format", "%j|%Z")
    names = [
        name
        for name, _, place in (line.strip().partition("|") for line in result.stdout.splitlines())
        if name.startswith(f"{prefix}_") and os.path.realpath(place) == os.path.realpath(folder)
    ]
    return {name: names.count(name) for name in names}


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    """A command of SLURM; what is not there, or does not answer, fails with a word on it."""
    try:
        return subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=PATIENCE
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(
            command, 1, "", f"{command[0]}: no answer in {PATIENCE} s"
        )


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else f"{done.args[0]} ends with {done.returncode}"
