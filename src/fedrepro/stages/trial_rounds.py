"""Run a method in rounds in one trial, with checkpoints, and evaluate it on the way."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedrepro.api import ClientInfo, Report, Traffic
from fedrepro.core import checkpoint_and_model_files as checkpoints
from fedrepro.core import evaluation_schedule_and_successive_halving as schedules
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import OF_ROUNDS, Number, require_metric
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.numbers.model_evaluation import Splits
from fedrepro.stages.job_log_results_gpu_lock import log
from fedrepro.training.federation.clients import Clients

REACHED, DIVERGED = "reached", "diverged"  # why there are no further rounds
SECONDS = 1.0  # between two lines on a trial's progress
MOST_IDLE = 20  # rounds in a row without a finite update that end a run


@dataclass(frozen=True)
class Progress:
    """How far a trial of a method in rounds is: rounds done, the method's state, its metrics.

    seconds: of initialisation and all rounds; client_seconds: those of clients. each: seconds of
    each round. exchanges: communication rounds; traffic: messages, bytes. rejected: number of
    clients' updates that were not finite. idle: number of latest rounds in a row with no finite
    update. ended: why the trial ended: `reached` (its target accuracy), `diverged`, or a sentence.
    target: the progress when the target was reached, if the trial went on in successive halving.
    """

    done: int
    state: dict[str, Any]
    recorded: list[Number] = field(default_factory=list)
    seconds: float = 0.0
    client_seconds: float = 0.0
    each: list[float] = field(default_factory=list)
    exchanges: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    rejected: int = 0
    idle: int = 0
    ended: str = ""
    target: Progress | None = None

    @property
    def times(self) -> dict[str, Any]:
        """Return "seconds" of the trial, "client_seconds", "server_seconds", "round_seconds"."""
        of_trial = {"seconds": self.seconds, "client_seconds": self.client_seconds}
        server = self.seconds - self.client_seconds
        return {**of_trial, "server_seconds": server, "round_seconds": self.each}

    def accuracy(self, split: str = "test", rung: int | None = None) -> float:
        """Return the last accuracy on a split, or that after the round `rung`; NaN if unknown."""
        for name, value, of, after, client in reversed(self.recorded):
            if (name, of, client) == ("accuracy", split, None) and rung in (None, after):
                return value
        return math.nan

    def packed(self) -> dict[str, Any]:
        """Convert this progress to a dict of plain data and tensors, to save as a checkpoint."""
        return vars(self) | {
            "state": checkpoints.to_plain(self.state),
            "traffic": {name: int(count) for name, count in vars(self.traffic).items()},
            "target": self.target and self.target.packed(),
            "recorded": [tuple(number) for number in self.recorded],
        }

    @staticmethod
    def unpacked(kept: Mapping[str, Any]) -> Progress:
        """Restore a trial's progress from the dict `kept`, which `packed` returned."""
        restored = {
            "state": checkpoints.from_plain(kept["state"]),
            "traffic": Traffic(**kept["traffic"]),
            "target": kept["target"] and Progress.unpacked(kept["target"]),
            "recorded": [Number(*row) for row in kept["recorded"]],
        }
        return Progress(**{**kept, **restored})


class Checkpointer:
    """A trial's checkpoint in a file, written at most once in `seconds`, and after the last round.

    `meaning` is a text of all that the run depends on, such as its number of rounds. A run with
    another text starts again, even if it only has more rounds.
    """

    def __init__(self, path: Path, meaning: str, seconds: float) -> None:
        self.path, self.meaning, self.seconds = path, meaning, seconds
        self.written = time.perf_counter()

    def load(self) -> Progress | None:
        """Read the trial's progress; None if the file is missing, damaged or of another run."""
        if not self.path.exists():
            return None
        try:
            kept = checkpoints.load_state(self.path)
        except FedreproError as error:
            log(f"{error}; starting this trial again")
        else:
            if kept.pop("meaning") == self.meaning:
                log(f"going on from round {kept['done']} of {self.path.name}")
                return Progress.unpacked(kept)
            log(f"{self.path} is of other sources, settings or another device; starting again")
        return None

    def maybe_save(self, progress: Progress, *, last: bool) -> None:
        """Write a checkpoint if `last`, or if enough time has passed since the previous one."""
        now = time.perf_counter()
        if last or now - self.written >= self.seconds:
            checkpoints.save_state(self.path, {"meaning": self.meaning, **progress.packed()})
            self.written = now


class StateEvaluation(NamedTuple):
    """Metrics of a method's state, whether all weights are finite, and data to write to files."""

    values: list[Number]
    finite: bool = True
    kept: Any = None


@dataclass(frozen=True)
class Evaluator(ABC):
    """Base of classes that evaluate a method in rounds in a trial, with a server or on a graph."""

    method: Spec
    clients: Clients

    @cached_property
    def made(self) -> Any:
        """Return the object of the method with its parameters, which has `init` and `round`."""
        return self.method.component.fn(**self.method.values)

    def sent(self) -> Traffic:
        """Return messages and bytes of the last round, used if the method itself reports none."""
        return self.clients.ledger.traffic

    @abstractmethod
    def evaluate_round(self, state: dict[str, Any], splits: Splits, rng: RngKey) -> StateEvaluation:
        """Return metrics of the method's `state` after a round, on `splits`, {name: examples}."""

    @abstractmethod
    def evaluate_final(self, run: Progress, splits: Splits, rng: RngKey) -> StateEvaluation:
        """Return final metrics on `splits` and costs; the result's `kept` has final networks."""


