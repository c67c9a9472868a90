"""Federated averaging whose clients match representations: what the methods of RM share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, State
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Arg
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.scaffold import client_tensors

if TYPE_CHECKING:
    from fedrepro.federation.clients import Clients
    from fedrepro.papers.rm.methods._representation import RepresentationMatching
    from fedrepro.training.terms import Term, WeightTerm

# what the term can give back the activations of
MODELS = {"cnn", "logistic", "mlp"}

Coefficient = Annotated[float, Arg("coefficient of the matching loss", least=0)]
Reduction = Annotated[
    Literal["mean", "sum"], Arg("of the squared gaps, over the elements of an activation")
]
Source = Annotated[
    Literal["above", "same"],
    Arg("the trained activation that gives a received one back: the one above it, or its own"),
]


@dataclass(kw_only=True)
class MatchingRounds(FedAvg):
    """FedAvg with a matching loss; theta_i is client i's own, drawn when it is first chosen, and
    stays as it is between trainings.

    Source: RM, section 3.1 and algorithm 1. The maps have the kernel of the network's convolutions.
    """

    matching: Coefficient = 1.0
    reduction: Reduction = "mean"
    source: Source = "above"

    def term(self) -> RepresentationMatching:
        """The matching loss."""
        from fedrepro.papers.rm.methods._representation import RepresentationMatching

        return RepresentationMatching(self.matching, self.reduction, source=self.source)

    def terms(self) -> list[Term | WeightTerm]:
        """The matching loss comes first."""
        return [self.term(), *super().terms()]

    def init(self, clients: Clients, info: ClientInfo, rng: Rng) -> State:
        """The same, and no theta_i yet."""
        from fedrepro.papers.rm.methods._representation import require_matchable

        require_matchable(clients.network)
        return {**super().init(clients, info, rng), "private": {}}

    def lent(
        self, state: State, chosen: np.ndarray, clients: Clients, rng: Rng
    ) -> dict[str, np.ndarray]:
        """theta_i of the chosen clients; drawn by its number for one that was never chosen."""
        term = self.term()
        each = [
            state["private"].get(str(j))
            or term.initial(clients.network, rng.at(client=j, round=-1))
            for j in chosen.tolist()
        ]
        return {name: np.stack([one[name] for one in each]) for name in each[0]}

    def kept(self, state: State, chosen: np.ndarray, private: dict[str, np.ndarray]) -> State:
        """theta_i as trained by the chosen clients, and as they were of others that were."""
        found = state["private"] | client_tensors(chosen, private)
        return {**super().kept(state, chosen, private), "private": found}
