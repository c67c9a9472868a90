"""Measure a user's models on the user's data: accuracy, loss, recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrepro.api import GlobalModel, LocalModels, MethodOutput
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import MODULE
from fedrepro.core.rng import RngKey
from fedrepro.networks.network import Network
from fedrepro.networks.predict import network_of
from fedrepro.numbers.model_evaluation import (
    Draws,
    EvaluationSplit,
    class_scores,
    confusion,
    measure,
    measure_alone,
    scored,
)
from fedrepro.stages.user_models.user_files import DataForm, read_files, read_state
from fedrepro.stages.user_models.user_inputs import ASSUMED, ModelFiles
from fedrepro.training.examples import Examples

MIXTURE = {"state_dicts", "weights"}  # keys of files of `fedrepro combine` with several networks


@dataclass(frozen=True)
class Evaluation:
    """The accuracy and loss of a user's model on examples, and its recall of each class.

    name: the model's file. loss: the mean of -ln p of the right class in nats, None if scores are
    not probabilities. held: number of examples of each class, int64 (K,). right: recall of each
    class, float64 (K,), 0 for a class without examples. parameters: number of trained ones.
    networks: how many the model has.
    """

    name: str
    accuracy: float
    loss: float | None
    held: np.ndarray
    right: np.ndarray
    parameters: int
    networks: int

    @property
    def worst(self) -> int:
        """Return the index of the class with the lowest recall, among classes with examples."""
        return int(np.where(self.held > 0, self.right, np.inf).argmin())


def evaluations(models: Sequence[Path], files: ModelFiles) -> tuple[list[Evaluation], list[str]]:
    """Measure the model in each file of `models` on the examples in the file `files.evaluate`.

    Returns (a result per file of a model, notes on assumptions). Models may differ in width.

    Raises:
        FedreproError: files cannot be read or do not fit.
    """
    assert files.evaluate is not None
    words = files.model.split(",") if files.model else []
    results, notes, known = list[Evaluation](), dict[str, None](), dict[DataForm, Examples]()
    for place, path in enumerate(models):
        each = words[place : place + 1] if len(words) == len(models) else words[:1]
        # if there is one file, several names are those of its networks
        made, local = _model(path, files, words if len(models) == 1 else each)
        if not local.model.component.meta.get(MODULE):
            notes.setdefault(ASSUMED)
        if (form := files.form(local)) not in known:
            examples, assumptions = read_files({"data": [files.evaluate]}, form)
            known[form] = examples["data"][0]
            notes |= dict.fromkeys(assumptions)
        results.append(evaluation(str(path), made, local, known[form]))
    return results, list(notes)


def evaluation(name: str, model: GlobalModel, local: LocalModels, examples: Examples) -> Evaluation:
    """Measure `model`, called `name`, on examples; `local` has its input shape and classes."""
    labels, network = examples.targets.numpy(), network_of(model.model, local.shape, local.classes)
    scores = finite_scores(name, model, network, examples)
    found, matrix = scored(scores, labels), confusion(scores, labels)
    held = matrix.sum(axis=1)
    return Evaluation(
        name,
        found["accuracy"],
        found["nll"] if model.gate is None and model.ties is None else None,
        held,
        matrix.diagonal() / np.maximum(held, 1),
        model.trained(network.buffers),
        model.networks,
    )


def finite_scores(
    name: str, model: GlobalModel, network: Network, examples: Examples
) -> np.ndarray:
    """Compute a model's class scores (N, K) for `examples`; `name` is the model's name in errors.

    Raises:
        FedreproError: a score is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        scores = class_scores(network, model, examples, None).numpy()
    if lost := int((~np.isfinite(scores)).any(axis=1).sum()):
        raise FedreproError(
            f"{name} gives scores that are not finite to {lost:,} of {len(scores):,} examples: "
            "look for weights or inputs that are too large (--divide), or a division by zero"
        )
    return scores


def metrics_on(made: MethodOutput, split: EvaluationSplit, draws: Draws) -> dict[str, float]:
    """Measure `made` (a model, or a list of one per client) on a split; return {metric: value}."""
    assert made is not None
    if isinstance(made, GlobalModel):
        values = measure(made, {"test": split}, draws)
    else:
        values, _ = measure_alone(made, {"test": split}, draws)
    return {number.metric: number.value for number in values}


def _model(path: Path, files: ModelFiles, words: Sequence[str]) -> tuple[GlobalModel, LocalModels]:
    """Read a global model of one or more networks; return (it, its networks as local models)."""
    state, names = read_state(path), [str(path)]
    mixed = isinstance(state, Mapping) and set(state) >= MIXTURE
    if not mixed:
        local = files.read([state], names, words)
        return GlobalModel(local.model, local.tensors, widths=local.widths), local
    several = list(state["state_dicts"])
    names = [f"{path}, network {place}" for place in range(len(several))]
    local = files.read(several, names, words)
    weights = np.asarray(state["weights"], np.float64)
    if weights.shape != (len(several), local.classes) or not np.isfinite(weights).all():
        raise FedreproError(
            f"{path} has weights {weights.shape} for {len(several)} networks of {local.classes} "
            "classes, or some that are not finite: write it by `fedrepro combine`"
        )
    gate = {name: np.asarray(value, np.float32) for name, value in state.get("gate", {}).items()}
    ties = RngKey(0, 0) if state.get("vote") else None
    made = GlobalModel(
        local.model, local.tensors, weights, ties=ties, gate=gate or None, widths=local.widths
    )
    return made, local
