"""Merging by Fisher information, a weight's effect on its client's predictions.

Fisher merge: M. Matena, C. Raffel. Merging Models with Fisher-Weighted Averaging. NeurIPS 2022.
FedFisher: D. Jhunjhunwala, S. Wang, G. Joshi. FedFisher: Leveraging Fisher Information for One-Shot
Federated Learning. AISTATS 2024. FedLPA: X. Liu, L. Liu, F. Ye, Y. Shen, X. Li, L. Jiang, J. Li.
FedLPA: One-shot Federated Learning with Layer-Wise Posterior Aggregation. NeurIPS 2024.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.metrics import Metric
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods import _merging as merging
from fedrepro.networks.layer_matrices import layer_matrices
from fedrepro.training.federation.client_queries_and_costs import Reply
from fedrepro.training.federation.fisher_and_input_moments import errors_of

information = merging.asking("diagonal_fisher")


@method(
    "fisher_merge",
    **merging.ANSWERED,
    sends="diagonal of the Fisher information",
    label="Fisher merge",
    prepare=information,
    grid={"normalise": (True, False), "floor": (0.0, 1e-6), "clients_by": ("equal", "examples")},
)
def fisher_merge(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: list[Reply],
    normalise: Annotated[bool, Arg("divide a client's information by its norm")] = True,
    floor: Annotated[float, Arg("least Fisher information of a weight", least=0)] = 1e-6,
    clients_by: Annotated[
        Literal["examples", "equal"],
        Arg("weight of a client: its number of examples, or equal weights"),
    ] = "equal",
) -> GlobalModel:
    """Average weights by Fisher information: w_k = sum_i λ_i F_ik w_ik / sum_i λ_i F_ik.

    F_i = E_x E_y~p(y|x) (d log p(y|x) / d w)², from `prepared`. Source: Matena and Raffel, section
    3: information divided by its L2 norm over all weights, and at least 1e-6. They choose λ_i on
    validation examples; here λ_i is 1 / J, or client i's share of examples. `floor` applies to all
    clients alike. A torch module's layers but `Linear` and `Conv2d` are averaged by λ_i.
    """
    share = merging.shares_of(info)
    if clients_by == "equal":
        share = np.full_like(share, 1 / len(share))
    each = {
        name: merging.stacked(prepared, name) for name in clients.tensors if name in prepared[0]
    }
    if normalise:
        squares = [(v.astype(np.float64) ** 2).reshape(len(v), -1).sum(1) for v in each.values()]
        lengths = np.sqrt(np.sum(squares, axis=0))
        lengths[~(lengths > 0)] = 1.0
        each = {k: v / lengths.reshape(-1, *[1] * (v.ndim - 1)) for k, v in each.items()}
    made = {
        name: merging.fisher_mean(clients.tensors[name], value, share, floor)[None].astype(
            np.float32
        )
        for name, value in each.items()
    }
    return merging.as_model(clients, merging.mean_of_rest(clients, share, made))


RATE = 0.01  # of the published descent
LEFT = Metric("what is left of the residual, of the worst layer", "share", 0, None, -1)

Steps = Annotated[int, Arg("most steps of the server's descent", "steps", least=1)]


@method(
    "fedfisher_diagonal",
    **merging.ANSWERED,
    sends="diagonal of the Fisher information",
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
    """Descend from the average on sum_i p_i (w - w_i)ᵀ F_i (w - w_i), with F_i diagonal.

    F_i is client i's Fisher information, from `prepared`, p_i its share of examples. With `steps`
    steps of size 0.01, weights on which all clients have little information stay near the average.
    The exact minimum is the Fisher-weighted average, with F_i not divided by norms. The authors
    return the best of every hundredth step on 500 labelled examples: sweep `steps` for that.
    Source: FedFisher, by the authors' code.
    """
    share = merging.shares_of(info)

    def merged(fisher: np.ndarray, value: np.ndarray) -> np.ndarray:
        curve, pull = merging.mean_of(fisher, share), merging.mean_of(fisher * value, share)
        start = merging.mean_of(value, share)
        weights = merging.fisher_descent(
            lambda w: curve * w - pull, start, steps, RATE, within=False
        )
        return weights[None].astype(np.float32)

    names = [name for name in clients.tensors if name in prepared[0]]
    made = {name: merged(merging.stacked(prepared, name), clients.tensors[name]) for name in names}
    return merging.as_model(clients, merging.mean_of_rest(clients, share, made))


factors = merging.asking("kronecker_factors")


@method(
    "fedfisher_kfac",
    **merging.ANSWERED,
    sends="Kronecker factors of the Fisher information",
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
        Arg("how the server minimises: conjugate gradients, or the authors' descent"),
    ] = "conjugate_gradients",
    steps: Steps = 500,
) -> GlobalModel:
    """Merge layers by Kronecker factors: solve sum_i p_i A_i W G_i = sum_i p_i A_i W_i G_i for W.

    `prepared` has A_i = E[a aᵀ] of a layer's inputs, G_i = E[g gᵀ] of the loss's gradients by its
    outputs, with labels drawn from the model; p_i is client i's share of examples. The search
    starts at the average, without damping: weights on which no client has information stay there.
    Source: FedFisher, by the authors' code, which takes 2000 steps of descent with momentum and
    returns the best of every hundredth on 500 labelled examples.
    """
    return merging.as_model(clients, *solved(clients, info, prepared, solver, steps, damping=0.0))


def solved(
    clients: LocalModels,
    info: ClientInfo,
    answers: list[Reply],
    solver: str,
    steps: int,
    damping: float,
) -> tuple[dict[str, np.ndarray], float]:
    """Merge networks layer by layer: solve sum_i p_i A_i W G_i = sum_i p_i A_i W_i G_i for W.

    W_i are client i's weights, p_i its share of examples. `answers` have each client's Kronecker
    factors: A_i of a layer's inputs, G_i of output gradients; `damping` is added to diagonals.
    `solver` is "conjugate_gradients" or "published", FedFisher's descent, of at most `steps` steps.
    Returns the merged tensors (1, *shape) by name, and the residual of the worst layer. It is a
    share of the residual at the average, where the search starts.
    """
    share, worst = merging.shares_of(info), 0.0

    def layer(name: str, weights: np.ndarray) -> np.ndarray:
        nonlocal worst
        a, g = (
            factor + damping * np.eye(factor.shape[-1])
            for factor in (
                merging.stacked(answers, name),
                merging.stacked(answers, errors_of(name)),
            )
        )
        applied, start = merging.applied_of(a, g, share), merging.mean_of(weights, share)
        pull = sum(p * (x @ w @ y) for p, x, w, y in zip(share, a, weights, g, strict=True))
        first = np.asarray(pull) - applied(start)
        if np.linalg.norm(first) <= merging.EXHAUSTED * np.linalg.norm(pull):
            return start  # clients agree up to rounding
        if solver == "published":
            solution = merging.fisher_descent(
                lambda w: applied(w) - pull, start, steps, RATE, within=True
            )
            left = float(np.linalg.norm(applied(solution) - pull) / np.linalg.norm(first))
        else:
            solution, left = merging.conjugate_gradients(applied, start, first, steps, TOLERANCE)
        worst = max(worst, float(left))
        return solution

    return merging.merge_layers(clients, share, layer), worst


TOLERANCE = 1e-6  # of the residual, as a share


@method(
    "fedlpa",
    **merging.ANSWERED,
    sends="Kronecker factors of the empirical Fisher information",
    label="FedLPA",
    prepare=merging.asking("kronecker_factors", labels="data"),
    grid={"damping": (1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1)},
    metrics={"residual_left": LEFT},
)
def fedlpa(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: list[Reply],
    damping: Annotated[float, Arg("λ; its root is added to each diagonal", least=0)] = 0.001,
    solver: Annotated[
        Literal["conjugate_gradients", "published", "expectation"],
        Arg(
            "conjugate_gradients: start at the parameter average; published: the authors' "
            "descent; expectation: where that descent starts, computed from the mean of each "
            "Kronecker factor",
            later=True,
        ),
    ] = "conjugate_gradients",
    steps: Steps = 500,
) -> GlobalModel:
    """Merge layers by damped Kronecker factors: solve sum_i p_i A_i M B_i = sum_i p_i A_i M_i B_i.

    M_i are client i's weights and biases, p_i is its share of examples. By `prepared` A_i = E[a aᵀ]
    + √λ I with a layer's inputs a, B_i = E[g gᵀ] + √λ I with the loss's gradients g by its outputs,
    for the data's labels. Source: FedLPA, section 4.1. Solved by conjugate gradients from the
    average. The authors' code takes 10,000 steps of plain descent, and the better of its first and
    last point on test data; it divides a convolution's A_i, and multiplies B_i, by the number of
    kernel positions, before λ is added.
    """
    root = float(np.sqrt(damping))
    if solver == "conjugate_gradients":
        return merging.as_model(clients, *solved(clients, info, prepared, solver, steps, root))
    taken = steps if solver == "published" else 0
    return merging.as_model(clients, *_descended(clients, info, prepared, taken, root))


def _descended(
    clients: LocalModels, info: ClientInfo, answers: list[Reply], steps: int, damping: float
) -> tuple[dict[str, np.ndarray], float]:
    """Merge networks as `solved` does, by `steps` steps of plain descent as in FedLPA's code."""
    network = merging.network_like(clients)
    places = {layer.key: layer.places for layer in layer_matrices(network)}
    share, worst = merging.shares_of(info), 0.0

    def layer(name: str, weights: np.ndarray) -> np.ndarray:
        nonlocal worst
        a, b = (
            factor * many + damping * np.eye(factor.shape[-1])
            for factor, many in (
                (merging.stacked(answers, name), 1 / places[name]),
                (merging.stacked(answers, errors_of(name)), places[name]),
            )
        )
        applied = merging.applied_of(a, b, share)
        pull = np.einsum("j,jde,jek,jkl->dl", share, a, weights, b, optimize=True)
        solution = merging.plain_descent(
            applied, merging.expectation_mean(a, b, pull, share), pull, steps
        )
        length = np.linalg.norm(applied(merging.mean_of(weights, share)) - pull)
        if length > merging.EXHAUSTED * np.linalg.norm(pull):
            worst = max(worst, float(np.linalg.norm(applied(solution) - pull) / length))
        return solution

    return merging.merge_layers(clients, share, layer), worst
