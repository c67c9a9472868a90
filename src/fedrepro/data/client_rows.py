"""Rows of the training examples of each client, listed, or made when they are asked for.

A data set whose component names a `population` keeps its first clients as arrays, and makes the
examples of any client from its number, so that there may be millions. The partition `natural` of
more clients than are kept is a population: nobody lists its rows, and a client costs nothing until
it is drawn. Then a partition sets aside examples of clients that come after those who train.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, cast, overload

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.spec import Spec


class ClientRows(Sequence[np.ndarray]):
    """The rows, int64 (n_j,) and ascending, of the training examples that each client j holds.

    sizes: int64 (J,). values: int32 (N,), the rows of all clients one after another; without them
    rows are numbered client after client, so those of the first are 0 … n_0 - 1.
    """

    def __init__(self, sizes: np.ndarray, values: np.ndarray | None = None) -> None:
        self.ends = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=self.ends[1:])
        self.values = values

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, client: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, client: slice) -> list[np.ndarray]: ...
    def __getitem__(self, client: int | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(client, slice):
            return [self[j] for j in range(len(self))[client]]
        at = range(len(self))[client]
        first, last = int(self.ends[at]), int(self.ends[at + 1])
        if self.values is None:
            return np.arange(first, last)
        return self.values[first:last].astype(np.int64)

    @property
    def sizes(self) -> np.ndarray:
        """Count the examples of each client: int64 (J,)."""
        return np.diff(self.ends)


def sizes_of(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Count the examples of each client from the rows that it holds: int64 (J,)."""
    if isinstance(rows, ClientRows):
        return rows.sizes
    return np.array([len(client_rows) for client_rows in rows], np.int64)


SHOWN = 100  # clients whose labels stand for those of all, in numbers on skew and in drawings


class ClientGenerator(Protocol):
    """Makes each client's examples from its number; the first `kept` ones are also arrays."""

    @property
    def kept(self) -> int: ...

    def sizes(self, clients: int) -> np.ndarray:
        """Count training examples of the first `clients` clients: int64 (clients,), at least 1."""
        ...

    def examples(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """Make a client's training inputs as the data set keeps them, (n, D), and labels (n,)."""
        ...


@dataclass(frozen=True)
class Population:
    """The first `clients` of the clients that `made` makes; rows are numbered client after client.

    public, validation: examples that the server holds, of further clients, in this order.
    """

    made: ClientGenerator
    clients: int
    public: int = 0
    validation: int = 0

    @cached_property
    def all_rows(self) -> ClientRows:
        """Return the rows of each client, and of further ones that the server may need."""
        return ClientRows(self.made.sizes(self.clients + self.public + self.validation))

    @cached_property
    def train(self) -> ClientRows:
        """Return the rows of each client that trains."""
        return ClientRows(self.all_rows.sizes[: self.clients])

    def aside(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of the public sample and of the server's validation examples, int64."""
        first = int(self.all_rows.ends[self.clients])
        cut = first + self.public
        return np.arange(first, cut), np.arange(cut, cut + self.validation)

    def label_counts(self, classes: int, most: int = SHOWN) -> np.ndarray:
        """Count training examples of each of the first clients and each class: int64 (J, K)."""
        labels = [self.made.examples(client)[1] for client in range(min(most, self.clients))]
        return np.array([np.bincount(own, minlength=classes) for own in labels], np.int64)


def population_of(dataset: Spec, partition: Spec) -> Population | None:
    """Return the clients of a partition if a data set makes them when they are drawn."""
    make, clients = dataset.component.meta.get("population"), partition.values.get("clients")
    if not (make and partition.component.meta.get("by_group") and isinstance(clients, int)):
        return None
    made: ClientGenerator = make(dataset.values)
    if clients <= made.kept:
        return None
    wrong = {
        "pick": partition["pick"] != "first",
        "min_examples": partition["min_examples"] > 1,
        "validation_at": bool(partition["validation"]) and partition["validation_at"] != "server",
    }
    for key in (key for key, is_wrong in wrong.items() if is_wrong):
        raise FedreproError(
            f"partition '{partition.token}' of '{dataset.token}' has clients that are made when "
            f"they are drawn, and '{key}' would look at all of them: leave it out, or take the "
            f"{made.kept} clients that the data set keeps, or fewer"
        )
    public, validation = (cast(int, partition[key]) for key in ("public", "validation"))
    return Population(made, clients, public, validation)
