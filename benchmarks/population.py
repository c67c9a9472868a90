"""A million clients: 10^4, 10^5 and 10^6 of FedProx's synthetic data, 1,000 drawn a round.

    .venv/bin/fedrepro bench population [--peers pfl flower]

For each number of clients, and for FedAvg and SCAFFOLD, a process of its own goes through the
stages prepare, partition and federate, and a dry run plans an exhibit. Processor time of a round,
the largest resident memory (2 GiB at most) and the time to plan are to grow by no more than a tenth
from the first number to the last. All clients have 93 examples and one model (Synthetic-IID), so
that every round is the same work and teaches something. pfl and Flower do the same rounds, on the
same examples, as often; one that takes longer or more memory than it may is stopped, and the file
says by what.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness

harness.one_thread()

import planning  # noqa: E402
import yaml  # noqa: E402
from peer import PYTHON, SCRIPTS  # noqa: E402
from watching import Limits, watched  # noqa: E402

CLIENTS = [10_000, 100_000, 1_000_000]
METHODS = ["fedavg", "scaffold"]
COHORT = 1000
DATA = {"iid": True, "log_sd": 0.0}
TRAINING = {"lr": 0.03, "batch_size": 10, "epochs": 1, "weight_sd": 0.0, "bias": 0.0}
PEERS = ("pfl", "flower")
TENTH = 1.1
MOST_GIB = 2.0


def main() -> int:
    parser = harness.options(__doc__, runs=3)
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--peers", nargs="*", choices=sorted(PEERS), default=sorted(PEERS))
    parser.add_argument("--minutes", type=float, default=10.0, help="of a peer's processor time")
    parser.add_argument("--gib", type=float, default=8.0, help="of a peer's memory")
    parser.add_argument("--one", nargs=2, help="run in this process: a method, a number of clients")
    given = parser.parse_args()
    if given.one:
        one(given.one[0], int(given.one[1]), given.rounds)
        return 0
    few, many = min(given.clients), max(given.clients)
    with tempfile.TemporaryDirectory() as folder:
        contenders = {
            f"{method}, {count} clients": rounds(method, count, given)
            for method in METHODS
            for count in given.clients
        } | {f"planning, {count} clients": plan(Path(folder), count) for count in given.clients}
        measured = harness.in_turn(contenders, given.runs, warm=False)
    targets = []
    for what in (*METHODS, "planning"):
        ends = [f"{what}, {count} clients" for count in (few, many)]
        targets.append(at_most(f"{what}: times the seconds", grown(measured, *ends), TENTH))
        if what in METHODS:
            used = [statistics.median(r.values["gib"] for r in measured[name]) for name in ends]
            targets.append(at_most(f"{what}: times the memory", used[1] / used[0], TENTH))
            largest = max(run.values["gib"] for name in ends for run in measured[name])
            targets.append(at_most(f"{what}: GiB", largest, MOST_GIB))
    peers = {name: beside(name, given) for name in given.peers if PYTHON.exists()}
    settings = {"cohort": COHORT, "rounds": given.rounds, "data": DATA, "training": TRAINING}
    return harness.conclude(
        "population",
        given.results,
        {**settings, "clients": given.clients, "runs": given.runs},
        measured,
        targets,
        peers=peers,
    )


def at_most(what: str, ratio: float, bound: float) -> harness.Target:
    return harness.Target(what, ratio, bound, at_least=False)


def grown(measured: dict[str, list[harness.Timed]], first: str, last: str) -> float:
    """How many times the seconds of the first the last takes: the median over paired runs."""
    return harness.times_faster(measured, first, last)


# ------------------------------------------------------------------------------------- our rounds


def rounds(method: str, clients: int, given) -> harness.Contender:
    words = [sys.executable, __file__, "--one", method, str(clients)]
    words += ["--rounds", str(given.rounds)]

    def run() -> harness.Timed:
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        return harness.Timed(found.pop("seconds"), found)

    return run


def one(method: str, clients: int, count: int) -> None:
    """A job by way of its stages: processor seconds of a round, the peak, and the accuracy."""
    import pyarrow.parquet as pq
    import torch

    from fedrepro.core.registry import components, parse_token
    from fedrepro.planning.scenarios_runs_and_jobs import Job, Scenario
    from fedrepro.stages import data
    from fedrepro.stages import federate_and_peer as federate
    from fedrepro.stages.trial_rounds import Checkpointer

    torch.set_num_threads(1)
    libraries, ticks = peak(), [time.process_time()]

    class Clock(Checkpointer):
        """Notes when a round is over; checkpoints are not counted."""

        def maybe_save(self, progress, *, last: bool) -> None:
            ticks[-1] = time.process_time() - ticks[-1]
            super().maybe_save(progress, last=last)
            ticks.append(time.process_time())

    federate.Checkpointer = Clock  # type: ignore[misc]
    dataset = components("dataset")["synthetic"].spec(DATA)
    partition = components("partition")["natural"].spec({"clients": clients})
    training = components("training")["sgd"].spec(TRAINING)
    spec = components("method")[method].spec({"rounds": count, "fraction": COHORT / clients})
    block = range(1)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        data.prepare(dataset, home, home / "data")
        data.partition(home / "data", partition, block, 0, home / "partition.parquet")
        scenario = Scenario(dataset, partition, parse_token("model", "logistic"), training)
        specs = {one.kind: one for one in (*scenario.specs, spec)}
        files = {"data": str(home / "data"), "members": str(home / "partition.parquet")}
        ticks[-1] = time.process_time()
        federate.run(Job("federate", str(home), specs, trials=block, **files))
        rows = pq.read_table(home / "metrics.parquet", partitioning=None).to_pylist()
    accuracy = [row["value"] for row in rows if row["metric"] == "accuracy"][-1]
    # the first round has the start of the job in it
    found = {"seconds": statistics.median(ticks[1:-1]), "accuracy": accuracy}
    print(json.dumps({**found, "gib": peak(), "above_libraries_gib": peak() - libraries}))


def peak() -> float:
    """The largest resident memory of this process so far, GiB: getrusage would count its parent's
    as well."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**20


