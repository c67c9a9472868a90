"""Thousands of clients in bounded memory: 10,000 of MLP-50 with 60 examples each.

    .venv/bin/fedrepro bench memory

For each number of clients a process of its own runs the stages train and aggregate (the average of
all, and PFNM on a block of them) on generated data in the form of MNIST, and reports its largest
resident memory and the seconds of each stage. Memory is to stay below 4 GiB, and seconds are to
grow no faster than the clients.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness

harness.one_thread()

EXAMPLES = 60
LIMIT_GIB = 4.0
# a straight line, with room for what a cache that overflows costs
LARGEST_EXPONENT = 1.1


def main() -> int:
    parser = harness.options(__doc__, runs=1)
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--block", type=int, default=25, help="clients that PFNM matches")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--one", type=int, help="run in this process for this many clients")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one, given.block, given.epochs)))
        return 0
    contenders = {f"{count} clients": process(given, count) for count in given.clients}
    measured = harness.in_turn(contenders, given.runs, warm=False)
    most = measured[f"{max(given.clients)} clients"]
    few, many = (f"{pick(given.clients)} clients" for pick in (min, max))
    growth = math.log(harness.median(measured[many]) / harness.median(measured[few]))
    exponent = growth / math.log(max(given.clients) / min(given.clients))
    return harness.conclude(
        "memory",
        given.results,
        {"examples": EXAMPLES, "epochs": given.epochs, "block": given.block, "runs": given.runs},
        measured,
        [
            harness.Target(
                f"GiB at most for {max(given.clients)} clients",
                max(run.values["gib"] for run in most),
                LIMIT_GIB,
                at_least=False,
            ),
            harness.Target(
                "exponent of seconds in clients", exponent, LARGEST_EXPONENT, at_least=False
            ),
        ],
    )


def process(given, count: int) -> harness.Contender:
    words = [sys.executable, __file__, "--one", str(count)]
    words += ["--block", str(given.block), "--epochs", str(given.epochs)]

    def run() -> harness.Timed:
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        return harness.Timed(found.pop("seconds"), found)

    return run


def one(clients: int, block: int, epochs: int) -> dict[str, float]:
    """Train and aggregate through the stages of the workflow; seconds without imports."""
    import scipy.optimize
    import torch

    from fedrepro.core.registry import parse_token
    from fedrepro.planning.scenarios_runs_and_jobs import Job, Scenario
    from fedrepro.stages import aggregate, data
    from fedrepro.stages import train_local_models as train

    torch.set_num_threads(1)
    assert scipy.optimize  # loaded before the clock starts
    spec = parse_token
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        generate(home / "data", clients * EXAMPLES)
        partition = spec("partition", f"homogeneous+clients~{clients}")
        data.partition(home / "data", partition, range(1), 0, home / "members.parquet")
        training = spec("training", f"adam+epochs~{epochs}" if epochs != 10 else "adam")
        scenario = Scenario(spec("dataset", "mnist"), partition, spec("model", "mlp"), training)
        models, specs = home / "local.parquet", {part.kind: part for part in scenario.specs}
        same = {
            "trials": range(1),
            "data": str(home / "data"),
            "members": str(home / "members.parquet"),
        }

        def trained() -> None:
            train.run(Job("train", str(home), specs, clients=range(clients), **same))

        def averaged() -> None:
            both = specs | {"method": spec("method", "average")}
            aggregate.run(Job("aggregate", str(home), both, local=(str(models),), **same))

        found = {"train": clock(trained), "average": clock(averaged)}
        found["pfnm"] = clock(lambda: match_block(models, home, min(block, clients)))
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"seconds": found["train"] + found["average"], **found, "gib": gib}


def match_block(models: Path, home: Path, block: int) -> None:
    """PFNM on the first clients of all."""
    from fedrepro.api import ClientInfo, LocalModels
    from fedrepro.core.checkpoint_and_model_files import read_models
    from fedrepro.core.registry import parse_token
    from fedrepro.core.rng import RngKey
    from fedrepro.data.partitions_populations_and_holdouts import read_partition
    from fedrepro.data.prepared import load_prepared

    prepared = load_prepared(home / "data")
    members = read_partition(home / "members.parquet", 0)
    counts = members.label_counts(prepared.labels("train"), len(prepared.classes))[:block]
    tensors = {name: value[:block] for name, value in read_models([models], [0])[0].tensors.items()}
    dims = math.prod(prepared.shape)
    local = LocalModels(parse_token("model", "mlp"), dims, counts.shape[1], tensors)
    info = ClientInfo(parse_token("training", "adam"), label_counts=counts)
    method = parse_token("method", "pfnm")
    method.component.fn(local, info, rng=RngKey(0, 0), **method.values)


def generate(folder: Path, examples: int) -> None:
    """Noisy copies of ten patterns, as a prepared data set of MNIST's shape."""
    import numpy as np

    from fedrepro.core.registry import parse_token
    from fedrepro.data.prepared import Arrays, write_prepared

    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, (10, 28, 28), np.uint8)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % 10
        noise = rng.integers(0, 64, (count, 28, 28), np.uint8)
        return patterns[labels] // 2 + noise, labels.astype(np.int64)

    splits = {"train": draw(examples), "validation": draw(0), "test": draw(1000)}
    arrays = Arrays(
        {name: x for name, (x, _) in splits.items()},
        {name: y for name, (_, y) in splits.items()},
        scale=255.0,
        shape=(28, 28),
        classes=tuple("0123456789"),
    )
    write_prepared(folder, arrays, parse_token("dataset", "mnist"), {})


def clock(work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    harness.main(main)
