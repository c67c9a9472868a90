"""Stage federate: run methods that exchange models with a server in rounds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import GlobalModel
from fedrepro.core.metrics import Number
from fedrepro.core.rng import RngKey
from fedrepro.core.serialization import save_state, to_plain
from fedrepro.core.spec import Spec
from fedrepro.numbers.model_evaluation import ALONG, Draws, communication, measure, measure_alone
from fedrepro.planning.jobs import Job, Scenario
from fedrepro.stages.rounds_job import (
    Evaluator,
    FinishedTrial,
    Progress,
    Splits,
    StateEvaluation,
    run_rounds,
)
from fedrepro.stages.trial_data import TrialData


def run(job: Job, device: str = "cpu") -> None:
    """Run a method with a server, such as FedAvg, in every trial of a job, and write its results.

    Written are metrics and, to `global.pt`, the final global models, without the state of server or
    clients.
    """

    def keep(finished: list[FinishedTrial], source: Mapping[str, Any]) -> None:
        models = {result.key: result.kept for result in finished}
        save_state(Path(job.out, "global.pt"), {"provenance": source, "trials": models})

    def evaluator(own: Scenario, method: Spec, data: TrialData) -> GlobalEvaluator:
        return GlobalEvaluator(method, data.clients(own, method))

    run_rounds(job, device, evaluator, keep)


class GlobalEvaluator(Evaluator):
    """Evaluates a method with a server in one trial: its global model, or its model per client."""

    def models(self, state: dict[str, Any]) -> list[GlobalModel]:
        made = self.made.model(state, self.clients)
        return [made] if isinstance(made, GlobalModel) else list(made)

    def evaluate_round(self, state: dict[str, Any], splits: Splits, rng: RngKey) -> StateEvaluation:
        models = self.models(state)
        numbers = _measured(models, splits, Draws(rng, ALONG))
        accuracies = [number for number in numbers if number.metric == "accuracy"]
        return StateEvaluation(accuracies, all(model.finite for model in models))

    def evaluate_final(self, run: Progress, splits: Splits, rng: RngKey) -> StateEvaluation:
        """Return accuracy, size, diagnostics, communication and the models after the last round."""
        models = self.models(run.state)
        numbers = _measured(models, splits, Draws(rng.at(round=run.done)))
        numbers += communication(run.exchanges, run.traffic)
        names, weights = models[0].tensors, models[0].weights
        tensors = {name: np.concatenate([m.tensors[name] for m in models]) for name in names}
        kept = {"tensors": tensors, **({} if weights is None else {"weights": weights})}
        return StateEvaluation(numbers, kept=to_plain(kept))


def _measured(models: list[GlobalModel], splits: Splits, draws: Draws) -> list[Number]:
    """Return metrics of one model on all `splits`, or mean and worst of models per client."""
    if len(models) == 1:
        return measure(models[0], splits, draws)
    numbers: list[Number] = []
    for name, split in splits.items():
        found, _ = measure_alone(models, {"test": split}, draws)
        numbers += [number._replace(split=name) for number in found if number.split]
    return numbers + [number for number in found if not number.split]
