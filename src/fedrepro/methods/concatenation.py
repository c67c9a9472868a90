"""Concatenation: all hidden units kept, none matched; tells what matching costs or adds."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods.matching.block_diagonal import side_by_side
from fedrepro.methods.matching.networks import UnitArrays, class_shares, networks_of, tensors_of

ClassWeights = Annotated[
    bool, Arg("weigh a client's outgoing weights by its share of each class, not equally")
]


@method(
    "concatenation",
    kind="control",
    needs={"label_counts"},
    models={"mlp"},
    paper="pfnm",
    label="concatenation",
)
def concatenation(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    class_weights: ClassWeights = True,
) -> GlobalModel:
    """All hidden units of all clients side by side, in a single network.

    The logit of class k is sum_j f_jk (logit of client j), f_jk the share of client j of all
    examples of the class, or 1 / J. Clients share no hidden unit, so the weights between hidden
    layers are block-diagonal.
    """
    assert info.label_counts is not None
    whole = joined(clients, info.label_counts, class_weights)
    return GlobalModel(clients.model, tensors_of(whole))


def joined(clients: LocalModels, label_counts: np.ndarray, class_weights: bool) -> UnitArrays:
    """Join the clients' networks side by side, top weights times the clients' shares."""
    shares = class_shares(label_counts)
    if not class_weights:
        shares = np.full_like(shares, 1.0 / len(shares))
    networks = networks_of(clients.tensors)
    scaled = [
        (*network[:-2], network[-2] * share)
        for network, share in zip(networks, shares, strict=True)
    ]
    bias = (shares * np.stack([network[-1] for network in networks])).sum(axis=0)
    return side_by_side([(*network, bias) for network in scaled], bias)
