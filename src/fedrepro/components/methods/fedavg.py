"""Federated averaging and what is built on it: FedSGD, FedProx, and optimisers at the server.

A round: some clients train from the global weights w and send theirs; the server steps along the
mean of their updates. With U = sum_k p_k (w_k - w) over the clients S of the round,

    p_k = n_k / sum_{S} n_k   (selected)      or      p_k = n_k / n   (all clients' examples).

FedSGD is one step on all data: epochs 1 and a training with batch_size none. Sources: FedAvg,
algorithm 1; RM, algorithm 1, line 14, whose sum is over all clients' examples to the letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, Report, State, method
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Arg

if TYPE_CHECKING:
    from fedrepro.training.clients import Clients

NEEDS = {"rounds", "example_counts"}

Rounds = Annotated[int, Arg("communication rounds", "rounds", least=1)]
Fraction = Annotated[
    float, Arg("share of the clients that train in a round, C; at least one does", least=0, most=1)
]
Epochs = Annotated[int, Arg("local epochs in a round, E", "epochs", least=1)]
Steps = Annotated[
    int | None, Arg("local minibatches in a round, none for whole epochs", "minibatches", least=1)
]
LastLr = Annotated[
    float | None,
    Arg("learning rate of the last round, geometrically from the training's lr", above=0),
]
Weights = Annotated[
    Literal["selected", "all"],
    Arg("a client's share: of the examples of the round's clients, or of all clients"),
]
Mu = Annotated[
    float, Arg("mu of FedProx: mu/2 times the squared distance from the weights received", least=0)
]
ServerLr = Annotated[float, Arg("length of the server's step along the mean update", above=0)]


@method("fedavg", kind="federated", needs=NEEDS, paper="fedavg", label="FedAvg")
class FedAvg:
    """The mean of the models of some clients, round by round. Source: FedAvg, algorithm 1.

    `proximal` makes it FedProx (Li et al., 2020, algorithm 2); `server_lr` and `server_momentum`
    make it FedAvgM (Hsu et al., 2019, section 4.3): v = momentum v + U, w = w + server_lr v.
    """

    def __init__(
        self,
        *,
        rounds: Rounds = 100,
        fraction: Fraction = 0.1,
        epochs: Epochs = 1,
        steps: Steps = None,
        last_lr: LastLr = None,
        weights: Weights = "selected",
        proximal: Mu = 0.0,
        server_lr: ServerLr = 1.0,
        server_momentum: Annotated[float, Arg("of past updates", least=0, most=1)] = 0.0,
    ) -> None:
        self.rounds, self.fraction = rounds, fraction
        self.epochs, self.steps, self.last_lr = epochs, steps, last_lr
        self.of_all, self.proximal = weights == "all", proximal
        self.server_lr, self.server_momentum = server_lr, server_momentum

    def init(self, clients: Clients, info: ClientInfo, rng: Rng) -> State:
        """Global weights as a client would start, and nothing to remember."""
        from fedrepro.training.clients import own_starts

        weights = own_starts(clients.network, clients.settings, [rng.at(client=-1)])
        return {"weights": weights, "server": self.at_rest(weights)}

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: Rng
    ) -> tuple[State, Report]:
        """Clients are drawn, train and are averaged; the server takes its step."""
        update = self._update(state["weights"], clients, info, rng)
        if update is None:  # no client's training gave numbers
            return state, Report()
        step, server = self.server_step(update, state["server"], rng.round)
        weights = {k: (v + step[k]).astype(np.float32) for k, v in state["weights"].items()}
        return {"weights": weights, "server": server}, Report()

    def model(self, state: State, clients: Clients) -> GlobalModel:
        """The global network."""
        return GlobalModel(clients.model, state["weights"])

    def at_rest(self, weights: dict[str, np.ndarray]) -> State:
        """What the server remembers before the first round."""
        return _zeros(weights) if self.server_momentum else {}

    def server_step(
        self, update: dict[str, np.ndarray], server: State, done: int
    ) -> tuple[dict[str, np.ndarray], State]:
        """The step from the mean update U, float64 (1, *shape), and what is remembered."""
        if self.server_momentum:
            update = {k: self.server_momentum * server[k] + v for k, v in update.items()}
            server = {k: v.astype(np.float32) for k, v in update.items()}
        return {k: self.server_lr * v for k, v in update.items()}, server

    def _update(
        self, weights: dict[str, np.ndarray], clients: Clients, info: ClientInfo, rng: Rng
    ) -> dict[str, np.ndarray] | None:
        """U of a round; a client whose training diverged is as if it had not been drawn."""
        from fedrepro.training.terms import Proximal

        assert info.example_counts is not None
        chosen = drawn(clients.count, self.fraction, rng)
        held = info.example_counts[chosen].astype(np.float64)
        share = held / (info.example_counts if self.of_all else held).sum()
        found = clients.average(
            weights,
            rng,
            share.tolist(),
            epochs=self.epochs,
            chosen=chosen.tolist(),
            lr=self._lr(clients.settings.lr, rng.round),
            steps=self.steps,
            terms=[Proximal(self.proximal / 2)] if self.proximal else [],
        )
        if not found.weight:
            return None
        total = found.weight if self.of_all else 1.0
        return {
            k: (v.astype(np.float64) / found.weight - weights[k]) * total
            for k, v in found.tensors.items()
        }

    def _lr(self, first: float, done: int) -> float | None:
        """The rate of this round, None for the training's own."""
        if self.last_lr is None:
            return None
        return float(first * (self.last_lr / first) ** (done / max(1, self.rounds - 1)))


