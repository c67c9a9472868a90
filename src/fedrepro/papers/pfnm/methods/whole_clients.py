"""Whole clients: some of the clients' networks side by side, as many as a size has room for."""

from __future__ import annotations

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.methods._merging import Units, target_widths
from fedrepro.methods.matching.unit_arrays import tensors_of
from fedrepro.methods.pfnm import ClassWeights, joined
from fedrepro.networks.network import widths


@method(
    "whole_clients",
    kind="control",
    needs={"label_counts"},
    models={"mlp"},
    label="whole clients",
)
def whole_clients(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: Units = None,
    class_weights: ClassWeights = True,
) -> GlobalModel | None:
    """Draw m clients at random and join them in one network of `units` units: m = units / L.

    Its logits are exactly the mean of theirs, or with class weights sum_j f_jk (logit of client j),
    f_jk being the share of client j of the examples of class k that the m have. One client is
    itself. Nothing is given where `units` is not a multiple of a client's width, or the clients are
    too few.
    """
    order = rng.stream("whole-clients").permutation(clients.clients)
    return _beside(clients, info, order, units, class_weights)


@method(
    "best_clients",
    kind="control",
    needs={"label_counts", "client_evaluation"},
    models={"mlp"},
    label="best clients",
)
def best_clients(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: Units = None,
    class_weights: ClassWeights = True,
) -> GlobalModel | None:
    """Join the m clients with the highest training accuracy on their own data, as `whole_clients`.

    Ties go to the first. A client that has few classes finds its own data easy, so where clients
    differ this does not measure how well it does on everybody's.
    """
    assert info.clients is not None
    evaluations = [
        info.clients.evaluate({name: value[[j]] for name, value in clients.tensors.items()}, [j])
        for j in range(clients.clients)
    ]
    order = np.argsort(
        [-float(evaluation.accuracy[0, 0]) for evaluation in evaluations], kind="stable"
    )
    return _beside(clients, info, order, units, class_weights)


def _beside(
    clients: LocalModels,
    info: ClientInfo,
    order: np.ndarray,
    units: int | None,
    class_weights: bool,
) -> GlobalModel | None:
    """Join the first clients of the order, or return None if whole clients cannot fill a size."""
    assert info.label_counts is not None
    pairs = zip(target_widths(clients, units), widths(clients.tensors), strict=True)
    counts = {divmod(wanted, width) for wanted, width in pairs}
    count, rest = counts.pop()
    if counts or rest or count > clients.clients:
        return None
    chosen = np.sort(order[:count])
    tensors = {name: value[chosen] for name, value in clients.tensors.items()}
    models = LocalModels(clients.model, clients.shape, clients.classes, tensors)
    whole = joined(models, info.label_counts[chosen], class_weights)
    return GlobalModel(clients.model, tensors_of(whole))
