"""Observations of a machine, for `fedrepro doctor`: processor, memory, disk, SLURM, libraries.

A fact that is unknown is said in words and raises no error, since a machine may lack anything.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedrepro.core.diagnostics.usable_cores import file_text, usable_cores
from fedrepro.core.errors import FedreproError, type_and_message
from fedrepro.core.provenance import versions


class Observation(NamedTuple):
    """One line about a machine: the subject `what`, such as memory, and a statement, `words`.

    wrong: True if results cannot be trusted, or runs fail, until the fault is fixed.
    """

    what: str
    words: str
    wrong: bool = False


GIB = 2**30
# by which libraries choose how to compute, on x86-64 and on ARM
FLAGS = (
    *("avx", "avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "asimd", "asimdhp", "bf16", "sve", "sve2"),
)
CPUINFO, MEMINFO = "/proc/cpuinfo", "/proc/meminfo"
# where the two kinds of control groups state the limit of a container or a batch job
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def facts() -> Iterator[Observation]:
    """Observe the machine without computing: versions, processor, cores, memory, disk, SLURM."""
    yield Observation("system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield Observation("versions", ", ".join(f"{name} {v}" for name, v in versions().items()))
    yield processor()
    total, usable = os.cpu_count() or 1, usable_cores()
    few = f", {usable} of them for this process" if usable < total else ""
    yield Observation("cores", f"{total}{few}")
    yield memory()
    yield from disk()
    yield Observation("SLURM", "sbatch is there" if shutil.which("sbatch") else "none")


def _line(text: str, name: str) -> str:
    """Return the value of the first line 'name: value' in `text`; `name` may be a regex."""
    match = re.search(rf"^(?:{name})\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def processor() -> Observation:
    """Observe the processor's name and the flags by which libraries choose code."""
    text = file_text(CPUINFO)
    name = _line(text, "model name|Hardware") or platform.processor() or "without a name"
    flags = _line(text, "flags|Features").split()
    relevant = " ".join(flag for flag in FLAGS if flag in flags) or "none that matter"
    detail = relevant if flags else f"{CPUINFO} does not tell its flags"
    return Observation("processor", f"{name} ({detail})")


def memory() -> Observation:
    """Observe total memory, free memory, and the limit of a container or a batch job."""
    found = (_line(file_text(MEMINFO), name).split() for name in ("MemTotal", "MemAvailable"))
    total, free = (int(number[0]) * 1024 if number else 0 for number in found)
    if not (total and free):
        return Observation("memory", "the system does not tell")
    limits = [int(value) for value in map(file_text, LIMITS) if value.strip().isdecimal()]
    limited = f", limited to {min(limits) / GIB:.1f}" if limits and min(limits) < total else ""
    return Observation("memory", f"{total / GIB:.1f} GiB, {free / GIB:.1f} free{limited}")


def disk(least: int = GIB) -> Iterator[Observation]:
    """Observe the free disk space for results and temporary files; wrong if below `least` bytes."""
    for what, folder in (("results", "."), ("temporary files", tempfile.gettempdir())):
        free = 0
        with suppress(OSError):
            free = shutil.disk_usage(folder).free
        short = f": too little, {least / GIB:.0f} are needed; free some, or start elsewhere"
        words = f"{free / GIB:.1f} GiB free for {what}{short if free < least else ''}"
        yield Observation("disk", words, free < least)


Product = Callable[[np.ndarray, np.ndarray], np.ndarray]
# variables that people set to steer libraries
STEERING = re.compile(
    r"(MKL|DNNL|ONEDNN|ATEN|OPENBLAS|NPY|NUMBA|OMP|KMP|CUBLAS|CUDA_VISIBLE|TORCH_ALLOW)_\w+"
)
NEAR = 1e-3  # sums of 784 products in single precision; bfloat16 is off by a hundredth


def asked(what: str) -> Iterator[Observation]:
    """Observe the library `what`: version, CPU features, whether its matrix product is right."""
    try:
        yield from ASKED[what]()
    except Exception as error:  # whatever is broken there is what was asked for
        words = f"cannot be used ({type_and_message(error)}): run `make env` again"
        yield Observation(what, words, wrong=True)


def environment_variables() -> Observation:
    """Observe the environment variables that change how libraries compute, such as MKL_CBWR."""
    steering = sorted(f"{k}={v}" for k, v in os.environ.items() if STEERING.fullmatch(k))
    return Observation("environment", " ".join(steering) or "nothing that steers libraries")


