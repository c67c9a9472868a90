"""Give each job on this machine a GPU of its own.

Snakemake counts GPUs but assigns none, so that every job would compute on the first one. A job
locks a file for its GPU; the system releases the lock when the job ends.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from fedrepro.core.diagnostics import run_locked
from fedrepro.core.diagnostics.machine_facts import slots
from fedrepro.core.errors import FedreproError

POLL_SECONDS = 0.2

_claimed: dict[str, int] = {}  # device: open file whose lock is the claim


def device_of(name: str) -> str:
    """Return `name`, or for "cuda" a GPU of this process alone, such as "cuda:1", once free."""
    if name != "cuda":
        return name
    import torch

    if not torch.cuda.is_available():
        raise FedreproError(
            "device is cuda, but PyTorch finds no GPU here; set device: cpu in config/config.yaml, "
            "or start without --profile profiles/gpu"
        )
    # full float32, as on the CPU and in the papers, and sums in a fixed order
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    gpu = claim(visible(torch.cuda.device_count()))
    # CUDA graphs are recorded on streams of the current GPU
    torch.cuda.set_device(gpu)
    return f"cuda:{gpu}"


def visible(count: int) -> list[str]:
    """Return the names of the first `count` GPUs that this process sees, in PyTorch's order."""
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named[:count] if len(named) >= count else [str(i) for i in range(count)]


def claim(names: Sequence[str], folder: Path | None = None) -> int:
    """Reserve one of the GPUs `names` for this process, once one is free, and return its index.

    A reservation is a lock on a file in `folder`. The environment variable FEDREPRO_GPU_JOBS
    (default 1) is how many processes may share a GPU.
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
                _claimed[name] = run_locked.take(lock)
                return i
        time.sleep(POLL_SECONDS)
