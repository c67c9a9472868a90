"""FedNova: clients that take more steps do not count for more.

J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor. Tackling the Objective Inconsistency Problem in
Heterogeneous Federated Optimization. NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, Report, State, Traffic, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.methods._merging import with_mean_buffers
from fedrepro.methods.fedavg import NEEDS, DrawnForSteps, sample_clients

if TYPE_CHECKING:
    from fedrepro.training.federation.clients import Clients

NUMBER_BYTES = 4


@method("fednova", kind="federated", needs=NEEDS, trainings={"sgd"}, label="FedNova")
@dataclass(kw_only=True)
class FedNova(DrawnForSteps):
    """x <- x - (sum_j p_j a_j) sum_j p_j (x - y_j) / a_j, with p_j = n_j / sum_S n_j.

    a_j: how far the steps of a client carry, see `carried`. Equal a_j make it FedAvg. Each client
    sends a_j with its model y_j. Source: FedNova, eq. (9) and table 1.
    """

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Draw clients, let them train, and average what each of their steps gave."""
        from fedrepro.training.federation.norm_statistics import mean_buffers

        assert info.example_counts is not None
        chosen = sample_clients(clients.count, self.fraction, rng)
        trained = clients.train(
            state["weights"], rng, epochs=self.epochs, chosen=chosen.tolist(), steps=self.steps
        )
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
    """x + (sum_j p_j a_j) sum_j p_j (w_j - x) / a_j, x the common start: `fednova`'s first round.

    p_j = n_j / n; a_j of the minibatches of the local training, whose last of an epoch may be
    short. Source: FedNova, eq. (9) and table 1.

    Raises:
        FedreproError: For training that may stop early, whose number of steps is not known.
    """
    from fedrepro.training.settings import settings_of

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
    length = effective_steps(
        np.broadcast_to(per_epoch * settings.epochs, share.shape), settings.momentum
    )
    made = averaged(info.start, clients.tensors, share, length)
    return with_mean_buffers(clients, share, GlobalModel(clients.model, made))


def averaged(
    start: Mapping[str, np.ndarray],
    trained: Mapping[str, np.ndarray],
    share: np.ndarray,
    length: np.ndarray,
) -> dict[str, np.ndarray]:
    """x + (sum_j p_j a_j) sum_j p_j (w_j - x) / a_j of each tensor: (1, *shape), in x's type.

    x is `start` (1, *shape), w_j `trained` (n, *shape), p_j `share` and a_j `length`, float64 (n,).
    """
    whole, tensors = float((share * length).sum()), {}
    for name, x in start.items():
        step = np.einsum("j,j...->...", share / length, weight_updates(trained[name], x))
        tensors[name] = (x + whole * step[None]).astype(x.dtype)
    return tensors


def effective_steps(steps: np.ndarray, momentum: float) -> np.ndarray:
    """Count the steps without momentum that carry as far, a_j float64 (n,), as steps int (n,) do.

    Of K steps with momentum r: (K - r (1 - r^K) / (1 - r)) / (1 - r). Source: FedNova, table 1.
    """
    r, count = momentum, np.maximum(steps, 1).astype(np.float64)  # without examples, no step
    length: np.ndarray = (count - r * (1 - r**count) / (1 - r)) / (1 - r)
    return length


def weight_updates(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Measure how far clients went, float64 (n, *shape): nowhere if their training diverged."""
    change: np.ndarray = np.nan_to_num(after.astype(np.float64) - before, posinf=0.0, neginf=0.0)
    return change
