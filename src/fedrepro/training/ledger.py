"""What happened at the clients in a round: messages, training losses, updates that were dropped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from fedrepro.api import Traffic
from fedrepro.core.metrics import FLOAT_BYTES
from fedrepro.networks.network import Network
from fedrepro.training.flat import Layout


def models_sent(network: Network, up: int, down: int) -> Traffic:
    """The traffic of so many models, each of the network's size."""
    each = Layout(network.shapes).numbers * FLOAT_BYTES
    return Traffic(up, down, up * each, down * each)


@dataclass
class Ledger:
    """An account that `Clients` keep for the harness, which begins it anew before each round.

    seconds: in which clients trained, or evaluated.
    """

    traffic: Traffic = field(default_factory=Traffic)
    losses: dict[int, list[float]] = field(default_factory=dict)
    rejected: int = 0
    seconds: float = 0.0

    def begin(self) -> None:
        """Nothing has happened yet."""
        self.traffic, self.losses, self.rejected, self.seconds = Traffic(), {}, 0, 0.0

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Clients work while this lasts."""
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began

    def sent(self, traffic: Traffic) -> None:
        """Messages went up or down."""
        self.traffic += traffic

    def trained(self, members: Iterable[int], losses: np.ndarray, finite: np.ndarray) -> None:
        """These clients trained; losses float64 (n,), finite bool (n,)."""
        for client, loss, whole in zip(members, losses, finite, strict=True):
            self.losses.setdefault(client, []).append(float(loss) if whole else float("nan"))
            self.rejected += not whole

    @property
    def selected(self) -> int:
        """Clients that took part in training."""
        return len(self.losses)

    @property
    def all_rejected(self) -> bool:
        """Whether clients trained, and none of their trainings gave numbers."""
        return bool(self.losses) and self.rejected == sum(map(len, self.losses.values()))

    @property
    def train_loss(self) -> float:
        """Mean over trainings of their mean minibatch loss; NaN if none is finite."""
        each = np.array([loss for own in self.losses.values() for loss in own])
        each = each[np.isfinite(each)]
        return float(each.mean()) if each.size else float("nan")

    def losses_of(self, clients: int) -> np.ndarray:
        """The mean loss of each client, float64 (J,), NaN where it did not train."""
        found = np.full(clients, np.nan)
        for client, own in self.losses.items():
            found[client] = np.mean(own)
        return found
