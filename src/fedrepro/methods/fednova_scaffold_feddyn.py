"""Methods in rounds that correct client drift: FedNova, SCAFFOLD, FedDyn.

FedNova: J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor. Tackling the Objective Inconsistency
Problem in Heterogeneous Federated Optimization. NeurIPS 2020. SCAFFOLD: S. P. Karimireddy, S. Kale,
M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh. SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning. ICML 2020. FedDyn: D. A. E. Acar, Y. Zhao, R. Matas, M. Mattina, P. Whatmough,
V. Saligrama. Federated Learning Based on Dynamic Regularization. ICLR 2021. In functions `clients`
train when asked, `info` has their numbers of examples, and `rng` is the round's random key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, Report, State, Traffic, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods import fedavg_variants_and_base_classes as fedavg
from fedrepro.methods._merging import with_mean_buffers
from fedrepro.training.federation.clients import Clients
from fedrepro.training.federation.norm_statistics import mean_buffers
from fedrepro.training.loss_terms import Correction, Proximal
from fedrepro.training.training_settings_and_procedures import settings_of

NUMBER_BYTES = 4


@method("fednova", kind="federated", needs=fedavg.NEEDS, trainings={"sgd"}, label="FedNova")
@dataclass(kw_only=True)
class FedNova(fedavg.DrawnForSteps):
    """FedNova: averages clients' updates, each divided by its effective number of steps a_j.

    Global weights x <- x - (sum_j p_j a_j) sum_j p_j (x - y_j) / a_j, with y_j the model of client
    j. p_j = n_j / sum_S n_j is its share of the examples of the round's clients S. Its steps move
    as far as a_j steps without momentum. Equal a_j give FedAvg. Source: FedNova, eq. (9), table 1.
    """

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Train at drawn clients, average their normalised updates; return new state and report."""
        assert info.example_counts is not None
        chosen = fedavg.sample_clients(clients.count, self.fraction, rng)
        trained = self.trained(state, clients, chosen, rng)
        sent = clients.models(up=len(chosen), down=len(chosen))
        report = Report(traffic=sent + Traffic(bytes_up=NUMBER_BYTES * len(chosen)))
        if not trained.finite.any():
            return state, report
        held = info.example_counts[chosen] * trained.finite
        share = held / held.sum()
        length = effective_steps(trained.steps, clients.settings.momentum)
        weights = averaged(state["weights"], trained.tensors, share, length)
        return {"weights": weights | mean_buffers(clients.network, trained.tensors, share)}, report


