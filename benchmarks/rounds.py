"""Federated averaging against pfl and Flower: seconds of the same rounds, and the accuracy after.

    .venv/bin/fedrepro bench rounds [--workload lr-mnist|cifar-cnn] [--device cpu|cuda]

lr-mnist: logistic regression, 1000 clients of 100 MNIST examples, 10 a round, batches of 10, 100
rounds. cifar-cnn: the setting of pfl's Table 1. Every framework starts from its own process, warm,
with one thread, and evaluates only at the end, outside the measured time.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import harness

harness.one_thread()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from peer import Peer  # noqa: E402
from problems import WORKLOADS, Problem, problem  # noqa: E402

from fedrepro.errors import FedreproError  # noqa: E402
from fedrepro.models.dense import Dense, logits  # noqa: E402
from fedrepro.rng import Rng  # noqa: E402
from fedrepro.training.engine import one_hot, train  # noqa: E402
from fedrepro.training.minibatches import Task  # noqa: E402
from fedrepro.training.settings import Settings  # noqa: E402

SCRIPTS = {"pfl": "pfl_rounds.py", "flower": "flower_rounds.py"}
ON_A_GPU = {"pfl": 5.0}


def main() -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="lr-mnist")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, help="fewer rounds than the workload has")
    parser.add_argument("--peers", nargs="*", choices=sorted(SCRIPTS), help="all that it names")
    given = parser.parse_args()
    torch.set_num_threads(1)
    workload = WORKLOADS[given.workload]
    targets = ON_A_GPU if given.device == "cuda" else workload.targets
    peers = list(targets) if given.peers is None else given.peers
    made = problem(workload, **({"rounds": given.rounds} if given.rounds else {}))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "problem.npz")
        made.save(path)
        ours = Averaging(made, given.device)
        started = {name: peer(name, path, given.device) for name in peers}
        try:
            measured = harness.in_turn({"fedrepro": ours, **started}, given.runs)
        finally:
            for one in started.values():
                one.close()
    return harness.conclude(
        "-".join(["rounds", given.workload, *(["gpu"] if given.device == "cuda" else [])]),
        given.results,
        {**made.settings, "clients": workload.clients, "examples": workload.examples},
        measured,
        [
            harness.Target(
                f"times faster than {name}",
                harness.times_faster(measured, "fedrepro", name),
                targets[name],
            )
            for name in peers
        ],
    )


def peer(name: str, path: Path, device: str) -> Peer:
    words = [device] if name == "pfl" else []
    return Peer(SCRIPTS[name], path, path.with_name(f"{name}.log"), *words)


class Averaging:
    """Federated averaging through the training engine, as the methods in rounds use it."""

    def __init__(self, made: Problem, device: str) -> None:
        if made.settings["model"] != "logistic":
            raise FedreproError(
                f"the training engine has no {made.settings['model']} to train yet; "
                "choose --workload lr-mnist"
            )
        self.made = made
        self.dense = Dense((made.inputs.shape[1], 10))
        self.inputs = torch.from_numpy(made.inputs).to(device)
        self.targets = torch.from_numpy(one_hot(made.labels, 10)).to(device)
        self.settings = Settings(
            optimiser="sgd",
            lr=float(made.settings["lr"]),  # type: ignore[arg-type]
            l2=0.0,
            batch_size=int(made.settings["batch_size"]),  # type: ignore[call-overload]
            epochs=int(made.settings["epochs"]),  # type: ignore[call-overload]
            weight_sd=0.0,
            bias=0.0,
            shared_init=True,
        )

    def __call__(self) -> harness.Timed:
        rounds, cohort = self.made.settings["rounds"], self.made.settings["cohort"]
        began = time.perf_counter()
        weights = {name: np.zeros(shape, np.float32) for name, shape in self.dense.shapes.items()}
        for done in range(rounds):  # type: ignore[call-overload]
            rng = Rng(0, round=done)
            chosen = rng.stream("cohort").choice(len(self.made.rows), cohort, replace=False)
            tasks = [
                Task(self.made.rows[client], rng.at(client=int(client)), first_epoch=done)
                for client in chosen
            ]
            start = {
                name: np.broadcast_to(value, (len(chosen), *value.shape))
                for name, value in weights.items()
            }
            trained = train(self.dense, self.inputs, self.targets, tasks, self.settings, start)
            weights = {name: value.mean(0) for name, value in trained.tensors.items()}
        seconds = time.perf_counter() - began
        return harness.Timed(seconds, {"accuracy": self.accuracy(weights)})

    def accuracy(self, weights: dict[str, np.ndarray]) -> float:
        held = {name: torch.from_numpy(value) for name, value in weights.items()}
        found = logits(held, torch.from_numpy(self.made.test_inputs)).argmax(1).numpy()
        return float((found == self.made.test_labels).mean())


if __name__ == "__main__":
    harness.main(main)
