"""Federated averaging that adapts the learning rate and the number of steps as it goes.

H. Mostafa, Robust Federated Learning Through Representation Matching and Adaptive
Hyper-parameters, 2019 (RM), sections 3.2 and 3.3. The server draws a round's setting, evaluates
the aggregate on examples of its own, and moves the distribution along the reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from fedrepro.api import ClientInfo, Report, State, Traffic, method
from fedrepro.core.metrics import FLOAT_BYTES, Metric
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods import fedavg
from fedrepro.papers.rm.methods import _adaptive as adaptive
from fedrepro.papers.rm.methods.representation_matching import MODELS, MatchingRounds

if TYPE_CHECKING:
    from fedrepro.training.federation.clients import Clients
    from fedrepro.training.loss_terms import Term, WeightTerm

NEEDS = {*fedavg.NEEDS, "server_validation"}

METRICS = {
    "mean_lr": Metric("learning rate at the mean of its distribution", "", 0, None, 0),
    "mean_steps": Metric("local steps at the mean of their distribution", "steps", 0, None, 0),
    "sampled_lr": Metric("learning rate drawn for the round", "", 0, None, 0),
    "sampled_steps": Metric("local steps drawn for the round", "steps", 0, None, 0),
    "reward": Metric("share by which the server's loss fell in a round", "share", -1, 1, 0),
}

Lrs = Annotated[tuple[float, ...], Arg("learning rates of the grid", above=0)]
StepCounts = Annotated[
    tuple[int, ...], Arg("local minibatches in a round, of the grid", "minibatches", least=1)
]
Positions = Annotated[
    adaptive.Positions,
    Arg("how an axis is laid into [-0.5, 0.5]: by the values' ranks, themselves, or logarithms"),
]
MetaLr = Annotated[float, Arg("step of the distribution along rewards, eta_H", least=0)]
Window = Annotated[int, Arg("rewards before the last that an update looks at, Z", least=0)]
Precision = Annotated[
    float,
    Arg(
        "of both axes at the start",
        least=adaptive.LEAST_PRECISION,
        most=adaptive.MOST_PRECISION,
    ),
]

LRS = (0.02, 0.04, 0.08, 0.16, 0.32)
STEP_COUNTS = (10, 20, 30, 40)


@method(
    "adaptive_fedavg",
    kind="federated",
    needs=NEEDS,
    paper="rm",
    label="FA+AH",
    metrics=METRICS,
)
@dataclass(kw_only=True)
class AdaptiveFedAvg(fedavg.Averaging):
    """FedAvg with lr and steps from a discrete Gaussian that follows rewards. Source: RM, eq. (7).

    psi = psi + meta_lr sum_{tau=t-Z}^{t} (r_tau - mean r) grad log P(h_tau), with the reward
    r_t = (L_t - L_{t+1}) / L_t of the cross-entropy on the server's validation examples.
    """

    entropy: fedavg.EntropyShare = 0.0
    least_entropy: fedavg.LeastEntropy = 2.0
    lrs: Lrs = LRS
    step_counts: StepCounts = STEP_COUNTS
    positions: Positions = "positions"
    meta_lr: MetaLr = 0.01
    window: Window = 5
    precision: Precision = 20.0

    def __post_init__(self) -> None:
        axes = (
            adaptive.GridAxis("lrs", self.lrs, self.positions),
            adaptive.GridAxis("step_counts", self.step_counts, self.positions),
        )
        self.search = adaptive.Search(axes, self.meta_lr, self.window, self.precision)

    def terms(self) -> list[Term | WeightTerm]:
        """List the entropy term."""
        return fedavg.entropy(self.entropy, self.least_entropy)

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the first state of averaging, a distribution around the grid's centre, and L_1."""
        start = super().init(clients, info, rng)
        loss = _server_loss(start["weights"], clients, info)
        return {**start, "search": self.search.start(), "loss": loss}

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Draw a setting, train the clients with it, and move the distribution by its reward.

        The weights stay where no aggregate is left, or one that gives no finite loss.
        """
        search = state["search"]
        point = self.search.distribution(search).draw(rng)
        lr, steps = self.search.setting(point)
        new = self.averaged(state, clients, info, rng, lr=lr, steps=round(steps)) or {}
        # with the model each client is sent both hyper-parameters
        clients.ledger.sent(Traffic(bytes_down=2 * FLOAT_BYTES * clients.ledger.selected))
        loss = _server_loss(new["weights"], clients, info) if new else float("nan")
        if not np.isfinite(loss):
            # what clients keep to themselves is as they trained it
            new = {key: value for key, value in new.items() if key not in ("weights", "server")}
        after = {
            **state,
            **new,
            "search": self.search.after(search, point, adaptive.reward_of(state["loss"], loss)),
            "loss": loss if np.isfinite(loss) else state["loss"],
        }
        mean_lr, mean_steps = self.search.mean(search)
        metrics = {
            "mean_lr": mean_lr,
            "mean_steps": mean_steps,
            "sampled_lr": lr,
            "sampled_steps": steps,
            "reward": float(after["search"]["rewards"][-1]),
        }
        return after, Report(metrics)


@method(
    "adaptive_matching",
    kind="federated",
    needs=NEEDS,
    models=MODELS,
    paper="rm",
    label="FA+RM+AH",
    metrics=METRICS,
)
@dataclass(kw_only=True)
class AdaptiveMatching(MatchingRounds, AdaptiveFedAvg):
    """Representation matching with adaptive learning rate and steps. Source: RM, algorithm 1."""


def _server_loss(weights: dict[str, np.ndarray], clients: Clients, info: ClientInfo) -> float:
    """Mean cross-entropy on the server's validation examples; NaN for weights that are not finite.

    Without the terms of the clients' loss: with entropy kept up, that one soon tells nothing.
    """
    import torch

    from fedrepro.training.examples import Examples
    from fedrepro.training.federation.client_queries import evaluated

    assert info.validation_inputs is not None
    assert info.validation_labels is not None
    if not all(np.isfinite(value).all() for value in weights.values()):
        return float("nan")
    inputs, labels = (
        torch.from_numpy(np.array(part)).to(info.device)
        for part in (info.validation_inputs, info.validation_labels)
    )
    rows = [np.arange(len(inputs))]
    return float(evaluated(clients.network, Examples(inputs, labels), rows, weights).loss[0, 0])