@method("fedadam", kind="federated", needs=NEEDS, label="FedAdam")
class FedAdam(FedAvg):
    """The server's step is Adam's, along the mean update. Source: Reddi et al., 2021, algorithm 2.

    m = beta1 m + (1 - beta1) U, v = beta2 v + (1 - beta2) U², v starting at tau², and
    w = w + server_lr m / (sqrt(v) + tau).
    """

    def __init__(
        self,
        *,
        rounds: Rounds = 100,
        fraction: Fraction = 0.1,
        epochs: Epochs = 1,
        steps: Steps = None,
        last_lr: LastLr = None,
        weights: Weights = "selected",
        server_lr: ServerLr = 0.01,
        beta1: Annotated[float, Arg("of the mean update", least=0, most=1)] = 0.9,
        beta2: Annotated[float, Arg("of its square", least=0, most=1)] = 0.99,
        tau: Annotated[
            float, Arg("added to the root, against small steps' growth", above=0)
        ] = 1e-3,
    ) -> None:
        super().__init__(
            rounds=rounds,
            fraction=fraction,
            epochs=epochs,
            steps=steps,
            last_lr=last_lr,
            weights=weights,
            server_lr=server_lr,
        )
        self.beta1, self.beta2, self.tau = beta1, beta2, tau

    def at_rest(self, weights: dict[str, np.ndarray]) -> State:
        """Moments: zero, and tau²."""
        second = {k: np.full_like(v, self.tau**2) for k, v in weights.items()}
        return {"first": _zeros(weights), "second": second}

    def server_step(
        self, update: dict[str, np.ndarray], server: State, done: int
    ) -> tuple[dict[str, np.ndarray], State]:
        """Adam without its correction of the first rounds, as printed."""
        first = {k: _mix(self.beta1, server["first"][k], v) for k, v in update.items()}
        second = {k: _mix(self.beta2, server["second"][k], v**2) for k, v in update.items()}
        step = {k: self.server_lr * first[k] / (np.sqrt(second[k]) + self.tau) for k in update}
        kept = {"first": first, "second": second}
        single = {
            name: {k: v.astype(np.float32) for k, v in moment.items()}
            for name, moment in kept.items()
        }
        return step, single


def drawn(clients: int, fraction: float, rng: Rng) -> np.ndarray:
    """The clients of a round, ascending int64: max(C·K, 1). Source: FedAvg, algorithm 1."""
    count = max(1, round(fraction * clients))
    return np.sort(rng.stream("clients-of-a-round").permutation(clients)[:count])


def _zeros(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k: np.zeros_like(v) for k, v in weights.items()}


def _mix(beta: float, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    found: np.ndarray = beta * old.astype(np.float64) + (1 - beta) * new
    return found
