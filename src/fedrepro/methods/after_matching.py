"""Networks of different starts: their units matched first, then merged by what clients measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import as_model
from fedrepro.methods.fedfisher import LEFT, Steps, factors, solved
from fedrepro.methods.regmean import Alpha, Ridge, moments, regmean
from fedrepro.training.federation.client_queries import Reply

Sweeps = Annotated[int, Arg("times that every client is matched, at most", least=1)]


@method(
    "matched_regmean",
    kind="one_shot",
    needs={"example_counts", "client_answers"},
    sends="second moments of layer inputs",
    models={"cnn", "mlp"},
    label="matching, then RegMean",
    prepare=moments,
    grid={"alpha": (0.1, 0.5, 0.9, 1.0), "ridge": (1e-6, 0.01)},
)
def matched_regmean(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: list[Reply],
    alpha: Alpha = 0.9,
    ridge: Ridge = 1e-6,
    sweeps: Sweeps = 100,
) -> GlobalModel:
    """RegMean of P_j w_j, P_j the permutations of weight matching, with moments permuted alike."""
    matched, answers = in_one_order(clients, prepared, rng, sweeps)
    return regmean(matched, info, rng=rng, prepared=answers, alpha=alpha, ridge=ridge)


@method(
    "matched_kfac",
    kind="one_shot",
    needs={"example_counts", "client_answers"},
    sends="Kronecker factors of the Fisher information",
    models={"cnn", "mlp"},
    label="matching, then FedFisher (K-FAC)",
    prepare=factors,
    grid={"steps": (5, 10, 20, 50, 100, 200, 500, 2000)},
    metrics={"residual_left": LEFT},
)
def matched_kfac(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: list[Reply],
    steps: Steps = 500,
    sweeps: Sweeps = 100,
) -> GlobalModel:
    """FedFisher (K-FAC) of P_j w_j, P_j the permutations of weight matching, and its factors alike.

    By conjugate gradients from the mean of what is matched.
    """
    matched, answers = in_one_order(clients, prepared, rng, sweeps)
    made, left = solved(matched, info, answers, "conjugate_gradients", steps, damping=0.0)
    return as_model(clients, made, left)


def in_one_order(
    clients: LocalModels, answers: Sequence[Reply], rng: RngKey, sweeps: int
) -> tuple[LocalModels, list[Reply]]:
    """Match the units of the clients' models, and permute their answers alike.

    Answers are moments of layer inputs and of gradients; the server permutes them itself.
    """
    from fedrepro.methods.matching.convolutional_units import blocks_of, orders_of
    from fedrepro.methods.matching.unit_permutations import align_units

    blocks = blocks_of(clients.model, clients.shape, clients.classes)
    networks = blocks.networks(clients.tensors)
    matched = align_units(networks, sweeps, rng.stream("weight-matching"))
    each = [blocks.tensors(network) for network in matched]
    tensors = {name: np.concatenate([model[name] for model in each]) for name in clients.tensors}
    names = [layer.weight for layer in blocks.layers]
    permuted: list[Reply] = [
        reordered(answer, names, orders_of(before, after))
        for answer, before, after in zip(answers, networks, matched, strict=True)
    ]
    return replace(clients, tensors=tensors), permuted


def reordered(
    answer: Mapping[str, np.ndarray], names: Sequence[str], orders: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """Permute moments of a network whose hidden layers have their units in these orders.

    Unit i of a layer was unit order[i] before; `names` are those of the weights of all layers.
    """
    from fedrepro.training.federation.moments import errors_of

    permuted = dict(answer)
    for below, above, order in zip(names[:-1], names[1:], orders, strict=True):
        if errors_of(below) in answer:
            permuted[errors_of(below)] = answer[errors_of(below)][np.ix_(order, order)]
        size = len(answer[above])
        places = size // len(order)  # of each unit in the layer above; a bias is one row more
        rows = (order[:, None] * places + np.arange(places)).reshape(-1)
        rows = np.concatenate([rows, np.arange(len(rows), size)])
        permuted[above] = answer[above][np.ix_(rows, rows)]
    return permuted
