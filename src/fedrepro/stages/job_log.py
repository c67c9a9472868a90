"""Log of a job: lines of progress, and sentences on methods that failed."""

from __future__ import annotations

import sys
import time
import traceback

from fedrepro.core.artifacts import one_line
from fedrepro.core.errors import FedreproError, sentence_for
from fedrepro.core.plugins import own_fault

_began = time.perf_counter()


def restart_clock() -> None:
    """Count the seconds of a job from now on, since a preloaded process began earlier."""
    global _began
    _began = time.perf_counter()


def log(line: str) -> None:
    """Print a line of progress on standard error, which the workflow keeps as the job's log."""
    print(f"[{time.perf_counter() - _began:7.1f} s] {line}", file=sys.stderr, flush=True)


class Failures(dict[str, str]):
    """Sentences on settings that failed with an error of the method's own, by setting."""

    def note(self, setting: str, trial: int, error: Exception) -> None:
        """Keep file, line and message of an error, and print its trace to the job's log.

        An error that is the machine's fault is raised again.
        """
        if sentence_for(error) or isinstance(error.__cause__, OSError):
            raise error
        words = str(error) if isinstance(error, FedreproError) else own_fault(error)
        words = words or f"{type(error).__name__}: {one_line(error)}"
        traceback.print_exception(error)
        log(f"trial {trial}: {setting} failed: {words}")
        self.setdefault(setting, f"{setting} failed in trial {trial}: {words}")

    @property
    def diagnostics(self) -> dict[str, list[str]]:
        """Return the failures as a key of provenance; nothing where none failed."""
        return {"failed": list(self.values())} if self else {}
