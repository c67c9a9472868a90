"""Data sets as training reads them: inputs as stored, scaled when a minibatch is read."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.networks.layers import Arrays as Arrays

if TYPE_CHECKING:
    import torch

    from fedrepro.data.partitions_populations_and_holdouts import Population
    from fedrepro.networks.network import Network


@dataclass(frozen=True)
class Examples:
    """A data set for training: inputs (N, D), integers or floats, and targets.

    Targets are labels (N,) or class probabilities (N, K). `scale` is the divisor that brings inputs
    to [0, 1]. Inputs of integers stay on disk until a minibatch reads them.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    scale: float = 1.0

    @property
    def dtype(self) -> torch.dtype:
        """Return the torch type in which networks compute: that of floating inputs, or float32."""
        import torch

        return self.inputs.dtype if self.inputs.is_floating_point() else torch.float32

    @property
    def kind(self) -> np.dtype:
        return np.dtype(str(self.dtype).removeprefix("torch."))  # as a NumPy type

    def scaled(self, rows: slice | np.ndarray) -> torch.Tensor:
        """Return the inputs of `rows`, divided by `scale`, as floats (n, D) for a network."""
        return self.inputs[rows].to(self.dtype) / self.scale

    def gathered(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Read minibatches of A models: scaled inputs (A, B, D) and targets, of `rows` (A, B)."""
        flat = rows.flatten()
        x = self.inputs.index_select(0, flat).to(self.dtype) / self.scale
        return x.view(*rows.shape, -1), self.targets[rows]

    def above(self, hidden: Network, tensors: Arrays) -> Examples:
        """Return a copy whose inputs are the outputs of network `hidden`; `tensors` (1, *shape)."""
        import torch

        from fedrepro.networks.predict import loaded

        weights = loaded({name: tensors[name][0] for name in hidden.parameters}, self)
        rows = hidden.prediction_rows if hidden.layers else len(self.inputs)
        with torch.no_grad():
            outputs = [
                hidden.logits(weights, self.scaled(slice(at, at + rows))).flatten(1)
                for at in range(0, len(self.inputs), rows)
            ]
        return Examples(torch.cat(outputs), self.targets)

    def of(self, rows: Sequence[np.ndarray]) -> tuple[Examples, Sequence[np.ndarray]]:
        """Return (data set with the clients' examples `rows`, each client's row numbers in it)."""
        return self, rows


class GeneratedExamples(Examples):
    """A data set of a `population` of many clients, whose examples are generated when needed."""

    def __init__(self, population: Population, scale: float, device: str) -> None:
        vars(self).update(population=population, scale=scale, device=device)  # the class is frozen

    population: Population
    device: str

    def of(self, rows: Sequence[np.ndarray]) -> tuple[Examples, Sequence[np.ndarray]]:
        """Generate the data of clients that own `rows`; return it, and numbers of `rows` in it."""
        wanted, ends = np.concatenate([np.empty(0, np.int64), *rows]), self.population.train.ends
        owners = np.searchsorted(ends, wanted, side="right") - 1
        clients, place = np.unique(owners, return_inverse=True)
        begins = np.cumsum([0, *(ends[clients + 1] - ends[clients])])
        made_rows = wanted - ends[owners] + begins[place]
        cuts = itertools.pairwise(np.cumsum([0, *map(len, rows)]))
        return self._made(clients, begins), [made_rows[first:last] for first, last in cuts]

    @cached_property
    def whole(self) -> Examples:
        """Generate all clients' examples; raise FedreproError if they take more than 2 GiB."""
        everyone = self.population.train
        if int(everyone.ends[-1]) * self._form[0][0].nbytes > MOST_BYTES:
            said = f"the examples of all {self.population.clients} clients are asked for at once"
            fix = "choose a method in rounds, not measured on `train`, or fewer clients"
            raise FedreproError(f"{said}: {fix}")
        return self._made(np.arange(len(everyone)), everyone.ends)

    @property
    def inputs(self) -> torch.Tensor:
        return self.whole.inputs

    @property
    def targets(self) -> torch.Tensor:
        return self.whole.targets

    def _made(self, clients: np.ndarray, begins: np.ndarray) -> Examples:
        """Generate examples of `clients`; the i-th client fills rows begins[i] to begins[i + 1]."""
        x, y = (np.empty((begins[-1], *like.shape[1:]), like.dtype) for like in self._form)
        for client, (begin, end) in zip(clients, itertools.pairwise(begins), strict=True):
            x[begin:end], y[begin:end] = self.population.made.examples(int(client))
        return Examples(tensor_of(x).to(self.device), tensor_of(y).to(self.device), self.scale)

    @cached_property
    def _form(self) -> list[np.ndarray]:
        return [part[:1].copy() for part in self.population.made.examples(0)]


MOST_BYTES = 2 * 2**30  # of examples that are made at once because all are asked for


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """Wrap an array as a torch tensor that shares its memory, even if the array is read-only."""
    import torch

    with warnings.catch_warnings():
        # the engine never writes to inputs and targets
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array))
