"""Version, CPU branch and correctness of each library that computes.

Each library of this process is asked, so that an emulator or an environment variable shows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedrepro.core.diagnostics.observation import Observation, why

Array = npt.NDArray[np.float32]
Product = Callable[[Array, Array], Array]

# what people set to steer them
STEERING = re.compile(
    r"(MKL|DNNL|ONEDNN|ATEN|OPENBLAS|NPY|NUMBA|OMP|KMP|CUBLAS|CUDA_VISIBLE|TORCH_ALLOW)_\w+"
)
SIZE = (32, 784, 100)  # rows, inner, columns: a minibatch by the weights of PFNM's perceptron


def libraries() -> Iterator[Observation]:
    """Observe each library that computes, and variables that steer them; raise nothing."""
    for what, ask in ASKED.items():
        try:
            yield from ask()
        except Exception as error:  # whatever is broken there is what was asked for
            yield Observation(
                what, f"cannot be used ({why(error)}): run `make env` again", wrong=True
            )
    steering = sorted(f"{k}={v}" for k, v in os.environ.items() if STEERING.fullmatch(k))
    yield Observation("environment", " ".join(steering) or "nothing that steers libraries")


def checked_product(name: str, product: Product) -> Observation:
    """Check that a product differs from that in float64 by no more than rounding in any order."""
    rows, inner, columns = SIZE
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((rows, inner), (inner, columns)))
    # a sum of n products is off by at most γₙ Σ |aᵢ bᵢ|, γₙ = n u / (1 − n u)
    rounding = inner * float(np.finfo(np.float32).eps) / 2
    most = rounding / (1 - rounding) * np.einsum("rn,nc->rc", abs(a), abs(b), dtype=np.float64)
    exact = np.einsum("rn,nc->rc", a, b, dtype=np.float64)
    if bool((abs(product(a, b) - exact) <= most).all()):  # False for NaN
        return Observation(name, "right")
    return Observation(
        name,
        "WRONG: neither this processor nor this build of the library can be trusted: run "
        "`make env` again, or take another machine",
        wrong=True,
    )


def _torch() -> Iterator[Observation]:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    yield Observation("ATen", f"takes {capability}, torch {torch.__version__}")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    yield Observation("GPU", ", ".join(names) + f", CUDA {torch.version.cuda}" if names else "none")
    for device in ("cpu", *(["cuda"] if names else [])):

        def product(a: Array, b: Array, device: str = device) -> Array:
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
            package = Path(pool["filepath"]).parent.name.split(".")[0]
            branch = pool.get("architecture", "a branch that it does not tell")
            yield Observation(
                f"{pool['internal_api']} of {package}", f"{pool['version']}, takes {branch}"
            )
    yield checked_product("scipy sgemm", lambda a, b: sgemm(1.0, a, b))


def _numba() -> Iterator[Observation]:
    """Observe the processor that Numba compiles for: LLVM asks the processor itself."""
    import numba

    cpu = import_module("llvmlite.binding").get_host_cpu_name()
    yield Observation("Numba", f"{numba.__version__}, compiles for {cpu}")


ASKED: dict[str, Callable[[], Iterator[Observation]]] = {
    "torch": _torch,
    "numpy": _numpy,
    "BLAS": _blas,
    "Numba": _numba,
}
