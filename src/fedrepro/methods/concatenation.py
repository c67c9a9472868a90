"""Concatenation: all hidden units kept, none matched; tells what matching costs or adds."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.matching.networks import class_shares, require_one_hidden_layer
from fedrepro.networks.dense import widths
from fedrepro.rng import Rng
from fedrepro.spec import Arg


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
    rng: Rng,
    class_weights: Annotated[
        bool, Arg("weigh a client's outgoing weights by its share of each class, not equally")
    ] = True,
) -> GlobalModel:
    """All hidden units of all clients side by side, in a single network.

    The logit of class k is sum_j f_jk (U_jk' relu(W_j x + b_j) + u_jk), f_jk the share of client j
    of all examples of the class, or 1 / J.
    """
    assert info.label_counts is not None
    tensors = clients.tensors
    require_one_hidden_layer(len(widths(tensors)), "concatenation")
    shares = class_shares(info.label_counts)
    if not class_weights:
        shares = np.full_like(shares, 1.0 / len(shares))
    weight0 = np.concatenate(list(tensors["weight0"]), axis=1)
    weight1 = np.concatenate(list(tensors["weight1"] * shares[:, None, :]))
    joined = {
        "weight0": weight0,
        "bias0": tensors["bias0"].ravel(),
        "weight1": weight1,
        "bias1": (shares * tensors["bias1"]).sum(axis=0),
    }
    return GlobalModel(clients.model, {k: v[None].astype(np.float32) for k, v in joined.items()})
