"""FedDyn: the clients' losses are bent so that their minima lie where that of their sum does.

D. A. E. Acar, Y. Zhao, R. Matas, M. Mattina, P. Whatmough, V. Saligrama. Federated Learning Based
on Dynamic Regularization. ICLR 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, Report, State, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods.fedavg import (
    DrawnForSteps,
    gather_client_state,
    sample_clients,
    scatter_client_state,
)
from fedrepro.methods.fednova import weight_updates

if TYPE_CHECKING:
    from fedrepro.training.federation.clients import Clients


@method(
    "feddyn",
    kind="federated",
    needs={"rounds"},
    label="FedDyn",
    grid={"alpha": (0.001, 0.01, 0.1, 1.0)},
)
@dataclass(kw_only=True)
class FedDyn(DrawnForSteps):
    """A client lowers f_j(y) - <h_j, y> + alpha/2 |y - x|², and then h_j <- h_j - alpha (y_j - x).

    The server: x <- mean over S of y_j - (1/alpha) mean over all clients of h_j, which it keeps by
    the sum of what they sent. In the first round with all clients this is twice their mean less
    the start, so after few rounds the clients' mean may predict better. Source: FedDyn, algorithm
    1; its code divides alpha by the client's relative size, which the paper does not.
    """

    alpha: Annotated[float, Arg("of the quadratic pull to the received weights", above=0)] = 0.01
    predicts: Annotated[
        Literal["server", "clients"], Arg("the server's weights, or the mean of the last y_j")
    ] = "server"

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Start from global weights as a client would, and h of zero."""
        start = super().init(clients, info, rng)
        mean = {k: np.zeros_like(v) for k, v in start["weights"].items()}
        return {**start, "clients": start["weights"], "h": mean, "kept": {}}

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Draw clients, let them lower their bent losses, and follow at the server."""
        from fedrepro.training.federation.norm_statistics import mean_buffers
        from fedrepro.training.loss_terms import Proximal

        chosen = sample_clients(clients.count, self.fraction, rng)
        nothing = {k: np.zeros_like(v[0]) for k, v in state["h"].items()}
        client_h = gather_client_state(state["kept"], chosen, nothing)
        # alpha (y - x) - h_j is the pull to x + h_j / alpha
        towards = {k: x + client_h[k] / np.float32(self.alpha) for k, x in state["weights"].items()}
        trained = clients.train(
            state["weights"],
            rng,
            epochs=self.epochs,
            chosen=chosen.tolist(),
            steps=self.steps,
            terms=[Proximal(self.alpha / 2)],
            reference=towards,
        )
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
        kept = state["kept"] | scatter_client_state(chosen, after)
        return {"weights": weights, "clients": mean, "h": h, "kept": kept}, Report()

    def model(self, state: State, clients: Clients) -> GlobalModel:
        """Return the global network, or the mean of the clients' of the last round."""
        tensors = state["weights" if self.predicts == "server" else "clients"]
        return GlobalModel(clients.model, tensors)