@dataclass(frozen=True)
class TrialRounds:
    """Runs a trial of a method; evaluates it on `followed` after rounds that `measuring` says."""

    evaluator: Evaluator
    info: ClientInfo
    measuring: schedules.EvaluationSchedule
    followed: Splits

    def run(
        self,
        rng: RngKey,
        keeper: Checkpointer,
        before: Progress | None = None,
        rung: int | None = None,
    ) -> Progress:
        """Run one trial from `before`, else a checkpoint or start, to round `rung`, else the last.

        `keeper` reads and writes checkpoints. `rung` is a round where successive halving compares
        parameter values; with it, a trial goes on even after reaching its target test accuracy.
        """
        progress = before or keeper.load() or self._begun(rng)
        last = rung or self.evaluator.made.rounds
        goes_on = ("", REACHED) if rung else ("",)
        said = time.perf_counter()
        while progress.done < last and progress.ended in goes_on:
            progress = self._next(progress, rng)
            keeper.maybe_save(progress, last=bool(progress.ended) or progress.done == last)
            if time.perf_counter() - said >= SECONDS:
                said = time.perf_counter()
                accuracy = progress.accuracy()
                log(f"trial {rng.trial}: round {progress.done} of {last}, accuracy {accuracy:.4f}")
        return progress

    def _begun(self, rng: RngKey) -> Progress:
        clients, ledger = self.evaluator.clients, self.evaluator.clients.ledger
        ledger.begin()
        began = time.perf_counter()
        state = self._settled(self.evaluator.made.init(clients, self.info, rng), "init")
        seconds, sent = time.perf_counter() - began, ledger.traffic
        counts = int(sent != Traffic()), sent, ledger.rejected
        return Progress(0, state, [], seconds, ledger.spent.seconds, [], *counts)

    def _next(self, before: Progress, rng: RngKey) -> Progress:
        """Run the round after the progress `before`, evaluate if due; return the new progress."""
        evaluator, done = self.evaluator, before.done + 1
        clients, ledger = evaluator.clients, evaluator.clients.ledger
        ledger.begin()
        began = time.perf_counter()
        result = evaluator.made.round(before.state, clients, self.info, rng.at(round=before.done))
        seconds = time.perf_counter() - began
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Report)):
            raise self._wrong("round", result, "a state, which is a dict, and a Report")
        new, report = result
        reached = before.target or (before if before.ended == REACHED else None)
        progress = replace(
            before,
            done=done,
            state=self._settled(new, "round", before.state),
            seconds=before.seconds + seconds,
            client_seconds=before.client_seconds + ledger.spent.seconds,
            each=[*before.each, seconds],
            exchanges=before.exchanges + int(report.exchanges),
            traffic=before.traffic + (report.traffic or evaluator.sent()),
            rejected=before.rejected + ledger.rejected,
            idle=before.idle + 1 if ledger.all_rejected else 0,
            target=reached,
        )
        if progress.idle >= MOST_IDLE:
            why = f"no finite update of any client in {MOST_IDLE} rounds in a row"
            last = progress if reached else self._measured(progress, report, rng)
            return replace(last, ended=why)
        if reached is None and self.measuring.is_due(done, evaluator.made.rounds):
            return self._measured(progress, report, rng)
        if done not in schedules.rungs(self.measuring.race):
            return progress
        # evaluate only the accuracy that decides the race
        deciding = {schedules.SPLIT: self.followed[schedules.SPLIT]}
        look = evaluator.evaluate_round(progress.state, deciding, rng.at(round=done))
        return _recorded(progress, look.values, progress.ended or ("" if look.finite else DIVERGED))

    def _settled(self, state: Any, step: str, before: Any = None) -> dict[str, Any]:
        if not isinstance(state, Mapping):
            raise self._wrong(step, state, "a dict")
        return checkpoints.normalized(state, before)

    def _wrong(self, step: str, returned: object, due: str) -> FedreproError:
        what = "nothing" if returned is None else f"a {type(returned).__name__}"
        method = self.evaluator.method.name
        return FedreproError(f"`{step}` of method '{method}' returns {what}: let it return {due}")

    def _measured(self, progress: Progress, report: Report, rng: RngKey) -> Progress:
        """Evaluate the method's state; return `progress` with its metrics and those in `report`."""
        for name in (*report.metrics, *report.clients):
            require_metric(name, self.evaluator.method)
        done, ledger, sent = progress.done, self.evaluator.clients.ledger, progress.traffic
        look = self.evaluator.evaluate_round(progress.state, self.followed, rng.at(round=done))
        counts = (progress.rejected, sent.bytes_up, sent.bytes_down)
        account = zip(OF_ROUNDS, (ledger.train_loss, ledger.selected, *counts), strict=True)
        # as Python's numbers, since a checkpoint holds no others
        reported = [(k, float(v)) for k, v in (*sorted(report.metrics.items()), *account)]
        numbers = [*look.values, *(Number(*pair) for pair in reported)]
        for name, values in sorted(report.clients.items()):
            present = np.flatnonzero(~np.isnan(values)).tolist()
            numbers += [Number(name, float(values[j]), client=j) for j in present]
        progress = _recorded(progress, numbers, "" if look.finite else DIVERGED)
        until = self.measuring.until
        if look.finite and until is not None and progress.accuracy() >= until:
            return replace(progress, ended=REACHED)
        return progress


def _recorded(progress: Progress, numbers: Sequence[Number], ended: str) -> Progress:
    added = [number._replace(round=progress.done) for number in numbers]
    return replace(progress, recorded=progress.recorded + added, ended=ended)
