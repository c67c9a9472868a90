"""Write what a job says and measures, and sentences on methods whose code raised an error."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrepro.core.artifacts import one_line, write_table
from fedrepro.core.errors import FedreproError, sentence_for
from fedrepro.core.metrics import Table
from fedrepro.core.plugins import own_fault
from fedrepro.core.provenance import resources_used
from fedrepro.planning.jobs import METRICS, TIMINGS, Job

_began = time.perf_counter()


def restart_clock() -> None:
    """Count the seconds in log lines from now on, for a job in a process that started earlier."""
    global _began
    _began = time.perf_counter()


def log(line: str) -> None:
    """Print a line of progress, with the job's seconds so far, to standard error (its log)."""
    print(f"[{time.perf_counter() - _began:7.1f} s] {line}", file=sys.stderr, flush=True)


def write_measured(
    job: Job, times: Mapping[str, Sequence[Any]], table: Table, source: Mapping[str, Any]
) -> None:
    """Write a job's table of times, by column, and last its metrics, with their provenance."""
    write_table(Path(job.out, TIMINGS), times, "timings", {**source, **resources_used()})
    write_table(Path(job.out, METRICS), table.arrow(), "metrics", source)


class Failures(dict[str, str]):
    """Errors raised by a method's code: a dict from the method's parameter values to a sentence."""

    def note(self, setting: str, trial: int, error: Exception) -> None:
        """Record the `error` of a method, or raise it again if it is the machine's."""
        if sentence_for(error) or isinstance(error.__cause__, OSError):
            raise error
        words = str(error) if isinstance(error, FedreproError) else own_fault(error)
        words = words or f"{type(error).__name__}: {one_line(error)}"
        traceback.print_exception(error)
        log(f"trial {trial}: {setting} failed: {words}")
        self.setdefault(setting, f"{setting} failed in trial {trial}: {words}")

    @property
    def diagnostics(self) -> dict[str, list[str]]:
        """Return {"failed": sentences on all errors}, to store with results; {} without errors."""
        return {"failed": list(self.values())} if self else {}
