"""Stage federate: methods in rounds with a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import GlobalModel
from fedrepro.core.metrics import Number
from fedrepro.core.rng import RngKey
from fedrepro.core.serialization import save_state, to_plain
from fedrepro.numbers.model_evaluation import ALONG, Draws, communication, measure, measure_alone
from fedrepro.planning.jobs import Job
from fedrepro.stages.rounds_job import run_rounds, write_metrics
from fedrepro.stages.trial_rounds import Evaluator, Progress, Splits, StateEvaluation


def run(job: Job, device: str = "cpu") -> None:
    """Run every trial to its last round; a killed run goes on from its last checkpoint.

    In a race method and training may have several settings, and some of them stop. `global.pt` has
    the models that predict at the end, without the state of server or clients.
    """
    made = run_rounds(
        job, device, lambda own, method, data: GlobalEvaluator(method, data.clients(own, method))
    )
    models = {result.key: result.kept for result in made.finished if result.kept is not None}
    save_state(Path(job.out, "global.pt"), {"provenance": made.source, "trials": models})
    write_metrics(job, made)


class GlobalEvaluator(Evaluator):
    """Measures the model of a state: the server's, or that of each client alone."""

    def models(self, state: dict[str, Any]) -> list[GlobalModel]:
        made = self.made.model(state, self.clients)
        return [made] if isinstance(made, GlobalModel) else list(made)

    def evaluate_round(self, state: dict[str, Any], splits: Splits, rng: RngKey) -> StateEvaluation:
        """Measure the accuracy of a state's model, or the mean accuracy of the clients' models."""
        models = self.models(state)
        numbers = _measured(models, splits, Draws(rng, ALONG))
        accuracies = [number for number in numbers if number.metric == "accuracy"]
        return StateEvaluation(accuracies, all(model.finite for model in models))

    def evaluate_final(self, run: Progress, splits: Splits, rng: RngKey) -> StateEvaluation:
        """Measure accuracy, size, diagnostics and messages; keep tensors and weights of models.

        The states of server and clients are left to checkpoints.
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
    """Measure one model on all splits; of several, the mean and the worst on each split."""
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
