"""Snakemake in a working folder, as `make` runs it: one at a time, and resumed after a kill.

The workflow is a process of its own, so that finished files stay and only the rest is computed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from fedrepro.core.diagnostics import run_locked
from fedrepro.core.diagnostics.usable_cores import usable_cores
from fedrepro.core.errors import FedreproError, installing

WORKFLOW = "workflow/Snakefile"
LOCK = Path(".fedrepro/lock")  # the Makefile takes it too
SAID = "fedrepro: "  # begins the sentences of jobs
ALL_ELSE = "all else is drawn"  # where a method failed and nothing but it
LAST = 20  # lines of the workflow's words that are shown where it fails without a sentence
LOOK = 0.5  # seconds between two looks at how far it has come


@contextlib.contextmanager
def inside_folder(folder: str | Path) -> Iterator[None]:
    """Work in a working folder.

    Raises:
        FedreproError: the folder has no workflow.
    """
    if not (Path(folder) / WORKFLOW).is_file():
        raise FedreproError(
            f"{os.path.abspath(folder)} has no workflow: call fedrepro.start('{folder}') first, or "
            "give folder=…"
        )
    with contextlib.chdir(folder):
        yield


def compute(
    targets: Sequence[str],
    cores: int | None = None,
    profile: str = "",
    *,
    own: bool = False,
    watch: Callable[[], None] | None = None,
) -> None:
    """Let Snakemake make files of this folder.

    Args:
        targets: the files.
        cores: to use; by default all that this process may use, or as the profile has it.
        profile: of Snakemake.
        own: whether the files are of config/exhibits.
        watch: is called now and then.

    Raises:
        FedreproError: jobs failed, with their sentences, or another run has the folder.
    """
    if find_spec("snakemake") is None:
        raise FedreproError(
            "computing an exhibit needs Snakemake, which is not installed here: "
            f"{installing('workflow')}"
        )
    command = [sys.executable, "-P", "-m", "snakemake", "--nolock", "--rerun-incomplete"]
    if profile:
        command += ["--profile", profile]
    if own:
        command += ["--config", "papers=own"]
    if cores or not profile:
        command += ["--cores", str(cores or usable_cores())]
    try:
        lock = run_locked.take(LOCK)
    except BlockingIOError:
        raise FedreproError(f"{os.getcwd()}: {run_locked.refusal(LOCK)}") from None
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        try:
            process = subprocess.Popen(
                [*command, "--", *targets],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                pass_fds=[lock],
            )
        finally:
            os.close(lock)  # the workflow holds it from here on
        try:
            while _runs(process):
                if watch:
                    watch()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        said.seek(0)
        lines = said.read().splitlines()
    if process.returncode == 0:
        return
    sentences = dict.fromkeys(line.removeprefix(SAID) for line in lines if line.startswith(SAID))
    reason = "; ".join(sentences) or " | ".join(
        line.strip() for line in lines[-LAST:] if line.strip()
    )
    if ALL_ELSE in reason:
        warnings.warn(f"{targets[0]}: {reason}", stacklevel=4)
        return
    raise FedreproError(f"{targets[0]} was not made: {reason}")


def _runs(process: subprocess.Popen[bytes]) -> bool:
    """Wait for its end, for a moment."""
    try:
        process.wait(LOOK)
    except subprocess.TimeoutExpired:
        return True
    return False
