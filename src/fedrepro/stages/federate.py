"""Stage federate: methods in rounds with a server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedrepro.api import Federated, GlobalModel, Traffic
from fedrepro.core.artifacts import save_state
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Spec
from fedrepro.core.states import packed
from fedrepro.federation.clients import Clients
from fedrepro.numbers.measure import ALONG, Draws, communication, measure
from fedrepro.planning.jobs import Job, Scenario
from fedrepro.stages.common import TrialData
from fedrepro.stages.progress import Progress
from fedrepro.stages.rounds import End, RoundLook, Splits
from fedrepro.stages.rounds_job import run_rounds, write_metrics


def run(job: Job, device: str = "cpu") -> None:
    """Run every trial to its last round; a killed run goes on from its last checkpoint.

    In a race method and training may stand for several settings, which it lets stop. `global.pt`
    is what predicts at the end, without what the server or a client remembers beside it.
    """
    made = run_rounds(job, device, judge_of)
    models = {result.key: result.kept for result in made.finished if result.kept is not None}
    save_state(Path(job.out, "global.pt"), {"provenance": made.source, "trials": models})
    write_metrics(job, made)


def judge_of(scenario: Scenario, method: Spec, data: TrialData) -> GlobalJudge:
    """What measures a method at the clients of a trial."""
    return GlobalJudge(method, data.clients(scenario, method))


@dataclass(frozen=True)
class GlobalJudge:
    """Measures the one model that the server reads off a state."""

    method: Spec
    clients: Clients

    @cached_property
    def made(self) -> Federated:
        """The method with its parameters."""
        made: Federated = self.method.component.fn(**self.method.values)
        return made

    def model(self, state: dict[str, Any]) -> GlobalModel:
        """What predicts at this state."""
        return self.made.model(state, self.clients)

    def along(self, state: dict[str, Any], splits: Splits, place: Rng) -> RoundLook:
        """Its accuracy."""
        model = self.model(state)
        numbers = measure(model, splits, Draws(place, ALONG))
        accuracies = [number for number in numbers if number.metric == "accuracy"]
        return RoundLook(accuracies, model.finite)

    deciding = along

    def at_end(self, run: Progress, splits: Splits, place: Rng) -> End:
        """Accuracy, size, what it says of itself, and messages; what predicts is kept."""
        model = self.model(run.state)
        numbers = measure(model, splits, Draws(place.at(round=run.done)))
        numbers += communication(run.exchanges, run.traffic)
        return End(numbers, _kept(model))

    def sent(self) -> Traffic:
        """What the clients counted."""
        return self.clients.ledger.traffic


def _kept(model: GlobalModel) -> Any:
    """What predicts, as plain data: tensors (m, *shape), and the weights of a mixture.

    Neither what the server nor what a client remembers beside it: a checkpoint has all of that.
    """
    weights = {} if model.weights is None else {"weights": model.weights}
    return packed({"tensors": dict(model.tensors), **weights})
