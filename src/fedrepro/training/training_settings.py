"""Settings of local training, loss terms, early stopping, and the tensors in and out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.spec import Spec
from fedrepro.networks.layers import Shape
from fedrepro.networks.network import Init, Network
from fedrepro.training.loss_terms import GaussianPrior, Perturbation, Term, WeightTerm, perturbs
from fedrepro.training.minibatches import Chunk, Task, schedule, whole_steps

if TYPE_CHECKING:
    import torch

Augment = Literal["none", "crop_flip"]


@dataclass(frozen=True)
class Settings:
    """The numbers of a local training procedure; `optimiser` is adam or sgd.

    weight_sd, bias, init and shared_init say how networks start. batch_size: None takes all of a
    client's examples in each step. augment: crop_flip trains on random crops and mirror images.
    patience: a client stops after this many epochs without better training accuracy; 0: never.
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
    """Return the settings of a training procedure, `training` as a scenario names it."""
    settings = training.component.fn(**training.values)
    assert isinstance(settings, Settings)
    return settings


# A step on all of a client's examples goes through them in pieces: as many rows as keep kernels
# busy, fewer where the activations of a model would take more than 16 MB.
PIECE_ROWS = 128
PIECE_FLOATS = 2**22


@dataclass(frozen=True)
class Procedure:
    """A training procedure for a network: settings of the descent, and terms of the loss."""

    network: Network
    settings: Settings
    terms: Sequence[Term | WeightTerm] = ()

    @property
    def losses(self) -> list[Term]:
        """Return the loss terms that need a forward pass, such as an entropy term."""
        rest = [term for term in self.terms if not isinstance(term, WeightTerm)]
        return [term for term in rest if not perturbs(term)]

    @property
    def perturbations(self) -> list[Perturbation]:
        """Return the terms that compute gradients at other weights, such as SAM's."""
        return [term for term in self.terms if perturbs(term)]  # type: ignore[misc]

    @property
    def weight_penalties(self) -> list[WeightTerm]:
        """Return the terms on the weights alone, such as FedProx's."""
        return [term for term in self.terms if isinstance(term, WeightTerm)]

    @property
    def is_plain_descent(self) -> bool:
        """Return whether a step is w - lr · gradient of the loss, and nothing else."""
        settings = self.settings
        bent = self.weight_penalties or self.perturbations
        return settings.optimiser == "sgd" and not (settings.momentum or settings.l2 or bent)

    @property
    def private(self) -> dict[str, Shape]:
        """Return the shapes of loss terms' private tensors by name, which stay with a client."""
        return {
            name: shape for term in self.losses for name, shape in term.shapes(self.network).items()
        }

    @property
    def shapes(self) -> dict[str, Shape]:
        """Return the shapes of all trained tensors: the network's, then the loss terms'."""
        return {**self.network.shapes, **self.private}

    def can_fuse_update(self, keep_gradients: bool) -> bool:
        """Return whether compiled code may apply gradients as it computes them: plain SGD only."""
        return self.is_plain_descent and not keep_gradients and self.settings.batch_size is not None

    def shares(self, tasks: Sequence[Task]) -> list[float]:
        """Return the factor of the KL divergence in each task's minibatch losses; 0 if none."""
        priors = [term for term in self.losses if isinstance(term, GaussianPrior)]
        size, epochs = self.settings.batch_size, self.settings.epochs
        if not priors or size is None:
            return [0.0] * len(tasks)
        return [priors[0].share(len(t.rows), t.total(size, epochs), size) for t in tasks]

    @property
    def rows(self) -> int:
        """Return how many examples to compute at once: a minibatch, or a piece of all data."""
        batch_size = self.settings.batch_size
        if batch_size is not None:
            return batch_size
        shapes = [layer.output(shape) for layer, shape, _ in self.network.places]
        each = sum(math.prod(shape) for shape in (self.network.shape, *shapes))
        return max(1, min(PIECE_ROWS, PIECE_FLOATS // each))

    def pieces(self, task: Task) -> int:
        """Return in how many pieces a step on a client's examples is computed; minibatches: 1."""
        return 1 if self.settings.batch_size else -(-len(task.rows) // self.rows)

    def plan(self, tasks: Sequence[Task]) -> Iterator[Chunk]:
        """Yield all training steps; `tasks` must be ordered by steps, then pieces, falling."""
        settings = self.settings
        if settings.batch_size is None:
            return whole_steps(tasks, self.rows, settings.epochs)
        return schedule(tasks, settings.batch_size, settings.epochs)

    def require_pieces(self) -> None:
        """Raise FedreproError if batch_size is None and a loss term needs whole minibatches.

        Without a batch_size a step takes all examples, computed in pieces, whose losses are summed.
        """
        if self.settings.batch_size is None:
            whole = [term for term in self.losses if not term.additive]
            for term in (*whole, *self.perturbations):
                raise FedreproError(
                    f"the loss term {type(term).__name__} looks at a minibatch as a whole, so "
                    "it cannot be computed in pieces of all examples; give a batch_size"
                )


@dataclass(frozen=True)
class InitialTensors:
    """The tensors that training starts from, by name: network, private ones, and `reference`.

    For their meaning see `engine.train`.
    """

    start: Mapping[str, np.ndarray]
    private: Mapping[str, np.ndarray]
    reference: Mapping[str, np.ndarray] | None = None


@dataclass(frozen=True)
class TrainedModels:
    """Trained models, as a trainer gives them to the engine; chosen: (m,), indices of their tasks.

    losses: (steps, m), zero where a model has no more steps. taken: int (m,), steps of each model.
    finite: bool (m,), whether a model's weights are finite. tensors, private and summed
    (gradients): (m, *shape) by name, valid until the next models are asked for.
    """

    chosen: np.ndarray
    losses: np.ndarray
    taken: np.ndarray
    finite: np.ndarray
    tensors: Mapping[str, np.ndarray]
    private: dict[str, np.ndarray]
    summed: dict[str, np.ndarray] | None


class LazyGpuTensors(dict[str, np.ndarray]):
    """A dict from names to arrays of tensors on a GPU, each copied to the CPU when first read."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.tensors = tensors

    def __missing__(self, name: str) -> np.ndarray:
        self[name] = self.tensors[name].cpu().numpy()
        return self[name]


class EarlyStopping:
    """Decides which models of a block still train, and keeps the weights of those that stopped.

    A model stops after `patience` epochs in a row without training accuracy above its best.
    running: bool (models,). taken: int (models,), steps of each model. kept: saved weights and
    optimiser state (rows of buffers) by the number of a stopped model.
    """

    def __init__(self, tasks: Sequence[Task], settings: Settings) -> None:
        self.patience = settings.patience
        self.per_epoch = np.array([task.per_epoch(settings.batch_size) for task in tasks])
        self.taken = np.array([task.total(settings.batch_size, settings.epochs) for task in tasks])
        self.running = np.ones(len(tasks), bool)
        self.right, self.best, self.waited = (np.zeros(len(tasks), np.int64) for _ in range(3))
        self.best -= 1
        self.kept: dict[int, list[torch.Tensor]] = {}

    @property
    def last(self) -> int:
        """Return how many models a step computes: those up to the last that still trains."""
        return int(np.flatnonzero(self.running).max(initial=-1)) + 1

    def see(self, end: int, right: np.ndarray, buffers: Sequence[torch.Tensor] = ()) -> None:
        """Add up the right predictions, and at an epoch's end stop models that improve no more.

        `right`, int (models,), was counted since the last call, up to step `end`. Rows of `buffers`
        (models, …) are saved for a model that stops now.
        """
        self.right += right
        ended = self.running & (end % self.per_epoch == 0) & (end <= self.taken)
        risen = ended & (self.right > self.best)
        self.best[risen] = self.right[risen]
        self.waited[ended] += 1
        self.waited[risen] = 0
        self.right[ended] = 0
        for model in np.flatnonzero(ended & (self.waited >= self.patience)):
            self.running[model] = False
            self.taken[model] = end
            self.kept[int(model)] = [buffer[model].clone() for buffer in buffers]
        self.running &= end < self.taken

    def put_back(self, buffers: Sequence[torch.Tensor]) -> None:
        """Restore in `buffers` the saved weights of every model that stopped early."""
        for model, rows in self.kept.items():
            for buffer, row in zip(buffers, rows, strict=True):
                buffer[model].copy_(row)
