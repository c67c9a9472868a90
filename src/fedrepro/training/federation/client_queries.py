"""Questions to clients: a function that each runs on its own examples, and what it sends back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.errors import FedreproError, shown
from fedrepro.networks.network import Network
from fedrepro.training.examples import Examples

if TYPE_CHECKING:
    import torch

Reply = Mapping[str, np.ndarray]
# of the network, tensors (*shape) by name, and a client's own examples
Query = Callable[[Network, Mapping[str, "torch.Tensor"], Examples], Reply]


@dataclass(frozen=True)
class Watched(Examples):
    """Examples that count how many of them are read as inputs of a network."""

    reads: list[int] = field(default_factory=list, compare=False)

    def scaled(self, rows: slice | np.ndarray) -> torch.Tensor:
        """See `Examples`."""
        inputs = super().scaled(rows)
        self.reads.append(len(inputs))
        return inputs


@dataclass(frozen=True)
class QueryResult:
    """Answers of each client. passes: how often each read all of its examples, on average."""

    answers: list[Reply]
    passes: float

    @property
    def bytes(self) -> int:
        """The size of all answers."""
        return sum(size_of(value) for answer in self.answers for value in answer.values())


def query(
    network: Network,
    examples: Examples,
    rows: Sequence[np.ndarray],
    question: Query,
    weights: Mapping[str, np.ndarray],
    who: str,
) -> QueryResult:
    """Put a question to each client, which is given its own examples and no others.

    Clients have `rows`, int64 (n_j,) each. Tensors of `weights` are (1, *shape), the same for all,
    or (n, *shape).

    Raises:
        FedreproError: For an answer that is not named arrays.
    """
    answers: list[Reply] = []
    read = held = 0
    for place, client_rows in enumerate(rows):
        watched = Watched(
            examples.inputs[client_rows], examples.targets[client_rows], examples.scale
        )
        answer = question(network, _of_one(weights, place, watched), watched)
        arrays = isinstance(answer, Mapping) and all(
            isinstance(value, np.ndarray) for value in answer.values()
        )
        if not arrays:
            raise FedreproError(
                f"{who}: a client answers {shown(answer)}; let it return a dict of NumPy arrays"
            )
        answers.append(answer)
        read, held = read + sum(watched.reads), held + len(client_rows)
    return QueryResult(answers, read / max(1, held))


def size_of(answer: np.ndarray) -> int:
    """Count the bytes of an array that is sent; of a symmetric matrix only one half goes."""
    square = answer.ndim == 2 and answer.shape[0] == answer.shape[1]
    if square and np.array_equal(answer, answer.T):
        rows = len(answer)
        return rows * (rows + 1) // 2 * answer.itemsize
    return answer.nbytes


def _of_one(
    weights: Mapping[str, np.ndarray], place: int, examples: Examples
) -> dict[str, torch.Tensor]:
    import torch

    device, dtype = examples.inputs.device, examples.dtype
    return {
        name: torch.from_numpy(np.ascontiguousarray(value))[place % len(value)].to(device, dtype)
        for name, value in weights.items()
    }
