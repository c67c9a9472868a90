"""The weights that a graph spec describes for a number of clients."""

from __future__ import annotations

import numpy as np

from fedrepro.core.rng import Rng
from fedrepro.core.spec import Spec
from fedrepro.graphs.checks import checked

NAMED = 80  # letters of a token in a sentence


def weights_of(graph: Spec, clients: int, rng: Rng) -> np.ndarray:
    """W, float64 (N, N): W_ij is what node i makes of what it hears from node j.

    rng: at the seed and the trial, which a random graph depends on. Errors: FedreproError for
    weights that do not let beliefs settle, see `checks`.
    """
    weights = graph.component.fn(clients, rng, **graph.values)
    return checked(weights, f"graph '{graph.token[:NAMED]}'", clients)
