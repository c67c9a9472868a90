"""Ensembles: every client predicts, and the predictions are averaged."""

from __future__ import annotations

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.rng import Rng


@method("uniform_ensemble", kind="one_shot", paper="pfnm", label="U-Ens")
def uniform_ensemble(clients: LocalModels, info: ClientInfo, *, rng: Rng) -> GlobalModel:
    """Mean of the clients' class probabilities. Source: PFNM, supplement 4.1."""
    weights = np.full((clients.clients, clients.classes), 1.0 / clients.clients)
    return GlobalModel(clients.model, clients.tensors, weights)


@method("weighted_ensemble", kind="one_shot", needs={"label_counts"}, paper="pfnm", label="W-Ens")
def weighted_ensemble(clients: LocalModels, info: ClientInfo, *, rng: Rng) -> GlobalModel:
    """Class k of client j counts by n_jk / n_k. Source: PFNM, supplement 4.1.

    A class that no client has keeps equal weights.
    """
    assert info.label_counts is not None
    counts = info.label_counts.astype(np.float64)
    total = counts.sum(0)
    weights = np.where(total > 0, counts / np.maximum(total, 1), 1.0 / clients.clients)
    return GlobalModel(clients.model, clients.tensors, weights)
