"""Whether products are right, and the same wherever their matrices lie in memory.

Right is what an error bound promises that holds in any order of summation (Higham, Accuracy and
Stability of Numerical Algorithms, 2nd ed., section 3.1): a sum of n products, computed with unit
roundoff u, is off by at most γₙ Σ |aᵢ bᵢ| with γₙ = n u / (1 − n u).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrepro.machine.observation import Observation, why

Array = npt.NDArray[np.float32]
Product = Callable[[Array, Array], Array]  # of two matrices, or of images and kernels
Lying = tuple[bool, bool]

# rows, inner and columns of a layer's product: a minibatch by its weights, at the sizes of FedAvg's
# perceptron and convolutional network, PFNM's perceptron, and the gates of the character LSTM
LAYERS = ((10, 784, 200), (10, 200, 10), (50, 3136, 512), (32, 784, 100), (10, 256, 1024))
# images and kernels of FedAvg's convolutional network, of its first layer on CIFAR-10 and of a 3×3
IMAGES = (
    ((10, 1, 28, 28), (32, 1, 5, 5)),
    ((10, 32, 12, 12), (64, 32, 5, 5)),
    ((10, 3, 24, 24), (64, 3, 5, 5)),
    ((4, 32, 16, 16), (32, 32, 3, 3)),
)
# where bytes were seen to depend on the place: a few rows, by matrices that lie transposed
PLACED = tuple(
    (rows, *size) for rows in (1, 2, 5, 10) for size in ((784, 100), (200, 10), (51, 10))
)
OFFSETS = (0, 1, 2, 4, 8)  # from a cache line, in numbers of four bytes
LINE = 64  # bytes of a cache line
TF32 = 2.0**-10  # to which cuDNN may cut the factors of a convolution off
# what makes bytes depend on the values alone
STEADY = {
    "torch": "unset MKL_CBWR, or set MKL_CBWR=COMPATIBLE, which is slower, and start again",
    "numpy": "name a branch of OpenBLAS by OPENBLAS_CORETYPE, and start again",
    "scipy": "name a branch of OpenBLAS by OPENBLAS_CORETYPE, and start again",
}


def gamma(n: int, kind: type[np.floating[Any]]) -> float:
    """γₙ of a kind of numbers."""
    unit = float(np.finfo(kind).eps) / 2
    return n * unit / (1 - n * unit)


def share_of_bound(computed: Array, left: Array, right: Array, rounded: float = 0.0) -> float:
    """The largest error of a product as a share of what float32 may be off; infinite for NaN.

    computed: (r, c); left: (r, n); right: (n, c). rounded: unit roundoff to which a device shortens
    the factors first. The product to compare with is summed in float64 by numpy itself, without any
    BLAS; it may be off by a γₙ of its own, as may the sum of absolute values.
    """
    n, a, b = left.shape[1], left.astype(np.float64), right.astype(np.float64)
    exact = np.einsum("rn,nc->rc", a, b, optimize=False)
    sums = np.einsum("rn,nc->rc", np.abs(a), np.abs(b), optimize=False)
    shortened = (1 + rounded) ** 2
    relative = shortened - 1 + gamma(n, np.float32) * shortened
    exact_gamma = gamma(n, np.float64)
    share = np.max(np.abs(computed - exact) / ((relative + exact_gamma) * sums / (1 - exact_gamma)))
    return float(share) if np.isfinite(share) else np.inf


def drawn(*shapes: tuple[int, ...]) -> list[Array]:
    """Standard normal numbers, the same every time."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def forms(size: Sequence[int]) -> Iterator[tuple[str, Array, Array, Lying]]:
    """The three products of a layer: forward, gradient of its weights, gradient of its input.

    Matrices as they lie in memory, and whether each is transposed in the product.
    """
    rows, inner, columns = size
    x, w, g = drawn((rows, inner), (inner, columns), (rows, columns))
    at = "×".join(map(str, size))
    yield f"x w at {at}", x, w, (False, False)
    yield f"xᵀ g at {at}", x, g, (True, False)
    yield f"g wᵀ at {at}", g, w, (False, True)


def turned(a: Array, b: Array, lying: Lying) -> tuple[Array, Array]:
    return (a.T if lying[0] else a), (b.T if lying[1] else b)


def worst_product(product: Product) -> tuple[float, str]:
    """The largest share of the bound that a product takes, and where."""
    worst = (0.0, "")
    for size in LAYERS:
        for where, a, b, lying in forms(size):
            factors = turned(a, b, lying)
            worst = max(worst, (share_of_bound(product(*factors), *factors), where))
    return worst


def worst_convolution(convolve: Product, rounded: float = 0.0) -> tuple[float, str]:
    """The same of a convolution without padding, as a product of patches and kernels."""
    worst = (0.0, "")
    for shapes in IMAGES:
        images, kernels = drawn(*shapes)
        patches = np.lib.stride_tricks.sliding_window_view(images, kernels.shape[2:], (2, 3))
        left = patches.transpose(0, 2, 3, 1, 4, 5).reshape(-1, kernels[0].size)
        product = np.moveaxis(convolve(images, kernels), 1, 3).reshape(len(left), -1)
        share = share_of_bound(product, left, kernels.reshape(len(kernels), -1).T, rounded)
        worst = max(worst, (share, sizes(shapes)))
    return worst


