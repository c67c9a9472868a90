"""One trial of a method in rounds: its progress, checkpoints, and evaluations after rounds."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import ClientInfo, Report, Traffic
from fedrepro.core.errors import FedreproError
from fedrepro.core.evaluation_schedule import EvaluationSchedule
from fedrepro.core.metrics import OF_ROUNDS, Number, require_metric
from fedrepro.core.rng import RngKey
from fedrepro.core.selection_rules import SPLIT, rungs
from fedrepro.core.serialization import from_plain, load_state, normalized, save_state, to_plain
from fedrepro.core.spec import Spec
from fedrepro.numbers.model_evaluation import EvaluationSplit
from fedrepro.stages.job_log import log
from fedrepro.training.federation.clients import Clients

REACHED, DIVERGED = "reached", "diverged"  # why there are no further rounds
SECONDS = 1.0  # between two lines on a trial's progress
MOST_IDLE = 20  # rounds in a row without a finite update that end a run

Splits = Mapping[str, EvaluationSplit]


@dataclass(frozen=True)
class Progress:
    """How far a trial of a method in rounds is: rounds done, the method's state, its metrics.

    recorded: the metrics so far. seconds: of initialisation and all rounds; client_seconds: the
    clients' part of them; each: seconds of single rounds. exchanges, traffic: with the server.
    rejected: number of clients' updates that were not finite. idle: for how many rounds in a row
    every update was rejected. ended: why the trial ended: `reached` (its target accuracy),
    `diverged`, or a sentence; empty while it goes on. target: the progress when the target accuracy
    was reached, if successive halving let the trial go on.
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
        """Return seconds by name: of the whole trial, of clients, of the server, of each round."""
        return {
            "seconds": self.seconds,
            "client_seconds": self.client_seconds,
            "server_seconds": self.seconds - self.client_seconds,
            "round_seconds": self.each,
        }

    def accuracy(self, split: str = "test", rung: int | None = None) -> float:
        """Return the last accuracy on a split, or that after the round `rung`; NaN if unknown."""
        values = (
            number.value
            for number in reversed(self.recorded)
            if (number.metric, number.split, number.client) == ("accuracy", split, None)
            and rung in (None, number.round)
        )
        return next(values, math.nan)

    def packed(self) -> dict[str, Any]:
        """Convert this progress to a dict of plain data and tensors, to save as a checkpoint."""
        plain = {
            "state": to_plain(self.state),
            "traffic": vars(self.traffic),
            "target": self.target and self.target.packed(),
            "recorded": [tuple(number) for number in self.recorded],
        }
        return {**vars(self), **plain}

    @staticmethod
    def unpacked(kept: Mapping[str, Any]) -> Progress:
        """Restore a trial's progress from the dict `kept`, which `packed` returned."""
        restored = {
            "state": from_plain(kept["state"]),
            "traffic": Traffic(**kept["traffic"]),
            "target": kept["target"] and Progress.unpacked(kept["target"]),
            "recorded": [Number(*row) for row in kept["recorded"]],
        }
        return Progress(**{**kept, **restored})


class Checkpointer:
    """Writes and reads the checkpoint of one trial: at most once in `seconds`, and at the end.

    path: the file. meaning: a text of all that the run depends on, stored in the file, so that only
    a run with an equal text continues from it.
    """

    def __init__(self, path: Path, meaning: str, seconds: float) -> None:
        self.path, self.meaning, self.seconds = path, meaning, seconds
        self.written = time.perf_counter()

    def load(self) -> Progress | None:
        """Read the trial's progress; None if the file is missing, damaged or of another run."""
        if not self.path.exists():
            return None
        try:
            kept = load_state(self.path)
        except FedreproError as error:
            log(f"{error}; starting this trial again")
            return None
        if kept.pop("meaning") != self.meaning:
            log(f"{self.path} is of other sources, settings or another device; starting again")
            return None
        log(f"going on from round {kept['done']} of {self.path.name}")
        return Progress.unpacked(kept)

    def maybe_save(self, progress: Progress, *, last: bool) -> None:
        """Write a checkpoint if `last`, or if enough time has passed since the previous one."""
        now = time.perf_counter()
        if last or now - self.written >= self.seconds:
            save_state(self.path, {"meaning": self.meaning, **progress.packed()})
            self.written = now


@dataclass(frozen=True)
class StateEvaluation:
    """The measurements of a method's state after a round, or at the end of a trial.

    values: metrics. finite: whether all weights of models are finite. kept: data to write to files.
    """

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
        """Return metrics of the method's `state` after a round, on the examples `splits`."""

    def evaluate_rung(self, state: dict[str, Any], splits: Splits, rng: RngKey) -> StateEvaluation:
        """Return the accuracy after a round by which successive halving compares settings."""
        return self.evaluate_round(state, splits, rng)

    @abstractmethod
    def evaluate_final(self, run: Progress, splits: Splits, rng: RngKey) -> StateEvaluation:
        """Return metrics on `splits` after the last round, costs of the `run`, and data to keep."""


