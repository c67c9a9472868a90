"""Ensembles: every client predicts, and the predictions are averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, Report, State, method
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Arg
from fedrepro.matching.networks import class_shares
from fedrepro.methods._streams import arriving

if TYPE_CHECKING:
    from fedrepro.federation.clients import Clients


@method("uniform_ensemble", kind="one_shot", paper="pfnm", label="U-Ens")
def uniform_ensemble(clients: LocalModels, info: ClientInfo, *, rng: Rng) -> GlobalModel:
    """Mean of the clients' class probabilities. Source: PFNM, supplement 4.1."""
    weights = np.full((clients.clients, clients.classes), 1.0 / clients.clients)
    return GlobalModel(clients.model, clients.tensors, weights)


@method("voting_ensemble", kind="one_shot", paper="gems", label="majority vote")
def voting_ensemble(clients: LocalModels, info: ClientInfo, *, rng: Rng) -> GlobalModel:
    """The class that most clients predict; ties fall at random. Source: GEMS, section 4.5."""
    weights = np.full((clients.clients, clients.classes), 1.0 / clients.clients)
    return GlobalModel(clients.model, clients.tensors, weights, ties=rng)


@method(
    "weighted_ensemble",
    kind="one_shot",
    needs={"label_counts"},
    paper="pfnm",
    label="W-Ens",
    grid={"share": ("class", "client")},
)
def weighted_ensemble(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: Rng,
    share: Annotated[
        Literal["class", "client"],
        Arg(
            "what a client's examples of a class are divided by: everybody's of that class "
            "(supplement 4.1), or all its own (section 4, to the letter)"
        ),
    ] = "class",
) -> GlobalModel:
    """Class k of client j counts by n_jk / n_k, or by n_jk / n_j. Source: PFNM, supplement 4.1.

    A class that no client has keeps equal weights. Shares within a client are divided by the
    number of clients, so that all weights sum to one.
    """
    assert info.label_counts is not None
    if share == "class":
        weights = class_shares(info.label_counts)
    else:
        held = info.label_counts.sum(axis=1, keepdims=True)
        weights = info.label_counts / np.maximum(held, 1) / len(held)
    return GlobalModel(clients.model, clients.tensors, weights)


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

    def init(self, clients: Clients, info: ClientInfo, rng: Rng) -> State:
        """Every client's network as local training starts it."""
        from fedrepro.federation.clients import own_starts

        places = [rng.at(client=j, round=-1) for j in range(clients.count)]
        networks = own_starts(clients.network, clients.settings, places)
        return {"step": 0, "networks": networks, "seen": self.unseen(clients)}

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: Rng
    ) -> tuple[State, Report]:
        """Every client trains on with what arrived; the optimiser starts anew.

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
        """What is known of each member's examples before any: nothing, (J, 0)."""
        return np.zeros((clients.count, 0), np.int64)

    def see(self, seen: np.ndarray, here: Clients) -> np.ndarray:
        """The same after the examples that arrived now."""
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
        """Those that arrived are counted in."""
        counts: np.ndarray = seen + here.label_counts
        return counts

    def weights(self, seen: np.ndarray, classes: int) -> np.ndarray:
        """By the share of all members' examples of a class."""
        return class_shares(seen)
