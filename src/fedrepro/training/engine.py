"""The training engine: trains one model per client, and returns all models or their mean.

On the CPU networks go one after another through compiled steps (`compiled_steps.py`). Networks that
these do not know are differentiated automatically, on a GPU many at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.networks.compiled_layout_and_buffers import parts_of
from fedrepro.networks.layers import Dropout
from fedrepro.networks.network import IMAGE, Network
from fedrepro.training.loss_terms import Correction, Proximal, Terms, compiled_kind
from fedrepro.training.minibatches_and_augmentation import Task
from fedrepro.training.training_examples import Arrays, Examples
from fedrepro.training.training_settings_and_procedures import Procedure, Settings, TrainedModels

if TYPE_CHECKING:
    import torch

    from fedrepro.training.autograd_trainer_and_noise import AutogradTrainer
    from fedrepro.training.compiled_trainer import CompiledTrainer


@dataclass(frozen=True)
class Outcome:
    """The results of training n models, besides their weights, with one entry per model.

    private: tensors that loss terms train, (n, *shape), unchanged for a diverged model. finite:
    whether the model has finite losses and final weights. loss: mean cross-entropy of minibatches,
    without added terms, or NaN. steps: minibatches taken now, without earlier rounds. seconds: of
    all models together. places: random keys, of client and trial.
    """

    private: dict[str, np.ndarray]
    finite: np.ndarray
    loss: np.ndarray
    steps: np.ndarray
    seconds: float
    places: tuple[RngKey, ...]

    def checked(self) -> Self:
        """Return these results, or raise FedreproError with a diverged model's client and trial."""
        if not self.finite.all():
            rng = self.places[self.finite.argmin()]
            said = f"the loss of client {rng.client} in trial {rng.trial} is not finite"
            raise FedreproError(f"{said}; lower the learning rate (lr), or check its inputs")
        return self


@dataclass(frozen=True)
class Trained(Outcome):
    """Weights of n trained models: `tensors` (n, *shape) by name; NaN for a model that diverged.

    If asked for: `gradients`, sums over steps of minibatch gradients without L2 and proximal terms,
    and `memory`, the optimiser's state of each model (n, …), for `train` to go on from.
    """

    tensors: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray] | None = None
    memory: dict[str, np.ndarray] | None = None

    def averaged(self, weights: np.ndarray) -> Averaged:
        """Return sum_i weights[i] · (trained model i) over finite models: weights act as given."""
        share = np.where(self.finite, weights, 0.0)
        tensors = {}
        for name, value in self.tensors.items():
            summed = np.tensordot(share, np.nan_to_num(value.astype(float)), 1)
            tensors[name] = summed[None].astype(value.dtype)
        same = {item.name: getattr(self, item.name) for item in fields(Outcome)}
        return Averaged(**same, tensors=tensors, weight=float(share.sum()))


@dataclass(frozen=True)
class Averaged(Outcome):
    """A weighted sum of finite models: `tensors` (1, *shape), and `weight`, the weights' sum."""

    tensors: dict[str, np.ndarray]
    weight: float


def train(
    network: Network,
    examples: Examples,
    tasks: Sequence[Task],
    settings: Settings,
    start: Arrays,
    *,
    terms: Terms = (),
    private: Arrays | None = None,
    reference: Arrays | None = None,
    memory: Arrays | None = None,
    keep_gradients: bool = False,
) -> Trained:
    """Train one model per task by minibatch descent on cross-entropy plus l2/2 · |parameters|².

    `tasks` have each model's rows of `examples`, random key and number of steps; `start` has
    tensors (n, *shape), or (1, *shape) for all. `terms` are added to the loss; they train the
    tensors `private` (n, *shape), and compare weights with `reference`, by default `start`.
    `memory` is the optimisers' state, {} at first; None keeps none. `keep_gradients` asks for
    `Trained.gradients`. A diverged model changes no other; see `Outcome.checked`.
    """
    procedure = Procedure(network, settings, terms)
    if reference is not None and (others := {*reference} ^ {*network.shapes}):
        said = f"`reference` or the network has no '{min(others)}'"
        raise FedreproError(f"{said}: give it the names of `start`")
    tensors = {k: np.empty((len(tasks), *v), examples.kind) for k, v in network.shapes.items()}
    summed = {k: np.empty_like(v) for k, v in tensors.items()} if keep_gradients else None

    def keep(part: TrainedModels, finite: np.ndarray) -> None:
        for kept, made in ((tensors, part.tensors), (summed or {}, part.summed or {})):
            for name, value in kept.items():
                value[part.chosen] = _on_cpu(made[name])
                value[part.chosen[~finite]] = np.nan

    begin = {**(private or {}), **start}
    outcome, memory = _run(
        procedure, examples, tasks, begin, keep, reference, memory, keep_gradients
    )
    return Trained(**vars(outcome), tensors=tensors, gradients=summed, memory=memory)


