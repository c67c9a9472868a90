"""Checks before training: what cannot be trained is refused in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedrepro.core.errors import FedreproError, shown
from fedrepro.networks.layers import Shape
from fedrepro.training.minibatches import Task
from fedrepro.training.settings import Settings


def check_tasks(tasks: Sequence[Task]) -> None:
    """Refuse a client without examples or steps."""
    for task in tasks:
        where = f"client {task.rng.client} of trial {task.rng.trial}"
        if not len(task.rows):
            raise FedreproError(
                f"{where} has no training examples; "
                "use fewer clients or a partition with min_examples"
            )
        if task.steps is not None and task.steps < 1:
            raise FedreproError(
                f"{where} is to take {task.steps} steps; give it at least one, or leave it out"
            )


def check_private(
    wanted: Mapping[str, Shape], private: Mapping[str, np.ndarray], models: int
) -> None:
    """Refuse private tensors that are missing, too many, or of another shape."""
    if set(wanted) != set(private):
        raise FedreproError(
            f"the loss terms have private tensors {shown(sorted(wanted))}, but "
            f"{shown(sorted(private))} were handed over; give exactly those"
        )
    for name, shape in wanted.items():
        if private[name].shape != (models, *shape):
            raise FedreproError(
                f"private tensor '{name}' must have shape {(models, *shape)}, one part for each "
                f"model that trains, not {private[name].shape}"
            )


def check_going_on(settings: Settings, tasks: Sequence[Task], remembers: bool) -> None:
    """Refuse early stopping of trainings that go on from others."""
    if settings.patience and (remembers or any(task.done for task in tasks)):
        raise FedreproError(
            "clients that go on from round to round within an epoch, or with an optimiser that "
            "remembers, cannot stop early; leave `patience` of the training at 0"
        )
