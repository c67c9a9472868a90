"""One node in the middle."""

from __future__ import annotations

import numpy as np

from fedrepro.components.graphs._shapes import Rule, SelfLoops, weighed
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey


@register("graph", "star", version=1, title="star", layout="hub")
def star(
    clients: int, rng: RngKey, *, weights: Rule = "metropolis", self_loops: SelfLoops = True
) -> np.ndarray:
    """Node 0 hears all others, and they hear it alone.

    It is a node with data like any other; a server without data is the federated method.
    """
    import networkx as nx

    return weighed(nx.star_graph(clients - 1), weights, self_loops)
