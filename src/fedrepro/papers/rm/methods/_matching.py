"""Federated averaging whose clients match representations: what the methods of RM share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, State
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Arg
from fedrepro.methods.fedavg import Averaging

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
class MatchingRounds(Averaging):
    """Averaging with a matching loss, whose maps theta_i are client i's own.

    They are drawn when it is first chosen, and stay as they are between trainings. They have the
    kernel of the network's convolutions. Source: RM, section 3.1 and algorithm 1.
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

    def private_tensors(
        self, state: State, chosen: np.ndarray, clients: Clients, rng: Rng
    ) -> dict[str, np.ndarray]:
        """theta_i of the chosen clients, (chosen, *shape); drawn by its number for one that was
        never chosen."""
        term = self.term()
        by_client = [
            state["private"].get(str(j))
            or term.initial(clients.network, rng.at(client=j, round=-1))
            for j in chosen.tolist()
        ]
        return {name: np.stack([tensors[name] for tensors in by_client]) for name in by_client[0]}
