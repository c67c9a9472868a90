"""The command line: stages for the workflow, commands for people."""

from __future__ import annotations

import atexit
import os
import sys


def hand_over(mirror: str, checkpoint_seconds: float) -> None:
    """Tell jobs, through their environment, what does not change a result.

    As parameters of a rule these would make Snakemake run everything again whenever they change:
    a mirror that is set today and not tomorrow, or a checkpoint more often.
    """
    os.environ["FEDREPRO_MIRROR"] = mirror
    os.environ["FEDREPRO_CHECKPOINT_SECONDS"] = str(checkpoint_seconds)


def put_on_path() -> None:
    """Let jobs find the `fedrepro` command also where the environment is not activated."""
    own = os.path.dirname(sys.executable)
    if own not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([own, os.environ["PATH"]])


def say_again(logs: str | list[str]) -> None:
    """Repeat, as the last words of a workflow, the sentences with which jobs failed.

    Snakemake prints what it knows of a failed job around them, which may be thousands of file
    names. logs: Snakemake's own log files; one in its early versions.
    """
    found: dict[str, None] = {}
    for log in [logs] if isinstance(logs, str) else logs:
        with open(log, encoding="utf-8", errors="replace") as file:
            found |= dict.fromkeys(line.rstrip() for line in file if line.startswith("fedrepro: "))
    if found:
        atexit.register(print, *found, sep="\n", file=sys.stderr)
