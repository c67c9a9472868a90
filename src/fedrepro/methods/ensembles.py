"""Ensembles: every client predicts, and the predictions are averaged."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods.matching.networks import class_shares


@method("uniform_ensemble", kind="one_shot", paper="pfnm", label="U-Ens", any_width=True)
def uniform_ensemble(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel:
    """Mean of the clients' class probabilities. Source: PFNM, supplement 4.1."""
    weights = np.full((clients.clients, clients.classes), 1.0 / clients.clients)
    return GlobalModel(clients.model, clients.tensors, weights, widths=clients.widths)


@method("voting_ensemble", kind="one_shot", paper="gems", label="majority vote", any_width=True)
def voting_ensemble(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel:
    """Predict the class that most clients do; ties fall at random. Source: GEMS, section 4.5."""
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
            "what a client's examples of a class are divided by: everybody's of that class "
            "(supplement 4.1), or all its own (section 4, to the letter)"
        ),
    ] = "class",
) -> GlobalModel:
    """Class k of client j counts by n_jk / n_k, or by n_jk / n_j. Source: PFNM, supplement 4.1.

    A class that no client has keeps equal weights. Shares within a client are divided by the
    number of clients, so that all weights sum to one.
    """
    assert info.label_counts is not None
    if share == "class":
        weights = class_shares(info.label_counts)
    else:
        held = info.label_counts.sum(axis=1, keepdims=True)
        weights = info.label_counts / np.maximum(held, 1) / len(held)
    return GlobalModel(clients.model, clients.tensors, weights, widths=clients.widths)
