"""The clients of one trial, seen from a server: their data stays here, weights go in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Spec
from fedrepro.networks.network import Network
from fedrepro.training.engine import Averaged, Trained, average, train
from fedrepro.training.examples import Examples
from fedrepro.training.minibatches import Task
from fedrepro.training.settings import Settings
from fedrepro.training.terms import Proximal, Term


@dataclass(frozen=True)
class Clients:
    """Data and training procedure of the J clients of one trial; rows[j]: examples of client j."""

    model: Spec
    network: Network
    settings: Settings
    examples: Examples
    rows: Sequence[np.ndarray]

    @property
    def count(self) -> int:
        return len(self.rows)

    def train(
        self,
        start: dict[str, np.ndarray],
        rng: Rng,
        *,
        epochs: int,
        chosen: Sequence[int] | None = None,
        lr: Sequence[float] | float | None = None,
        steps: Sequence[int] | int | None = None,
        terms: Sequence[Term | Proximal] = (),
        private: Mapping[str, np.ndarray] | None = None,
        keep_gradients: bool = False,
    ) -> Trained:
        """The chosen clients (all by default) train from `start`: (1, *shape), shared, or one each.

        rng: the place of the round. Minibatches follow (seed, trial, client, round, epoch), so a
        method that trains a client more than once in a round gives each time a `call` of its own,
        rng.at(call=1). lr, and steps (minibatches, instead of whole epochs): for all, or one each.
        private: tensors of the terms, (chosen, *shape), which the result hands back trained.
        Results are in the order of `chosen` and say which models are finite: the others are for the
        method to reject, or an error by `checked`. Raises FedreproError outside a round.
        """
        return train(
            self.network,
            self.examples,
            self._tasks(rng, chosen, lr, steps),
            replace(self.settings, epochs=epochs),
            start,
            terms=terms,
            private=private,
            keep_gradients=keep_gradients,
        )

    def average(
        self,
        start: dict[str, np.ndarray],
        rng: Rng,
        weights: Sequence[float],
        *,
        epochs: int,
        chosen: Sequence[int] | None = None,
        lr: Sequence[float] | float | None = None,
        steps: Sequence[int] | int | None = None,
        terms: Sequence[Term | Proximal] = (),
        private: Mapping[str, np.ndarray] | None = None,
    ) -> Averaged:
        """sum_j weights[j] · w_j over the chosen clients, folded as they are done; see `train`.

        Models that are not finite are left out; the result says what weight went in.
        """
        return average(
            self.network,
            self.examples,
            self._tasks(rng, chosen, lr, steps),
            replace(self.settings, epochs=epochs),
            start,
            weights,
            terms=terms,
            private=private,
        )

    def _tasks(
        self,
        rng: Rng,
        chosen: Sequence[int] | None,
        lr: Sequence[float] | float | None,
        steps: Sequence[int] | int | None,
    ) -> list[Task]:
        if rng.round < 0:
            raise FedreproError(
                "clients train in a round, or every round would have the same minibatches: hand "
                "over the place that `round` was given, or before the first round rng.at(round=0, "
                "call=1)"
            )
        members = range(self.count) if chosen is None else chosen
        tasks = [Task(self.rows[j], rng.at(client=j)) for j in members]
        if lr is not None:
            rates = [lr] * len(tasks) if isinstance(lr, int | float) else lr
            tasks = [replace(task, lr=rate) for task, rate in zip(tasks, rates, strict=True)]
        if steps is not None:
            counts = [steps] * len(tasks) if isinstance(steps, int) else steps
            tasks = [replace(task, steps=n) for task, n in zip(tasks, counts, strict=True)]
        return tasks


def own_starts(
    network: Network, settings: Settings, places: Sequence[Rng]
) -> dict[str, np.ndarray]:
    """Initial tensors (models, *shape), one draw per place; one per trial if starts are shared."""
    if settings.shared_init:
        places = [place.at(client=-1) for place in places]
    drawn = [
        network.initial(place, settings.weight_sd, settings.bias, settings.init) for place in places
    ]
    return {name: np.stack([one[name] for one in drawn]) for name in network.shapes}
