"""Settings of local training, loss terms, early stopping, and the tensors in and out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedrepro.core.spec import Spec
from fedrepro.networks.layers import Shape
from fedrepro.networks.network import Init, Network
from fedrepro.training.loss_terms import Perturbation, Term, Terms, WeightTerm
from fedrepro.training.minibatches_and_augmentation import Task

Augment = Literal["none", "crop_flip"]


@dataclass(frozen=True)
class Settings:
    """The settings of local training at a client: optimiser ("adam" or "sgd"), batch size, epochs.

    init: rule to draw initial weights, by "normal" with standard deviation weight_sd and biases
    `bias`. shared_init: whether all clients start from equal weights. l2: the loss gets
    l2/2 · |parameters|². batch_size: None uses all examples in each step. augment: "crop_flip"
    trains on random crops and mirror images. patience: after how many epochs without better
    training accuracy a client stops; 0: never.
    """

    optimiser: str
    lr: float
    l2: float
    batch_size: int | None
    epochs: int
    weight_sd: float
    bias: float
    shared_init: bool
    init: Init = "normal"
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    amsgrad: bool = False
    momentum: float = 0.0
    augment: Augment = "none"
    patience: int = 0

    @property
    def remembered(self) -> tuple[str, ...]:
        """Return the names of arrays that the optimiser keeps between steps (moments)."""
        if self.optimiser == "sgd":
            return ("velocity",) if self.momentum else ()
        return ("first", "second", "largest") if self.amsgrad else ("first", "second")


def settings_of(training: Spec) -> Settings:
    """Return the `Settings` that the configured training, a component with parameters, gives."""
    settings = training.component.fn(**training.values)
    assert isinstance(settings, Settings)
    return settings


# A step on all of a client's examples goes through them in pieces: as many rows as keep kernels
# busy, fewer where the activations of a model would take more than 16 MB.
PIECE_ROWS = 128
PIECE_FLOATS = 2**22


@dataclass(frozen=True)
class Procedure:
    """How to train a network: the network, the optimiser's settings, terms added to the loss."""

    network: Network
    settings: Settings
    terms: Terms = ()

    @property
    def losses(self) -> list[Term]:
        """Return the loss terms that need a forward pass, such as an entropy term."""
        terms = (term for term in self.terms if not isinstance(term, WeightTerm))
        return [term for term in terms if hasattr(term, "loss") or not hasattr(term, "away")]

    @property
    def perturbations(self) -> list[Perturbation]:
        """Return the terms that mix in a gradient at moved weights, as SAM does."""
        return [term for term in self.terms if hasattr(term, "away")]  # type: ignore[misc]

    @property
    def weight_penalties(self) -> list[WeightTerm]:
        """Return the loss terms on the weights alone, such as FedProx's."""
        return [term for term in self.terms if isinstance(term, WeightTerm)]

    @property
    def private(self) -> dict[str, Shape]:
        """Return shapes, by name, of tensors that loss terms train and clients never send."""
        return {k: shape for term in self.losses for k, shape in term.shapes(self.network).items()}

    @property
    def rows(self) -> int:
        """Return how many examples are computed at once: a minibatch or part of a full batch."""
        if self.settings.batch_size is not None:
            return self.settings.batch_size
        shapes = [layer.output(shape) for layer, shape, _ in self.network.places]
        each = sum(math.prod(shape) for shape in (self.network.shape, *shapes))
        return max(1, min(PIECE_ROWS, PIECE_FLOATS // each))


@dataclass(frozen=True)
class TrainedModels:
    """Weights and losses of m models after training; the next group may overwrite the arrays.

    chosen: int (m,), the models' indices among all tasks. losses: (steps, m), zero after a model's
    last step. taken, finite: (m,), steps, and whether all weights are finite. tensors (torch's on a
    GPU), private (of loss terms) and summed (gradients over steps): (m, *shape).
    """

    chosen: np.ndarray
    losses: np.ndarray
    taken: np.ndarray
    finite: np.ndarray
    tensors: Mapping[str, Any]
    private: dict[str, np.ndarray]
    summed: dict[str, np.ndarray] | None


class EarlyStopping:
    """Stops a training after `patience` epochs in a row without training accuracy above its best.

    over: whether the training has ended. taken: the steps that it takes.
    """

    def __init__(self, task: Task, settings: Settings) -> None:
        self.patience, self.per_epoch = settings.patience, task.per_epoch(settings.batch_size)
        self.taken, self.over = task.total(settings.batch_size, settings.epochs), False
        self.right, self.best, self.waited = 0, -1, 0

    def see(self, end: int, right: int) -> None:
        """Count `right` right predictions since the last call; `end` steps are done in all."""
        self.right += right
        if end % self.per_epoch == 0:
            self.waited = 0 if self.right > self.best else self.waited + 1
            self.best, self.right = max(self.best, self.right), 0
            if self.waited >= self.patience:
                self.taken = end
        self.over = end >= self.taken
