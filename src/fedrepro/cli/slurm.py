"""Prepare a run on SLURM: choose the command that asks for states, and cancel orphaned jobs.

The plugin of Snakemake asks sacct. Where SLURM keeps no accounts that answers nothing, and the
plugin waits for ever. squeue needs none, where SLURM remembers jobs for long enough.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fedrepro.core.errors import FedreproError

LOOKS = 180  # seconds: the plugin looks at its jobs at least this often
PATIENCE = 60  # seconds for an answer
ENDING = 300  # seconds for cancelled jobs to end; SLURM kills them after 30, as a rule


def prepare_slurm(settings: Any, folder: str) -> Iterator[str]:
    """Fit the plugin's settings to the cluster, cancel orphaned jobs, and yield sentences on both.

    Args:
        settings: of the executor plugin, which reads them each time it asks for states.
        folder: where jobs work.

    Raises:
        FedreproError: if jobs could not be submitted, or their ends not be seen.
    """
    if shutil.which("sbatch") is None:
        raise FedreproError(
            "sbatch, which gives jobs to SLURM, is not installed here: start on a login node of "
            "the cluster, or on this machine alone with --cores instead of the slurm profile"
        )
    config, why = _ask("scontrol", "show", "config")
    if why:
        raise FedreproError(f"SLURM does not answer ({why}): start again when `scontrol ping` does")
    found = re.search(r"^MinJobAge\s*=\s*(\d+)", config, re.MULTILINE)
    age = int(found[1]) if found else 0  # seconds for which SLURM knows of a job that has ended
    if age >= LOOKS + PATIENCE:
        settings.status_command = "squeue"
        # the plugin goes back to sacct if jobs are not kept for three times this long
        first = settings.init_seconds_before_status_checks
        settings.init_seconds_before_status_checks = min(first, age // 3)
    elif why := _ask("sacct", "-X", "--noheader", "--starttime", "now", "--name", "none")[1]:
        raise FedreproError(
            f"SLURM forgets a job {age} s after its end here, and keeps no accounts ({why}), so "
            "that ends would go unseen: ask its administrator for MinJobAge=300 in slurm.conf, or "
            "let one job do all: sbatch --cpus-per-task 16 --wrap '.venv/bin/snakemake --cores 16'"
        )
    else:
        settings.status_command = "sacct"
        yield (
            f"SLURM forgets a job {age} s after its end here, so the states of jobs are asked of "
            "sacct; by it a job that you cancel is waited for: then stop this run, and start again"
        )
    # a job begins by removing its outputs: an orphan that waits would later remove files in use
    prefix, end = settings.jobname_prefix, time.monotonic() + ENDING
    if orphans := _jobs(prefix, folder):
        yield f"an earlier run in this folder left jobs with SLURM ({orphans.total()}): cancelled"
    for name in orphans:
        _ask("scancel", "--name", name)
    while orphans and _jobs(prefix, folder):
        if time.monotonic() > end:
            raise FedreproError(
                "jobs of an earlier run in this folder do not end: see `squeue --me --name "
                f"{','.join(orphans)}`, and start again when it lists none"
            )
        time.sleep(0.5)


def _jobs(prefix: str, folder: str) -> Counter[str]:
    """Count the waiting and running jobs of this folder by the name of their run."""
    lines = _ask("squeue", "--me", "--noheader", "--format", "%j|%Z")[0].splitlines()
    pairs = [line.strip().partition("|")[::2] for line in lines if prefix]
    own = (name for name, place in pairs if os.path.realpath(place) == os.path.realpath(folder))
    return Counter(name for name in own if name.startswith(f"{prefix}_"))


def _ask(*command: str) -> tuple[str, str]:
    """Run a command of SLURM; return its answer, and why there is none."""
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    words = (done.stderr.strip() or done.stdout.strip() or str(done.returncode)).splitlines()
    return done.stdout, words[-1] if done.returncode else ""
