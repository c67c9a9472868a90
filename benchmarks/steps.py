"""A step of convolutional and recurrent networks against plain PyTorch and the core's peak.

    .venv/bin/fedrepro bench steps [--only NAME] [--avx2]

One thread. Both compute with the widest vectors that the processor has (with --avx2: with the code
for AVX2): PyTorch by oneDNN and MKL, with torch.nn and SGD, on a minibatch that is there already.
The peak is what our own product reaches on matrices that stay in the first caches; the share of it
counts the multiplications and additions of a step, also those of zero errors, which ours leaves
out. A dense step is held against its bare matrix products by the fastest library.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import harness

PLAYED = "--avx2" in sys.argv  # decided before Numba, NumPy and torch are loaded
if PLAYED:
    os.environ["NUMBA_CPU_NAME"] = "haswell"
    os.environ["NUMBA_CPU_FEATURES"] = (
        "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse4.2"
    )
harness.one_thread(pinned=PLAYED)
if PLAYED:
    os.environ["MKL_CBWR"] = "AVX2"

import bare  # noqa: E402
import numba  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

from fedrepro.core.portable_ops.compiled_functions_and_products import WIDE, multiplier, product  # noqa: E402
from fedrepro.core.portable_ops.padding_and_alignment import aligned  # noqa: E402
from fedrepro.core.registry import parse_token  # noqa: E402
from fedrepro.core.rng import RngKey  # noqa: E402
from fedrepro.networks.layers import Convolution2d  # noqa: E402
from fedrepro.networks.network import Network  # noqa: E402
from fedrepro.networks.predict import network_of  # noqa: E402
from fedrepro.training.compiled_trainer import CompiledTrainer  # noqa: E402
from fedrepro.training.minibatches_and_augmentation import Task  # noqa: E402
from fedrepro.training.training_examples import Examples  # noqa: E402
from fedrepro.training.training_settings_and_procedures import Procedure, Settings  # noqa: E402

STEPS, MANY = 16, 500  # of a run, of dense networks
AVX512 = WIDE


@dataclass(frozen=True)
class Case:
    """A network, a minibatch, and what is asked of a step on an AVX-512 and an AVX2 machine.

    share: of the peak; faster: times plain PyTorch takes.
    """

    model: str
    shape: tuple[int, ...]
    classes: int
    batch: int
    share: tuple[float, float] | None
    faster: tuple[float, float]


LENET = "cnn+channels~6@16+hidden~120@84+padding~valid"
CASES = {
    "fedavg-cnn-10": Case("cnn", (1, 28, 28), 10, 10, (0.75, 0.75), (2, 1.3)),
    "fedavg-cnn-50": Case("cnn", (1, 28, 28), 10, 50, (0.75, 0.75), (2, 1.3)),
    "rm-cnn-64": Case("cnn+hidden~1024", (3, 32, 32), 10, 64, (0.75, 0.75), (2, 1.3)),
    "lenet-28-64": Case(LENET, (1, 28, 28), 10, 64, None, (1.8, 1.8)),
    "lenet-32-64": Case(LENET, (3, 32, 32), 10, 64, None, (1.8, 1.8)),
    "char-lstm-10": Case("char_lstm", (80,), 90, 10, None, (1.05, 1.0)),
}


def ours(
    network: Network, case: Case, adam: bool = False, steps: int = STEPS
) -> Callable[[], None]:
    """Some steps of the engine on the same minibatches."""
    x, y = data(case)
    given = Settings("adam" if adam else "sgd", 0.01, 0.0, case.batch, 1, 0.1, 0.1, True,
                     init="fan_in", amsgrad=adam)  # fmt: skip
    trainer = CompiledTrainer(Procedure(network, given), Examples(x, y), False)
    start = {k: v[None] for k, v in network.initial(RngKey(0), 0.1, 0.1, "fan_in").items()}
    task = Task(np.arange(len(x)), RngKey(0), steps=steps)

    def run() -> None:
        list(trainer.parts([task], start, None, None))

    return run


def data(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Random inputs (N, D) and labels: four minibatches."""
    rng, count = np.random.default_rng(0), 4 * case.batch
    x = rng.random((count, int(np.prod(case.shape))), np.float32)
    if len(case.shape) == 1 and case.model == "char_lstm":
        x = rng.integers(0, case.classes, x.shape).astype(np.uint8)
    return torch.from_numpy(x), torch.from_numpy(rng.integers(0, case.classes, count))


