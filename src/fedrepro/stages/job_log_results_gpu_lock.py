"""Parts of a job's process: its log, the files of results, errors of methods, a reserved GPU.

Snakemake counts GPUs but assigns none, so that every job would compute on the first one. A job
locks a file for its GPU; the system releases the lock when the job ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from fedrepro.core import command_under_lock
from fedrepro.core.checksummed_files import one_line, write_table
from fedrepro.core.diagnostics.machine_facts import slots
from fedrepro.core.errors import FedreproError, sentence_for
from fedrepro.core.metrics import Table
from fedrepro.core.provenance import resources_used
from fedrepro.core.user_component_files import own_fault
from fedrepro.planning.scenarios_runs_and_jobs import METRICS, TIMINGS, Job

POLL_SECONDS = 0.2

_claimed: dict[str, int] = {}  # device: open file whose lock is the claim
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
    """Write to a job's folder its `times` by column, then its metrics, with provenance `source`."""
    write_table(Path(job.out, TIMINGS), times, "timings", {**source, **resources_used()})
    write_table(Path(job.out, METRICS), table.arrow(), "metrics", source)


class Failures(dict[str, str]):
    """Errors raised by a method's code: a dict from the method's parameter values to a sentence."""

    def note(self, setting: str, trial: int, error: Exception) -> None:
        """Record the first `error` of values `setting`; raise it again if of memory or files."""
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


def device_of(name: str) -> str:
    """Return the device to compute on: `name` itself, or for "cuda" a free GPU, such as "cuda:1".

    Waits until a GPU is free; raises FedreproError if PyTorch finds none.
    """
    if name != "cuda":
        return name
    import torch

    if not torch.cuda.is_available():
        fix = "set device: cpu in config/config.yaml, or start without --profile profiles/gpu"
        raise FedreproError(f"device is cuda, but PyTorch finds no GPU here; {fix}")
    # full float32, as on the CPU and in the papers, and sums in a fixed order
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    named = enumerate(visible(torch.cuda.device_count()))
    # SLURM calls the GPU of each job 0
    gpu = claim([str(getattr(torch.cuda.get_device_properties(i), "uuid", n)) for i, n in named])
    # CUDA graphs are recorded on streams of the current GPU
    torch.cuda.set_device(gpu)
    return f"cuda:{gpu}"


def visible(count: int) -> list[str]:
    """Return the names of PyTorch's first `count` GPUs, as in CUDA_VISIBLE_DEVICES, or 0, 1, …"""
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named[:count] if len(named) >= count else [str(i) for i in range(count)]


def claim(names: Sequence[str], folder: Path | None = None) -> int:
    """Reserve one of the GPUs `names` (UUIDs) once one is free; return its position in `names`.

    A reservation locks a file in `folder`; FEDREPRO_GPU_JOBS (default 1) processes share a GPU.
    """
    folder = folder or Path(tempfile.gettempdir()) / f"fedrepro-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for i, name in enumerate(names):
        if name in _claimed:
            return i
    while True:
        for slot, (i, name) in product(range(slots()), enumerate(names)):
            with contextlib.suppress(BlockingIOError):
                lock = folder / (f"{name}.{slot}.lock" if slot else f"{name}.lock")
                _claimed[name] = command_under_lock.take(lock)
                return i
        time.sleep(POLL_SECONDS)
