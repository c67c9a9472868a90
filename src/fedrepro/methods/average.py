"""Parameter average: the weights of all clients, averaged by their number of examples."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import with_mean_buffers

BLOCK = 256  # clients in double precision at a time


@method(
    "average",
    kind="one_shot",
    needs={"example_counts"},
    label="parameter average",
    one_start="better",
    merges=True,
)
def average(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    weighted: Annotated[bool, Arg("weigh clients by their number of examples")] = True,
) -> GlobalModel:
    """Average the clients' weights, sum_j (n_j / n) w_j, or take their plain mean.

    n_j counts client j's training examples, n those of all. Source: FedAvg, algorithm 1, one round.
    """
    assert info.example_counts is not None
    counts = info.example_counts if weighted else np.ones(clients.clients)
    share = (counts / counts.sum()).astype(np.float64)
    tensors = {}
    for name, value in clients.tensors.items():
        whole = np.zeros(value.shape[1:])
        for at in range(0, len(share), BLOCK):
            part = value[at : at + BLOCK].astype(np.float64)
            whole = whole + np.tensordot(share[at : at + BLOCK], part, 1)
        tensors[name] = whole[None].astype(np.float32)
    return with_mean_buffers(clients, share, GlobalModel(clients.model, tensors))


@method(
    "average_shared",
    kind="one_shot",
    needs={"example_counts"},
    label="parameter average, shared start",
    scenario={"training": {"shared_init": True}},
    merges=True,
)
def average_shared(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel:
    """Average the weights of clients that trained from one common start, sum_j (n_j / n) w_j.

    n_j counts client j's training examples. Local training starts all clients from equal weights
    for this method, so it has other local models than other methods. Source: FedAvg, algorithm 1.
    """
    return average(clients, info, rng=rng)
