"""Rows of the training examples of each client, read a client at a time and never whole."""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import SpooledTemporaryFile
from typing import overload

import numpy as np

IN_MEMORY = 64 * 2**20  # bytes of rows from which they go to a file without a name
ROW = np.dtype(np.int32)


class ClientRows(Sequence[np.ndarray]):
    """Rows int64 (n_j,) of client j, ascending; what is kept in memory is where they end.

    sizes: int64 (J,). values: the rows of all clients one after another, as int32; without them
    rows are numbered client after client, so those of the first are 0 … n_0 - 1.
    """

    def __init__(
        self, sizes: np.ndarray, values: SpooledTemporaryFile[bytes] | None = None
    ) -> None:
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
        return self._between(int(self.ends[at]), int(self.ends[at + 1]))

    @property
    def sizes(self) -> np.ndarray:
        """Examples of each client: int64 (J,)."""
        return np.diff(self.ends)

    def _between(self, first: int, last: int) -> np.ndarray:
        if self.values is None:
            return np.arange(first, last)
        self.values.seek(first * ROW.itemsize)
        read = self.values.read((last - first) * ROW.itemsize)
        return np.frombuffer(read, ROW).astype(np.int64)


class ClientRowsWriter:
    """Rows as they come, those of a client together and clients in their order."""

    def __init__(self) -> None:
        # it is there as long as somebody may read rows
        self.values: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        # of clients that follow one another: the first of them, and how many rows each has
        self.counts: list[tuple[int, np.ndarray]] = []

    def add(self, client: np.ndarray, rows: np.ndarray) -> None:
        """Add further rows (n,) and who holds them (n,)."""
        if len(rows):
            first = int(client[0])
            self.counts.append((first, np.bincount(client - first).astype(ROW)))
            self.values.write(rows.astype(ROW).tobytes())

    @property
    def last(self) -> int:
        """The last client that holds any, -1 if none does."""
        return max((first + len(counts) - 1 for first, counts in self.counts), default=-1)

    @property
    def all(self) -> np.ndarray:
        """The rows of everybody: int64 (N,)."""
        count = sum(int(counts.sum()) for _, counts in self.counts)
        return ClientRows(np.array([count]), self.values)[0]

    def held(self, clients: int) -> ClientRows:
        """Return the rows of each of this many clients."""
        sizes = np.zeros(clients, np.int64)
        for first, counts in self.counts:
            sizes[first : first + len(counts)] += counts
        return ClientRows(sizes, self.values)


def sizes_of(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Count the rows of each client: int64 (J,)."""
    if isinstance(rows, ClientRows):
        return rows.sizes
    return np.array([len(client_rows) for client_rows in rows], np.int64)
