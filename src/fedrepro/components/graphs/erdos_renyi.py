"""Neighbours by chance.

E. N. Gilbert. Random graphs. The Annals of Mathematical Statistics, 1959 (G(n, p), which goes by
the names of P. Erdős and A. Rényi).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.components.graphs._shapes import Rule, SelfLoops, drawn, weighed
from fedrepro.core.registry import register
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Arg


@register("graph", "erdos_renyi", version=1, title="random", random=True)
def erdos_renyi(
    clients: int,
    rng: Rng,
    *,
    share: Annotated[float, Arg("of all pairs, that are neighbours", above=0, most=1)] = 0.3,
    weights: Rule = "metropolis",
    self_loops: SelfLoops = True,
) -> np.ndarray:
    """Each pair of nodes is neighbours with the same probability; one draw a trial.

    Drawn anew until it is connected, at most 100 times.
    """
    import networkx as nx

    graph = drawn(
        lambda generator: nx.gnp_random_graph(clients, share, seed=generator),
        rng,
        "erdos_renyi",
        "raise its share",
    )
    return weighed(graph, weights, self_loops)
