"""Downpour SGD on data that arrive in steps (PFNM, supplement 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fedrepro.api import ClientInfo, Report, State, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods.downpour_sgd import DownpourSgd, Epochs, Messages
from fedrepro.papers.pfnm.streaming import arriving

if TYPE_CHECKING:
    from fedrepro.training.federation.clients import Clients


@method(
    "downpour_streaming",
    kind="federated",
    version=2,
    needs={"rounds"},
    models={"mlp"},
    paper="pfnm",
    label="D-SGD streaming",
)
class DownpourStreaming(DownpourSgd):
    """Downpour SGD on data that arrive in steps: the master goes on from step to step.

    A round of the harness is a step, in which there are several rounds of communication. The
    paper names no number; 10 rounds of one epoch are what it takes without a stream.
    Source: PFNM, supplement 4.2 (streaming).
    """

    def __init__(
        self,
        *,
        steps: Annotated[int, Arg("parts in which each client's data arrive", least=1)] = 15,
        rounds: Annotated[int, Arg("communication rounds in a step", "rounds", least=1)] = 10,
        epochs: Epochs = 1,
        messages: Messages = "sequential",
    ) -> None:
        super().__init__(rounds=rounds, epochs=epochs, messages=messages)
        self.exchanges, self.rounds = rounds, steps

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """All rounds of one step, on its part of the clients' data."""
        step, first = rng.round, rng.round * self.exchanges
        arrived = arriving(clients, step, self.rounds, rng)
        for done in range(first, first + self.exchanges):
            state, _ = super().round(state, arrived, info, rng.at(round=done))
        return state, Report(exchanges=self.exchanges)
