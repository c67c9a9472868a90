"""Federated averaging and what is built on it: FedSGD, FedProx, and optimisers at the server.

A round: some clients train from the global weights w and send theirs; the server steps along the
mean of their updates. With U = sum_k p_k (w_k - w) over the clients S of the round,

    p_k = n_k / sum_{S} n_k   (selected)      or      p_k = n_k / n   (all clients' examples).

FedSGD is one step on all data: epochs 1 and a training with batch_size none. Other methods build on
`Drawn`, or on `Averaging`, whose terms and server's step they replace. In all, `clients` train when
asked, `info` has their numbers of examples, and `rng` is the round's random key. Sources: FedAvg,
algorithm 1; RM (representation matching, Mostafa, 2019), algorithm 1, line 14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from fedrepro.api import BatchNorm, ClientInfo, GlobalModel, Report, State, Traffic, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import FLOAT_BYTES
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.training.engine import Averaged, Trained
from fedrepro.training.federation.clients import Clients, initial_weights
from fedrepro.training.loss_terms import Entropy, Proximal, Term, WeightTerm

NEEDS = {"rounds", "example_counts"}
MANY = 10_000  # clients from which nobody shuffles all of them to draw a few

Weighted = dict[str, np.ndarray]

Rounds = Annotated[int, Arg("communication rounds", "rounds", least=1)]
Fraction = Annotated[
    float, Arg("share of the clients that train in a round, C; at least one does", least=0, most=1)
]
Epochs = Annotated[int, Arg("local epochs in a round, E", "epochs", least=1)]
Steps = Annotated[
    int | None, Arg("local minibatches in a round, none for whole epochs", "minibatches", least=1)
]
LastSteps = Annotated[
    int | None,
    Arg("minibatches of the last round, geometrically from `steps`", "minibatches", least=1),
]
LastLr = Annotated[
    float | None,
    Arg("learning rate of the last round, reached geometrically", above=0),
]
Weights = Annotated[
    Literal["selected", "all"],
    Arg("weight of a client: its share of the examples of the round's clients, or of all clients"),
]
Mu = Annotated[
    float, Arg("mu: the loss adds mu/2 times the squared distance to received weights", least=0)
]
EntropyShare = Annotated[
    float, Arg("coefficient of the penalty on over-confident predictions, 0: off", least=0)
]
LeastEntropy = Annotated[
    float, Arg("entropy below which a prediction is over-confident, H_min", "nats", least=0)
]
Divergence = Annotated[
    float,
    Arg("lambda: the loss adds lambda times the squared distance to received weights", least=0),
]
ServerLr = Annotated[float, Arg("server learning rate: factor on the mean update", above=0)]
ServerMomentum = Annotated[float, Arg("momentum of the server", least=0, most=1)]


@dataclass(kw_only=True)
class Drawn:
    """Base of methods in rounds: each round draws clients, which train from the global weights."""

    rounds: Rounds = 100
    fraction: Fraction = 0.1

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the state before round 1: {"weights": drawn by `rng`, (1, *shape) by name}."""
        return {"weights": initial_weights(clients.network, clients.settings, [rng.at(client=-1)])}

    def model(self, state: State, clients: Clients) -> GlobalModel | Sequence[GlobalModel]:
        """Return the global network as the model to evaluate."""
        return GlobalModel(clients.model, state["weights"])


@dataclass(kw_only=True)
class DrawnForSteps(Drawn):
    """Base of methods whose drawn clients train for some epochs, or some minibatches, per round."""

    epochs: Epochs = 1
    steps: Steps = None

    def trained(
        self, state: State, clients: Clients, chosen: np.ndarray, rng: RngKey, **how: Any
    ) -> Trained:
        """Train clients `chosen` (indices) from the global weights; `how`: options of training."""
        how |= {"epochs": self.epochs, "steps": self.steps, "chosen": chosen.tolist()}
        return clients.train(state["weights"], rng, **how)


