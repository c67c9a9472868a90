"""GPUs of this machine: each local job claims one.

Snakemake counts GPUs but assigns none, so without this every job would compute on the first. A
claim is a lock on a file, which the system releases when the job ends.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from fedrepro.core.diagnostics.machine_facts import slots
from fedrepro.core.errors import FedreproError

POLL_SECONDS = 0.2

_claimed: dict[str, int] = {}  # device: open file whose lock is the claim


def device_of(name: str) -> str:
    """Return the device for a job: `name` itself, or for `cuda` a GPU of this job, as `cuda:1`.

    Waits if all GPUs are taken.

    Raises:
        FedreproError: a GPU is asked for and there is none.
    """
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
    """Return the names of the first `count` GPUs that this process sees, in PyTorch's order.

    Names are taken from CUDA_VISIBLE_DEVICES if it lists enough of them, else they are 0, 1, …
    """
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named[:count] if len(named) >= count else [str(i) for i in range(count)]


def claim(names: Sequence[str], folder: Path | None = None) -> int:
    """Claim one of the GPUs `names` for this process; return its index. Waits until one is free.

    A claim is a lock on a file in `folder`. The environment variable FEDREPRO_GPU_JOBS (default 1)
    is the number of jobs that may share a GPU.
    """
    folder = folder or Path(tempfile.gettempdir()) / f"fedrepro-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for i, name in enumerate(names):
        if name in _claimed:
            return i
    while True:
        for slot, (i, name) in product(range(slots()), enumerate(names)):
            lock = folder / (f"{name}.{slot}.lock" if slot else f"{name}.lock")
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
            else:
                _claimed[name] = descriptor
                return i
        time.sleep(POLL_SECONDS)
