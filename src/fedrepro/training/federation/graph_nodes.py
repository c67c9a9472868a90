"""The clients of one trial as the nodes of a graph: they work alone and hear their neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import FLOAT_BYTES, Traffic
from fedrepro.training.engine import Averaged
from fedrepro.training.federation.clients import Clients
from fedrepro.training.flat_layout import Layout
from fedrepro.training.graphs.mixing import mixed_tensors


@dataclass(frozen=True)
class GraphNodes(Clients):
    """The N nodes of one trial, which train by themselves and send nothing for it.

    weights: float64 (N, N), stochastic: W_ij is what node i makes of what it hears from node j.
    """

    weights: np.ndarray = field(kw_only=True, compare=False)

    @cached_property
    def neighbours(self) -> tuple[np.ndarray, ...]:
        """Whom each node hears, itself aside: int64 (d_i,), ascending."""
        hears = self.weights > 0
        np.fill_diagonal(hears, False)
        return tuple(np.flatnonzero(row) for row in hears)

    @property
    def edges(self) -> int:
        """Directed edges: pairs of a node and one that it hears."""
        return sum(map(len, self.neighbours))

    @property
    def numbers(self) -> int:
        """Numbers in a message that is a belief: the network's, two for each variational weight."""
        return int(Layout(self.network.shapes).numbers)

    def mixed(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Mix each tensor (N, *shape): sum_j W_ij x_j, summed in float64, dtype as given."""
        return mixed_tensors(self.weights, tensors)

    def sent(self, numbers: int | None = None) -> Traffic:
        """Count the traffic of one message along each directed edge, by default of a belief."""
        size = (self.numbers if numbers is None else numbers) * FLOAT_BYTES * self.edges
        return Traffic(self.edges, self.edges, size, size)

    def average(self, *args: object, **kwargs: object) -> Averaged:
        """Refuse to fold what all of them send, which would take a server."""
        raise FedreproError(
            f"method '{self.method}' averages over all nodes, which takes a server, and peers have "
            "none: train them, and take `mixed` of the result"
        )

    def _send(self, traffic: Traffic) -> None:
        """Nothing goes to a server."""
