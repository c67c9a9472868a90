"""The best client alone: what any combination has to beat."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.metrics import Metric
from fedrepro.core.rng import RngKey

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
    """Choose the client's model that is best on all validation examples, w_j of argmax_j v_j.

    v_j = sum_i (n_i / n) (its accuracy at client i), so that every client's examples count alike.
    Ties go to the first. A client without validation examples has no say.
    """
    assert info.clients is not None
    assert info.example_counts is not None
    accuracies = info.clients.evaluate(clients.tensors, on="validation").accuracy
    validating = np.isfinite(accuracies).all(axis=0)
    share = info.example_counts[validating] / info.example_counts[validating].sum()
    scores = accuracies[:, validating] @ share
    best = int(scores.argmax())
    return replace(clients.alone(best), diagnostics={"chosen_by": float(scores[best])})
