"""Each client's training examples as row numbers, stored, or computed when they are needed.

A data set whose component declares a `population` stores its first clients as arrays, and generates
the examples of any client from the client's number, so that there may be millions of clients. If
partition `natural` has more clients than are stored, a client costs nothing until it is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.spec import Spec


class ClientRows(Sequence[np.ndarray]):
    """The row numbers of each client's training examples: item j is int64 (n_j,), ascending.

    sizes: int64 (J,), examples per client. values: int32 (N,), the rows of all clients one after
    another; without `values` the rows of client 0 are 0 to n_0 - 1, client 1's follow, and so on.
    """

    def __init__(self, sizes: np.ndarray, values: np.ndarray | None = None) -> None:
        self.ends = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=self.ends[1:])
        self.values = values

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, client: int | slice) -> Any:
        if isinstance(client, slice):
            return [self[j] for j in range(len(self))[client]]
        at = range(len(self))[client]
        first, last = int(self.ends[at]), int(self.ends[at + 1])
        if self.values is None:
            return np.arange(first, last)
        return self.values[first:last].astype(np.int64)

    @property
    def sizes(self) -> np.ndarray:
        """Return the number of examples of each client: int64 (J,)."""
        return np.diff(self.ends)


def sizes_of(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return the number of examples of each client, int64 (J,), from each client's row numbers."""
    if isinstance(rows, ClientRows):
        return rows.sizes
    return np.array([len(client_rows) for client_rows in rows], np.int64)


SHOWN = 100  # clients whose labels stand for those of all, in numbers on skew and in drawings


class ClientGenerator(Protocol):
    """Generates any client's examples from its index; the first `kept` clients are also stored."""

    @property
    def kept(self) -> int: ...

    def sizes(self, clients: int) -> np.ndarray:
        """Return the numbers of training examples (at least 1) of the first clients: int64 (J,)."""
        ...

    def examples(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """Generate a client's training inputs (n, D), in the data set's dtype, and labels (n,)."""
        ...


@dataclass(frozen=True)
class Population:
    """Millions of clients whose examples are generated on demand by `made`, instead of stored.

    clients: how many clients train, from client 0 on. public, validation: how many examples the
    server has, of the next clients, which do not train. Rows are numbered client after client.
    """

    made: ClientGenerator
    clients: int
    public: int = 0
    validation: int = 0

    @cached_property
    def all_rows(self) -> ClientRows:
        """Return the row numbers of each client: of clients that train, then of the server's."""
        return ClientRows(self.made.sizes(self.clients + self.public + self.validation))

    @cached_property
    def train(self) -> ClientRows:
        """Return the row numbers of each client that trains."""
        return ClientRows(self.all_rows.sizes[: self.clients])

    def holdout_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return two arrays of row numbers, int64: the server's public and validation examples."""
        first = int(self.all_rows.ends[self.clients])
        cut = first + self.public
        return np.arange(first, cut), np.arange(cut, cut + self.validation)

    def label_counts(self, classes: int, most: int = SHOWN) -> np.ndarray:
        """Count training examples per class for the first `most` clients only: int64 (J, K)."""
        labels = [self.made.examples(client)[1] for client in range(min(most, self.clients))]
        return np.array([np.bincount(own, minlength=classes) for own in labels], np.int64)


def population_of(dataset: Spec, partition: Spec) -> Population | None:
    """Return the clients of a partition if the data set generates them on demand, else None.

    Raises:
        FedreproError: a parameter of the partition would need the examples of all clients.
    """
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
    if keys := [key for key, is_wrong in wrong.items() if is_wrong]:
        raise FedreproError(
            f"partition '{partition.token}' of '{dataset.token}' has clients that are made when "
            f"they are drawn, and '{keys[0]}' would look at all of them: leave it out, or take the "
            f"{made.kept} clients that the data set keeps, or fewer"
        )
    public, validation = (cast(int, partition[key]) for key in ("public", "validation"))
    return Population(made, clients, public, validation)
