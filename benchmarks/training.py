"""Local training of 25 clients against a plain loop, and against its bare matrix products.

    .venv/bin/fedrepro bench training

MLP-50 on MNIST, split evenly, 10 epochs of Adam (AMSGrad) in minibatches of 32, one thread. The
plain loop trains one client after another with torch.nn, a DataLoader and torch.optim.Adam. The
products are the five of each minibatch, float32, stacked for as many models as the engine takes at
a time, on data in the cache. Gathering minibatches and the steps of Adam are timed by themselves
too: with the products they are nearly all that a step is.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import harness

harness.one_thread()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from fedrepro.core.registry import parse_token  # noqa: E402
from fedrepro.core.rng import Rng  # noqa: E402
from fedrepro.data.membership import read_partition  # noqa: E402
from fedrepro.networks.predict import network_of, probabilities  # noqa: E402
from fedrepro.planning.paths import TrialBlock  # noqa: E402
from fedrepro.stages.common import examples_of  # noqa: E402
from fedrepro.stages.data import partition  # noqa: E402
from fedrepro.training.clients import own_starts  # noqa: E402
from fedrepro.training.engine import block_size, train  # noqa: E402
from fedrepro.training.examples import Reader  # noqa: E402
from fedrepro.training.flat import Layout  # noqa: E402
from fedrepro.training.minibatches import Task  # noqa: E402
from fedrepro.training.optimisers import OPTIMISERS  # noqa: E402
from fedrepro.training.settings import settings_of  # noqa: E402

HIDDEN = 50


class Work:
    """Data, partition and numbers that all contenders share."""

    def __init__(self, dataset: str, clients: int, epochs: int) -> None:
        self.data = harness.prepared(dataset)
        self.classes = len(self.data.classes)
        training = parse_token("training", "adam").component.spec({"epochs": epochs})
        self.settings = settings_of(training)
        split = parse_token("partition", f"homogeneous+clients~{clients}")
        with tempfile.TemporaryDirectory() as folder:
            members = Path(folder, "partition.parquet")
            partition(self.data.folder, split, TrialBlock(0, 0), 0, members)
            self.rows = read_partition(members, 0).train
        self.inputs = torch.from_numpy(self.data.inputs("train"))
        self.labels = torch.from_numpy(np.array(self.data.labels("train")))
        self.test = torch.from_numpy(self.data.inputs("test"))
        self.test_labels = np.asarray(self.data.labels("test"))

    @property
    def steps(self) -> int:
        size = self.settings.batch_size
        return sum(-(-len(rows) // size) for rows in self.rows) * self.settings.epochs


def stacked(work: Work) -> dict[str, float]:
    """The engine, as the stage train uses it."""
    network = network_of(parse_token("model", "mlp"), work.data.shape, work.classes)
    tasks = [Task(rows, Rng(0, 0, client)) for client, rows in enumerate(work.rows)]
    start = own_starts(network, work.settings, [task.rng for task in tasks])
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


def plain(work: Work) -> dict[str, float]:
    """One client after another, as one would write it first."""
    given, right, seconds = work.settings, [], 0.0
    for client, rows in enumerate(work.rows):
        clock = harness.Clock()
        torch.manual_seed(client)
        model = nn.Sequential(
            nn.Linear(work.data.dims, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, work.classes)
        )
        for part in model.parameters():
            nn.init.normal_(part, std=given.weight_sd) if part.ndim == 2 else nn.init.constant_(
                part, given.bias
            )
        own = TensorDataset(work.inputs[rows], work.labels[rows])
        loader = DataLoader(own, batch_size=given.batch_size, shuffle=True)
        optimiser = torch.optim.Adam(
            model.parameters(), lr=given.lr, weight_decay=given.l2, amsgrad=given.amsgrad
        )
        for _ in range(given.epochs):
            for x, y in loader:
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimiser.step()
        seconds += clock.seconds
        with torch.no_grad():
            right.append(model(work.test).argmax(1).numpy() == work.test_labels)
    return {"seconds": seconds, "accuracy": float(np.mean(right))}


def products(work: Work) -> dict[str, float]:
    """Two products forward and three backward for every minibatch of every client."""
    batch, inputs, classes = work.settings.batch_size, work.data.dims, work.classes
    layout = Layout({"weight0": (inputs, HIDDEN), "weight1": (HIDDEN, classes)})
    models = block_size(layout, torch.device("cpu"), len(work.rows))
    x, w0, w1, h, e = (
        torch.rand(models, *shape)
        for shape in (
            (batch, inputs),
            (inputs, HIDDEN),
            (HIDDEN, classes),
            (batch, HIDDEN),
            (batch, classes),
        )
    )
    outs = [torch.empty_like(part) for part in (h, e, w1, h, w0)]
    clock = harness.Clock()
    for _ in range(round(work.steps / models)):
        torch.bmm(x, w0, out=outs[0])
        torch.bmm(h, w1, out=outs[1])
        torch.bmm(h.transpose(1, 2), e, out=outs[2])
        torch.bmm(e, w1.transpose(1, 2), out=outs[3])
        torch.bmm(x.transpose(1, 2), h, out=outs[4])
    return {"seconds": clock.seconds, "models_at_a_time": models}


def models_together(work: Work) -> tuple[Layout, int]:
    """Tensors in memory, and how many models the engine trains at a time."""
    network = network_of(parse_token("model", "mlp"), work.data.shape, work.classes)
    layout = Layout(network.shapes, turned=True)
    return layout, block_size(layout, torch.device("cpu"), len(work.rows))


def gathering(work: Work) -> dict[str, float]:
    """Reading every minibatch: rows that lie anywhere in the data set, scaled to floats."""
    _, models = models_together(work)
    batch = work.settings.batch_size
    reader = Reader(examples_of(work.data, "train", "cpu"), models, batch)
    rows = torch.randint(len(work.labels), (512, models, batch))
    clock = harness.Clock()
    for step in range(round(work.steps / models)):
        reader.read(rows[step % 512])
    return {"seconds": clock.seconds}


def adam(work: Work) -> dict[str, float]:
    """The steps of the optimiser on all weights."""
    layout, models = models_together(work)
    flat, gradient = torch.rand(models, layout.size), torch.rand(models, layout.size)
    optimiser = OPTIMISERS["adam"](flat, work.settings)
    clock = harness.Clock()
    for _ in range(round(work.steps / models)):
        optimiser.step(flat, gradient)
    return {"seconds": clock.seconds}


def main() -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--clients", type=int, default=25)
    parser.add_argument("--epochs", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    work = Work(given.dataset, given.clients, given.epochs)
    contenders = {
        "fedrepro": harness.measured_by_itself(lambda: stacked(work)),
        "plain loop": harness.measured_by_itself(lambda: plain(work)),
        "matrix products alone": harness.measured_by_itself(lambda: products(work)),
        "gathering alone": harness.measured_by_itself(lambda: gathering(work)),
        "Adam alone": harness.measured_by_itself(lambda: adam(work)),
    }
    measured = harness.in_turn(contenders, given.runs)
    against = {name: harness.times_faster(measured, "fedrepro", name) for name in contenders}
    slower = 1 / against["matrix products alone"]
    step = harness.median(measured["fedrepro"]) / work.steps * 1e6
    return harness.conclude(
        "training",
        given.results,
        {key: vars(given)[key] for key in ("dataset", "clients", "epochs", "runs")},
        measured,
        [
            harness.Target("times faster than a plain loop", against["plain loop"], 3),
            harness.Target("times the bare matrix products", slower, 2, at_least=False),
        ],
        microseconds_a_minibatch=round(step, 1),
        minibatches=work.steps,
        parameters=work.data.dims * HIDDEN + HIDDEN + HIDDEN * work.classes + work.classes,
    )


if __name__ == "__main__":
    harness.main(main)