# ------------------------------------------------------------------------------------ our planning


def exhibits(clients: int) -> dict[str, object]:
    """A paper of one exhibit: FedAvg among so many clients."""
    return {
        "paper": "population",
        "title": "Clients that are made when they are drawn",
        "source": "a benchmark of this project",
        "exhibits": {
            "rounds": {
                "drawing": {"name": "table", "rows": ["method"], "columns": ["clients"]},
                "title": "FedAvg",
                "place": "nowhere",
                "caption": "Test accuracy.",
                "dataset": {"name": "synthetic", **DATA},
                "partition": {"name": "natural"},
                "model": {"name": "logistic"},
                "training": {"name": "sgd", **TRAINING},
                "trials": 1,
                "sweep": {"partition.clients": [clients]},
                "methods": [{"name": "fedavg", "label": "FedAvg", "fraction": COHORT / clients}],
            }
        },
    }


def plan(folder: Path, clients: int) -> harness.Contender:
    home = folder / str(clients)
    planning.workflow_in(home)
    (home / "config/exhibits/population.yaml").write_text(
        yaml.safe_dump(exhibits(clients)), encoding="utf-8"
    )

    def run() -> harness.Timed:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        planning.dry_run(home, "reports/quick/population/rounds.html")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return harness.Timed(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    return run


# ------------------------------------------------------------------------------------------ peers


def beside(name: str, given) -> dict[str, dict[str, object]]:
    """What a peer took at each number of clients in each run, or what stopped it, and the median
    of its seconds a round; by number of clients."""
    found = {}
    for clients in given.clients:
        work = {
            "clients": clients,
            "cohort": COHORT,
            "rounds": given.rounds,
            "data": {"alpha": 1.0, "beta": 1.0, "kept": 30, "least": 50, "log_mean": 4.0}
            | {"draw": 0, **DATA},
            **{key: TRAINING[key] for key in ("lr", "batch_size", "epochs")},
        }
        paths = os.pathsep.join(map(str, (SCRIPTS, harness.ROOT / "src")))
        words = [str(PYTHON), str(SCRIPTS / f"{name}_population.py"), json.dumps(work)]
        limits = Limits(given.minutes, given.gib)
        runs = [watched(words, {"PYTHONPATH": paths}, limits) for _ in range(given.runs)]
        known = [run["seconds"] for run in runs if "seconds" in run]
        median = statistics.median(known) if known else None
        one = found[str(clients)] = {"seconds": median, "runs": runs}
        print(f"{name}, {clients} clients: {one}", file=sys.stderr)
    return found


if __name__ == "__main__":
    harness.main(main)
