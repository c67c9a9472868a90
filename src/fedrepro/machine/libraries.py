"""The branch that each library takes which computes: by it bytes differ between machines.

Asked of this process, so what an emulator plays, or a variable changes, is what is told.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from fedrepro.machine.facts import FLAGS, kernel_flags
from fedrepro.machine.observation import Observation, why

# what people set to steer them
STEERING = re.compile(
    r"(MKL|DNNL|ONEDNN|ATEN|OPENBLAS|NPY|NUMBA|OMP|KMP|CUBLAS|CUDA_VISIBLE|TORCH_ALLOW)_\w+"
)
# as LLVM calls what the kernel calls otherwise
LLVM = {"avx512_vnni": "avx512vnni", "avx512_bf16": "avx512bf16", "avx512_fp16": "avx512fp16"}


def libraries() -> Iterator[Observation]:
    """A line for each library that computes, and for what steers them; nothing is raised."""
    for what, ask in ASKED.items():
        try:
            yield from ask()
        except Exception as error:  # whatever is broken there is what was asked for
            yield Observation(
                what, f"cannot be used ({why(error)}): run `make env` again", wrong=True
            )
    steering = sorted(f"{k}={v}" for k, v in os.environ.items() if STEERING.fullmatch(k))
    yield Observation("environment", " ".join(steering) or "nothing that steers libraries")


def said(call: Callable[[], object]) -> str:
    """What a library prints by itself, past Python, while this is called."""
    sys.stdout.flush()
    system = ctypes.CDLL(None)
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        try:
            system.fflush(None)
            os.dup2(file.fileno(), 1)
            call()
            system.fflush(None)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return file.read().decode(errors="replace")


def _torch() -> Iterator[Observation]:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    yield Observation("ATen", f"takes {capability}, torch {torch.__version__}")
    mkl, onednn = (import_module(f"torch.backends.{name}") for name in ("mkl", "mkldnn"))
    matrix = torch.ones(8, 8)
    if mkl.is_available():
        with mkl.verbose(1):
            yield _mkl(said(lambda: matrix @ matrix))
    else:
        built = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
        yield Observation(
            "MKL", f"none: torch computes with {built[1] if built else 'another BLAS'}"
        )
    if onednn.is_available():
        images = torch.ones(4, 1, 28, 28)
        with onednn.verbose(1):
            yield _onednn(said(lambda: torch.conv2d(images, images[:1, :, :5, :5])))
    else:
        yield Observation("oneDNN", "none")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    yield Observation("GPU", ", ".join(names) + f", CUDA {torch.version.cuda}" if names else "none")


def _mkl(lines: str) -> Observation:
    """From MKL's own report of one product."""
    version = re.search(r"MKL_VERBOSE oneMKL (.+?) Product", lines)
    kind = re.search(r"for Intel\(R\) 64 architecture (.+?) processors", lines)
    branch = re.search(r"CNR:(\w+)", lines)
    asked = os.environ.get("MKL_CBWR")
    return Observation("MKL", ", ".join([
        version[1] if version else "of unknown version",
        f"MKL_CBWR={asked}" if asked else "MKL_CBWR is not set",
        f"takes {branch[1]}" if branch else "does not tell its branch",
        *([f"as on {kind[1]} processors"] if kind else []),
    ]))  # fmt: skip


def _onednn(lines: str) -> Observation:
    """From oneDNN's own report of one convolution; it names the processor only once."""
    version = re.search(r"oneDNN (v[\d.]+)", lines)
    isa = re.search(r"cpu,isa:(.+)", lines)
    kernel = re.search(r"convolution,([\w:]+)", lines)
    return Observation("oneDNN", ", ".join([
        *([version[1]] if version else []),
        *([f"takes {isa[1]}"] if isa else []),
        f"convolves by {kernel[1]}" if kernel else "is not asked for convolutions",
    ]))  # fmt: skip


def _openblas() -> Iterator[Observation]:
    import_module("scipy.linalg.blas")
    pools = import_module("threadpoolctl").threadpool_info()
    for pool in sorted(pools, key=lambda pool: str(pool["filepath"])):
        if pool["internal_api"] != "openblas":
            continue
        package = Path(pool["filepath"]).parent.name.split(".")[0]
        yield Observation(
            f"OpenBLAS of {package}", f"{pool['version']}, takes {pool['architecture']}"
        )


def _numpy() -> Iterator[Observation]:
    import numpy as np

    extensions = np.show_config(mode="dicts")["SIMD Extensions"]
    yield Observation("numpy", f"takes {' '.join(extensions['baseline'] + extensions['found'])}")


def _numba() -> Iterator[Observation]:
    """Numba compiles for the processor that LLVM finds, which asks the processor itself."""
    import numba

    llvm = import_module("llvmlite.binding")
    yield Observation("Numba", f"{numba.__version__}, compiles for {llvm.get_host_cpu_name()}")
    features = llvm.get_host_cpu_features()
    reported = kernel_flags()
    other = [f for f in FLAGS if (has_flag := features.get(LLVM.get(f, f))) is not None
             and has_flag != (f in reported)]  # fmt: skip
    if reported and other:
        yield Observation(
            "emulation",
            f"the kernel and the processor disagree on {' '.join(other)}: another processor is "
            "played here, or a part of it is hidden",
        )


ASKED: dict[str, Callable[[], Iterator[Observation]]] = {
    "torch": _torch,
    "numpy": _numpy,
    "OpenBLAS": _openblas,
    "Numba": _numba,
}
