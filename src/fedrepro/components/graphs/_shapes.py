"""What graphs of neighbours share: their parameters, and weights from a graph of networkx."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Arg
from fedrepro.graphs.checks import steps_from
from fedrepro.graphs.weights import RULES

if TYPE_CHECKING:
    import networkx as nx

MOST_DRAWS = 100

Rule = Annotated[
    Literal["metropolis", "uniform"],
    Arg("how much neighbours count: by the larger number of both, or all that a node hears alike"),
]
SelfLoops = Annotated[bool, Arg("whether a node counts itself among its neighbours")]


def weighed(graph: nx.Graph, weights: str, self_loops: bool) -> np.ndarray:
    """W, float64 (N, N), of an undirected graph, whose own self-loops do not count."""
    return RULES[weights](_hears(graph), self_loops)


def drawn(
    draw: Callable[[np.random.Generator], nx.Graph], rng: Rng, who: str, remedy: str
) -> nx.Graph:
    """The first connected graph of at most 100 draws. Errors: FedreproError if there is none."""
    generator = rng.stream("graph")
    for _ in range(MOST_DRAWS):
        graph = draw(generator)
        if (steps_from(_hears(graph), 0) >= 0).all():
            return graph
    raise FedreproError(
        f"graph '{who}' of {len(graph)} nodes was not connected in {MOST_DRAWS} draws; {remedy}"
    )


def _hears(graph: nx.Graph) -> np.ndarray:
    """Who hears whom, bool (N, N), nodes in the order of the graph."""
    import networkx as nx

    hears: np.ndarray = nx.to_numpy_array(graph, weight=None) > 0
    np.fill_diagonal(hears, False)
    return hears
