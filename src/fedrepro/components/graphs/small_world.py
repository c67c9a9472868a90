"""A ring with shortcuts.

D. J. Watts, S. H. Strogatz. Collective dynamics of 'small-world' networks. Nature, 1998.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.components.graphs._shapes import Rule, SelfLoops, hears_of, weighed
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.training.graphs import steps_from

MOST_DRAWS = 100


@register("graph", "small_world", version=1, title="small world", random=True)
def small_world(
    clients: int,
    rng: RngKey,
    *,
    neighbours: Annotated[int, Arg("on the ring, an even number", "nodes", least=2)] = 4,
    rewired: Annotated[
        float, Arg("of the ring's edges, that lead to a drawn node", least=0, most=1)
    ] = 0.2,
    weights: Rule = "metropolis",
    self_loops: SelfLoops = True,
) -> np.ndarray:
    """Nodes of a ring hear the nearest ones, and some edges lead anywhere; one draw a trial.

    Of no more nodes than neighbours and one, all are neighbours. Draws are repeated until one is
    connected, at most 100 times.
    """
    import networkx as nx

    if neighbours % 2:
        raise FedreproError(
            f"graph 'small_world': {neighbours} neighbours are not as many on one side of the "
            "ring as on the other; give an even number"
        )
    near = min(neighbours, clients)  # networkx makes as many as there are nodes a complete graph
    generator = rng.stream("graph")
    for _ in range(MOST_DRAWS):
        graph = nx.watts_strogatz_graph(clients, near, rewired, seed=generator)
        if (steps_from(hears_of(graph), 0) >= 0).all():
            return weighed(graph, weights, self_loops)
    raise FedreproError(
        f"graph 'small_world' of {clients} nodes was not connected in {MOST_DRAWS} draws; raise "
        "its neighbours, or rewire fewer"
    )
