"""The training engine of two checkouts in turn, each in its own process, by processor time.

    .venv/bin/fedrepro bench revisions --before ../other-checkout

For a machine that does other work too: runs that follow each other have like shares of its caches.
The work is made up: an epoch of 25 clients of MLP-50 under Adam, 40
rounds of averaging logistic models, and a round of 8 clients with the CNN of pfl. The bare products
of the MLP run in turn with it, as in `bench training`. This checkout may take a twentieth longer.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import harness

harness.one_thread()

import numpy as np  # noqa: E402
import torch  # noqa: E402

NAMES = {
    "registry": "core.registry",
    "rng": "core.rng",
    "predict": "networks.predict",
    "clients": "training.federation.clients",
    "engine": "training.engine",
    "trainer": "training.compiled_trainer",  # imported by the engine when it trains
    "examples": "training.training_examples",
    "minibatches": "training.minibatches_and_augmentation",
    "settings": "training.training_settings_and_procedures",
}
BEFORE = {"examples": "examples", "minibatches": "minibatches", "settings": "training_settings"}
SLACK = 1.05
Work = Callable[[], object]


def works_of(checkout: Path, names: Sequence[str]) -> dict[str, Work]:
    """The works by the modules of a checkout; what was loaded before is forgotten."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "fedrepro"]:
        del sys.modules[name]
    sys.path.insert(0, str(checkout / "src"))
    names_there = dict(NAMES)
    for key, name in BEFORE.items():  # of earlier revisions
        if (checkout / f"src/fedrepro/training/{name}.py").exists():
            names_there[key] = f"training.{name}"
    found = {key: importlib.import_module(f"fedrepro.{name}") for key, name in names_there.items()}
    return {name: WORKS[name](SimpleNamespace(**found)) for name in names}


def serve(checkout: Path, names: Sequence[str], pipe: Connection) -> None:
    """Do the works that the pipe names; answer with their processor time."""
    works = works_of(checkout, names)
    while True:
        name = pipe.recv()
        began = time.process_time()
        works[name]()
        pipe.send(time.process_time() - began)


def contender_of(pipe: Connection, name: str) -> harness.Contender:
    """Ask a checkout's process for a work. Two checkouts in one process do not run alike.

    Numba knows the named tuples of the first of them faster than those of the second.
    """

    def run() -> dict[str, float]:
        pipe.send(name)
        return {"seconds": pipe.recv()}

    return harness.measured_by_itself(run)


def perceptrons(given: SimpleNamespace) -> Work:
    """An epoch of 25 clients of MLP-50, Adam with AMSGrad, minibatches of 32."""
    rng = np.random.default_rng(0)
    inputs, labels = rng.integers(0, 256, (60_000, 784), np.uint8), rng.integers(0, 10, 60_000)
    examples = given.examples.Examples(torch.from_numpy(inputs), torch.from_numpy(labels), 255.0)
    network, settings = parts(given, "mlp", (28, 28), "adam+epochs~1")
    rows = np.split(rng.permutation(len(labels)), 25)
    tasks = [given.minibatches.Task(own, given.rng.RngKey(0, 0, j)) for j, own in enumerate(rows)]
    start = given.clients.initial_weights(network, settings, [task.rng for task in tasks])
    return lambda: given.engine.train(network, examples, tasks, settings, start)


def rounds(
    given: SimpleNamespace,
    model: str,
    shape: tuple[int, ...],
    examples: int,
    cohort: int,
    count: int,
) -> Work:
    """Rounds of federated averaging, minibatches of 10."""
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.random((20_000, int(np.prod(shape))), np.float32))
    held = given.examples.Examples(inputs, torch.from_numpy(rng.integers(0, 10, len(inputs))))
    network, settings = parts(given, model, shape, "sgd+batch_size~10+epochs~1+init~fan_in+lr~0.03")
    rows = [rng.choice(len(inputs), examples, replace=False) for _ in range(1000)]

    def run() -> object:
        weights = given.clients.initial_weights(network, settings, [given.rng.RngKey(0, client=-1)])
        for done in range(count):
            place = given.rng.RngKey(0, round=done)
            drawn = place.stream("cohort").choice(len(rows), cohort, replace=False)
            tasks = [given.minibatches.Task(rows[j], place.at(client=int(j))) for j in drawn]
            share = [1 / cohort] * cohort
            engine = given.engine  # an earlier checkout calls it `average`
            average = getattr(engine, "train_and_average", None) or engine.average
            found = average(network, held, tasks, settings, weights, share)
            weights = found.tensors
        return weights

    return run


def parts(given: SimpleNamespace, model: str, shape: tuple[int, ...], training: str) -> tuple:
    """The network and the settings that two tokens stand for."""
    spec = given.registry.parse_token
    network = given.predict.network_of(spec("model", model), shape, 10)
    return network, given.settings.settings_of(spec("training", training))


WORKS: dict[str, Callable[[SimpleNamespace], Work]] = {
    "mlp": perceptrons,
    "lr-mnist": lambda given: rounds(given, "logistic", (784,), 100, 10, 40),
    "cifar-cnn": lambda given: rounds(
        given, "cnn+hidden~128+kernel~3+padding~valid+pool_every~2", (3, 32, 32), 50, 8, 1
    ),
}


def products(minibatches: int = 1875, models: int = 9) -> None:
    """The five products of each minibatch of the MLP, as `bench training` has them."""
    x, first, second = (torch.rand(models, *s) for s in ((32, 784), (784, 50), (50, 10)))
    hidden, error = torch.rand(models, 32, 50), torch.rand(models, 32, 10)
    outs = [torch.empty_like(part) for part in (hidden, error, second, hidden, first)]
    for _ in range(minibatches // models):
        torch.bmm(x, first, out=outs[0])
        torch.bmm(hidden, second, out=outs[1])
        torch.bmm(hidden.transpose(1, 2), error, out=outs[2])
        torch.bmm(error, second.transpose(1, 2), out=outs[3])
        torch.bmm(x.transpose(1, 2), hidden, out=outs[4])


def main() -> int:
    parser = harness.options(__doc__, runs=9)
    parser.add_argument("--before", type=Path, required=True, help="folder of the other checkout")
    parser.add_argument("--works", nargs="*", choices=list(WORKS), default=list(WORKS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    checkouts = {"before": given.before.resolve(), "now": harness.ROOT}
    pipes = {}
    for when, folder in checkouts.items():
        pipes[when], theirs = Pipe()
        Process(target=serve, args=(folder, given.works, theirs), daemon=True).start()
    measured, targets, ratios = {}, [], {}
    for name in given.works:
        contenders = {when: contender_of(pipe, name) for when, pipe in pipes.items()}
        if name == "mlp":
            contenders["products"] = harness.by_processor_time(products)
        found = harness.in_turn(contenders, given.runs)
        slower = ratio(found, "now", "before")
        targets.append(harness.Target(f"{name}: now against before", slower, SLACK, at_least=False))
        for when in checkouts if name == "mlp" else ():
            ratios[f"{when}_against_products"] = round(ratio(found, when, "products"), 3)
        measured |= {f"{name} {when}": runs for when, runs in found.items()}
    return harness.conclude(
        "revisions", given.results, {"runs": given.runs}, measured, targets, **ratios
    )


def ratio(found: dict[str, list[harness.Timed]], one: str, other: str) -> float:
    """Median over paired runs of the time of one by that of the other."""
    pairs = zip(found[one], found[other], strict=True)
    return statistics.median(mine.seconds / theirs.seconds for mine, theirs in pairs)


if __name__ == "__main__":
    harness.main(main)
