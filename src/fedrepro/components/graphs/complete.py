"""Every node hears every other one."""

from __future__ import annotations

import numpy as np

from fedrepro.components.graphs._shapes import Rule, SelfLoops, weighed
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey


@register("graph", "complete", version=1, title="complete")
def complete(
    clients: int, rng: RngKey, *, weights: Rule = "metropolis", self_loops: SelfLoops = True
) -> np.ndarray:
    """All nodes are neighbours of each other; with self-loops one round makes all beliefs one."""
    import networkx as nx

    return weighed(nx.complete_graph(clients), weights, self_loops)
