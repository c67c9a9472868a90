"""Settings of local training, loss terms, early stopping, and the tensors in and out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedrepro.core.spec import Spec
from fedrepro.networks.layers import Shape
from fedrepro.networks.network import Init, Network
from fedrepro.training.examples import Arrays
from fedrepro.training.loss_terms import (
    GaussianPrior,
    Perturbation,
    Term,
    Terms,
    WeightTerm,
    perturbs,
)
from fedrepro.training.minibatches import Task

if TYPE_CHECKING:
    import torch

Augment = Literal["none", "crop_flip"]


@dataclass(frozen=True)
class Settings:
    """The settings of local training at a client: optimiser ("adam" or "sgd"), batch size, epochs.

    weight_sd, bias, init: standard deviation and constant of initial weights, and the rule to draw
    them. shared_init: whether all clients start from equal weights. batch_size: None uses all
    examples in each step. augment: "crop_flip" trains on random crops and mirror images. patience:
    after how many epochs without better training accuracy a client stops; 0: never.
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
    """Return the settings of local training that `training`, a procedure with parameters, gives."""
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
        return [term for term in terms if not perturbs(term)]

    @property
    def perturbations(self) -> list[Perturbation]:
        """Return the terms that compute gradients at other weights, such as SAM's."""
        return [term for term in self.terms if perturbs(term)]  # type: ignore[misc]

    @property
    def weight_penalties(self) -> list[WeightTerm]:
        """Return the loss terms on the weights alone, such as FedProx's."""
        return [term for term in self.terms if isinstance(term, WeightTerm)]

    @property
    def private(self) -> dict[str, Shape]:
        """Return shapes, by name, of tensors that loss terms train and clients never send."""
        return {k: shape for term in self.losses for k, shape in term.shapes(self.network).items()}

    def shares(self, tasks: Sequence[Task]) -> list[float]:
        """Return each training's factor of the loss term KL(weights ‖ prior); zeros without it."""
        priors = [term for term in self.losses if isinstance(term, GaussianPrior)]
        size, epochs = self.settings.batch_size, self.settings.epochs
        if not priors or size is None:
            return [0.0] * len(tasks)
        return [priors[0].share(len(t.rows), t.total(size, epochs), size) for t in tasks]

    @property
    def rows(self) -> int:
        """Return how many examples are computed at once: a minibatch or part of a full batch."""
        if self.settings.batch_size is not None:
            return self.settings.batch_size
        shapes = [layer.output(shape) for layer, shape, _ in self.network.places]
        each = sum(math.prod(shape) for shape in (self.network.shape, *shapes))
        return max(1, min(PIECE_ROWS, PIECE_FLOATS // each))


@dataclass(frozen=True)
class InitialTensors:
    """Tensors that n models begin with, (n, *shape); weights also (1, *shape), for all.

    reference: what loss terms compare the weights with, if not `start`.
    """

    start: Arrays
    private: Arrays
    reference: Arrays | None = None


@dataclass(frozen=True)
class TrainedModels:
    """Weights and losses of m models whose training has finished, valid until the next group.

    chosen: int (m,), their numbers in the list of trainings. losses: (steps, m), zero after a
    model's last step. taken, finite: (m,), steps, and whether all weights are finite. tensors,
    private (of loss terms) and summed (gradients over steps): (m, *shape).
    """

    chosen: np.ndarray
    losses: np.ndarray
    taken: np.ndarray
    finite: np.ndarray
    tensors: Arrays
    private: dict[str, np.ndarray]
    summed: dict[str, np.ndarray] | None


class LazyGpuTensors(dict[str, np.ndarray]):
    """Arrays of tensors on a GPU by name, each copied to the CPU when first read."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.tensors = tensors

    def __missing__(self, name: str) -> np.ndarray:
        self[name] = self.tensors[name].cpu().numpy()
        return self[name]


class EarlyStopping:
    """Stops each model after `patience` epochs in a row without training accuracy above its best.

    running: bool (models,), which still train. taken: int (models,), steps of each.
    """

    def __init__(self, tasks: Sequence[Task], settings: Settings) -> None:
        self.patience = settings.patience
        self.per_epoch = np.array([task.per_epoch(settings.batch_size) for task in tasks])
        self.taken = np.array([task.total(settings.batch_size, settings.epochs) for task in tasks])
        self.running = np.ones(len(tasks), bool)
        self.right, self.best, self.waited = (np.zeros(len(tasks), np.int64) for _ in range(3))
        self.best -= 1
        self.kept: dict[int, list[torch.Tensor]] = {}  # rows of the buffers of stopped models

    @property
    def last(self) -> int:
        """Return one more than the index of the last model that still trains; 0 if none does."""
        return int(np.flatnonzero(self.running).max(initial=-1)) + 1

    def see(self, end: int, right: np.ndarray, buffers: Sequence[torch.Tensor] = ()) -> None:
        """Count predictions `right` (models,) since the last call, after `end` steps in all.

        At an epoch's end models stop whose training accuracy rises no more; their rows of `buffers`
        (models, …) are saved for `put_back`.
        """
        self.right += right
        ended = self.running & (end % self.per_epoch == 0) & (end <= self.taken)
        risen = ended & (self.right > self.best)
        self.best[risen] = self.right[risen]
        self.waited[ended] += 1
        self.waited[risen] = 0
        self.right[ended] = 0
        stopped = ended & (self.waited >= self.patience)
        self.taken[stopped] = end
        for model in np.flatnonzero(stopped).tolist():
            self.kept[model] = [buffer[model].clone() for buffer in buffers]
        self.running &= end < self.taken

    def put_back(self, buffers: Sequence[torch.Tensor]) -> None:
        """Copy the saved rows of all models that stopped early back into `buffers` (models, …)."""
        for model, rows in self.kept.items():
            for buffer, row in zip(buffers, rows, strict=True):
                buffer[model].copy_(row)
