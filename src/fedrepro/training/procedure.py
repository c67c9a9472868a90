"""Records of a training: how models train, what they start from, and what comes out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.networks.layers import Shape
from fedrepro.networks.network import Network
from fedrepro.training.loss_terms import GaussianPrior, Perturbation, Term, WeightTerm, perturbs
from fedrepro.training.minibatches import Chunk, Task, schedule, whole_steps
from fedrepro.training.settings import Settings

if TYPE_CHECKING:
    import torch

# A step on all of a client's examples goes through them in pieces: as many rows as keep kernels
# busy, fewer where the activations of a model would take more than 16 MB.
PIECE_ROWS = 128
PIECE_FLOATS = 2**22


@dataclass(frozen=True)
class Procedure:
    """How models train: the network, the numbers of the descent, and terms of the loss."""

    network: Network
    settings: Settings
    terms: Sequence[Term | WeightTerm] = ()

    @property
    def losses(self) -> list[Term]:
        """The terms that need a forward pass."""
        rest = [term for term in self.terms if not isinstance(term, WeightTerm)]
        return [term for term in rest if not perturbs(term)]

    @property
    def perturbations(self) -> list[Perturbation]:
        """The terms that say where gradients are taken."""
        return [term for term in self.terms if perturbs(term)]  # type: ignore[misc]

    @property
    def weight_penalties(self) -> list[WeightTerm]:
        """The terms on the weights alone."""
        return [term for term in self.terms if isinstance(term, WeightTerm)]

    @property
    def is_plain_descent(self) -> bool:
        """Whether a step is w - lr · gradient of the loss, and nothing else."""
        settings = self.settings
        bent = self.weight_penalties or self.perturbations
        return settings.optimiser == "sgd" and not (settings.momentum or settings.l2 or bent)

    @property
    def private(self) -> dict[str, Shape]:
        """Tensors of the terms, which stay with their client."""
        return {
            name: shape for term in self.losses for name, shape in term.shapes(self.network).items()
        }

    @property
    def shapes(self) -> dict[str, Shape]:
        """Tensors of the network, then those of the terms."""
        return {**self.network.shapes, **self.private}

    def can_fuse_update(self, keep_gradients: bool) -> bool:
        """Tell whether a step can move the weights in the products that give gradients."""
        return self.is_plain_descent and not keep_gradients and self.settings.batch_size is not None

    def shares(self, tasks: Sequence[Task]) -> list[float]:
        """Compute the share of a divergence in a minibatch's loss by model; 0 without one."""
        priors = [term for term in self.losses if isinstance(term, GaussianPrior)]
        size, epochs = self.settings.batch_size, self.settings.epochs
        if not priors or size is None:
            return [0.0] * len(tasks)
        return [priors[0].share(len(t.rows), t.total(size, epochs), size) for t in tasks]

    @property
    def rows(self) -> int:
        """Examples that are taken at once: a minibatch, or a piece of a client's whole data."""
        batch_size = self.settings.batch_size
        if batch_size is not None:
            return batch_size
        shapes = [layer.output(shape) for layer, shape, _ in self.network.places]
        each = sum(math.prod(shape) for shape in (self.network.shape, *shapes))
        return max(1, min(PIECE_ROWS, PIECE_FLOATS // each))

    def pieces(self, task: Task) -> int:
        """Count the pieces in which a step of this task is computed."""
        return 1 if self.settings.batch_size else -(-len(task.rows) // self.rows)

    def plan(self, tasks: Sequence[Task]) -> Iterator[Chunk]:
        """Plan all steps of these tasks, which are ordered by steps and pieces, falling."""
        settings = self.settings
        if settings.batch_size is None:
            return whole_steps(tasks, self.rows, settings.epochs)
        return schedule(tasks, settings.batch_size, settings.epochs)

    def require_pieces(self) -> None:
        """Raise FedreproError for a term that cannot be computed piece by piece but has to be."""
        if self.settings.batch_size is None:
            whole = [term for term in self.losses if not term.additive]
            for term in (*whole, *self.perturbations):
                raise FedreproError(
                    f"the loss term {type(term).__name__} looks at a minibatch as a whole, so "
                    "it cannot be computed in pieces of all examples; give a batch_size"
                )


@dataclass(frozen=True)
class InitialTensors:
    """Tensors that training starts from, by name; see `engine.train`."""

    start: Mapping[str, np.ndarray]
    private: Mapping[str, np.ndarray]
    reference: Mapping[str, np.ndarray] | None = None


@dataclass(frozen=True)
class TrainedModels:
    """Some trained models, by their tasks' places (m,).

    losses: (steps, m), zero where a model has no more steps. taken: int (m,), steps of each.
    finite: bool (m,), whether the weights are. tensors, private and summed: (m, *shape) by name,
    valid until the next part is asked for.
    """

    chosen: np.ndarray
    losses: np.ndarray
    taken: np.ndarray
    finite: np.ndarray
    tensors: Mapping[str, np.ndarray]
    private: dict[str, np.ndarray]
    summed: dict[str, np.ndarray] | None


class LazyGpuTensors(dict[str, np.ndarray]):
    """Tensors on a GPU as arrays, each fetched when it is first asked for."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.tensors = tensors

    def __missing__(self, name: str) -> np.ndarray:
        self[name] = self.tensors[name].cpu().numpy()
        return self[name]
