"""FedLPA: clients' posteriors of each layer, by Laplace's approximation, brought together.

X. Liu, L. Liu, F. Ye, Y. Shen, X. Li, L. Jiang, J. Li. FedLPA: One-shot Federated Learning with
Layer-Wise Posterior Aggregation. NeurIPS 2024.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.components.methods._merging import MODELS, as_model
from fedrepro.components.methods.fedfisher import LEFT, Steps, solved
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Arg
from fedrepro.training.asking import Answers


def factors_of_labels(clients: LocalModels, info: ClientInfo, *, rng: Rng) -> list[Answers]:
    """The Kronecker factors of each client at its own model, over the labels of its data."""
    from fedrepro.training.moments import kronecker_factors

    assert info.clients is not None
    return info.clients.ask(partial(kronecker_factors, labels="data"))


@method(
    "fedlpa",
    kind="one_shot",
    needs={"example_counts", "client_answers"},
    sends="Kronecker factors of the empirical Fisher information",
    models=MODELS,
    one_start=True,
    label="FedLPA",
    prepare=factors_of_labels,
    grid={"damping": (1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1)},
    metrics={"residual_left": LEFT},
)
def fedlpa(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: Rng,
    prepared: list[Answers],
    damping: Annotated[float, Arg("λ; each factor has its root on the diagonal", least=0)] = 0.001,
    steps: Steps = 500,
) -> GlobalModel:
    """sum_i p_i A_i M B_i = sum_i p_i A_i M_i B_i of each layer, with biases; p_i = n_i / n.

    A_i = E[a aᵀ] + √λ I of a layer's inputs, B_i = E[g gᵀ] + √λ I of the gradients at the labels of
    the data. Source: FedLPA, section 4.1. It is solved by conjugate gradients from the average; the
    authors' code takes 10,000 steps of plain descent, and the better of two solutions on test data.
    """
    made, left = solved(
        clients, info, prepared, "conjugate_gradients", steps, float(np.sqrt(damping))
    )
    return as_model(clients, made, left)