def sizes(shapes: Sequence[Sequence[int]]) -> str:
    return "images and kernels " + ", ".join("×".join(map(str, shape)) for shape in shapes)


def placed(array: Array, offset: int) -> Array:
    """A copy that begins so many numbers after the beginning of a cache line."""
    step = array.itemsize
    room = np.empty(array.size + 2 * LINE // step, array.dtype)
    start = -room.ctypes.data % LINE // step + offset
    copy = room[start : start + array.size].reshape(array.shape)
    copy[...] = array
    return copy


def results(product: Product, a: Array, b: Array, lying: Lying = (False, False)) -> int:
    """How many different results a product has as its matrices move in memory."""
    distinct = set()
    for i in OFFSETS:
        for j in OFFSETS:
            result = product(*turned(placed(a, i), placed(b, j), lying))
            distinct.add(np.ascontiguousarray(result).tobytes())
    return len(distinct)


def moved_product(product: Product) -> str:
    """Where a product's bytes depend on the place of its matrices; empty if nowhere."""
    for size in PLACED:
        for where, a, b, lying in forms(size):
            if results(product, a, b, lying) > 1:
                return where
    return ""


def moved_convolution(convolve: Product) -> str:
    """The same of a convolution."""
    for shapes in IMAGES:
        images, kernels = drawn(*shapes)
        if results(convolve, images, kernels) > 1:
            return sizes(shapes)
    return ""


def _torch(device: str) -> Mapping[str, Product]:
    import torch

    def there(array: Array) -> Any:
        return torch.from_numpy(array).to(device)

    def stacked(a: Array, b: Array) -> Any:
        """The second of two models at once."""
        return torch.bmm(*(there(x).expand(2, -1, -1) for x in (a, b)))[1].cpu().numpy()

    name = "torch" if device == "cpu" else f"torch on {device}"
    linear = torch.ops.mkldnn._linear_pointwise
    by_onednn = {
        "torch linear": lambda a, b: linear(there(a), there(b).T, None, "none", [], "").numpy()
    }
    return {
        **(
            by_onednn
            if device == "cpu" and import_module("torch.backends.mkldnn").is_available()
            else {}
        ),
        f"{name} mm": lambda a, b: (there(a) @ there(b)).cpu().numpy(),
        f"{name} bmm": stacked,
        f"{name} conv2d": lambda a, b: torch.conv2d(there(a), there(b)).cpu().numpy(),
    }


def _numpy() -> Mapping[str, Product]:
    return {"numpy matmul": lambda a, b: a @ b}


def _scipy() -> Mapping[str, Product]:
    from scipy.linalg.blas import sgemm

    def gemm(a: Array, b: Array) -> Array:
        """Given to BLAS as they lie: it takes columns first, so rows first is transposed."""
        turn = [not x.flags.f_contiguous for x in (a, b)]
        lying = [x.T if turned else x for x, turned in zip((a, b), turn, strict=True)]
        product: Array = sgemm(1.0, *lying, trans_a=turn[0], trans_b=turn[1])
        return product

    return {"scipy sgemm": gemm}


def _gpu() -> Mapping[str, Product]:
    import torch

    return _torch("cuda") if torch.cuda.is_available() else {}


LIBRARIES: dict[str, Callable[[], Mapping[str, Product]]] = {
    "torch": lambda: _torch("cpu"),
    "numpy": _numpy,
    "scipy": _scipy,
    "GPU": _gpu,
}


def products() -> Iterator[Observation]:
    """A line for each product of each library; nothing is raised."""
    for library, load in LIBRARIES.items():
        try:
            for name, product in load().items():
                yield checked(name, product)
        except Exception as error:  # whatever is broken there is what was asked for
            yield Observation(library, f"cannot compute ({why(error)})", wrong=True)


def rightness(name: str, product: Product) -> Observation:
    """Whether a product is right."""
    images, gpu = name.endswith("conv2d"), "cuda" in name
    if images:
        share, where = worst_convolution(product, TF32 if gpu else 0.0)
    else:
        share, where = worst_product(product)
    may = "what TF32 may be" if images and gpu else "what float32 may be"
    if share > 1:
        return Observation(
            name,
            f"WRONG: {where} is off by {share:.2g} times {may}; neither this processor nor this "
            "build of the library can be trusted: run `make env` again, or take another machine",
            wrong=True,
        )
    return Observation(name, f"right: off by at most {share:.1g} of {may}")


def checked(name: str, product: Product) -> Observation:
    """Whether a product is right, and on the CPU whether its bytes stay as matrices move."""
    observation = rightness(name, product)
    text = observation.words
    if observation.wrong or "cuda" in name:
        return observation
    images = name.endswith("conv2d")
    moved = moved_convolution(product) if images else moved_product(product)
    if moved:
        return Observation(
            name,
            f"{text}; but its BYTES DEPEND on where matrices lie in memory ({moved}), and so what "
            f"is trained on what is trained beside it: {STEADY[name.split()[0]]}",
            wrong=True,
        )
    return Observation(name, f"{text}; the same bytes wherever matrices lie")
