"""Which way gradients are computed fastest, per kind of network, and the table of the engine.

    .venv/bin/fedrepro bench paths [--device cpu|cuda] [--write]

Eight clients with five minibatches each are trained on made-up data by every path that can train
the network: the compiled loop, one stacked pass with grouped convolutions, or one model after
another. What a step costs does not depend on the values. --write puts the fastest of each kind into
src/fedrepro/training/paths.json. The engine's own choice may cost at most a tenth more than the
fastest path.

On the CPU, beliefs are trained as peers do, by Adam with what was received as prior, at two sizes
of minibatches: compiled, by automatic differentiation, and as the bare float32 products of such a
step, all by processor time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import harness

harness.one_thread()

import bare  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

from fedrepro.core.registry import parse_token  # noqa: E402
from fedrepro.core.rng import Rng  # noqa: E402
from fedrepro.federation.clients import own_starts  # noqa: E402
from fedrepro.networks.network import Network  # noqa: E402
from fedrepro.networks.predict import network_of  # noqa: E402
from fedrepro.training.engine import train  # noqa: E402
from fedrepro.training.examples import Examples  # noqa: E402
from fedrepro.training.minibatches import Task  # noqa: E402
from fedrepro.training.paths import StepPath, choose, possible  # noqa: E402
from fedrepro.training.procedure import Procedure  # noqa: E402
from fedrepro.training.settings import settings_of  # noqa: E402
from fedrepro.training.terms import GaussianPrior  # noqa: E402

TABLE = harness.ROOT / "src" / "fedrepro" / "training" / "paths.json"
CLIENTS, STEPS = 8, 5
SLACK = 1.1
SETTINGS = settings_of(parse_token("training", "sgd"))
# minibatches of beliefs, by how much the compiled loop is to be faster than loop, and how much
# slower than products it may be
BELIEFS = {64: (2.5, 3.0), 128: (2.0, None)}
BELIEF_STEPS = 40


@dataclass(frozen=True)
class Case:
    """A network of one kind, shape and range of its inputs, classes, and a minibatch."""

    model: str
    shape: tuple[int, ...]
    classes: int
    batch: int
    codes: int = 256

    @property
    def network(self) -> Network:
        return network_of(parse_token("model", self.model), self.shape, self.classes)


# the networks that the papers train most, one of each kind
CASES = (
    Case("mlp", (28, 28), 10, 32),
    Case("cnn", (28, 28), 10, 10),
    Case("char_lstm", (80,), 80, 10, codes=80),
    Case("variational_mlp", (28, 28), 10, 32),
)


def contender(case: Case, path: str, device: str) -> Callable[[], dict[str, float]]:
    """Training of this network by one path."""
    network = case.network
    rng = np.random.default_rng(0)
    count = CLIENTS * STEPS * case.batch
    inputs = rng.integers(0, case.codes, (count, int(np.prod(case.shape))), np.uint8)
    labels = rng.integers(0, case.classes, count)
    scale = 1.0 if case.codes < 256 else 255.0
    examples = Examples(
        torch.from_numpy(inputs).to(device), torch.from_numpy(labels).to(device), scale
    )
    given = {"batch_size": case.batch, "epochs": 1, "init": "fan_in"}
    settings = settings_of(parse_token("training", "sgd").component.spec(given))
    rows = np.split(np.arange(count), CLIENTS)
    tasks = [Task(own, Rng(0, 0, client)) for client, own in enumerate(rows)]
    start = own_starts(network, settings, [task.rng for task in tasks])

    def run() -> dict[str, float]:
        trained = train(network, examples, tasks, settings, start, path=path)  # type: ignore[arg-type]
        if device == "cuda":
            torch.cuda.synchronize()
        return {"microseconds": trained.seconds / int(trained.steps.sum()) * 1e6}

    return run


Measured = dict[str, list[harness.Timed]]


def beliefs(
    batch: int,
) -> tuple[dict[str, harness.Contender], Callable[[Measured], list[harness.Target]]]:
    """Training of one belief by two paths, and the products of its steps; what they are held to."""
    network = Case("variational_mlp", (28, 28), 10, batch).network
    rng = np.random.default_rng(0)
    count = BELIEF_STEPS * batch
    examples = Examples(
        torch.from_numpy(rng.integers(0, 256, (count, 784), np.uint8)),
        torch.from_numpy(rng.integers(0, 10, count)),
        255.0,
    )
    given = {"batch_size": batch, "epochs": 1, "lr": 1e-3, "amsgrad": False, "l2": 0.0}
    settings = settings_of(parse_token("training", "adam").component.spec(given))
    tasks = [Task(np.arange(count), Rng(0, 0, 0))]
    start = own_starts(network, settings, [tasks[0].rng])

    def trained(path: StepPath) -> harness.Contender:
        return harness.by_processor_time(
            lambda: train(
                network, examples, tasks, settings, start, terms=[GaussianPrior()], path=path
            )
        )

    ours, loop, products = (f"beliefs of {batch}, {what}" for what in ("compiled", "loop", "MKL"))
    contenders = {
        ours: trained("compiled"),
        loop: trained("loop"),
        products: harness.by_processor_time(
            bare.repeated(
                bare.of_network(batch, (784, 400, 10)), BELIEF_STEPS, bare.LIBRARIES["MKL"]
            )
        ),
    }
    faster, slower = BELIEFS[batch]

    def targets(measured: Measured) -> list[harness.Target]:
        found = [
            harness.Target(
                f"{ours} against loop", harness.times_faster(measured, ours, loop), faster
            )
        ]
        if slower is not None:
            ratio = harness.times_faster(measured, products, ours)
            found.append(harness.Target(f"{ours} against products", ratio, slower, at_least=False))
        return found

    return contenders, targets


def main() -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--write", action="store_true", help="write the fastest into the table")
    given = parser.parse_args()
    torch.set_num_threads(1)
    measured: Measured = {}
    targets, fastest = [], {}
    for case in CASES:
        kind = case.network.kind
        contenders = {
            path: harness.timed(contender(case, path, given.device))
            for path in possible(Procedure(case.network, SETTINGS), given.device)
        }
        found = harness.in_turn(contenders, given.runs)
        fastest[kind] = min(found, key=lambda path: harness.median(found[path]))
        chosen = choose(Procedure(case.network, SETTINGS), given.device)
        slower = harness.median(found[chosen]) / harness.median(found[fastest[kind]])
        targets.append(
            harness.Target(
                f"{kind}: {chosen} against {fastest[kind]}", slower, SLACK, at_least=False
            )
        )
        measured |= {f"{case.model} {path}": runs for path, runs in found.items()}
    for batch in BELIEFS if given.device == "cpu" else ():
        contenders, held = beliefs(batch)
        found = harness.in_turn(contenders, given.runs)
        targets += held(found)
        measured |= found
    if given.write:
        write(given.device, fastest, TABLE)
    name = "paths" if given.device == "cpu" else f"paths-{given.device}"
    settings = {"clients": CLIENTS, "steps": STEPS, "runs": given.runs, "device": given.device}
    return harness.conclude(name, given.results, settings, measured, targets, fastest=fastest)


def write(device: str, fastest: dict[str, str], table: Path) -> None:
    """Replace the row of a device."""
    rows = json.loads(table.read_text(encoding="utf-8")) | {device: fastest}
    lines = [f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items()]
    table.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    harness.main(main)