@dataclass(kw_only=True)
class Averaging(Drawn):
    """Base of methods that average the drawn clients' models and then take a server step."""

    weights: Weights = "selected"
    batchnorm: BatchNorm = "average"

    def terms(self) -> list[Term | WeightTerm]:
        """Return the loss terms that clients add to their cross-entropy; none unless overridden."""
        return []

    def private_tensors(
        self, state: State, chosen: np.ndarray, clients: Clients, rng: RngKey
    ) -> dict[str, np.ndarray] | None:
        """Return private tensors of the loss terms, (chosen, *shape) by name, or None without any.

        `chosen` are the clients that train in this round; each keeps its tensors between rounds.
        """
        return None

    def server_update(self, update: Weighted, server: State) -> tuple[Weighted, State]:
        """Return the server's step (1, *shape) by name, by default `update`, and its next state.

        `update` is the clients' mean update, `server` the server's state, such as momentum.
        """
        return update, server

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the first state: "weights" by `rng`, "server" {}, "kept" {} for local norms."""
        if self.batchnorm != "average":
            from fedrepro.training.federation.norm_statistics import require_norms

            require_norms(clients.network, f"method '{clients.method}'")
        kept: State = {"kept": {}} if self.batchnorm == "local" else {}
        return {**super().init(clients, info, rng), "server": {}, **kept}

    def averaged(
        self,
        state: State,
        clients: Clients,
        info: ClientInfo,
        rng: RngKey,
        *,
        epochs: int = 1,
        lr: float | None = None,
        steps: int | None = None,
    ) -> State | None:
        """Run a round: drawn clients train, the server averages and steps. Return the new state.

        Clients that diverged are left out, as if they had not been drawn; None if all diverged.
        `lr` defaults to that of training, `steps` (minibatches per client) to `epochs` epochs.
        """
        assert info.example_counts is not None
        chosen = sample_clients(clients.count, self.fraction, rng)
        held = info.example_counts[chosen].astype(np.float64)
        share = held / (info.example_counts if self.weights == "all" else held).sum()
        private = self.private_tensors(state, chosen, clients, rng)
        how = {"epochs": epochs, "lr": lr, "steps": steps, "terms": self.terms()}
        trained, kept = client_update(state, chosen, share, clients, rng, private=private, **how)
        if not trained.weight:
            return None
        total = trained.weight if self.weights == "all" else 1.0
        update = {
            k: (v.astype(np.float64) / trained.weight - state["weights"][k]) * total
            for k, v in trained.tensors.items()
        }
        step, server = self.server_update(update, state["server"])
        step |= {name: update[name] for name in clients.network.buffers}
        weights = {k: (v + step[k]).astype(v.dtype) for k, v in state["weights"].items()}
        if self.batchnorm == "recalibrate":
            weights |= clients.statistics(weights, chosen[trained.finite].tolist())
        if self.batchnorm == "local":  # these layers do not reach the server
            weights |= {name: state["weights"][name] for name in clients.network.norms}
        if private:
            kept["private"] = state["private"] | scatter_client_state(chosen, trained.private)
        return {"weights": weights, "server": server, **kept}

    def model(self, state: State, clients: Clients) -> GlobalModel | Sequence[GlobalModel]:
        """Return the global network, or one per client if each keeps its own BatchNorm layers."""
        if self.batchnorm != "local":
            return super().model(state, clients)
        own = gather_client_state(state["kept"], np.arange(clients.count), _norms(state, clients))
        each = ({k: v[[j]] for k, v in own.items()} for j in range(clients.count))
        return [GlobalModel(clients.model, state["weights"] | norms) for norms in each]

    def report(self, state: State, clients: Clients, metrics: Mapping[str, float] = {}) -> Report:
        """Return a round's report: `metrics`, exchanges, traffic if BatchNorm layers stay local."""
        traffic = None
        if self.batchnorm == "local":  # layers of BatchNorm are not sent
            sent = clients.ledger.traffic
            own = FLOAT_BYTES * sum(value.size for value in _norms(state, clients).values())
            up, down = (own * messages for messages in (sent.messages_up, sent.messages_down))
            traffic = Traffic(
                sent.messages_up, sent.messages_down, sent.bytes_up - up, sent.bytes_down - down
            )
        # statistics of BatchNorm are asked for in an exchange of their own
        exchanges = 1 + clients.ledger.spent.exchanges
        return Report(metrics, traffic=traffic, exchanges=exchanges)


