"""Nodes in a circle."""

from __future__ import annotations

import numpy as np

from fedrepro.components.graphs._shapes import Rule, SelfLoops, weighed
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey


@register("graph", "ring", version=1, title="ring")
def ring(
    clients: int, rng: RngKey, *, weights: Rule = "metropolis", self_loops: SelfLoops = True
) -> np.ndarray:
    """Each node hears the one before and the one after it."""
    import networkx as nx

    return weighed(nx.cycle_graph(clients), weights, self_loops)
