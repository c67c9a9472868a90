"""Downpour SGD: clients send gradients to a master, which takes Adam steps.

Dean et al., Large scale distributed deep networks, NIPS 2012, as PFNM uses it (section 4,
supplement 4.1): one local epoch per round, all networks with the master's architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, Report, State, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.training.federation.clients import Clients, initial_weights
from fedrepro.training.flat_models_and_optimiser_steps import Layout, new_memory, optimiser_step
from fedrepro.training.training_examples import tensor_of as torch_of
from fedrepro.training.training_settings_and_procedures import Settings

if TYPE_CHECKING:
    import torch

Epochs = Annotated[int, Arg("local epochs in a round", "epochs", least=1)]
Messages = Annotated[
    Literal["sequential", "averaged"],
    Arg("a master step per message, in random order, or one on their mean"),
]


@method(
    "downpour_sgd", kind="federated", needs={"rounds"}, models={"mlp"}, paper="pfnm", label="D-SGD"
)
@dataclass(kw_only=True)
class DownpourSgd:
    """Downpour SGD: a server (master) takes an Adam step per client message, or one on their mean.

    A message is the mean of the minibatch gradients along the client's local epochs. By default
    messages are applied one by one; the paper does not say so, but its accuracy first rises with
    the number of clients ("more communications"). `clients` train when asked; `info` is not used.
    """

    rounds: Annotated[int, Arg("communication rounds", "rounds", least=1)] = 10
    epochs: Epochs = 1
    messages: Messages = "sequential"
    minibatches: Annotated[
        int | None,
        Arg("local minibatches in a round, none for whole epochs", "minibatches", least=1),
    ] = None

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the state before round 1: randomly drawn master weights, Adam's zero moments."""
        start = initial_weights(clients.network, clients.settings, [rng.at(client=-1)])
        flat = torch_of(Layout(clients.network.shapes).pack(start))
        return {"flat": flat, "optimiser": new_memory(flat, _adam(clients))}

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Train at every client, then step at the master; return the new state and a report."""
        flat = state["flat"].clone()
        sent = self._messages(flat, clients, rng)
        if self.messages == "sequential":
            sent = sent[rng.stream("downpour-order").permutation(len(sent))]
        sent = sent[np.isfinite(sent.sum(1))]  # a master does not follow a client that diverged
        if self.messages == "averaged" and len(sent):
            sent = sent.mean(0, keepdims=True)
        memory = {name: value.clone() for name, value in state["optimiser"].items()}
        for message in sent:
            optimiser_step(flat, torch_of(message[None]), memory, _adam(clients))
        return {"flat": flat, "optimiser": memory}, Report()

    def _messages(self, flat: torch.Tensor, clients: Clients, rng: RngKey) -> np.ndarray:
        """Return clients' messages: mean gradients of their local steps, flat vectors (J, size)."""
        epochs = self.epochs
        if self.minibatches is not None:
            clients, epochs = next_minibatches(clients, self.minibatches, rng), 1
        layout = Layout(clients.network.shapes)
        start = layout.unpack(flat.numpy())
        plain = not clients.network.draws and clients.settings.augment == "none"
        if self.minibatches == 1 and plain and all(map(len, clients.data.rows)):
            return layout.pack(clients.gradients(start))
        trained = clients.train(start, rng, epochs=epochs, keep_gradients=True)
        assert trained.gradients is not None
        sent = layout.pack(trained.gradients) / trained.steps[:, None].astype(np.float32)
        sent[~trained.finite] = np.nan
        return sent

    def model(self, state: State, clients: Clients) -> GlobalModel:
        """Return the master network as the model to evaluate."""
        layout = Layout(clients.network.shapes)
        return GlobalModel(clients.model, layout.unpack(state["flat"].numpy()))


def next_minibatches(clients: Clients, count: int, rng: RngKey) -> Clients:
    """Return clients that hold only the examples of their next `count` minibatches.

    Clients visit their examples in one random order after another, in each round (of `rng`) the
    next count * batch_size; so all take equally many steps. FedreproError without batch_size.
    """
    if clients.settings.batch_size is None:
        raise FedreproError("downpour SGD counts minibatches, so training needs a batch_size")
    wanted = count * clients.settings.batch_size
    begin = rng.round * wanted

    def stretch(client: int, held: int) -> np.ndarray:
        place = rng.at(client=client, round=-1)
        if not held:
            return np.empty(0, np.int64)  # which training refuses
        first, last = begin // held, (begin + wanted - 1) // held
        orders = [
            place.at(epoch=epoch).stream("downpour-minibatches").permutation(held)
            for epoch in range(first, last + 1)
        ]
        at = begin - first * held
        return np.concatenate(orders)[at : at + wanted]

    return clients.with_subset(stretch)


def _adam(clients: Clients) -> Settings:
    return replace(clients.settings, optimiser="adam")