def train_and_average(
    network: Network,
    examples: Examples,
    tasks: Sequence[Task],
    settings: Settings,
    start: Arrays,
    weights: Sequence[float],
    *,
    terms: Terms = (),
    private: Arrays | None = None,
) -> Averaged:
    """Train a model per task from `start`; return sum_i weights[i] · (trained model of task i).

    `tasks`, `settings` and `start` are as in `train`. `terms` are added to the loss, and their
    tensors `private` are trained too. Models not finite are left out; the result has the sum of the
    others' weights. Integer buffers, such as counters, get their largest value times this sum.
    """
    total = {k: np.zeros((1, *shape), examples.kind) for k, shape in network.shapes.items()}
    most = {name: total[name] for name in network.counts}
    summed = {name: value for name, value in total.items() if name not in most}

    def fold(part: TrainedModels, finite: np.ndarray) -> None:
        share, whole = np.array(weights)[part.chosen], np.flatnonzero(finite)
        for name, value in most.items():
            np.maximum(value, _on_cpu(part.tensors[name])[finite].max(0, initial=0), out=value)
        if not isinstance(next(iter(part.tensors.values())), np.ndarray):
            _add_on_gpu(summed, part.tensors, whole, share[finite])
            return
        for i in whole:  # one by one, in an order that does not depend on the block
            for name, value in summed.items():
                value[0] += value.dtype.type(share[i]) * part.tensors[name][i]

    procedure = Procedure(network, settings, terms)
    outcome, _ = _run(procedure, examples, tasks, {**(private or {}), **start}, fold)
    went_in = math.fsum(np.array(weights)[outcome.finite])
    for value in most.values():
        value *= went_in
    return Averaged(**vars(outcome), tensors=total, weight=went_in)


def _add_on_gpu(
    total: Arrays, tensors: Mapping[str, torch.Tensor], models: np.ndarray, weights: np.ndarray
) -> None:
    """Add sum_i weights[i] · tensors[name][models[i]] to total[name], computed on the GPU."""
    import torch

    for name, added in total.items():
        value = tensors[name]
        if len(models) < len(value):
            value = value[torch.from_numpy(models).to(value.device)]
        share = torch.from_numpy(weights).to(value)
        added[0] += torch.tensordot(share, value, dims=1).cpu().numpy()


def _on_cpu(value: Any) -> np.ndarray:
    return value if isinstance(value, np.ndarray) else np.asarray(value.cpu())


