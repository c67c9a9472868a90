"""The clients of one trial, seen from a server: their data stays here, weights go in and out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.models.dense import Dense
from fedrepro.rng import Rng
from fedrepro.spec import Spec
from fedrepro.training.engine import Trained, train
from fedrepro.training.minibatches import Task
from fedrepro.training.settings import Settings

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Clients:
    """Data and training procedure of the J clients of one trial.

    inputs: float (N, D); targets: float (N, K); rows[j]: the examples of client j.
    """

    model: Spec
    dense: Dense
    settings: Settings
    inputs: torch.Tensor
    targets: torch.Tensor
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
        first_epoch: int = 0,
        keep_gradients: bool = False,
    ) -> Trained:
        """Every client trains from `start`: tensors (1, *shape), shared, or (J, *shape).

        Minibatches follow (seed, trial, client, first_epoch + epoch).
        """
        tasks = [
            Task(rows, rng.at(client=j), first_epoch=first_epoch)
            for j, rows in enumerate(self.rows)
        ]
        initial = {
            name: np.broadcast_to(value, (self.count, *value.shape[1:]))
            for name, value in start.items()
        }
        return train(
            self.dense,
            self.inputs,
            self.targets,
            tasks,
            replace(self.settings, epochs=epochs),
            initial,
            keep_gradients=keep_gradients,
        )


def own_starts(dense: Dense, settings: Settings, places: Sequence[Rng]) -> dict[str, np.ndarray]:
    """Initial tensors (models, *shape), one draw per place; one per trial if starts are shared."""
    if settings.shared_init:
        places = [place.at(client=-1) for place in places]
    drawn = [dense.initial(place, settings.weight_sd, settings.bias) for place in places]
    return {name: np.stack([one[name] for one in drawn]) for name in dense.shapes}