@dataclass(kw_only=True)
class Scheduled(Averaging):
    """Base of averaging methods: `lr`, `steps` go geometrically to `last_lr`, `last_steps`."""

    epochs: Epochs = 1
    steps: Steps = None
    last_steps: LastSteps = None
    last_lr: LastLr = None

    def __post_init__(self) -> None:
        if self.last_steps is not None and self.steps is None:
            raise FedreproError(
                f"last_steps is {self.last_steps}, and there are no `steps` to start from: give "
                "both"
            )

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Train at drawn clients, average, step at the server; return new state and report."""
        first, steps = clients.settings.lr, self._steps(rng.round)
        lr = None if self.last_lr is None else self._between(first, self.last_lr, rng.round)
        after = self.averaged(state, clients, info, rng, epochs=self.epochs, lr=lr, steps=steps)
        return after or state, self.report(state, clients)

    def _steps(self, done: int) -> int | None:
        if self.steps is None or self.last_steps is None:
            return self.steps
        return max(1, round(self._between(self.steps, self.last_steps, done)))

    def _between(self, first: float, last: float, done: int) -> float:
        # geometrically from the first round to the last
        return float(first * (last / first) ** (done / max(1, self.rounds - 1)))


@method("fedavg", kind="federated", needs=NEEDS, paper="fedavg", label="FedAvg")
@dataclass(kw_only=True)
class FedAvg(Scheduled):
    """Federated averaging: the mean of some clients' models in each round. Source: FedAvg, alg. 1.

    `proximal` makes it FedProx (Li et al., 2020, algorithm 2). `server_lr` and `server_momentum`
    make it FedAvgM (Hsu et al., 2019, section 4.3): v = momentum v + U, w = w + server_lr v. U is
    the clients' mean update. `divergence` is the coefficient of "weight divergence" in RM (Mostafa,
    2019, section 4). RM's loss adds `entropy` · max(0, `least_entropy` - H), H a prediction's
    entropy in nats. With `batchnorm` local each client predicts with BatchNorm layers of its own
    (FedBN, Li et al., 2021). With recalibrate the round's clients measure their statistics again.
    """

    proximal: Mu = 0.0
    divergence: Divergence = 0.0
    entropy: EntropyShare = 0.0
    least_entropy: LeastEntropy = 2.0
    server_lr: ServerLr = 1.0
    server_momentum: ServerMomentum = 0.0

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the state before round 1: "weights" drawn by `rng`, "server" momentum 0, or {}."""
        state = super().init(clients, info, rng)
        return {**state, "server": zeros(state["weights"]) if self.server_momentum else {}}

    def server_update(self, update: Weighted, server: State) -> tuple[Weighted, State]:
        """Return the server's step for the clients' mean `update`, and the new momentum, if any."""
        if self.server_momentum:
            update = {k: self.server_momentum * server[k] + v for k, v in update.items()}
            server = {k: v.astype(np.float32) for k, v in update.items()}
        return {k: self.server_lr * v for k, v in update.items()}, server

    def terms(self) -> list[Term | WeightTerm]:
        """Return clients' extra loss terms: a pull to the received weights, and an entropy term."""
        pull = self.proximal / 2 + self.divergence
        return [*([Proximal(pull)] if pull else []), *entropy(self.entropy, self.least_entropy)]


