"""Clients whose examples are made when they are asked for, so that there may be millions of them.

A data set whose component names a `population` keeps its first clients as arrays, like any other,
and can make the examples of every client from its number. The partition `natural` of more clients
than are kept is a population: nobody lists its rows, and a client costs nothing until it is drawn.
What a partition sets aside at the server is then of clients that come after those who train.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.params import Value
from fedrepro.core.spec import Spec
from fedrepro.data.held import Held

SHOWN = 100  # clients whose labels stand for those of all, in numbers on skew and in drawings


class Makes(Protocol):
    """What a data set says of its clients; the word of one does not depend on the others.

    kept: clients whose examples are there as arrays, the first ones.
    """

    @property
    def kept(self) -> int: ...

    def sizes(self, clients: int) -> np.ndarray:
        """Training examples of the first so many clients: int64 (clients,), 1 at least."""
        ...

    def examples(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """Training inputs of a client as the data set keeps them, (n, D), and labels int64 (n,)."""
        ...


@dataclass(frozen=True)
class Population:
    """The first `clients` of those that `made` makes; rows are numbered client after client.

    public, validation: examples that the server holds, of further clients, in this order.
    """

    made: Makes
    clients: int
    public: int = 0
    validation: int = 0

    @cached_property
    def everyone(self) -> Held:
        """The rows of each client, and of those after them that the server may need."""
        return Held(self.made.sizes(self.clients + self.public + self.validation))

    @cached_property
    def train(self) -> Held:
        """The rows of each client that trains."""
        return Held(self.everyone.sizes[: self.clients])

    def aside(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the public sample and of the server's validation examples, int64."""
        first = int(self.everyone.ends[self.clients])
        cut, last = first + self.public, first + self.public + self.validation
        return np.arange(first, cut), np.arange(cut, last)

    def owners(self, rows: np.ndarray) -> np.ndarray:
        """Whose these rows are: int64, as many."""
        return np.searchsorted(self.everyone.ends, rows, side="right") - 1

    def label_counts(self, classes: int, most: int = SHOWN) -> np.ndarray:
        """Training examples of each of the first clients and each class: int64 (J, K)."""
        labels = (self.made.examples(client)[1] for client in range(min(most, self.clients)))
        return np.array(
            [np.bincount(client_labels, minlength=classes) for client_labels in labels], np.int64
        )


def population_of(dataset: Spec, partition: Spec) -> Population | None:
    """The clients of this partition of a data set, if they are more than it keeps.

    Errors: FedreproError for what only clients that are all looked at could have.
    """
    make: Callable[..., Makes] | None = dataset.component.meta.get("population")
    clients = partition.values.get("clients")
    if not (make and partition.component.meta.get("by_group") and isinstance(clients, int)):
        return None
    made = make(dataset.values)
    if clients <= made.kept:
        return None
    _require_plain(dataset, partition, made.kept)
    return Population(made, clients, _number(partition["public"]), _number(partition["validation"]))


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _require_plain(dataset: Spec, partition: Spec, kept: int) -> None:
    wrong = {
        "pick": partition["pick"] != "first",
        "min_examples": partition["min_examples"] > 1,
        "validation_at": bool(partition["validation"]) and partition["validation_at"] != "server",
    }
    strange = next((key for key, is_wrong in wrong.items() if is_wrong), None)
    if strange:
        raise FedreproError(
            f"partition '{partition.token}' of '{dataset.token}' has clients that are made when "
            f"they are drawn, and '{strange}' would look at all of them: leave it out, or take the "
            f"{kept} clients that the data set keeps, or fewer"
        )
