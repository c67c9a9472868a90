"""Ensembles whose clients train on as data arrive (PFNM, supplement 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, Report, State, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods.matching.unit_arrays import class_shares
from fedrepro.papers.pfnm.streaming import arriving

if TYPE_CHECKING:
    from fedrepro.training.federation.clients import Clients


@dataclass(kw_only=True)
class _StreamingEnsemble:
    """An ensemble whose clients go on training as their data arrive. A round is a step."""

    steps: Annotated[int, Arg("parts in which each client's data arrive", least=1)] = 15
    members: Annotated[
        Literal["latest", "all"],
        Arg("who predicts: each client's latest network, or those after every step so far"),
    ] = "latest"

    def __post_init__(self) -> None:
        self.rounds = self.steps

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Every client's network as local training starts it."""
        from fedrepro.training.federation.clients import initial_weights

        places = [rng.at(client=j, round=-1) for j in range(clients.count)]
        networks = initial_weights(clients.network, clients.settings, places)
        return {"step": 0, "networks": networks, "seen": self.unseen(clients)}

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Train every client on the examples that arrived, with a new optimiser state.

        Every client's weights go up in each step, and nothing comes down.
        """
        step, before, seen = state["step"], state["networks"], state["seen"]
        arrived = arriving(clients, step, self.steps, rng)
        latest = {name: value[-clients.count :] for name, value in before.items()}
        after = arrived.train(latest, rng, epochs=clients.settings.epochs).checked().tensors
        now = self.see(seen[-clients.count :], arrived)
        if self.members == "all" and step > 0:
            after = {name: np.concatenate([before[name], value]) for name, value in after.items()}
            now = np.concatenate([seen, now])
        sent = clients.models(up=clients.count, down=0)
        return {"step": step + 1, "networks": after, "seen": now}, Report(traffic=sent)

    def model(self, state: State, clients: Clients) -> GlobalModel:
        """All members, each weighed by class."""
        weights = self.weights(state["seen"], clients.network.classes)
        return GlobalModel(clients.model, state["networks"], weights)

    def unseen(self, clients: Clients) -> np.ndarray:
        """Return the knowledge of each member's examples before any: nothing, (J, 0)."""
        return np.zeros((clients.count, 0), np.int64)

    def see(self, seen: np.ndarray, here: Clients) -> np.ndarray:
        """Return the knowledge after the examples that arrived now."""
        return seen

    def weights(self, seen: np.ndarray, classes: int) -> np.ndarray:
        """Weight of each member and class (m, K), columns sum to one: all alike."""
        return np.full((len(seen), classes), 1.0 / len(seen))


@method(
    "uniform_ensemble_streaming",
    kind="federated",
    version=2,
    needs={"rounds"},
    paper="pfnm",
    label="U-Ens streaming",
)
class UniformEnsembleStreaming(_StreamingEnsemble):
    """Mean of class probabilities of networks that train on as data arrive.

    Source: PFNM, supplement 4.2 (streaming).
    """


@method(
    "weighted_ensemble_streaming",
    kind="federated",
    version=2,
    needs={"rounds", "label_counts"},
    paper="pfnm",
    label="W-Ens streaming",
)
class WeightedEnsembleStreaming(_StreamingEnsemble):
    """As the weighted ensemble, by the examples that each member has seen by then.

    Source: PFNM, supplement 4.2 (streaming).
    """

    def unseen(self, clients: Clients) -> np.ndarray:
        """Examples of each class, (J, K): none."""
        return np.zeros((clients.count, clients.network.classes), np.int64)

    def see(self, seen: np.ndarray, here: Clients) -> np.ndarray:
        """Count the examples that arrived."""
        counts: np.ndarray = seen + here.label_counts
        return counts

    def weights(self, seen: np.ndarray, classes: int) -> np.ndarray:
        """By the share of all members' examples of a class."""
        return class_shares(seen)