@method("fedadam", kind="federated", needs=NEEDS, label="FedAdam")
@dataclass(kw_only=True)
class FedAdam(Scheduled):
    """FedAdam: the server steps by Adam along the mean update U. Source: Reddi et al. 2021, alg. 2.

    U is the clients' mean of trained minus received weights. m = beta1 m + (1 - beta1) U, v = beta2
    v + (1 - beta2) U², v starting at tau², and w = w + server_lr m / (sqrt(v) + tau).
    """

    server_lr: ServerLr = 0.01
    beta1: Annotated[float, Arg("decay of the mean update", least=0, most=1)] = 0.9
    beta2: Annotated[float, Arg("decay of its mean square", least=0, most=1)] = 0.99
    tau: Annotated[float, Arg("number added to the step's denominator", above=0)] = 1e-3

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the state before round 1: "weights" drawn by `rng`, "server" moments 0, tau²."""
        state = super().init(clients, info, rng)
        second = {k: np.full_like(v, self.tau**2) for k, v in state["weights"].items()}
        return {**state, "server": {"first": zeros(state["weights"]), "second": second}}

    def server_update(self, update: Weighted, server: State) -> tuple[Weighted, State]:
        """Return Adam's step for the clients' mean `update`, uncorrected for bias, and moments."""
        first = {k: _mix(self.beta1, server["first"][k], v) for k, v in update.items()}
        second = {k: _mix(self.beta2, server["second"][k], v**2) for k, v in update.items()}
        step = {k: self.server_lr * first[k] / (np.sqrt(second[k]) + self.tau) for k in update}
        moments = (("first", first), ("second", second))
        return step, {n: {k: v.astype(np.float32) for k, v in m.items()} for n, m in moments}


def entropy(coefficient: float, least: float) -> list[Term | WeightTerm]:
    """Return loss terms: `coefficient` · max(0, `least` - a prediction's entropy), or none if 0."""
    return [Entropy(least, coefficient)] if coefficient else []


def sample_clients(clients: int, fraction: float, rng: RngKey) -> np.ndarray:
    """Draw max(round(fraction · clients), 1) of all `clients`: ascending int64 indices."""
    count, stream = max(1, round(fraction * clients)), rng.stream("clients-of-a-round")
    if clients > MANY:
        return np.sort(stream.choice(clients, count, replace=False, shuffle=False))
    return np.sort(stream.permutation(clients)[:count])


def client_update(
    state: State, chosen: np.ndarray, share: np.ndarray, clients: Clients, rng: RngKey, **how: Any
) -> tuple[Averaged, State]:
    """Train clients `chosen` from the global weights; return the sum of their models by `share`.

    `chosen` are n indices, `share` (n,) factors of their models; `how` goes to `Clients.train`.
    Also returns the state that stays at clients: {"kept": BatchNorm layers by client}, or {}.
    """
    how["chosen"] = chosen.tolist()
    if "kept" not in state:
        return clients.average(state["weights"], rng, share.tolist(), **how), {}
    own = gather_client_state(state["kept"], chosen, _norms(state, clients))
    start = {k: np.repeat(v, len(chosen), axis=0) for k, v in state["weights"].items()} | own
    trained = clients.train(start, rng, **how)
    new = {name: trained.tensors[name][trained.finite] for name in own}
    kept = scatter_client_state(chosen[trained.finite], new)
    return trained.averaged(share), {"kept": state["kept"] | kept}


def gather_client_state(
    kept: dict[str, dict[str, np.ndarray]], chosen: np.ndarray, new: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Stack the tensors that `chosen` clients kept from earlier rounds, (chosen, *shape) by name.

    `kept` has clients' tensors by client number as text; a client never drawn gets `new` (*shape).
    """
    each = [kept.get(str(j), new) for j in chosen]
    return {k: np.stack([tensors[k] for tensors in each]) for k in new}


def scatter_client_state(
    chosen: np.ndarray, tensors: dict[str, np.ndarray]
) -> dict[str, dict[str, np.ndarray]]:
    """Split tensors (chosen, *shape) into a dict per client, by client number as text."""
    return {str(j): {k: v[i] for k, v in tensors.items()} for i, j in enumerate(chosen)}


def _norms(state: State, clients: Clients) -> dict[str, np.ndarray]:
    return {name: state["weights"][name][0] for name in clients.network.norms}


def zeros(weights: Weighted) -> Weighted:
    """Return zeros with the names, shapes and types of `weights`."""
    return {k: np.zeros_like(v) for k, v in weights.items()}


def _mix(beta: float, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    return np.asarray(beta * old.astype(np.float64) + (1 - beta) * new)
