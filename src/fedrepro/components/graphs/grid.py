"""Nodes in rows and columns."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.components.graphs._shapes import Rule, SelfLoops, weighed
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.training.graphs import rectangle


@register("graph", "grid", version=1, title="grid", layout="lattice")
def grid(
    clients: int,
    rng: RngKey,
    *,
    torus: Annotated[bool, Arg("whether the last row and column adjoin the first")] = False,
    weights: Rule = "metropolis",
    self_loops: SelfLoops = True,
) -> np.ndarray:
    """Each node hears those left, right, above and below it, in a rectangle close to a square.

    Node i is in row i // columns; 8 nodes are two rows of four, and a prime number is one row.
    """
    import networkx as nx

    graph = nx.grid_2d_graph(*rectangle(clients), periodic=torus)
    return weighed(graph, weights, self_loops)
