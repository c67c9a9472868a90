"""Federated averaging with representation matching.

H. Mostafa, Robust Federated Learning Through Representation Matching and Adaptive
Hyper-parameters, 2019 (RM), section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, State, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods import fedavg

if TYPE_CHECKING:
    from fedrepro.papers.rm.methods._representation import RepresentationMatching
    from fedrepro.training.federation.clients import Clients
    from fedrepro.training.loss_terms import Term, WeightTerm

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
class MatchingRounds(fedavg.Averaging):
    """Averaging with a matching loss, whose maps theta_i are client i's own.

    They are drawn when it is first chosen, and stay as they are between trainings. They have the
    kernel of the network's convolutions. Source: RM, section 3.1 and algorithm 1.
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

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the first state of averaging, without any theta_i."""
        from fedrepro.papers.rm.methods._representation import require_matchable

        require_matchable(clients.network)
        return {**super().init(clients, info, rng), "private": {}}

    def private_tensors(
        self, state: State, chosen: np.ndarray, clients: Clients, rng: RngKey
    ) -> dict[str, np.ndarray]:
        """Return theta_i of the chosen clients, (chosen, *shape), drawn when first chosen."""
        term = self.term()
        by_client = [
            state["private"].get(str(j))
            or term.initial(clients.network, rng.at(client=j, round=-1))
            for j in chosen.tolist()
        ]
        return {name: np.stack([tensors[name] for tensors in by_client]) for name in by_client[0]}


@method(
    "representation_matching",
    kind="federated",
    needs=fedavg.NEEDS,
    models=MODELS,
    paper="rm",
    label="FA+RM",
)
@dataclass(kw_only=True)
class MatchedFedAvg(MatchingRounds, fedavg.FedAvg):
    """FedAvg, and local activations must give back the received model's. Source: RM, eq. (1).

    L = cross-entropy + matching · L_M (+ the other terms of `fedavg`), all by the same descent.
    """
