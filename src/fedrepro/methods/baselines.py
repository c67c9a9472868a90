"""Controls that every score is read against, the best client, and ensembles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.evaluation_schedule_and_successive_halving import TIE_DIGITS
from fedrepro.core.metrics import Metric
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import network_like
from fedrepro.methods.matching.network_arrays_and_tracing import class_shares
from fedrepro.networks.network import dense_spec
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.training_settings_and_procedures import settings_of


@method("local", kind="control", label="clients alone", any_width=True)
def local(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> Sequence[GlobalModel]:
    """Return each client's own model, to report the mean over clients and the worst client."""
    return [clients.alone(j) for j in range(clients.clients)]


@method(
    "pooled",
    kind="control",
    needs={"pooled_inputs", "pooled_labels"},
    label="pooled training",
    scenario={"partition": "pooled"},
)
def pooled(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel:
    """Return the model of one client that holds all training data (the partition `pooled`)."""
    if clients.clients != 1:
        raise FedreproError(
            f"method 'pooled' measures one model that was trained on all data, not those of "
            f"{clients.clients} clients: give it local models of partition 'pooled'"
        )
    return GlobalModel(clients.model, clients.tensors)


@method("majority", kind="control", needs={"label_counts"}, label="majority class", any_width=True)
def majority(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel:
    """Predict for every input the class with most training examples: a control to compare with."""
    assert info.label_counts is not None
    bias = np.zeros((1, clients.classes), np.float32)
    bias[0, int(info.label_counts.sum(0).argmax())] = 1.0
    weight = np.zeros((1, math.prod(clients.shape), clients.classes), np.float32)
    return GlobalModel(dense_spec(()), {"weight0": weight, "bias0": bias})


@method("raw", kind="control", needs={"public_sample"}, label="public sample alone")
def raw(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel:
    """Return a randomly initialised network, for training on the server's public sample alone.

    Weights are drawn as in local training, by the trial's key `rng`. Source: GEMS, 4.4 (raw).
    """
    network = network_like(clients)
    return GlobalModel(clients.model, initial_weights(network, settings_of(info.training), [rng]))


CHOSEN = Metric("accuracy by which the best client was chosen", "share of examples", 0, 1, 1)


@method(
    "best_client",
    kind="control",
    needs={"example_counts", "client_validation"},
    label="best client",
    metrics={"chosen_by": CHOSEN},
    any_width=True,
)
def best_client(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel:
    """Choose the client's model that is best on all clients' validation examples: argmax_j v_j.

    v_j = sum_i (n_i / n) (accuracy of model j at client i), n_i / n client i's share of training
    examples. Of equal v_j the first is chosen. Clients without validation examples are left out.
    """
    assert info.clients is not None
    assert info.example_counts is not None
    accuracies = info.clients.evaluate(clients.tensors, on="validation").accuracy
    validating = np.isfinite(accuracies).any(axis=0)  # a model that overflows has no accuracy
    share = info.example_counts[validating] / info.example_counts[validating].sum()
    scores = np.round(accuracies[:, validating] @ share, TIE_DIGITS)
    best = int(np.nan_to_num(scores, nan=-1.0).argmax())
    return replace(clients.alone(best), diagnostics={"chosen_by": float(scores[best])})


@method("uniform_ensemble", kind="one_shot", paper="pfnm", label="U-Ens", any_width=True)
def uniform_ensemble(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel:
    """Predict by the mean of the clients' class probabilities. Source: PFNM, supplement 4.1."""
    weights = np.full((clients.clients, clients.classes), 1.0 / clients.clients)
    return GlobalModel(clients.model, clients.tensors, weights, widths=clients.widths)


@method("voting_ensemble", kind="one_shot", paper="gems", label="majority vote", any_width=True)
def voting_ensemble(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel:
    """Predict the class that most clients predict, with random ties. Source: GEMS, section 4.5."""
    weights = np.full((clients.clients, clients.classes), 1.0 / clients.clients)
    return GlobalModel(clients.model, clients.tensors, weights, ties=rng, widths=clients.widths)


@method(
    "weighted_ensemble",
    kind="one_shot",
    needs={"label_counts"},
    paper="pfnm",
    label="W-Ens",
    grid={"share": ("class", "client")},
    any_width=True,
)
def weighted_ensemble(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    share: Annotated[
        Literal["class", "client"],
        Arg(
            "what a client's number of examples of a class is divided by: all clients' examples "
            "of that class (supplement 4.1), or all of its own examples (section 4, to the "
            "letter)"
        ),
    ] = "class",
) -> GlobalModel:
    """Predict by the clients' class probabilities, weighted by n_jk / n_k, or by n_jk / n_j.

    n_jk counts the examples of class k at client j, n_k those at all clients, n_j those of all
    classes. A class that no client has keeps equal weights. Shares within a client are divided by
    the number of clients, so that all weights sum to one. Source: PFNM, supplement 4.1.
    """
    assert info.label_counts is not None
    held = info.label_counts.sum(axis=1, keepdims=True)
    weights = info.label_counts / np.maximum(held, 1) / len(held)
    if share == "class":
        weights = class_shares(info.label_counts)
    return GlobalModel(clients.model, clients.tensors, weights, widths=clients.widths)
