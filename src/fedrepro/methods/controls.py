"""Controls: the bounds every score is read against."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.methods._merging import network_like
from fedrepro.networks.network import dense_spec


@method("local", kind="control", label="clients alone", any_width=True)
def local(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> Sequence[GlobalModel]:
    """Each client alone with its own model: the mean over clients, and the worst client."""
    return [clients.alone(j) for j in range(clients.clients)]


@method(
    "pooled",
    kind="control",
    needs={"pooled_inputs", "pooled_labels"},
    label="pooled training",
    scenario={"partition": "pooled"},
)
def pooled(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel:
    """One client that holds all training data: the scenario with the partition `pooled`.

    Raises:
        FedreproError: For local models of several clients.
    """
    if clients.clients != 1:
        raise FedreproError(
            f"method 'pooled' measures one model that was trained on all data, not those of "
            f"{clients.clients} clients: give it local models of partition 'pooled'"
        )
    return GlobalModel(clients.model, clients.tensors)


@method(
    "majority",
    kind="control",
    needs={"label_counts"},
    label="majority class",
    any_width=True,
)
def majority(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel:
    """Predict always the class with most training examples: the floor."""
    assert info.label_counts is not None
    bias = np.zeros((1, clients.classes), np.float32)
    bias[0, int(info.label_counts.sum(0).argmax())] = 1.0
    weight = np.zeros((1, math.prod(clients.shape), clients.classes), np.float32)
    return GlobalModel(dense_spec(()), {"weight0": weight, "bias0": bias})


@method("raw", kind="control", needs={"public_sample"}, label="public sample alone")
def raw(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel:
    """Start afresh, so that tuning trains on the public sample alone.

    It starts as the local training procedure does, the same in all repetitions of a trial. Source:
    GEMS, section 4.4 (raw).
    """
    from fedrepro.training.federation.clients import initial_weights
    from fedrepro.training.settings import settings_of

    network = network_like(clients)
    return GlobalModel(clients.model, initial_weights(network, settings_of(info.training), [rng]))
