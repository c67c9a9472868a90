"""The weights that a graph spec describes for a number of clients."""

from __future__ import annotations

import numpy as np

from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.training.graphs.checks import checked_weights

NAMED = 80  # letters of a token in a sentence


def weights_of(graph: Spec, clients: int, rng: RngKey) -> np.ndarray:
    """Make a graph's weights W, float64 (N, N): W_ij is node i's weight for node j's message.

    Raises:
        FedreproError: For weights with which beliefs do not settle, see `checks`.
    """
    weights = graph.component.fn(clients, rng, **graph.values)
    return checked_weights(weights, f"graph '{graph.token[:NAMED]}'", clients)
