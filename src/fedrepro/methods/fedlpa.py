"""FedLPA: clients' posteriors of each layer, by Laplace's approximation, brought together.

X. Liu, L. Liu, F. Ye, Y. Shen, X. Li, L. Jiang, J. Li. FedLPA: One-shot Federated Learning with
Layer-Wise Posterior Aggregation. NeurIPS 2024.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import (
    MODELS,
    as_model,
    asking,
    merge_layers,
    network_like,
    shares_of,
    stacked,
)
from fedrepro.methods.fedfisher import LEFT, Steps, solved
from fedrepro.training.federation.client_queries import Reply


@method(
    "fedlpa",
    kind="one_shot",
    needs={"example_counts", "client_answers"},
    sends="Kronecker factors of the empirical Fisher information",
    models=MODELS,
    one_start=True,
    merges=True,
    label="FedLPA",
    prepare=asking("kronecker_factors", labels="data"),
    grid={"damping": (1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1)},
    metrics={"residual_left": LEFT},
)
def fedlpa(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: list[Reply],
    damping: Annotated[float, Arg("λ; each factor has its root on the diagonal", least=0)] = 0.001,
    solver: Annotated[
        Literal["conjugate_gradients", "published", "expectation"],
        Arg(
            "conjugate_gradients: from the average; published: the authors' descent; expectation: "
            "where that begins, by the mean of each factor",
            later=True,
        ),
    ] = "conjugate_gradients",
    steps: Steps = 500,
) -> GlobalModel:
    """sum_i p_i A_i M B_i = sum_i p_i A_i M_i B_i of each layer, with biases; p_i = n_i / n.

    A_i = E[a aᵀ] + √λ I of a layer's inputs, B_i = E[g gᵀ] + √λ I of the gradients at the labels of
    the data. Source: FedLPA, section 4.1. It is solved by conjugate gradients from the average. The
    authors' code takes 10,000 steps of plain descent, and of their end and their beginning the
    better on test data; there a convolution's A_i is divided, and its B_i multiplied, by the places
    at which its kernel is laid, before λ is added.
    """
    root = float(np.sqrt(damping))
    if solver == "conjugate_gradients":
        return as_model(clients, *solved(clients, info, prepared, solver, steps, root))
    taken = steps if solver == "published" else 0
    return as_model(clients, *_descended(clients, info, prepared, taken, root))


def _descended(
    clients: LocalModels, info: ClientInfo, answers: list[Reply], steps: int, damping: float
) -> tuple[dict[str, np.ndarray], float]:
    """As `solved`, by the authors' descent; damping: on the diagonal of each factor."""
    from fedrepro.methods.merging.kronecker import (
        applied_of,
        expectation_mean,
        mean_of,
        plain_descent,
    )
    from fedrepro.networks.layer_matrices import layer_matrices
    from fedrepro.training.federation.moments import errors_of

    network = network_like(clients)
    places = {layer.key: layer.places for layer in layer_matrices(network)}
    share, worst = shares_of(info), 0.0

    def layer(name: str, weights: np.ndarray) -> np.ndarray:
        nonlocal worst
        a, b = (
            factor * many + damping * np.eye(factor.shape[-1])
            for factor, many in (
                (stacked(answers, name), 1 / places[name]),
                (stacked(answers, errors_of(name)), places[name]),
            )
        )
        applied = applied_of(a, b, share)
        pull = np.einsum("j,jde,jek,jkl->dl", share, a, weights, b, optimize=True)
        solution = plain_descent(applied, expectation_mean(a, b, pull, share), pull, steps)
        length = np.linalg.norm(applied(mean_of(weights, share)) - pull)
        if length:
            worst = max(worst, float(np.linalg.norm(applied(solution) - pull) / length))
        return solution

    return merge_layers(clients, share, layer), worst