def checked_product(name: str, product: Product) -> Observation:
    """Check library `name`'s matrix product of float32, `product`, against one in float64."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((32, 784), (784, 100)))
    exact = np.einsum("rn,nc->rc", a, b, dtype=np.float64)
    if np.allclose(product(a, b), exact, rtol=0, atol=NEAR):
        return Observation(name, "right")
    fix = "run `make env` again, or take another machine"
    words = f"WRONG: neither this processor nor this build of the library can be trusted: {fix}"
    return Observation(name, words, wrong=True)


def _torch() -> Iterator[Observation]:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    yield Observation("ATen", f"takes {capability}, torch {torch.__version__}")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    yield Observation("GPU", ", ".join(names) + f", CUDA {torch.version.cuda}" if names else "none")
    for device in ("cpu", "cuda") if names else ("cpu",):

        def product(a: np.ndarray, b: np.ndarray, device: str = device) -> np.ndarray:
            made = torch.from_numpy(a).to(device) @ torch.from_numpy(b).to(device)
            return np.asarray(made.cpu())

        yield checked_product(f"torch mm on {device}", product)


def _numpy() -> Iterator[Observation]:
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]
    yield Observation("numpy", f"takes {' '.join(extensions['baseline'] + extensions['found'])}")
    yield checked_product("numpy matmul", lambda a, b: a @ b)


def _blas() -> Iterator[Observation]:
    sgemm = import_module("scipy.linalg.blas").sgemm
    pools = import_module("threadpoolctl").threadpool_info()
    for pool in sorted(pools, key=lambda pool: str(pool["filepath"])):
        if pool["user_api"] == "blas":
            name = f"{pool['internal_api']} of {Path(pool['filepath']).parent.name.split('.')[0]}"
            branch = pool.get("architecture", "a branch that it does not tell")
            yield Observation(name, f"{pool['version']}, takes {branch}")
    yield checked_product("scipy sgemm", lambda a, b: sgemm(1.0, a, b))


def _numba() -> Iterator[Observation]:
    version, binding = import_module("numba").__version__, import_module("llvmlite.binding")
    yield Observation("Numba", f"{version}, compiles for {binding.get_host_cpu_name()}")


ASKED = {"torch": _torch, "numpy": _numpy, "BLAS": _blas, "Numba": _numba}
SECONDS = 120  # for each library; all take some seconds, a minute under QEMU


def computing(seconds: float = SECONDS) -> Iterator[Observation]:
    """Check, each in a process of its own, that the numerical libraries compute right.

    A process, which may crash, is ended after `seconds`; it is forked, to run in an emulator too.
    """
    context = multiprocessing.get_context("fork")
    for what in ASKED:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=lambda to=sender, of=what: to.send(list(asked(of))))
        process.start()
        sender.close()
        words = f"gave no answer for {seconds:g} s: is the machine busy?"
        try:
            if receiver.poll(seconds):
                yield from receiver.recv()
                continue
        except EOFError:
            process.join()
            fix = "run `make env` again, or install builds for this processor"
            words = f"broke down (exit status {process.exitcode}): {fix}"
        finally:
            process.kill()
            process.join()
        yield Observation(what, words, wrong=True)
    yield environment_variables()


PARTS: tuple[Callable[[], Iterator[Observation]], ...] = (facts, computing)


def examine(say: Callable[[str], None]) -> int:
    """Check this machine and print each observation by `say`; return 1 if one is wrong, else 0."""
    wrong: list[str] = []
    for what, words, is_wrong in (one for part in PARTS for one in part()):
        say(f"{what:19}{words}")
        wrong += [what] if is_wrong and what not in wrong else []
    say(f"Not all is well: see {', '.join(wrong)}." if wrong else "All is well.")
    return int(bool(wrong))


def slots() -> int:
    """Return how many processes may share a GPU: the variable FEDREPRO_GPU_JOBS, by default 1."""
    value = os.environ.get("FEDREPRO_GPU_JOBS", "1")
    if value.isdecimal() and int(value) > 0:
        return int(value)
    fix = "let it be how many jobs may share a GPU, such as 8, or unset it"
    raise FedreproError(f"FEDREPRO_GPU_JOBS is '{value}'; {fix}")