def plain(network: Network, case: Case) -> Callable[[], None]:
    """As many steps of torch.nn."""
    x, y = data(case)
    if network.kind == "recurrent":
        parts = nn.ModuleList([nn.Embedding(90, 8), nn.LSTM(8, 256, 2), nn.Linear(256, 90)])
        x = x.long().T[:, : case.batch].contiguous()

        def logits() -> torch.Tensor:
            return parts[2](parts[1](parts[0](x))[0][-1])
    else:
        layers: list[nn.Module] = []
        for layer, shape, _ in network.places:
            name = type(layer).__name__
            if name == "Convolution2d":
                layers.append(
                    nn.Conv2d(shape[0], layer.channels, layer.kernel, padding=layer.padding)
                )
            elif name == "Affine":
                layers += [nn.Flatten(), nn.Linear(int(np.prod(shape)), layer.units)]
            else:
                layers.append(nn.ReLU() if name == "Relu" else nn.MaxPool2d(2))
        parts = nn.Sequential(*layers)
        x = x[: case.batch].view(case.batch, *case.shape)

        def logits() -> torch.Tensor:
            return parts(x)

    optimiser = torch.optim.SGD(parts.parameters(), 0.01)

    def run() -> None:
        for _ in range(STEPS):
            optimiser.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(logits(), y[: case.batch]).backward()
            optimiser.step()

    return run


def operations(network: Network, case: Case) -> float:
    """Multiplications and additions of a step: forward, and both gradients of every layer."""
    below = 0
    for layer, shape, _ in network.places[:1]:
        if isinstance(layer, Convolution2d):  # of the images no gradient is asked
            below = int(np.prod(layer.output(shape))) * layer.kernel**2 * shape[0]
    return 2.0 * case.batch * (3 * network.products - below)


@numba.njit
def _repeat(by, out, begin, a, b, rows, inner, columns, times):
    for _ in range(times):
        product(by, (out, 0, columns), (begin, 0, 0), (a, 0, inner, 1), (b, 0, columns),
                (rows, inner, columns))  # fmt: skip


def peak() -> float:
    """Operations a second that our product reaches in the first caches."""
    rows, inner, columns, times = 120, 128, 96, 400
    a, b = aligned(rows * inner, np.float32), aligned(inner * columns, np.float32)
    out, begin, by = (
        aligned(rows * columns, np.float32),
        aligned(columns, np.float32),
        multiplier("float32"),
    )
    given = by.address, out, begin, a, b, rows, inner, columns
    _repeat(*given, 1)
    best = np.inf
    for _ in range(9):
        began = time.perf_counter()
        _repeat(*given, times)
        best = min(best, (time.perf_counter() - began) / times)
    return 2.0 * rows * inner * columns / best


def main() -> int:
    parser = harness.options(__doc__, runs=15)
    parser.add_argument("--only", choices=[*CASES, "dense"], help="of one network alone")
    parser.add_argument("--avx2", action="store_true", help="play a processor with AVX2 alone")
    given = parser.parse_args()
    torch.set_num_threads(1)
    place, highest, shares = 0 if AVX512 else 1, peak(), {}
    targets, measured = [], {}
    for name, case in CASES.items():
        if given.only not in (None, name):
            continue
        network = network_of(parse_token("model", case.model), case.shape, case.classes)
        run, torch_run = ours(network, case), plain(network, case)
        pair = {
            f"{name}, fedrepro": harness.timed(lambda run=run: run() or {}),
            f"{name}, plain PyTorch": harness.timed(lambda run=torch_run: run() or {}),
        }
        found = harness.in_turn(pair, given.runs)
        measured |= found
        faster = harness.times_faster(found, *pair)
        targets.append(harness.Target(f"{name}: times plain PyTorch", faster, case.faster[place]))
        seconds = harness.median(found[f"{name}, fedrepro"]) / STEPS
        shares[name] = {
            "milliseconds": round(seconds * 1e3, 2),
            "share_of_peak": round(operations(network, case) / seconds / highest, 3),
        }
        if case.share:
            reached = shares[name]["share_of_peak"]
            targets.append(harness.Target(f"{name}: of the peak", reached, case.share[place]))
    if given.only in (None, "dense"):
        case = Case("mlp", (784,), 10, 32, None, (1.0, 1.1))
        network = network_of(parse_token("model", "mlp"), case.shape, case.classes)
        operands, run = bare.of_network(case.batch, (784, 50, 10)), ours(network, case, True, MANY)
        contenders = {"dense, fedrepro": harness.timed(lambda: run() or {})}
        for library, multiply in bare.LIBRARIES.items():
            work = bare.repeated(operands, MANY, multiply)
            name = f"dense, products by {library}"
            contenders[name] = harness.timed(lambda run=work: run() or {})
        found = harness.in_turn(contenders, 20 * given.runs)
        measured |= found
        fastest = harness.fastest(found, [name for name in contenders if "products" in name])
        ratio = 1 / harness.times_faster(found, "dense, fedrepro", fastest)
        what = f"dense: times the {fastest.removeprefix('dense, ')}"
        targets.append(harness.Target(what, ratio, case.faster[place], at_least=False))
    return harness.conclude(
        "steps-avx2" if PLAYED else "steps", given.results,
        {"steps": STEPS, "runs": given.runs}, measured, targets,
        peak_gigaflops=round(highest / 1e9, 1), by_network=shares,
        vectors="AVX-512" if AVX512 else "AVX2",
    )  # fmt: skip


if __name__ == "__main__":
    harness.main(main)
