"""GEMS on MNIST, K = 5: spaces from shared directions against fresh draws, and a neural trial.

    .venv/bin/fedrepro bench gems

Seconds are processor time of one core. A logistic ball is that of a client of two classes with its
1,000 validation images, from 500 points on each surface. A neural trial is local training of five
perceptrons of 50 units (early stopping, at most 40 epochs), their 250 balls, merging, and new
output layers; a second setting has the same epsilon and fewer clusters.
"""

from __future__ import annotations

import harness

harness.one_thread()

import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

EPSILON, HIDDEN = 0.4, {"epsilon_hidden": 1.0, "epsilon_final": 0.7}
LOCAL = {"epochs": 40, "patience": 3, "init": "glorot", "bias": 0.0, "lr": 0.001}
EPOCHS = 5  # of the softmax regression, whose training is not timed


def main() -> int:
    parser = harness.options(__doc__, runs=3)
    parser.add_argument("--dataset", default="mnist+train~50000+validation~5000")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--clusters", type=int, nargs=2, default=[100, 75])
    given = parser.parse_args()
    data = Data.of(given.dataset, given.clients)
    convex, search = softmax_of(data, given.points)
    trial, (most, fewer) = Trial(data, given.points), given.clusters
    parts = {
        "neural trial": timed(lambda: trial.first(most)),
        "second setting": timed(lambda: trial.setting(fewer)),
    }
    once = {name: [run()] for name, run in parts.items()}
    spaces = {
        "logistic ball": timed(partial(shared, convex, search)),
        "logistic ball by fresh draws": timed(partial(fresh, convex, search)),
        "radii of all hidden units": timed(trial.radii),
    }
    measured = once | harness.in_turn(spaces, given.runs)
    return harness.conclude(
        "gems",
        given.results,
        {key: vars(given)[key] for key in ("dataset", "clients", "points", "clusters", "runs")},
        measured,
        targets(measured),
        seconds_of_the_trial={name: round(part, 2) for name, part in trial.seconds.items()},
        steps_of_the_clients=trial.steps,
    )


def timed(work: Callable[[], dict[str, float]]) -> harness.Contender:
    """A contender by processor time: on a busy machine the bars mean the same."""

    def run() -> harness.Timed:
        began = time.process_time()
        values = work()
        return harness.Timed(time.process_time() - began, values)

    return run


def targets(measured: dict[str, list[harness.Timed]]) -> list[harness.Target]:
    """The bars of issue 16, each in seconds of one core."""
    seconds = {name: harness.median(runs) for name, runs in measured.items()}
    trial, second, ball, drawn, radii = measured
    return [
        harness.Target("seconds of a logistic ball", seconds[ball], 1.0, at_least=False),
        harness.Target(
            "times faster than fresh draws", harness.times_faster(measured, ball, drawn), 3.0
        ),
        harness.Target("seconds of all radii", seconds[radii], 15.0, at_least=False),
        harness.Target("seconds of a neural trial", seconds[trial], 60.0, at_least=False),
        harness.Target("seconds of a second setting", seconds[second], 8.0, at_least=False),
    ]