@dataclass(frozen=True)
class TrialRounds:
    """Runs a method in rounds in one trial, and evaluates it after some of the rounds.

    info: what the method may know of clients. measuring: after which rounds to evaluate. followed:
    the examples to evaluate on, by split.
    """

    method: Spec
    evaluator: Evaluator
    info: ClientInfo
    measuring: EvaluationSchedule
    followed: Splits

    def run(
        self,
        rng: RngKey,
        keeper: Checkpointer,
        before: Progress | None = None,
        rung: int | None = None,
    ) -> Progress:
        """Run one trial to its last round, and return its progress.

        It begins at the progress `before`, else at the checkpoint that `keeper` finds, else at the
        first round. `rng` is the trial's random key. `rung` is a round at which to pause, where
        successive halving compares parameter values. A trial that reached its target accuracy goes
        on to that round, as test accuracy must not influence the comparison.
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
        """Call the method's `init`, and return the trial's progress before the first round."""
        clients, ledger = self.evaluator.clients, self.evaluator.clients.ledger
        ledger.begin()
        began = time.perf_counter()
        state = self._settled(self.evaluator.made.init(clients, self.info, rng), "init")
        return Progress(
            0,
            state,
            seconds=time.perf_counter() - began,
            client_seconds=ledger.seconds,
            exchanges=int(ledger.traffic != Traffic()),
            traffic=ledger.traffic,
            rejected=ledger.rejected,
        )

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
        progress = Progress(
            done,
            self._settled(new, "round", before.state),
            before.recorded,
            before.seconds + seconds,
            before.client_seconds + ledger.seconds,
            [*before.each, seconds],
            before.exchanges + report.exchanges,
            before.traffic + (report.traffic or evaluator.sent()),
            before.rejected + ledger.rejected,
            before.idle + 1 if ledger.all_rejected else 0,
            before.ended,
            reached,
        )
        if progress.idle >= MOST_IDLE:
            why = f"no finite update of any client in {MOST_IDLE} rounds in a row"
            last = progress if reached else self._measured(progress, report, rng)
            return replace(last, ended=why)
        if reached is None and self.measuring.is_due(done, evaluator.made.rounds):
            return self._measured(progress, report, rng)
        if done not in rungs(self.measuring.race):
            return progress
        # evaluate only the accuracy that decides the race
        deciding = {SPLIT: self.followed[SPLIT]}
        look = evaluator.evaluate_rung(progress.state, deciding, rng.at(round=done))
        values = [number._replace(round=done) for number in look.values]
        ended = progress.ended or ("" if look.finite else DIVERGED)
        return replace(progress, recorded=progress.recorded + values, ended=ended)

    def _settled(
        self, state: Any, step: str, before: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        if not isinstance(state, Mapping):
            raise self._wrong(step, state, "a dict")
        return normalized(state, before)

    def _wrong(self, step: str, returned: object, due: str) -> FedreproError:
        what = "nothing" if returned is None else f"a {type(returned).__name__}"
        return FedreproError(
            f"`{step}` of method '{self.method.name}' returns {what}: let it return {due}"
        )

    def _measured(self, progress: Progress, report: Report, rng: RngKey) -> Progress:
        """Evaluate the method's state; return `progress` with its metrics and those in `report`."""
        for name in (*report.metrics, *report.clients):
            require_metric(name, self.method)
        done, ledger, sent = progress.done, self.evaluator.clients.ledger, progress.traffic
        look = self.evaluator.evaluate_round(progress.state, self.followed, rng.at(round=done))
        reported = [Number(name, value) for name, value in sorted(report.metrics.items())]
        account = (
            ledger.train_loss, ledger.selected, progress.rejected, sent.bytes_up, sent.bytes_down
        )  # fmt: skip
        of_harness = [Number(name, float(v)) for name, v in zip(OF_ROUNDS, account, strict=True)]
        of_clients = [
            Number(name, float(values[client]), client=client)
            for name, values in sorted(report.clients.items())
            for client in np.flatnonzero(~np.isnan(values)).tolist()
        ]
        numbers = [*look.values, *reported, *of_harness, *of_clients]
        recorded = progress.recorded + [number._replace(round=done) for number in numbers]
        progress = replace(progress, recorded=recorded)
        until = self.measuring.until
        ended = REACHED if until is not None and progress.accuracy() >= until else ""
        return replace(progress, ended=ended if look.finite else DIVERGED)
