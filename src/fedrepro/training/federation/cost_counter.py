"""Costs of the clients' work in a round: messages, bytes, passes, seconds, losses, divergence."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedrepro.core.metrics import FLOAT_BYTES, Traffic
from fedrepro.networks.network import Network
from fedrepro.training.flat_models import Layout


def models_sent(network: Network, up: int, down: int) -> Traffic:
    """Return messages and bytes for `up` models to the server and `down` models to clients."""
    each = Layout(network.shapes).numbers * FLOAT_BYTES
    return Traffic(up, down, up * each, down * each)


@dataclass(frozen=True)
class ClientCost:
    """The costs of clients' work: messages and bytes, exchanges, passes over examples, and seconds.

    exchanges: how often the server let clients compute a statistic of their data. passes: how often
    clients read all their examples, outside of training.
    """

    traffic: Traffic = field(default_factory=Traffic)
    exchanges: int = 0
    passes: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: ClientCost) -> ClientCost:
        return ClientCost(
            self.traffic + other.traffic,
            self.exchanges + other.exchanges,
            self.passes + other.passes,
            self.seconds + other.seconds,
        )


@dataclass
class CostCounter:
    """Counts the costs of clients' work in one round of federated learning, from zero each round.

    spent: messages, bytes, seconds, and the exchanges and passes over examples for statistics that
    the server asks clients for. losses: for each client, the mean minibatch loss of each of its
    trainings. rejected: how many trained models diverged. held: tensors that the server has already
    sent to all clients to compute statistics at.
    """

    spent: ClientCost = field(default_factory=ClientCost)
    losses: dict[int, list[float]] = field(default_factory=dict)
    rejected: int = 0
    held: dict[str, np.ndarray] = field(default_factory=dict)

    def begin(self) -> None:
        """Set all counts to zero, before a round."""
        vars(self).update(vars(CostCounter()))

    @property
    def traffic(self) -> Traffic:
        return self.spent.traffic

    @property
    def seconds(self) -> float:
        return self.spent.seconds

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Return a context manager that adds the seconds spent inside it to clients' work."""
        began = time.perf_counter()
        yield
        self.spent += ClientCost(seconds=time.perf_counter() - began)

    def sent(self, traffic: Traffic) -> None:
        """Add the messages and bytes `traffic` to the costs of this round."""
        self.spent += ClientCost(traffic)

    def asked(
        self,
        clients: int,
        up: int,
        passes: float,
        weights: Mapping[str, np.ndarray] | None,
        all_of_them: bool = True,
    ) -> None:
        """Add the costs of a statistic that `clients` clients computed and sent to the server.

        `up` is the answers' size in bytes, `passes` how often each client read all its examples.
        `weights` are the tensors at which clients computed, shared ones (1, *shape) or one per
        client; they count as sent unless all clients already have them. With None clients used
        their own models. `all_of_them`: whether every client was asked, and so has the shared
        tensors now.
        """
        if weights is None:
            self.spent += ClientCost(Traffic(bytes_up=up), passes=passes)
            return
        new = {
            name: value
            for name, value in weights.items()
            if name not in self.held or not np.array_equal(self.held[name], value)
        }
        if all_of_them:
            self.held |= {k: v for k, v in new.items() if len(v) == 1}
        down = sum(v[0].nbytes for v in new.values()) * clients
        self.spent += ClientCost(Traffic(clients, clients, up, down), 1, passes)

    def trained(self, members: Iterable[int], losses: np.ndarray, finite: np.ndarray) -> None:
        """Record losses (n,) of the clients `members`; count models that are not `finite`."""
        for client, loss, whole in zip(members, losses, finite, strict=True):
            self.losses.setdefault(client, []).append(float(loss) if whole else float("nan"))
            self.rejected += not whole

    @property
    def selected(self) -> int:
        """Return the number of clients that trained at least once in this round."""
        return len(self.losses)

    @property
    def all_rejected(self) -> bool:
        """Return whether clients trained in this round and all their models diverged."""
        return bool(self.losses) and self.rejected == sum(map(len, self.losses.values()))

    @property
    def train_loss(self) -> float:
        """Return the mean of the round's finite training losses, one per model; NaN if none."""
        each = np.array([loss for client_losses in self.losses.values() for loss in client_losses])
        each = each[np.isfinite(each)]
        return float(each.mean()) if each.size else float("nan")