def _run(
    procedure: Procedure,
    examples: Examples,
    tasks: Sequence[Task],
    start: Arrays,
    take: Callable[[TrainedModels, np.ndarray], None],
    reference: Arrays | None = None,
    memory: Arrays | None = None,
    keep_gradients: bool = False,
) -> tuple[Outcome, dict[str, np.ndarray] | None]:
    """Train the models of `tasks`; return the outcome, and the optimisers' state if `memory`."""
    began, count = time.perf_counter(), len(tasks)
    _require_trainable(procedure, tasks, memory is not None)
    _require_one_reference(procedure.terms, reference)
    for value in (*start.values(), *(reference or {}).values()):
        if len(value) not in (1, count):
            said = f"{count} clients train, and weights are those of {len(value)}"
            raise FedreproError(f"{said}: give those of one, or of each that trains")
    kept = None if memory is None else {k: v.copy() for k, v in memory.items()}
    trainer: CompiledTrainer | AutogradTrainer
    if is_compiled(procedure, examples.inputs.device.type):
        from fedrepro.training.compiled_trainer import trainer_of

        trainer = trainer_of(procedure, examples, keep_gradients)
        if kept == {}:  # it is zero to begin with
            names = procedure.settings.remembered
            kept = {k: np.zeros((count, trainer.size), examples.kind) for k in names}
            kept["steps"] = np.zeros(count, np.int64)
    else:
        from fedrepro.training.autograd_trainer_and_noise import AutogradTrainer

        trainer = AutogradTrainer(procedure, examples, tasks, keep_gradients)
    private = {k: np.array(start[k], examples.kind) for k in procedure.private}
    steps, finite = np.zeros(count, np.int64), np.ones(count, bool)
    loss = np.full(count, np.nan)
    for part in trainer.parts(tasks, start, reference, kept):
        chosen = part.chosen
        steps[chosen] = part.taken
        whole = finite[chosen] = part.finite & np.isfinite(part.losses).all(0)
        for i in np.flatnonzero(whole):
            # an exact sum does not depend on how the steps were cut
            loss[chosen[i]] = math.fsum(part.losses[:, i].tolist()) / part.taken[i]
        if kept is not None:
            kept["steps"][chosen] += part.taken
        for name, value in part.private.items():
            private[name][chosen[whole]] = value[whole]
        take(part, whole)
    places, seconds = tuple(task.rng for task in tasks), time.perf_counter() - began
    return Outcome(private, finite, loss, steps, seconds, places), kept


def _require_trainable(procedure: Procedure, tasks: Sequence[Task], remembers: bool) -> None:
    for rng in (task.rng for task in tasks if not len(task.rows)):
        said = f"client {rng.client} of trial {rng.trial} has no training examples"
        raise FedreproError(f"{said}; use fewer clients or a partition with min_examples")
    if procedure.settings.patience and (remembers or any(task.done for task in tasks)):
        said = "clients whose training goes on from round to round cannot stop early"
        raise FedreproError(f"{said}; leave `patience` of the training at 0")
    network = procedure.network
    if procedure.settings.augment != "none" and len(network.shape) != IMAGE:
        said = f"augment~crop_flip moves images, but this {network.kind} network takes inputs of"
        raise FedreproError(f"{said} shape {network.shape}; choose another model, or augment~none")
    if procedure.settings.batch_size is None:
        for term in (term for term in procedure.losses if not term.additive):
            said = f"the loss term {type(term).__name__} looks at a minibatch as a whole"
            raise FedreproError(f"{said}; give a batch_size")


def _require_one_reference(terms: Terms, reference: Arrays | None) -> None:
    if not any(isinstance(term, Correction) for term in terms):
        return
    if reference is None:
        raise FedreproError("a correction of every step needs `reference`: what is added to it")
    compared = (isinstance(t, Proximal) or compiled_kind(t) == "matching" for t in terms)
    if any(compared) or any(getattr(t, "sd", 0.0) is None for t in terms):  # a prior as received
        said = "`reference` is what Correction adds, and another loss term compares weights with it"
        raise FedreproError(f"{said}: use one of the two")


def is_compiled(procedure: Procedure, device: str) -> bool:
    """Return whether compiled code trains: on `device` "cpu", if it has all layers and loss terms.

    If all layers are Bayesian, compiled code trains them on the CPU, whatever `device` is.
    """
    network, named = procedure.network, [compiled_kind(term) for term in procedure.losses]
    known = ("entropy", "divergence" if network.kind == "variational" else "matching")
    parts = parts_of(network)
    return (
        parts is not None
        and (device == "cpu" or parts.drawn)
        and (procedure.settings.augment == "none" or bool(parts.convolutions))
        and len({layer.rate for layer in network.layers if isinstance(layer, Dropout)}) < 2
        and not procedure.perturbations
        and all(kind in known for kind in named)
        and named.count(known[1]) <= 1
        # matching looks at activations as they are before dropout
        and not ("matching" in named and (network.dropout or parts.recurrent))
    )
