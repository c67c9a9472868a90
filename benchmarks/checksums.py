"""What checksums cost a job: the share of its processor time that goes into computing them.

    .venv/bin/fedrepro bench checksums

Runs the jobs of a scenario through their stages, each in a process that is forked as the workflow
forks them, on generated data in the form of MNIST: as figure 2a has it (25 clients of 2400
examples, ten epochs, a job for each method, ten rounds), which the target is for; and beside it the
worst case, many clients of which each is trained for an instant and all are only averaged, so that
a job does little more than write or read large files. Every checksum that is made or compared is
timed, reading the file included.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import harness

harness.one_thread()

LARGEST_SHARE = 0.02
ONE_SHOT = ("pfnm", "uniform_ensemble", "average")
NAMES = ("checksum_of", "checksum_of_file")


def main() -> int:
    parser = harness.options(__doc__, runs=3)
    parser.add_argument("--clients", type=int, nargs=2, default=[25, 1000], help="few and many")
    parser.add_argument("--epochs", type=int, default=10, help="of the few; the many have one")
    given = parser.parse_args()
    few, many = given.clients
    sizes = {
        f"{few} clients": (few, 2400, given.epochs, ONE_SHOT),
        f"{many} clients": (many, 60, 1, ("average",)),
    }
    measured: dict[str, list[harness.Timed]] = {}
    for _ in range(given.runs):
        for size, settings in sizes.items():
            for job, found in jobs(*settings):
                measured.setdefault(f"{job}, {size}", []).append(found)
    shares = {
        job: statistics.median(run.values["checksums"] / run.seconds for run in runs)
        for job, runs in measured.items()
    }
    worst = max((job for job in shares if job.endswith(f", {few} clients")), key=shares.__getitem__)
    target = harness.Target(f"share of {worst}", shares[worst], LARGEST_SHARE, at_least=False)
    settings = {"clients": given.clients, "epochs": given.epochs, "runs": given.runs}
    return harness.conclude("checksums", given.results, settings, measured, [target], shares=shares)


def jobs(
    clients: int, examples: int, epochs: int, names: tuple[str, ...]
) -> Iterator[tuple[str, harness.Timed]]:
    """Each job of a scenario, with its seconds and those of its checksums."""
    from memory import generate

    from fedrepro.cli import preload_server
    from fedrepro.core.registry import parse_token
    from fedrepro.planning.scenarios_runs_and_jobs import Job, Scenario
    from fedrepro.stages import aggregate, data
    from fedrepro.stages import federate_and_peer as federate
    from fedrepro.stages import train_local_models as train

    for name in preload_server.MODULES:
        importlib.import_module(name)
    partition = parse_token("partition", f"homogeneous+clients~{clients}")
    training = "adam" if epochs == 10 else f"adam+epochs~{epochs}"
    kinds = {"dataset": "mnist", "model": "mlp", "training": training}
    own = {kind: parse_token(kind, token) for kind, token in kinds.items()}
    scenario, one = Scenario(partition=partition, **own), range(1)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        paths = home / "data", home / "members.parquet"
        generate(home / "data", clients * examples)

        specs = {spec.kind: spec for spec in scenario.specs}
        files = {"data": str(paths[0]), "members": str(paths[1])}
        everyone = {"trials": one, "clients": range(clients)}

        def measured(stage: str, method: str) -> Job:
            both, local = specs | {"method": parse_token("method", method)}, f"{home}/local.parquet"
            return Job(stage, str(home), both, trials=one, local=(local,), **files)

        def aggregated(method: str) -> Callable[[], None]:
            return lambda: aggregate.run(measured("aggregate", method))

        work: dict[str, Callable[[], None]] = {
            "partition": lambda: data.partition(paths[0], partition, one, 0, paths[1]),
            "train": lambda: train.run(Job("train", str(home), specs, **files, **everyone)),
            **{name: aggregated(name) for name in names},
            "downpour_sgd": lambda: federate.run(measured("federate", "downpour_sgd")),
        }
        for job, run in work.items():
            yield job, forked(run)


def forked(work: Callable[[], None]) -> harness.Timed:
    """Processor time of a job in a process of its own, and that of its checksums."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        spent: list[float] = []
        with timed_checksums(spent), contextlib.redirect_stderr(io.StringIO()):
            work()
        os.write(writing, json.dumps(sum(spent)).encode())
        os._exit(0)
    _, status, used = os.wait4(child, 0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        assert status == 0
        return harness.Timed(used.ru_utime + used.ru_stime, {"checksums": json.load(pipe)})


@contextlib.contextmanager
def timed_checksums(spent: list[float]) -> Iterator[None]:
    """Append the processor time of every checksum that is computed to `spent`."""
    from fedrepro.core import checksummed_files as artifacts

    kept = {name: getattr(artifacts, name) for name in NAMES}
    for name, compute in kept.items():
        setattr(artifacts, name, timing(compute, spent))
    try:
        yield
    finally:
        for name, compute in kept.items():
            setattr(artifacts, name, compute)


def timing(compute: Callable[..., str], spent: list[float]) -> Callable[..., str]:
    def timed(*given: object) -> str:
        began = time.thread_time()
        found = compute(*given)
        spent.append(time.thread_time() - began)
        return found

    return timed


if __name__ == "__main__":
    harness.main(main)
