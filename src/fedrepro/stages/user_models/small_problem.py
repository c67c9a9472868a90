"""A small federated problem in memory: clients, their trained models, and a server's data.

`fedrepro check-method` checks methods on digits by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch

from fedrepro.api import NEEDS, ClientInfo, LocalModels
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.data.assignment import Assignment, TrainingLabels
from fedrepro.data.prepared import Arrays
from fedrepro.networks.predict import network_of
from fedrepro.numbers.model_evaluation import EvaluationSplit
from fedrepro.training.engine import train
from fedrepro.training.examples import Examples
from fedrepro.training.federation.clients import ClientData, Clients, GraphNodes, initial_weights
from fedrepro.training.graphs import weights_of
from fedrepro.training.minibatches import Task
from fedrepro.training.procedure import settings_of

DIGITS = "digits, 5 clients, each with most of its examples in few classes"
TEST, HELD = 360, 300  # examples of the digits for testing; for validation and the public, a third


@dataclass(frozen=True)
class SmallProblem:
    """Inputs float32 (N, D) and labels int64 (N,); client j has rows[j].

    `models` are those that clients trained; `info` is complete, and each method gets its part; no
    client has the examples of `test`.
    """

    inputs: np.ndarray
    labels: np.ndarray
    rows: list[np.ndarray]
    training: Spec
    clients: Clients
    models: LocalModels
    info: ClientInfo
    test: EvaluationSplit


@dataclass(frozen=True)
class ServerInputs:
    """Examples that no client trains with: inputs float32 (n, D) and labels int64 (n,).

    Client j validates with the rows rows[j] of `clients`.
    """

    clients: tuple[np.ndarray, np.ndarray]
    rows: list[np.ndarray]
    server: tuple[np.ndarray, np.ndarray]
    public: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def problem_of(
    inputs: np.ndarray,
    labels: np.ndarray,
    rows: list[np.ndarray],
    beside: ServerInputs,
    model: Spec,
    training: Spec,
    shape: tuple[int, ...],
    classes: int,
) -> SmallProblem:
    """Train the clients' models, by seed 0 and trial 0."""
    network, settings = network_of(model, shape, classes), settings_of(training)
    examples = _examples(inputs, labels)
    tasks = [Task(client_rows, RngKey(0, 0, j)) for j, client_rows in enumerate(rows)]
    starts = initial_weights(network, settings, [task.rng for task in tasks])
    trained = train(network, examples, tasks, settings, starts)
    validated = _examples(*beside.clients)
    data = ClientData(examples, rows, beside.rows, validated)
    clients = Clients(model, network, settings, data, needs=NEEDS, own=trained.tensors)
    counts = np.stack([np.bincount(labels[client_rows], minlength=classes) for client_rows in rows])
    info = ClientInfo(
        training=training,
        example_counts=counts.sum(1),
        label_counts=counts,
        pooled_inputs=inputs,
        pooled_labels=labels,
        validation_inputs=beside.server[0],
        validation_labels=beside.server[1],
        public_inputs=beside.public[0],
        public_labels=beside.public[1],
        clients=clients,
        start=initial_weights(network, settings, [RngKey(0)]),
    )
    tested = _examples(*beside.test)
    return SmallProblem(
        inputs,
        labels,
        rows,
        training,
        clients,
        LocalModels(model, shape, classes, trained.tensors),
        info,
        EvaluationSplit(tested, beside.test[1], shape, classes),
    )


def _examples(inputs: np.ndarray, labels: np.ndarray) -> Examples:
    return Examples(torch.from_numpy(inputs), torch.from_numpy(labels))


def peers_of(clients: Clients, graph: str = "ring") -> GraphNodes:
    """Make the clients nodes of a graph."""
    weights = weights_of(components("graph")[graph].spec(), clients.count, RngKey(0))
    return GraphNodes(**vars(clients), weights=weights)


def digits_problem(model: Spec, *, pooled: bool = False, **training: object) -> SmallProblem:
    """Make five clients with digits of unlike classes, or one that has all of them.

    `training` changes the local training, adam for 10 epochs.
    """
    x, y, shape, classes = _digits()
    scaled = {split: (part / np.float32(16)).reshape(len(part), -1) for split, part in x.items()}
    held = TrainingLabels(y["train"], classes, np.full(len(y["train"]), -1, np.int32))
    values = {} if pooled else {"clients": 5, "alpha": 0.5}
    kind = components("partition")["pooled" if pooled else "dirichlet"].spec(values)
    owners = kind.component.make(Assignment, held, RngKey(0, 0), **kind.own)
    rows = [np.flatnonzero(owners.owner == j) for j in range(owners.clients)]
    thirds = [(scaled["validation"][at::3], y["validation"][at::3]) for at in range(3)]
    validation_rows = [
        np.arange(j, len(thirds[0][1]), owners.clients) for j in range(owners.clients)
    ]
    beside = ServerInputs(
        thirds[0], validation_rows, thirds[1], thirds[2], (scaled["test"], y["test"])
    )
    how = components("training")["adam"].spec({"epochs": 10, **training})
    return problem_of(scaled["train"], y["train"], rows, beside, model, how, shape, classes)


@cache
def _digits() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], tuple[int, ...], int]:
    spec = components("dataset")["digits"].spec({"test": TEST, "validation": HELD})
    made = spec.component.make(Arrays, Path(), **spec.values)
    return dict(made.x), dict(made.y), made.shape, len(made.classes)