@method(
    "fednova_once",
    kind="one_shot",
    needs={"start", "example_counts"},
    trainings={"sgd"},
    label="FedNova, one exchange",
    merges=True,
)
def fednova_once(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel:
    """Apply FedNova's update once to local models: x + (sum_j p_j a_j) sum_j p_j (w_j - x) / a_j.

    x is the common start, w_j client j's model, p_j its share of all examples. Client j's training
    moves as far as a_j steps without momentum, so a training that may stop early is refused.
    Source: FedNova, eq. (9) and table 1.
    """
    assert info.example_counts is not None
    assert info.start is not None
    settings = settings_of(info.training)
    if settings.patience:
        raise FedreproError(
            "method 'fednova_once' has to know how many steps each client took, which training "
            f"with patience {settings.patience} leaves open: set it to 0, or take fednova of one "
            "round"
        )
    per_epoch = -(-info.example_counts // settings.batch_size) if settings.batch_size else 1
    share = info.example_counts / info.example_counts.sum()
    steps = np.broadcast_to(per_epoch * settings.epochs, share.shape)
    length = effective_steps(steps, settings.momentum)
    made = averaged(info.start, clients.tensors, share, length)
    return with_mean_buffers(clients, share, GlobalModel(clients.model, made))


def averaged(
    start: Mapping[str, np.ndarray],
    trained: Mapping[str, np.ndarray],
    share: np.ndarray,
    length: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return FedNova's average x + (sum_j p_j a_j) sum_j p_j (w_j - x) / a_j of each tensor.

    x is `start` (1, *shape), w_j `trained` (n, *shape), p_j `share` and a_j `length`, float64 (n,).
    """
    whole, tensors = float((share * length).sum()), {}
    for name, x in start.items():
        step = np.einsum("j,j...->...", share / length, weight_updates(trained[name], x))
        tensors[name] = (x + whole * step[None]).astype(x.dtype)
    return tensors


def effective_steps(steps: np.ndarray, momentum: float) -> np.ndarray:
    """Return how many steps without momentum move as far as `steps` with it: a_j, float64 (n,).

    K steps with momentum r are (K - r (1 - r^K) / (1 - r)) / (1 - r), and K (K + 1) / 2 in the
    limit of r = 1. Source: FedNova, table 1.
    """
    r, count = momentum, np.maximum(steps, 1).astype(np.float64)  # without examples, no step
    if r == 1:
        return np.asarray(count * (count + 1) / 2)
    return np.asarray((count - r * (1 - r**count) / (1 - r)) / (1 - r))


def weight_updates(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return weights `after` (n, *shape) minus `before`, float64; 0 where they are not finite."""
    return np.asarray(np.nan_to_num(after.astype(np.float64) - before, posinf=0.0, neginf=0.0))


@method("scaffold", kind="federated", needs=fedavg.NEEDS, trainings={"sgd"}, label="SCAFFOLD")
@dataclass(kw_only=True)
class Scaffold(fedavg.DrawnForSteps):
    """SCAFFOLD: clients' steps are corrected by control variates that clients and server keep.

    Client j trains y from the global weights x: y <- y - lr (gradient(y) - c_j + c), then c_j <-
    c_j - c + (x - y_j) / (a_j lr). Server: x <- x + server_lr sum_j p_j (y_j - x), and c <- c + |S|
    / J times the mean change of c_j. p_j = n_j / sum_S n_j is the share of examples among the
    round's clients S. The change of c_j is sent with y_j, and c with x. a_j counts the client's
    steps, or with momentum the plain steps that move as far. Source: SCAFFOLD, algorithm 1, option
    II, which has neither momentum nor p_j.
    """

    server_lr: fedavg.ServerLr = 1.0

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the state before round 1: randomly drawn global weights, zero control variates."""
        start = super().init(clients, info, rng)
        return {**start, "control": fedavg.zeros(start["weights"]), "kept": {}}

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Train at drawn clients by corrected steps; return the new state and a report."""
        assert info.example_counts is not None
        chosen = fedavg.sample_clients(clients.count, self.fraction, rng)
        nothing = {k: v[0] for k, v in fedavg.zeros(state["control"]).items()}
        client_controls = fedavg.gather_client_state(state["kept"], chosen, nothing)
        drift = {k: c - client_controls[k] for k, c in state["control"].items()}
        trained = self.trained(state, clients, chosen, rng, terms=[Correction()], reference=drift)
        report = Report(traffic=clients.models(up=2 * len(chosen), down=2 * len(chosen)))
        if not trained.finite.any():
            return state, report
        held = info.example_counts[chosen] * trained.finite
        share = held / held.sum()
        length = effective_steps(trained.steps, clients.settings.momentum) * clients.settings.lr
        weights, control, after = {}, {}, {}
        for k, x in state["weights"].items():
            c, step = state["control"][k], weight_updates(trained.tensors[k], x)
            mean = np.einsum("j,j...->...", share, step)[None]
            weights[k] = (x + self.server_lr * mean).astype(x.dtype)
            change = -c - step / length.reshape(-1, *(1,) * (step.ndim - 1))
            change[~trained.finite] = 0
            control[k] = (c + change.sum(0) / clients.count).astype(c.dtype)
            after[k] = (client_controls[k] + change).astype(c.dtype)
        weights |= mean_buffers(clients.network, trained.tensors, share)
        kept = state["kept"] | fedavg.scatter_client_state(chosen, after)
        return {"weights": weights, "control": control, "kept": kept}, report


@method(
    "feddyn",
    kind="federated",
    needs={"rounds"},
    label="FedDyn",
    grid={"alpha": (0.001, 0.01, 0.1, 1.0)},
)
@dataclass(kw_only=True)
class FedDyn(fedavg.DrawnForSteps):
    """FedDyn: a client's loss gets a linear term and a quadratic pull to the received weights x.

    Client j minimises f_j(y) - <h_j, y> + alpha/2 |y - x|² from its loss f_j, then sets h_j <- h_j
    - alpha (y_j - x). The server sets x to the mean of y_j over the round's clients, minus
    (1/alpha) times the mean of h_j over all clients. After round one with all clients, x is twice
    the clients' mean minus the start; so after few rounds the clients' mean may predict better.
    Source: FedDyn, algorithm 1, not its code, which divides alpha by the client's relative size.
    """

    alpha: Annotated[float, Arg("coefficient of the quadratic penalty", above=0)] = 0.01
    predicts: Annotated[
        Literal["server", "clients"],
        Arg("what predicts: the server's weights, or the mean of the y_j"),
    ] = "server"

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the state before round 1: randomly drawn global weights, and h_j = 0."""
        start = super().init(clients, info, rng)
        return {
            **start,
            "clients": start["weights"],
            "h": fedavg.zeros(start["weights"]),
            "kept": {},
        }

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Train at drawn clients with a pull to x + h_j / alpha; return new state and report."""
        chosen = fedavg.sample_clients(clients.count, self.fraction, rng)
        nothing = {k: v[0] for k, v in fedavg.zeros(state["h"]).items()}
        client_h = fedavg.gather_client_state(state["kept"], chosen, nothing)
        # alpha (y - x) - h_j is the pull to x + h_j / alpha
        towards = {k: x + client_h[k] / np.float32(self.alpha) for k, x in state["weights"].items()}
        pull = Proximal(self.alpha / 2)
        trained = self.trained(state, clients, chosen, rng, terms=[pull], reference=towards)
        alive = int(trained.finite.sum())
        if not alive:
            return state, Report()
        weights, mean, h, after = {}, {}, {}, {}
        for k, x in state["weights"].items():
            step = weight_updates(trained.tensors[k], x)
            step[~trained.finite] = 0
            mean[k] = (x + step.sum(0) / alive).astype(x.dtype)
            h[k] = (state["h"][k] - self.alpha * step.sum(0) / clients.count).astype(x.dtype)
            weights[k] = (mean[k] - h[k] / self.alpha).astype(x.dtype)
            after[k] = (client_h[k] - self.alpha * step).astype(x.dtype)
        buffers = mean_buffers(clients.network, trained.tensors, trained.finite / alive)
        weights, mean = weights | buffers, mean | buffers
        kept = state["kept"] | fedavg.scatter_client_state(chosen, after)
        return {"weights": weights, "clients": mean, "h": h, "kept": kept}, Report()

    def model(self, state: State, clients: Clients) -> GlobalModel:
        """Return the server's network, or the mean of the last round's clients, by `predicts`."""
        tensors = state["weights" if self.predicts == "server" else "clients"]
        return GlobalModel(clients.model, tensors)
