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

import harness
import numpy as np


@dataclass(frozen=True)
class Workload:
    """One comparison of federated rounds; targets are how many times faster than each peer."""

    dataset: str
    settings: dict[str, object]
    clients: int
    examples: int
    targets: dict[str, float]


WORKLOADS = {
    "lr-mnist": Workload(
        "mnist",
        {
            "model": "logistic",
            "rounds": 100,
            "cohort": 10,
            "batch_size": 10,
            "lr": 0.03,
            "epochs": 1,
            "seed": 0,
        },
        clients=1000,
        examples=100,
        targets={"pfl": 3.0, "flower": 20.0},
    ),
    "cifar-cnn": Workload(
        "cifar10",
        {
            "model": "cnn",
            "rounds": 10,
            "cohort": 50,
            "batch_size": 10,
            "lr": 0.1,
            "epochs": 1,
            "seed": 0,
        },
        clients=1000,
        examples=50,
        targets={"pfl": 0.95},
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
    data = harness.prepared(workload.dataset)
    rng = np.random.default_rng(0)
    labels = np.asarray(data.labels("train"))
    draws = [
        rng.choice(len(labels), workload.examples, replace=False) for _ in range(workload.clients)
    ]
    flat = workload.settings["model"] == "logistic"
    shape = (-1, data.dims) if flat else (-1, *data.shape)
    return Problem(
        data.inputs("train").reshape(shape),
        labels,
        np.array(draws),
        data.inputs("test").reshape(shape),
        np.asarray(data.labels("test")),
        {**workload.settings, **changes},
    )
