"""Settings and handlers of the Snakemake workflow, on one machine or a cluster with SLURM.

Snakemake's plugin for SLURM asks sacct for the states of jobs, and waits for ever where SLURM keeps
no accounts. This module lets it ask squeue, if SLURM remembers ended jobs for long enough.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fedrepro.core import user_component_files as component_files
from fedrepro.core.errors import FedreproError

KILLED = (
    "fedrepro: the system killed a job, which it does when memory runs out: let one job do less "
    "(`granularity`), or fewer run at once (`--cores`), and start again"
)
LOOKS = 180  # seconds: the plugin looks at its jobs at least this often
PATIENCE = 60  # seconds for an answer
ENDING = 300  # seconds for cancelled jobs to end; SLURM kills them after 30, as a rule


def export_settings(mirror: str, checkpoint_seconds: float, components: Sequence[str] = ()) -> None:
    """Set environment variables that pass settings to jobs without Snakemake noticing changes.

    Snakemake runs a rule again if its parameters changed, but these settings change no result:
    `mirror` is a folder of raw files or "", `checkpoint_seconds` the time between checkpoints, and
    `components` are users' files of methods, …, whose versions are parameters of rules already.
    """
    os.environ["FEDREPRO_MIRROR"] = mirror
    os.environ["FEDREPRO_CHECKPOINT_SECONDS"] = str(checkpoint_seconds)
    component_files.add_files(components)


def add_scripts_to_path() -> None:
    """Let jobs find the command `fedrepro`, and import no module from the folder of the run."""
    os.environ["PYTHONSAFEPATH"] = "1"
    folder = os.path.dirname(sys.executable)
    if folder not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([folder, os.environ["PATH"]])


def take_failed(scale: str) -> tuple[list[str], list[Path]]:
    """Delete results of methods that failed at `scale` (tiny, …), so that they are computed again.

    Returns (sentences on the failures, files of figures with such methods). The figures' files get
    an old date, so that the next run draws them again.
    """
    sentences: dict[str, None] = {}
    drawn, gone = list[Path](), set[str]()
    for about in sorted(Path("results/drawn", scale).glob("*/*.json")):
        since = about.stat().st_mtime
        if since == 1:  # of an earlier run, which said so
            continue
        text = about.read_text(encoding="utf-8")
        failed = json.loads(text).get("failed", {}) if '"failed"' in text else {}
        name = "/".join(about.with_suffix("").parts[-2:])
        # a newer file was computed since, for another figure
        old = [m for m in failed if not os.path.exists(m) or os.path.getmtime(m) <= since]
        for metrics in old:
            sentences |= dict.fromkeys(f"reports/{scale}/{name}: {w}" for w in failed[metrics])
        gone.update(old)
        drawn += about.parent.glob(f"{about.stem}.*") if old else ()
    for metrics in gone:
        Path(metrics).unlink(missing_ok=True)
    for path in drawn:
        os.utime(path, (1, 1))  # older than every input
    return list(sentences), drawn


def repeat_errors(logs: str | list[str]) -> None:
    """Print the error messages of failed jobs, from Snakemake's log files, when a workflow ends."""
    killed = ("exit status 137.", "<Signals.SIGKILL: 9>.")
    sentences: dict[str, None] = {}
    for log in [logs] if isinstance(logs, str) else logs:
        with open(log, encoding="utf-8", errors="replace") as file:
            for line in map(str.rstrip, file):
                if line.startswith("fedrepro: ") or line.endswith(killed):
                    sentences[KILLED if line.endswith(killed) else line] = None
    if sentences:
        atexit.register(print, *sentences, sep="\n", file=sys.stderr)


# ------------------------------------------- parts of Snakemake that it does not promise to keep
# Where a part has another name nothing happens, and the workflow runs all the same, slower.


def lift_limit(workflow: Any) -> None:
    """Let Snakemake start local jobs as fast as cores are free, not at most 100 a second."""
    if hasattr(getattr(workflow, "scheduler", None), "job_rate_limiter"):
        workflow.scheduler.job_rate_limiter = None


def forget(workflow: Any, paths: Iterable[Path]) -> None:
    """Delete Snakemake's own notes on `paths`, so that it judges by modification times alone."""
    try:
        from snakemake.io import IOFile

        for path in paths:
            workflow.persistence.cleanup_metadata(IOFile(str(path)))
    except (AttributeError, ImportError, TypeError):
        return


# ------------------------------------------------------------------------------------------ SLURM


def prepare_slurm(settings: Any, folder: str) -> Iterator[str]:
    """Set how Snakemake's SLURM plugin asks for the states of jobs; cancel jobs of an earlier run.

    Sets squeue in the plugin's `settings`, or sacct where squeue forgets jobs too soon. Yields
    sentences for the user. Raises FedreproError if jobs cannot be submitted, or if SLURM would not
    report that they ended. `folder` is the working folder of jobs.
    """
    if shutil.which("sbatch") is None:
        fix = "start on a login node of the cluster, or on this machine alone with --cores"
        said = f"sbatch, which gives jobs to SLURM, is not installed here: {fix}"
        raise FedreproError(f"{said} instead of the slurm profile")
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
            said = "jobs of an earlier run in this folder do not end: see `squeue --me --name"
            raise FedreproError(f"{said} {','.join(orphans)}`, and start again when it lists none")
        time.sleep(0.5)


def _jobs(prefix: str, folder: str) -> Counter[str]:
    """Return {name: count} of SLURM jobs of `folder` whose names begin with `prefix`."""
    lines = _ask("squeue", "--me", "--noheader", "--format", "%j|%Z")[0].splitlines()
    pairs = [line.strip().partition("|")[::2] for line in lines if prefix]
    own = (name for name, place in pairs if os.path.realpath(place) == os.path.realpath(folder))
    return Counter(name for name in own if name.startswith(f"{prefix}_"))


def _ask(*command: str) -> tuple[str, str]:
    """Run a command of SLURM; return (output, reason of failure); a success has the reason ""."""
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    words = (done.stderr.strip() or done.stdout.strip() or str(done.returncode)).splitlines()
    return done.stdout, words[-1] if done.returncode else ""
