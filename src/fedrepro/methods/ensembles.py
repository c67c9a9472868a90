"""Ensembles: every client predicts, and the predictions are averaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, State, method
from fedrepro.matching.networks import class_shares
from fedrepro.methods._streams import arriving, label_counts
from fedrepro.rng import Rng
from fedrepro.spec import Arg

if TYPE_CHECKING:
    from fedrepro.training.clients import Clients


@method("uniform_ensemble", kind="one_shot", paper="pfnm", label="U-Ens")
def uniform_ensemble(clients: LocalModels, info: ClientInfo, *, rng: Rng) -> GlobalModel:
    """Mean of the clients' class probabilities. Source: PFNM, supplement 4.1."""
    weights = np.full((clients.clients, clients.classes), 1.0 / clients.clients)
    return GlobalModel(clients.model, clients.tensors, weights)


@method("weighted_ensemble", kind="one_shot", needs={"label_counts"}, paper="pfnm", label="W-Ens")
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


class _StreamingEnsemble:
    """An ensemble whose clients go on training as their data arrive. A round is a step."""

    def __init__(
        self,
        *,
        steps: Annotated[int, Arg("parts in which each client's data arrive", least=1)] = 15,
        members: Annotated[
            Literal["latest", "all"],
            Arg("who predicts: each client's latest network, or those after every step so far"),
        ] = "latest",
    ) -> None:
        self.rounds = steps
        self.all = members == "all"

    def init(self, clients: Clients, rng: Rng) -> State:
        """Every client's network as local training starts it; nobody has examples."""
        from fedrepro.training.clients import own_starts

        places = [rng.at(client=j, round=-1) for j in range(clients.count)]
        counts = np.zeros((clients.count, clients.network.classes), np.int64)
        own = own_starts(clients.network, clients.settings, places)
        return {"step": 0, "networks": _kept(own), "counts": _kept({"counts": counts})}

    def round(self, state: State, clients: Clients, rng: Rng) -> tuple[State, Mapping[str, float]]:
        """Every client trains on with what arrived; the optimiser starts anew."""
        step, epochs = state["step"], clients.settings.epochs
        here = arriving(clients, step, self.rounds, rng)
        before = {name: value.numpy() for name, value in state["networks"].items()}
        counts = state["counts"]["counts"].numpy()
        latest = {name: value[-clients.count :] for name, value in before.items()}
        trained = here.train(latest, rng, epochs=epochs)
        after, held = trained.tensors, counts[-clients.count :] + label_counts(here)
        if self.all and step > 0:
            after = {name: np.concatenate([before[name], value]) for name, value in after.items()}
            held = np.concatenate([counts, held])
        return {"step": step + 1, "networks": _kept(after), "counts": _kept({"counts": held})}, {}

    def model(self, state: State, clients: Clients) -> GlobalModel:
        """All members, each weighed by class."""
        tensors = {name: value.numpy() for name, value in state["networks"].items()}
        counts = state["counts"]["counts"].numpy()
        return GlobalModel(clients.model, tensors, self.weights(counts))

    def weights(self, counts: np.ndarray) -> np.ndarray:
        """Weight of each member and class, columns sum to one, from the examples it has seen."""
        raise NotImplementedError

    def messages(self, clients: int) -> tuple[int, int]:
        """Every client's weights up in each step."""
        return clients, 0


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

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return np.full(counts.shape, 1.0 / len(counts))


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

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return class_shares(counts)


def _kept(arrays: Mapping[str, np.ndarray]):  # type: ignore[no-untyped-def]  # no torch here
    import torch

    return {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
