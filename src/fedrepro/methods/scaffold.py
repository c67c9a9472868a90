"""SCAFFOLD: every local step is corrected by where the other clients would go.

S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh. SCAFFOLD: Stochastic
Controlled Averaging for Federated Learning. ICML 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.api import ClientInfo, Report, State, method
from fedrepro.core.rng import RngKey
from fedrepro.methods.fedavg import (
    NEEDS,
    DrawnForSteps,
    ServerLr,
    gather_client_state,
    sample_clients,
    scatter_client_state,
)
from fedrepro.methods.fednova import effective_steps, weight_updates

if TYPE_CHECKING:
    from fedrepro.training.federation.clients import Clients


@method("scaffold", kind="federated", needs=NEEDS, trainings={"sgd"}, label="SCAFFOLD")
@dataclass(kw_only=True)
class Scaffold(DrawnForSteps):
    """y <- y - lr (gradient(y) - c_j + c) at the clients; c_j <- c_j - c + (x - y_j) / (a_j lr).

    The server: x <- x + server_lr sum_j p_j (y_j - x), p_j = n_j / sum_S n_j, and c <- c + |S| / J
    times the mean change of c_j. Clients keep c_j, and send its change with their models; the
    server sends c with the weights. a_j are the client's steps, or with momentum how many without
    it carry as far (`carried`), since c_j would else be too large. Source: SCAFFOLD, algorithm 1,
    option II, which has neither momentum nor shares p_j.
    """

    server_lr: ServerLr = 1.0

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Start from global weights as a client would, and controls of zero."""
        start = super().init(clients, info, rng)
        control = {k: np.zeros_like(v) for k, v in start["weights"].items()}
        return {**start, "control": control, "kept": {}}

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Draw clients, let them train with corrected steps, and move weights and controls."""
        from fedrepro.training.federation.norm_statistics import mean_buffers
        from fedrepro.training.loss_terms import Correction

        assert info.example_counts is not None
        chosen = sample_clients(clients.count, self.fraction, rng)
        nothing = {k: np.zeros_like(v[0]) for k, v in state["control"].items()}
        client_controls = gather_client_state(state["kept"], chosen, nothing)
        trained = clients.train(
            state["weights"],
            rng,
            epochs=self.epochs,
            chosen=chosen.tolist(),
            steps=self.steps,
            terms=[Correction()],
            reference={k: c - client_controls[k] for k, c in state["control"].items()},
        )
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
        kept = state["kept"] | scatter_client_state(chosen, after)
        return {"weights": weights, "control": control, "kept": kept}, report
