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
from fedrepro.stages.rounds_job import FinishedTrial, run_rounds
from fedrepro.stages.trial_data import TrialData
from fedrepro.stages.trial_rounds import Evaluator, Progress, Splits, StateEvaluation


def run(job: Job, device: str = "cpu") -> None:
    """Run a method with a server, such as FedAvg, in every trial of a job, and write its results.

    A job is one process of the pipeline. Written are metrics and, to `global.pt`, the final global
    models, without the state of server or clients. A killed job continues from its checkpoints.
    Method and local training may have several settings (parameter values); successive halving then
    stops the worse half early.
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
        """Return accuracy on each of `splits` after a round: the global model's, or clients' mean.

        `state` is the method's state after the round; `rng` draws weights of variational networks.
        """
        models = self.models(state)
        numbers = _measured(models, splits, Draws(rng, ALONG))
        accuracies = [number for number in numbers if number.metric == "accuracy"]
        return StateEvaluation(accuracies, all(model.finite for model in models))

    def evaluate_final(self, run: Progress, splits: Splits, rng: RngKey) -> StateEvaluation:
        """Return accuracy, size, diagnostics, communication and the models after the last round.

        `run` has the method's last state and its traffic; metrics are measured on `splits`. The
        models' tensors and mixture weights are in the result's `kept`, to be written to a file.
        """
        models = self.models(run.state)
        numbers = _measured(models, splits, Draws(rng.at(round=run.done)))
        numbers += communication(run.exchanges, run.traffic)
        first = models[0]
        tensors = dict(first.tensors)
        if len(models) > 1:
            tensors = {name: np.concatenate([m.tensors[name] for m in models]) for name in tensors}
        weights = {} if first.weights is None else {"weights": first.weights}
        return StateEvaluation(numbers, kept=to_plain({"tensors": tensors, **weights}))


def _measured(models: list[GlobalModel], splits: Splits, draws: Draws) -> list[Number]:
    """Return metrics of one model on all `splits`, or mean and worst of models per client."""
    if len(models) == 1:
        return measure(models[0], splits, draws)
    each = {
        name: measure_alone(models, {"test": split}, draws)[0] for name, split in splits.items()
    }
    last = next(reversed(each))
    return [
        number._replace(split=name if number.split else number.split)
        for name, numbers in each.items()
        for number in numbers
        if number.split or name == last
    ]
