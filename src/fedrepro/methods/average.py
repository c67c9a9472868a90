"""Parameter average: the weights of all clients, averaged by their number of examples."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.rng import Rng
from fedrepro.spec import Arg


@method("average", kind="one_shot", needs={"example_counts"}, label="parameter average")
def average(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: Rng,
    weighted: Annotated[bool, Arg("weigh clients by their number of examples")] = True,
) -> GlobalModel:
    """sum_j (n_j / n) w_j, or the plain mean. Source: FedAvg, algorithm 1 (one round)."""
    assert info.example_counts is not None
    counts = info.example_counts if weighted else np.ones(clients.clients)
    share = (counts / counts.sum()).astype(np.float64)
    tensors = {
        name: np.tensordot(share, value.astype(np.float64), 1)[None].astype(np.float32)
        for name, value in clients.tensors.items()
    }
    return GlobalModel(clients.model, tensors)
