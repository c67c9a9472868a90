"""A small federated problem for tests: three blobs, unequal clients, one without a class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedrepro.api import ClientInfo, LocalModels
from fedrepro.core.registry import components
from fedrepro.core.rng import Rng
from fedrepro.graphs.made import weights_of
from fedrepro.networks.predict import network_of
from fedrepro.training.clients import ClientData, Clients, own_starts
from fedrepro.training.engine import train
from fedrepro.training.examples import Examples
from fedrepro.training.minibatches import Task
from fedrepro.training.peers import Peers
from fedrepro.training.settings import settings_of

FEATURES, CLASSES, COUNT = 6, 3, 240


@dataclass(frozen=True)
class Problem:
    inputs: np.ndarray
    labels: np.ndarray
    rows: list[np.ndarray]
    training: object
    clients: Clients
    models: LocalModels
    info: ClientInfo


def blobs(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(COUNT) % CLASSES
    centres = np.random.default_rng(7).random((CLASSES, FEATURES)) * 2
    inputs = (centres[labels] + 0.1 * rng.standard_normal((COUNT, FEATURES))).astype(np.float32)
    return inputs, labels.astype(np.int64)


def peers_of(clients: Clients, graph: str = "ring") -> Peers:
    """The same clients as nodes of a graph."""
    weights = weights_of(components("graph")[graph].spec(), clients.count, Rng(0))
    return Peers(**vars(clients), weights=weights)


def problem(
    hidden: tuple[int, ...] = (8,), count: int = 4, kind: str = "mlp", **training_values: object
) -> Problem:
    inputs, labels = blobs()
    last = max(count - 1, 1)
    owner = np.where(labels == 0, np.arange(COUNT) % last, np.arange(COUNT) // 3 % count)
    rows = [np.flatnonzero(owner == j) for j in range(count)]
    values = {"epochs": 20, "batch_size": 8, **training_values}
    training = components("training")["adam"].spec(values)
    model = (
        components("model")[kind].spec({"hidden": list(hidden)})
        if hidden
        else components("model")["logistic"].spec()
    )
    network, settings = network_of(model, (FEATURES,), CLASSES), settings_of(training)
    examples = Examples(torch.from_numpy(inputs), torch.from_numpy(labels))
    tasks = [Task(r, Rng(0, 0, j)) for j, r in enumerate(rows)]
    starts = own_starts(network, settings, [t.rng for t in tasks])
    trained = train(network, examples, tasks, settings, starts)
    at_server, server_labels = (part[:30] for part in blobs(seed=1))
    counts = np.stack([np.bincount(labels[r], minlength=CLASSES) for r in rows])
    own = Examples(*map(torch.from_numpy, blobs(seed=2)))
    data = ClientData(examples, rows, [r[::2] for r in rows], own)
    clients = Clients(model, network, settings, data, own=trained.tensors)
    return Problem(
        inputs,
        labels,
        rows,
        training,
        clients,
        LocalModels(model, (FEATURES,), CLASSES, trained.tensors),
        ClientInfo(
            training=training,
            example_counts=counts.sum(1),
            label_counts=counts,
            pooled_inputs=inputs,
            pooled_labels=labels,
            validation_inputs=at_server,
            validation_labels=server_labels,
            public_inputs=blobs(seed=3)[0][:60],
            clients=clients,
            start=own_starts(network, settings, [Rng(0)]),
        ),
    )
