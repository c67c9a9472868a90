"""Facts about this machine for `fedrepro doctor`: processor, memory, disk, SLURM, libraries."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from fedrepro.core import kernel_pinning
from fedrepro.core.diagnostics.usable_cores import usable_cores
from fedrepro.core.errors import FedreproError, type_and_message
from fedrepro.core.provenance import machine, versions

GIB = 2**30
BROKEN = "cannot be used"
# features by which libraries choose how to compute
FEATURES = ("avx", "avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_tile")
# variables that people set to steer libraries
STEERING = re.compile(
    r"(MKL|DNNL|ONEDNN|ATEN|OPENBLAS|NPY|NUMBA|OMP|KMP|CUBLAS|CUDA_VISIBLE|TORCH_ALLOW)_\w+"
)


def facts() -> Iterator[tuple[str, str]]:
    """Yield pairs (subject, statement) about this machine, such as ("cores", "2 usable")."""
    yield "versions", ", ".join(f"{name} {version}" for name, version in versions().items())
    yield "machine", ", ".join(f"{name} {value}" for name, value in machine().items())
    features = [name for name in FEATURES if name in kernel_pinning.flags()]
    yield "processor", " ".join(features) or "features unknown"
    yield "cores", f"{usable_cores()} usable"
    yield "memory", f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / GIB:.1f} GiB"
    yield "disk", f"{shutil.disk_usage('.').free / GIB:.1f} GiB free here"
    yield "SLURM", "sbatch is there" if shutil.which("sbatch") else "none"
    for name, of_library in LIBRARIES.items():
        try:
            yield name, of_library()
        except Exception as error:  # whatever is broken there
            yield name, f"{BROKEN} ({type_and_message(error)}): run `make env` again"
    steering = sorted(f"{k}={v}" for k, v in os.environ.items() if STEERING.fullmatch(k))
    yield "environment", " ".join(steering) or "nothing that steers libraries"


def _torch() -> str:
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    capability = torch.backends.cpu.get_cpu_capability()
    return f"CUDA {torch.version.cuda}, GPUs: {', '.join(names) or 'none'}; CPU: {capability}"


def _blas() -> str:
    import_module("scipy.linalg.blas")
    return "; ".join(
        f"{pool['internal_api']} {pool['version']} of {Path(pool['filepath']).parent.name} takes "
        f"{pool.get('architecture', 'an unknown branch')}"
        for pool in import_module("threadpoolctl").threadpool_info()
        if pool["user_api"] == "blas"
    )


def _numba() -> str:
    version, binding = import_module("numba").__version__, import_module("llvmlite.binding")
    return f"{version}, compiles for {binding.get_host_cpu_name()}"


LIBRARIES = {"torch": _torch, "BLAS": _blas, "Numba": _numba}


def slots() -> int:
    """Return how many processes may share a GPU: FEDREPRO_GPU_JOBS, or 1; raise if that is < 1."""
    value = os.environ.get("FEDREPRO_GPU_JOBS", "1")
    if value.isdecimal() and int(value) > 0:
        return int(value)
    fix = "let it be how many jobs may share a GPU, such as 8, or unset it"
    raise FedreproError(f"FEDREPRO_GPU_JOBS is '{value}'; {fix}")
