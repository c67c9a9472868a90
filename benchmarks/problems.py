"""The work that fedrepro and its peers both do: data, who holds it, and the numbers of training.

Peers run in an environment of their own and read the problem from an .npz file:

    inputs float32 (N, *shape), labels int64 (N,), rows int64 (clients, examples),
    test_inputs, test_labels, and settings, a json text: model, rounds, cohort, batch_size, lr,
    epochs, seed
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import numpy as np

from fedrepro.core.registry import components


@dataclass(frozen=True)
class Workload:
    """One comparison of federated rounds.

    targets: how many times faster than each peer, or at most how many times what a contender of our
    own takes (`own_rounds.py`).
    """

    dataset: str
    settings: dict[str, object]
    clients: int
    examples: int
    targets: dict[str, float]


def rounds_of(
    model: str, rounds: int, cohort: int, batch_size: int, lr: float, **local: int
) -> dict[str, object]:
    """Settings of federated rounds; local: epochs, or steps, of a client in a round."""
    given = {"model": model, "rounds": rounds, "cohort": cohort, "batch_size": batch_size}
    return {**given, "lr": lr, **local, "seed": 0}


WORKLOADS = {
    "lr-mnist": Workload(
        "mnist",
        rounds_of("logistic", 100, 10, 10, 0.03, epochs=1),
        clients=1000,
        examples=100,
        targets={"pfl": 10.0, "flower": 60.0},
    ),
    "cifar-cnn": Workload(
        "cifar10",
        rounds_of("cnn", 10, 50, 10, 0.1, epochs=1),
        clients=1000,
        examples=50,
        targets={"pfl": 1.5},
    ),
}

# the rounds of papers, against what a round cannot do without
OWN_WORKLOADS = {
    "fedavg-2nn": Workload(
        "mnist",
        rounds_of("mlp+hidden~200@200", 5, 10, 10, 0.1, steps=60),
        clients=100,
        examples=600,
        targets={"products": 0.95},
    ),
    "rm-mlp": Workload(
        "mnist",
        rounds_of("mlp+hidden~100@100", 5, 10, 64, 0.1, steps=20),
        clients=10,
        examples=1280,
        targets={"products": 1.3, "products with matching": 1.3},
    ),
    "rm-cifar": Workload(
        "cifar10",
        rounds_of("cnn+hidden~1024", 1, 10, 64, 0.03, steps=10),
        clients=10,
        examples=640,
        targets={"without matching": 2.0},
    ),
}


@dataclass(frozen=True)
class Problem:
    inputs: np.ndarray
    labels: np.ndarray
    rows: np.ndarray
    test_inputs: np.ndarray
    test_labels: np.ndarray
    settings: dict[str, object]

    def save(self, path: Path) -> None:
        arrays = {name: value for name, value in vars(self).items() if name != "settings"}
        np.savez(path, settings=json.dumps(self.settings), **arrays)


def problem(workload: Workload, **changes: object) -> Problem:
    """The data of a workload; clients draw their examples alone, so two may hold the same one."""
    stored = arrays(workload.dataset)
    rng = np.random.default_rng(0)
    draws = [
        rng.choice(len(stored["labels"]), workload.examples, replace=False)
        for _ in range(workload.clients)
    ]
    settings = {**workload.settings, **changes, "data": stored.pop("data")}
    if settings["model"] == "logistic":
        for name in ("inputs", "test_inputs"):
            stored[name] = stored[name].reshape(len(stored[name]), -1)
    return Problem(**stored, rows=np.array(draws), settings=settings)


def arrays(dataset: str) -> dict[str, Any]:
    """Inputs in [0, 1] and labels of both splits; generated where the data set is not one of ours.

    What a step costs does not depend on the values, and every framework gets the same.
    """
    if dataset not in components("dataset"):
        return generated((3, 32, 32))
    data = harness.prepared(dataset)
    return {
        "inputs": data.inputs("train").reshape(-1, *data.shape),
        "labels": np.array(data.labels("train")),
        "test_inputs": data.inputs("test").reshape(-1, *data.shape),
        "test_labels": np.array(data.labels("test")),
        "data": dataset,
    }


def generated(shape: tuple[int, ...], train: int = 20_000, test: int = 2000) -> dict[str, Any]:
    """Ten smooth patterns with much noise."""
    rng = np.random.default_rng(0)
    patterns = np.cumsum(rng.normal(size=(10, *shape)), axis=-1) / 8

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % 10
        noise = rng.standard_normal((count, *shape), np.float32)
        return (patterns[labels] + noise).astype(np.float32) / 4, labels

    inputs, labels = draw(train)
    test_inputs, test_labels = draw(test)
    return {
        "inputs": inputs,
        "labels": labels,
        "test_inputs": test_inputs,
        "test_labels": test_labels,
        "data": f"generated images of {shape}",
    }
