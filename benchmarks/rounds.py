"""Federated averaging against pfl and Flower: seconds of the same rounds, and the accuracy after.

    .venv/bin/fedrepro bench rounds [--workload lr-mnist|cifar-cnn] [--device cpu|cuda]
    .venv/bin/fedrepro bench rounds --workload fedavg-2nn|rm-mlp|rm-cifar

lr-mnist: logistic regression, 1000 clients of 100 MNIST examples, 10 a round, batches of 10, 100
rounds. cifar-cnn: the setting of pfl's Table 1. The loop of slices is plain PyTorch, the best of
ten lines: index slices and `fused=True`, in this process. Every framework starts from its own
process, warm, with one thread, and evaluates only at the end, outside the measured time.

fedavg-2nn, rm-mlp and rm-cifar are what the papers of FedAvg and representation matching run, by
processor time against their bare matrix products, or with matching against without. rm-cifar also
keeps to 1.5 GiB, and to 200 MB of what ten clients and the server must keep between rounds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import harness

harness.one_thread()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from own_rounds import run as run_own  # noqa: E402
from peer import SCRIPTS as FOLDER  # noqa: E402
from peer import Peer  # noqa: E402
from problems import OWN_WORKLOADS, WORKLOADS, Problem, problem  # noqa: E402

sys.path.append(str(FOLDER))
import work  # noqa: E402

from fedrepro.core.registry import parse_token  # noqa: E402
from fedrepro.core.rng import RngKey  # noqa: E402
from fedrepro.networks.predict import network_of, probabilities  # noqa: E402
from fedrepro.training.federation.clients import ClientData, Clients, initial_weights  # noqa: E402
from fedrepro.training.training_examples import Examples  # noqa: E402
from fedrepro.training.training_settings_and_procedures import settings_of  # noqa: E402

SLICES = "loop of slices"
SCRIPTS = {"pfl": "pfl_rounds.py", "flower": "flower_rounds.py"}
ON_A_GPU = {"pfl": 5.0}
MODELS = {
    "logistic": "logistic",
    "cnn": "cnn+hidden~128+kernel~3+padding~valid+pool_every~2",
}
STARTS = {"logistic": {"weight_sd": 0.0, "bias": 0.0}, "cnn": {"init": "fan_in"}}


def main() -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--workload", choices=sorted(WORKLOADS | OWN_WORKLOADS), default="lr-mnist")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, help="fewer rounds than the workload has")
    parser.add_argument("--peers", nargs="*", choices=sorted(SCRIPTS), help="all that it names")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.workload in OWN_WORKLOADS:
        own = OWN_WORKLOADS[given.workload]
        rounds = {"rounds": given.rounds} if given.rounds else {}
        own = replace(own, settings={**own.settings, **rounds})
        return run_own(given.workload, own, given.runs, given.results)
    workload = WORKLOADS[given.workload]
    targets = ON_A_GPU if given.device == "cuda" else workload.targets
    peers = list(targets) if given.peers is None else given.peers
    made = problem(workload, **({"rounds": given.rounds} if given.rounds else {}))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "problem.npz")
        made.save(path)
        ours, slices = Averaging(made, given.device), Slices(path, given.device)
        started = {name: peer(name, path, given.device) for name in peers}
        try:
            measured = harness.in_turn({"fedrepro": ours, SLICES: slices, **started}, given.runs)
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
            if name in targets
        ],
        times_faster_than_slices=round(harness.times_faster(measured, "fedrepro", SLICES), 3),
    )


def peer(name: str, path: Path, device: str) -> Peer:
    words = [device] if name == "pfl" else []
    return Peer(SCRIPTS[name], path, path.with_name(f"{name}.log"), *words)


class Averaging:
    """Federated averaging through the training engine, as the methods in rounds use it."""

    def __init__(self, made: Problem, device: str) -> None:
        self.made, self.device = made, device
        model = parse_token("model", MODELS[str(made.settings["model"])])
        own = {key: made.settings[key] for key in ("lr", "batch_size", "epochs")}
        spec = parse_token("training", "sgd").component.spec({**own, **STARTS[model.name]})
        shape = made.inputs.shape[1:]
        self.clients = Clients(
            model,
            network_of(model, shape, 10),
            settings_of(spec),
            ClientData(self.examples(made.inputs, made.labels), made.rows),
            needs=["rounds"],
        )

    def examples(self, inputs: np.ndarray, labels: np.ndarray) -> Examples:
        """As prepared data sets are stored: pixels are bytes, and scaled when they are gathered."""
        stored = np.rint(inputs.reshape(len(inputs), -1) * 255).astype(np.uint8)
        examples = Examples(
            torch.from_numpy(stored).to(self.device),
            torch.from_numpy(labels).to(self.device),
            255.0,
        )
        # a GPU divides by multiplying with the inverse, which may round otherwise
        same = torch.equal if self.device == "cpu" else torch.allclose
        assert same(
            examples.scaled(slice(None)).cpu().reshape(inputs.shape), torch.from_numpy(inputs)
        )
        return examples

    def __call__(self) -> harness.Timed:
        clients, wanted = self.clients, self.made.settings
        weights = initial_weights(clients.network, clients.settings, [RngKey(0, client=-1)])
        began = time.perf_counter()
        for done in range(int(wanted["rounds"])):  # type: ignore[call-overload]
            rng = RngKey(0, round=done)
            draw = rng.stream("cohort").choice(clients.count, wanted["cohort"], replace=False)
            averaged = clients.average(
                weights,
                rng,
                [1 / len(draw)] * len(draw),
                epochs=int(wanted["epochs"]),  # type: ignore[call-overload]
                chosen=draw.tolist(),
            )
            weights = averaged.tensors
        if self.device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        return harness.Timed(seconds, {"accuracy": self.accuracy(weights)})

    def accuracy(self, weights: dict[str, np.ndarray]) -> float:
        test = self.examples(self.made.test_inputs, self.made.test_labels)
        found = probabilities(self.clients.network, weights, None, test).argmax(1).cpu().numpy()
        return float((found == self.made.test_labels).mean())


class Slices:
    """Federated averaging as one writes it in ten lines."""

    def __init__(self, path: Path, device: str) -> None:
        self.given = given = work.load(str(path))
        self.model = work.network(given).to(device)
        self.start = torch.nn.utils.parameters_to_vector(self.model.parameters()).detach()
        self.inputs, self.labels = given.inputs.to(device), given.labels.to(device)

    def __call__(self) -> harness.Timed:
        given, model, weights, clock = self.given, self.model, self.start, harness.Clock()
        for _ in range(given.rounds):
            total = torch.zeros_like(weights)
            for rows in given.rows[torch.randperm(len(given.rows))[: given.cohort]]:
                torch.nn.utils.vector_to_parameters(weights.clone(), model.parameters())
                optimiser = torch.optim.SGD(model.parameters(), lr=given.lr, fused=True)
                for _ in range(given.epochs):
                    for at in rows[torch.randperm(len(rows))].split(given.batch_size):
                        optimiser.zero_grad()
                        output = model(self.inputs[at])
                        torch.nn.functional.cross_entropy(output, self.labels[at]).backward()
                        optimiser.step()
                total += torch.nn.utils.parameters_to_vector(model.parameters()).detach()
            weights = total / given.cohort
        if weights.is_cuda:
            torch.cuda.synchronize()
        seconds = clock.seconds
        torch.nn.utils.vector_to_parameters(weights, model.parameters())
        return harness.Timed(seconds, {"accuracy": work.accuracy(model, given)})


if __name__ == "__main__":
    harness.main(main)
