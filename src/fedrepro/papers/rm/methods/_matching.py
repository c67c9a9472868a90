"""Federated averaging whose clients match representations: what the methods of RM share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from fedrepro.api import ClientInfo, State
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Arg
from fedrepro.methods.fedavg import FedAvg, client_tensors

if TYPE_CHECKING:
    from fedrepro.federation.clients import Clients
    from fedrepro.papers.rm.methods._representation import RepresentationMatching
    from fedrepro.training.engine import Averaged
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
    """FedAvg with a matching loss.

    theta_i is client i's own, drawn when it is first chosen, and stays as it is between trainings.
    Source: RM, section 3.1 and algorithm 1. The maps have the kernel of the network's convolutions.
    """

    matching: Coefficient = 1.0
    reduction: Reduction = "mean"
    source: Source = "above"

    def term(self) -> RepresentationMatching:
        """Return the matching loss."""
        from fedrepro.papers.rm.methods._representation import RepresentationMatching

        return RepresentationMatching(self.matching, self.reduction, source=self.source)

    def terms(self) -> list[Term | WeightTerm]:
        """List the terms of the loss, the matching loss first."""
        return [self.term(), *super().terms()]

    def init(self, clients: Clients, info: ClientInfo, rng: Rng) -> State:
        """Return FedAvg's first state, without any theta_i."""
        from fedrepro.papers.rm.methods._representation import require_matchable

        require_matchable(clients.network)
        return {**super().init(clients, info, rng), "private": {}}

    def private_tensors(
        self, state: State, chosen: np.ndarray, clients: Clients, rng: Rng
    ) -> dict[str, np.ndarray]:
        """Return theta_i of the chosen clients, (chosen, *shape), drawn when first chosen."""
        term = self.term()
        by_client = [
            state["private"].get(str(j))
            or term.initial(clients.network, rng.at(client=j, round=-1))
            for j in chosen.tolist()
        ]
        return {name: np.stack([tensors[name] for tensors in by_client]) for name in by_client[0]}

    def client_update(
        self,
        state: State,
        chosen: np.ndarray,
        share: np.ndarray,
        clients: Clients,
        rng: Rng,
        **training: Any,
    ) -> tuple[Averaged, State]:
        """Train the chosen clients, and their theta_i.

        `training` has lr and steps. The state keeps {"private": client -> tensors}: theta_i of all
        that were ever chosen.
        """
        private = self.private_tensors(state, chosen, clients, rng)
        trained, _ = super().client_update(
            state, chosen, share, clients, rng, private=private, **training
        )
        kept = state["private"] | client_tensors(chosen, trained.private)
        return trained, {"private": kept}
