"""Parameters that graphs of neighbours have, and weights from a graph of networkx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedrepro.core.spec import Arg
from fedrepro.training.graphs import RULES

if TYPE_CHECKING:
    import networkx as nx

Rule = Annotated[
    Literal["metropolis", "uniform"],
    Arg("how much neighbours count: by the larger number of both, or all that a node hears alike"),
]
SelfLoops = Annotated[bool, Arg("whether a node counts itself among its neighbours")]


def weighed(graph: nx.Graph, weights: str, self_loops: bool) -> np.ndarray:
    """W, float64 (N, N), of an undirected graph, whose own self-loops do not count."""
    return RULES[weights](hears_of(graph), self_loops)


def hears_of(graph: nx.Graph) -> np.ndarray:
    """Who hears whom, bool (N, N), nodes in the order of the graph."""
    import networkx as nx

    hears: np.ndarray = nx.to_numpy_array(graph, weight=None) > 0
    np.fill_diagonal(hears, False)
    return hears