@dataclass(frozen=True)
class Data:
    """A data set and what each client holds of it, to train and to validate with."""

    prepared: Any
    train: list[np.ndarray]
    validation: list[np.ndarray]

    @staticmethod
    def of(token: str, clients: int) -> Data:
        """Class k is with client k // (classes per client)."""
        prepared = harness.prepared(token)
        each = -(-len(prepared.classes) // clients)
        rows = [
            [np.flatnonzero(prepared.labels(split) // each == j) for j in range(clients)]
            for split in ("train", "validation")
        ]
        return Data(prepared, *rows)

    def clients(self, model: str, **training: object) -> Any:
        """As the harness hands them to a method."""
        from fedrepro.api import NEEDS
        from fedrepro.core.registry import components, parse_token
        from fedrepro.networks.predict import network_of
        from fedrepro.stages.trial_data import examples_of
        from fedrepro.training.federation.clients import ClientData, Clients
        from fedrepro.training.training_settings_and_procedures import settings_of

        spec = parse_token("model", model)
        network = network_of(spec, self.prepared.shape, len(self.prepared.classes))
        settings = settings_of(components("training")["adam"].spec(training))
        train, validation = (examples_of(self.prepared, s, "cpu") for s in ("train", "validation"))
        held = ClientData(train, self.train, self.validation, validation)
        return Clients(spec, network, settings, held, needs=NEEDS)


def trained(clients: Any) -> Any:
    """Local models from starts of their own."""
    from fedrepro.core.rng import RngKey
    from fedrepro.training.engine import train
    from fedrepro.training.federation.clients import initial_weights
    from fedrepro.training.minibatches_and_augmentation import Task

    tasks = [Task(rows, RngKey(0, client=j)) for j, rows in enumerate(clients.data.rows)]
    starts = initial_weights(clients.network, clients.settings, [task.rng for task in tasks])
    return train(clients.network, clients.data.examples, tasks, clients.settings, starts).checked()


def softmax_of(data: Data, points: int) -> tuple[Any, Any]:
    """The first client's softmax regression with what it is judged by, and the search."""
    from fedrepro.papers.gems.hidden_units import lowest_layers
    from fedrepro.papers.gems.softmax_spaces import BALL, Bisection, Softmax

    clients = data.clients("logistic", epochs=EPOCHS, lr=0.001)
    centre = lowest_layers(trained(clients).tensors)[0]
    return Softmax(*clients.validation(0), centre, BALL), Bisection(points=points)


def shared(model: Any, search: Any) -> dict[str, float]:
    """The radius from directions that are multiplied once."""
    from fedrepro.papers.gems.softmax_spaces import bisected

    kept = model.right_within(np.random.default_rng(0), search.points)
    found = bisected(lambda r: bool((kept.accuracies(r) >= EPSILON).all()), search)
    return {"radius": found.value}


def fresh(model: Any, search: Any) -> dict[str, float]:
    """The radius from directions that are drawn anew for each that is tried."""
    from fedrepro.papers.gems.softmax_spaces import FIRST, bisected

    rng = np.random.default_rng(0)

    def good_enough(radius: float) -> bool:
        blocks = model.blocks(rng, search.points, FIRST)
        return all((block.accuracies(radius) >= EPSILON).all() for block in blocks)

    return {"radius": bisected(good_enough, search).value}


class Trial:
    """One trial of GEMS on perceptrons; seconds: what its parts take. steps: of each client."""

    def __init__(self, data: Data, points: int) -> None:
        self.data, self.points = data, points
        self.seconds: dict[str, float] = {}
        self.steps: list[int] = []

    def first(self, clusters: int) -> dict[str, float]:
        """Local training and a setting."""
        began = time.process_time()
        self.clients = self.data.clients("mlp+dropout~0.5", **LOCAL)
        self.local = trained(self.clients)
        self.steps = self.local.steps.tolist()
        self.seconds["local training"] = time.process_time() - began
        self.shared = self._prepare()
        return self.setting(clusters)

    def setting(self, clusters: int) -> dict[str, float]:
        """A setting, with what those before it have found."""
        from fedrepro.numbers.model_evaluation import EvaluationSplit, measure
        from fedrepro.stages.trial_data import examples_of

        began, spec, own = time.process_time(), self._spec(clusters), self.shared
        made = spec.component.fn(own.clients, own.info, rng=own.rng, **spec.values, **own(spec)[0])
        self.seconds[f"GEMS with {clusters} clusters"] = time.process_time() - began
        data = self.data.prepared
        test = examples_of(data, "test", "cpu")
        split = EvaluationSplit(test, data.labels("test"), data.shape, len(data.classes))
        found = {number.metric: number.value for number in measure(made, {"test": split})}
        return {name: found[name] for name in ("accuracy", "hidden_units", "hidden_radius")}

    def radii(self) -> dict[str, float]:
        """The balls of all hidden units, searched anew."""
        found = self._prepare()(self._spec(1))[0]["prepared"].radii(HIDDEN["epsilon_hidden"])
        return {
            "units": float(len(found)),
            "radius": float(np.mean([radius.value for radius in found])),
        }

    def _spec(self, clusters: int) -> Any:
        from fedrepro.core.registry import components

        values = {**HIDDEN, "clusters": clusters, "points": self.points}
        return components("method")["gems_neural"].spec(values)

    def _prepare(self) -> Any:
        """What is made once for all settings, as the harness does it."""
        from fedrepro.api import ClientInfo, LocalModels
        from fedrepro.core.registry import components
        from fedrepro.core.rng import RngKey
        from fedrepro.stages.aggregate import SharedPreparation

        shape, classes = self.data.prepared.shape, self.clients.network.classes
        models = LocalModels(self.clients.model, shape, classes, self.local.tensors)
        info = ClientInfo(components("training")["adam"].spec(LOCAL), clients=self.clients)
        return SharedPreparation(models, info, RngKey(0))


if __name__ == "__main__":
    harness.main(main)
