"""FedFisher: the weights that all clients' second-order models of their likelihood agree on best.

D. Jhunjhunwala, S. Wang, G. Joshi. FedFisher: Leveraging Fisher Information for One-Shot Federated
Learning. AISTATS 2024.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.metrics import Metric
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import (
    MODELS,
    as_model,
    asking,
    mean_of_rest,
    merge_layers,
    shares_of,
    stacked,
)
from fedrepro.methods.fisher_merge import information
from fedrepro.training.federation.client_queries import Reply

RATE = 0.01  # of the published descent
LEFT = Metric("what is left of the residual, of the worst layer", "share", 0, None, -1)

Steps = Annotated[int, Arg("of the server's descent, at most", "steps", least=1)]


@method(
    "fedfisher_diagonal",
    kind="one_shot",
    needs={"example_counts", "client_answers"},
    sends="diagonal of the Fisher information",
    models=MODELS,
    one_start=True,
    merges=True,
    label="FedFisher (diagonal)",
    prepare=information,
    grid={"steps": (20, 50, 100, 200, 500, 1000, 1500, 2000)},
)
def fedfisher_diagonal(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: list[Reply],
    steps: Steps = 2000,
) -> GlobalModel:
    """Descent from the average on sum_i p_i (w - w_i)ᵀ F_i (w - w_i), F_i diagonal, p_i = n_i / n.

    `steps` of length 0.01 leave weights on which nobody has much information at the average; all
    the way down it is the Fisher-weighted average without norms. The authors return the best of
    every hundredth step on 500 labelled examples: a sweep of `steps` does so. Source: FedFisher, by
    the authors' code.
    """
    from fedrepro.methods.merging.fisher_average import fisher_descent
    from fedrepro.methods.merging.kronecker import mean_of

    share, made = shares_of(info), {}
    for name in [name for name in clients.tensors if name in prepared[0]]:
        fisher, value = stacked(prepared, name), clients.tensors[name]
        curve, pull = mean_of(fisher, share), mean_of(fisher * value, share)
        weights = fisher_descent(
            lambda w, c=curve, p=pull: c * w - p,  # type: ignore[misc]
            mean_of(value, share),
            steps,
            RATE,
            within=False,
        )
        made[name] = weights[None].astype(np.float32)
    return as_model(clients, mean_of_rest(clients, share, made))


factors = asking("kronecker_factors")


@method(
    "fedfisher_kfac",
    kind="one_shot",
    needs={"example_counts", "client_answers"},
    sends="Kronecker factors of the Fisher information",
    models=MODELS,
    one_start=True,
    merges=True,
    label="FedFisher (K-FAC)",
    prepare=factors,
    grid={"steps": (5, 10, 20, 50, 100, 200, 500, 2000)},
    metrics={"residual_left": LEFT},
)
def fedfisher_kfac(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: list[Reply],
    solver: Annotated[
        Literal["conjugate_gradients", "published"],
        Arg("how the server goes down: by conjugate gradients, or by the authors' descent"),
    ] = "conjugate_gradients",
    steps: Steps = 500,
) -> GlobalModel:
    """sum_i p_i A_i W G_i = sum_i p_i A_i W_i G_i of each layer, from the average; p_i = n_i / n.

    A_i = E[a aᵀ] of a layer's inputs, G_i = E[g gᵀ] of the gradients by what it gives, over the
    model's labels. Nothing is damped: what no client has information on stays at the average.
    Source: FedFisher, by the authors' code, which takes 2000 steps of a descent with momentum and
    returns the best of every hundredth on 500 labelled examples.
    """
    return as_model(clients, *solved(clients, info, prepared, solver, steps, damping=0.0))


def solved(
    clients: LocalModels,
    info: ClientInfo,
    answers: list[Reply],
    solver: str,
    steps: int,
    damping: float,
) -> tuple[dict[str, np.ndarray], float]:
    """Solve for the network of Kronecker factors; also return the residual that is left.

    Each factor has `damping` on its diagonal. The residual is that of the worst layer, as a share
    of what it was at the average.
    """
    from fedrepro.methods.merging.fisher_average import fisher_descent
    from fedrepro.methods.merging.kronecker import applied_of, conjugate_gradients, mean_of
    from fedrepro.training.federation.moments import errors_of

    share, worst = shares_of(info), 0.0

    def layer(name: str, weights: np.ndarray) -> np.ndarray:
        nonlocal worst
        a, g = (
            factor + damping * np.eye(factor.shape[-1])
            for factor in (stacked(answers, name), stacked(answers, errors_of(name)))
        )
        applied, start = applied_of(a, g, share), mean_of(weights, share)
        pull = sum(p * (x @ w @ y) for p, x, w, y in zip(share, a, weights, g, strict=True))
        first = np.asarray(pull) - applied(start)
        if solver == "published":
            solution = fisher_descent(lambda w: applied(w) - pull, start, steps, RATE, within=True)
            length = np.linalg.norm(first)
            left = np.linalg.norm(applied(solution) - pull) / length if length else 0.0
        else:
            solution, left = conjugate_gradients(applied, start, first, steps, TOLERANCE)
        worst = max(worst, float(left))
        return solution

    return merge_layers(clients, share, layer), worst


TOLERANCE = 1e-6  # of the residual, as a share
