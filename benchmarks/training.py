"""Local training of 25 clients against a plain loop, and against its bare matrix products.

    .venv/bin/fedrepro bench training

MLP-50 on MNIST, split evenly, 10 epochs of Adam (AMSGrad) in minibatches of 32, one thread. The
plain loop trains one client after another with torch.nn, a DataLoader and torch.optim.Adam; the
loop of slices is the best of ten lines: the same, by index slices and with `fused=True`. The
products are the five of each minibatch, float32, on data in the cache, by each library that
multiplies; the target is held by MKL's, and the fastest is named.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import harness

harness.one_thread()

import bare  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from fedrepro.core.registry import parse_token  # noqa: E402
from fedrepro.core.rng import RngKey  # noqa: E402
from fedrepro.data.partitions_populations_and_holdouts import read_partition  # noqa: E402
from fedrepro.networks.predict import network_of, probabilities  # noqa: E402
from fedrepro.stages.data import partition  # noqa: E402
from fedrepro.stages.trial_data import examples_of  # noqa: E402
from fedrepro.training.engine import train  # noqa: E402
from fedrepro.training.federation.clients import initial_weights  # noqa: E402
from fedrepro.training.minibatches_and_augmentation import Task  # noqa: E402
from fedrepro.training.training_settings_and_procedures import settings_of  # noqa: E402

HIDDEN = 50


class Work:
    """Data, partition and numbers that all contenders share."""

    def __init__(self, dataset: str, clients: int, epochs: int) -> None:
        self.data = harness.prepared(dataset)
        self.dims = int(np.prod(self.data.shape))
        self.classes = len(self.data.classes)
        training = parse_token("training", "adam").component.spec({"epochs": epochs})
        self.settings = settings_of(training)
        split = parse_token("partition", f"homogeneous+clients~{clients}")
        with tempfile.TemporaryDirectory() as folder:
            members = Path(folder, "partition.parquet")
            partition(self.data.folder, split, range(1), 0, members)
            self.rows = read_partition(members, 0).train
        self.inputs = torch.from_numpy(self.data.inputs("train"))
        self.labels = torch.from_numpy(np.array(self.data.labels("train")))
        self.test = torch.from_numpy(self.data.inputs("test"))
        self.test_labels = np.asarray(self.data.labels("test"))

    @property
    def steps(self) -> int:
        size = self.settings.batch_size
        return sum(-(-len(rows) // size) for rows in self.rows) * self.settings.epochs


def engine(work: Work) -> dict[str, float]:
    """The engine, as the stage train uses it."""
    network = network_of(parse_token("model", "mlp"), work.data.shape, work.classes)
    tasks = [Task(rows, RngKey(0, 0, client)) for client, rows in enumerate(work.rows)]
    start = initial_weights(network, work.settings, [task.rng for task in tasks])
    examples = examples_of(work.data, "train", "cpu")
    trained = train(network, examples, tasks, work.settings, start)
    test = examples_of(work.data, "test", "cpu")
    right = [
        (probabilities(network, {k: v[[i]] for k, v in trained.tensors.items()}, None, test))
        .argmax(1)
        .numpy()
        == work.test_labels
        for i in range(len(tasks))
    ]
    return {"seconds": trained.seconds, "accuracy": float(np.mean(right))}


def plain(work: Work, slices: bool = False) -> dict[str, float]:
    """One client after another, as one would write it first, or the best of ten lines."""
    given, right, seconds = work.settings, [], 0.0
    for client, rows in enumerate(work.rows):
        clock = harness.Clock()
        torch.manual_seed(client)
        model = nn.Sequential(
            nn.Linear(work.dims, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, work.classes)
        )
        for part in model.parameters():
            nn.init.normal_(part, std=given.weight_sd) if part.ndim == 2 else nn.init.constant_(
                part, given.bias
            )
        inputs, labels = work.inputs[rows], work.labels[rows]
        loader = DataLoader(TensorDataset(inputs, labels), given.batch_size, shuffle=True)
        optimiser = torch.optim.Adam(
            model.parameters(),
            lr=given.lr,
            weight_decay=given.l2,
            amsgrad=given.amsgrad,
            fused=slices or None,
        )
        for _ in range(given.epochs):
            drawn = torch.randperm(len(labels)).split(given.batch_size) if slices else ()
            for x, y in ((inputs[at], labels[at]) for at in drawn) if slices else loader:
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimiser.step()
        seconds += clock.seconds
        with torch.no_grad():
            right.append(model(work.test).argmax(1).numpy() == work.test_labels)
    return {"seconds": seconds, "accuracy": float(np.mean(right))}


def main() -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--clients", type=int, default=25)
    parser.add_argument("--epochs", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    work = Work(given.dataset, given.clients, given.epochs)
    contenders = {
        "fedrepro": harness.measured_by_itself(lambda: engine(work)),
        "plain loop": harness.measured_by_itself(lambda: plain(work)),
        "loop of slices": harness.measured_by_itself(lambda: plain(work, slices=True)),
    }
    operands = bare.of_network(work.settings.batch_size, (work.dims, HIDDEN, work.classes))
    products = {f"products by {name}": multiply for name, multiply in bare.LIBRARIES.items()}
    for name, multiply in products.items():
        contenders[name] = harness.by_processor_time(bare.repeated(operands, work.steps, multiply))
    measured = harness.in_turn(contenders, given.runs)
    against = {name: harness.times_faster(measured, "fedrepro", name) for name in contenders}
    slower = 1 / against["products by MKL"]
    step = harness.median(measured["fedrepro"]) / work.steps * 1e6
    network = network_of(parse_token("model", "mlp"), work.data.shape, work.classes)
    return harness.conclude(
        "training",
        given.results,
        {key: vars(given)[key] for key in ("dataset", "clients", "epochs", "runs")},
        measured,
        [
            harness.Target("times faster than a plain loop", against["plain loop"], 3),
            harness.Target("times the bare matrix products by MKL", slower, 1.05, at_least=False),
        ],
        times_faster_than_slices=round(against["loop of slices"], 2),
        microseconds_a_minibatch=round(step, 1),
        minibatches=work.steps,
        fastest_products=harness.fastest(measured, list(products)),
        multiplications_a_minibatch=work.settings.batch_size * network.products,
    )


if __name__ == "__main__":
    harness.main(main)
