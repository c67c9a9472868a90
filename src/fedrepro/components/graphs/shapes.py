"""Graphs of a shape: complete, ring, star, grid, and small world.

N is the number of nodes, `clients`. Entry (i, j) is the weight of what node i receives from node
j. By rule metropolis neighbours weigh 1 / (1 + n), n being the larger number of neighbours of the
two. Without `self_loops` they weigh 1 / n; a node's own weight is the rest. By rule uniform all
neighbours weigh alike, with `self_loops` also the node itself.

D. J. Watts, S. H. Strogatz. Collective dynamics of 'small-world' networks. Nature, 1998.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.training.mixing_matrices import RULES, rectangle, steps_from

if TYPE_CHECKING:
    import networkx as nx


Rule = Annotated[
    Literal["metropolis", "uniform"],
    Arg(
        "metropolis: by the larger number of neighbours of the two; uniform: all that a node "
        "hears alike"
    ),
]
SelfLoops = Annotated[bool, Arg("whether a node counts itself among its neighbours")]


def weighed(graph: nx.Graph, weights: str, self_loops: bool) -> np.ndarray:
    """Return an undirected graph's mixing weights, (N, N), by the rule that `weights` names."""
    return RULES[weights](hears_of(graph), self_loops)


def hears_of(graph: nx.Graph) -> np.ndarray:
    """Return a graph's adjacency, bool (N, N): entry (i, j) is whether node i receives from j."""
    import networkx as nx

    hears: np.ndarray = nx.to_numpy_array(graph, weight=None) > 0
    np.fill_diagonal(hears, False)
    return hears


def _networkx(shape: str, *size: Any, **how: Any) -> nx.Graph:
    return getattr(import_module("networkx"), shape)(*size, **how)


@register("graph", "complete", version=1, title="complete")
def complete(
    clients: int, rng: RngKey, *, weights: Rule = "metropolis", self_loops: SelfLoops = True
) -> np.ndarray:
    """Return mixing weights of a complete graph, (N, N): every node receives from every other.

    With self-loops one round makes all models equal.
    """
    return weighed(_networkx("complete_graph", clients), weights, self_loops)


@register("graph", "ring", version=1, title="ring")
def ring(
    clients: int, rng: RngKey, *, weights: Rule = "metropolis", self_loops: SelfLoops = True
) -> np.ndarray:
    """Return mixing weights of a ring, (N, N): each node receives from its two neighbours."""
    return weighed(_networkx("cycle_graph", clients), weights, self_loops)


@register("graph", "star", version=1, title="star", layout="hub")
def star(
    clients: int, rng: RngKey, *, weights: Rule = "metropolis", self_loops: SelfLoops = True
) -> np.ndarray:
    """Return mixing weights of a star, (N, N): all nodes exchange models with node 0 alone.

    Node 0 has data like any other node; for a server without data use a federated method instead.
    """
    return weighed(_networkx("star_graph", clients - 1), weights, self_loops)


@register("graph", "grid", version=1, title="grid", layout="lattice")
def grid(
    clients: int,
    rng: RngKey,
    *,
    torus: Annotated[bool, Arg("whether last row and column adjoin the first")] = False,
    weights: Rule = "metropolis",
    self_loops: SelfLoops = True,
) -> np.ndarray:
    """Return mixing weights of a grid, (N, N): neighbours are left, right, above and below.

    The grid is a rectangle close to a square. Node i is in row i // columns; 8 nodes are two rows
    of four, and a prime number is one row.
    """
    graph = _networkx("grid_2d_graph", *rectangle(clients), periodic=torus)
    return weighed(graph, weights, self_loops)


MOST_DRAWS = 100


@register("graph", "small_world", version=1, title="small world", random=True)
def small_world(
    clients: int,
    rng: RngKey,
    *,
    neighbours: Annotated[int, Arg("neighbours on the ring, an even number", "nodes", least=2)] = 4,
    rewired: Annotated[
        float, Arg("share of edges rewired to a random node", least=0, most=1)
    ] = 0.2,
    weights: Rule = "metropolis",
    self_loops: SelfLoops = True,
) -> np.ndarray:
    """Return mixing weights of a ring of near neighbours with randomly rewired edges, (N, N).

    The graph is drawn once per trial, up to 100 times until it is connected. With at most
    `neighbours` + 1 nodes, all nodes are neighbours.
    """
    if neighbours % 2:
        raise FedreproError(
            f"graph 'small_world': {neighbours} neighbours are not as many on one side of the "
            "ring as on the other; give an even number"
        )
    near = min(neighbours, clients)  # networkx makes as many as there are nodes a complete graph
    generator = rng.stream("graph")
    for _ in range(MOST_DRAWS):
        graph = _networkx("watts_strogatz_graph", clients, near, rewired, seed=generator)
        if (steps_from(hears_of(graph), 0) >= 0).all():
            return weighed(graph, weights, self_loops)
    said = f"graph 'small_world' of {clients} nodes was not connected in {MOST_DRAWS} draws"
    raise FedreproError(f"{said}; raise its neighbours, or rewire fewer")
