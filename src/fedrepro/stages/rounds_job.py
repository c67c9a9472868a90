"""Run a job of a method in rounds: all parameter values, all trials, with checkpoints."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedrepro.api import ClientInfo, Report, Traffic
from fedrepro.core.component_notation import setting_token
from fedrepro.core.errors import FedreproError
from fedrepro.core.evaluation_schedule import (
    SPLIT,
    EvaluationSchedule,
    require_fits,
    rounds_to_target,
    rungs,
    successive_halving,
)
from fedrepro.core.metrics import OF_ROUNDS, MetricRow, Number, Table, require_metric
from fedrepro.core.provenance import origin
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.core.state_and_model_files import (
    from_plain,
    load_state,
    normalized,
    save_state,
    to_plain,
)
from fedrepro.numbers.model_evaluation import EvaluationSplit
from fedrepro.planning.jobs import Job, Scenario
from fedrepro.stages.job_log_and_gpu_lock import Failures, log, write_measured
from fedrepro.stages.trial_data import ScenarioData, TrialData
from fedrepro.training.federation.clients import Clients

CHECKPOINTS = "checkpoints"  # name of their folder in the job's folder
CHECKPOINT_SECONDS = "FEDREPRO_CHECKPOINT_SECONDS"  # environment variable
REACHED, DIVERGED = "reached", "diverged"  # why there are no further rounds
SECONDS = 1.0  # between two lines on a trial's progress
MOST_IDLE = 20  # rounds in a row without a finite update that end a run

Splits = Mapping[str, EvaluationSplit]


@dataclass(frozen=True)
class Progress:
    """How far a trial of a method in rounds is: rounds done, the method's state, its metrics.

    seconds: of initialisation and all rounds. client_seconds: the clients' part of it. each:
    seconds of every round. rejected: number of clients' updates that were not finite. idle: how
    many rounds up to now had such updates alone. ended: why the trial ended: `reached` (its target
    accuracy), `diverged`, or a sentence. target: the progress when the target was reached, if
    successive halving let the trial go on.
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

    `meaning` is a text of all that the run depends on; a run with another text starts again.
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
            save_state(self.path, {"meaning": self.meaning, **progress.packed()})
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
        """Return metrics of the method's `state` after a round, on the examples `splits`."""

    @abstractmethod
    def evaluate_final(self, run: Progress, splits: Splits, rng: RngKey) -> StateEvaluation:
        """Return metrics on `splits` after the last round, costs of the `run`, and data to keep."""


@dataclass(frozen=True)
class TrialRounds:
    """Runs a method in rounds in one trial, and evaluates it after some of the rounds."""

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
        """Run one trial from `before`, a checkpoint or the first round, to `rung` or the last.

        A trial that reached its target accuracy goes on to the rung where settings are compared, as
        test accuracy must not influence the comparison.
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
        return Progress(0, state, [], seconds, ledger.seconds, [], *counts)

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
            client_seconds=before.client_seconds + ledger.seconds,
            each=[*before.each, seconds],
            exchanges=before.exchanges + report.exchanges,
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
        if done not in rungs(self.measuring.race):
            return progress
        # evaluate only the accuracy that decides the race
        deciding = {SPLIT: self.followed[SPLIT]}
        look = evaluator.evaluate_round(progress.state, deciding, rng.at(round=done))
        ended = progress.ended or ("" if look.finite else DIVERGED)
        return _recorded(progress, look.values, ended)

    def _settled(self, state: Any, step: str, before: Any = None) -> dict[str, Any]:
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
        counts = (progress.rejected, sent.bytes_up, sent.bytes_down)
        account = zip(OF_ROUNDS, (ledger.train_loss, ledger.selected, *counts), strict=True)
        reported = [*sorted(report.metrics.items()), *((k, float(v)) for k, v in account)]
        of_clients = [
            Number(name, float(values[client]), client=client)
            for name, values in sorted(report.clients.items())
            for client in np.flatnonzero(~np.isnan(values)).tolist()
        ]
        numbers = [*look.values, *(Number(*pair) for pair in reported), *of_clients]
        progress = _recorded(progress, numbers, "" if look.finite else DIVERGED)
        until = self.measuring.until
        if look.finite and until is not None and progress.accuracy() >= until:
            return replace(progress, ended=REACHED)
        return progress


def _recorded(progress: Progress, numbers: Sequence[Number], ended: str) -> Progress:
    added = [number._replace(round=progress.done) for number in numbers]
    return replace(progress, recorded=progress.recorded + added, ended=ended)


# ------------------------------------------------------------------------------------- the job


class SettingRun(NamedTuple):
    """A choice of parameter values in a job; `number` is its index, or None for the only choice."""

    number: int | None
    training: Spec
    method: Spec
    name: str


@dataclass(frozen=True)
class FinishedTrial:
    """The measurements of one setting in one trial; `kept` is data to write, such as models."""

    trial: int
    setting: SettingRun
    times: Mapping[str, Any]
    rows: Sequence[MetricRow]
    kept: Any = None

    @property
    def key(self) -> str:
        return str(self.trial) + ("" if self.setting.number is None else f";{self.setting.name}")


def run_rounds(
    job: Job,
    device: str,
    evaluator_of: Callable[[Scenario, Spec, TrialData], Evaluator],
    keep: Callable[[list[FinishedTrial], Mapping[str, Any]], None],
) -> None:
    """Run a method in rounds in every trial of a job, and write tables of times and metrics.

    `evaluator_of` builds the evaluator of a trial; `keep` writes models at the end. Parameter
    values with which the method's code raises an error stop, and have the metric `failed`. A killed
    job continues from its checkpoints.
    """
    scenario, method, trials = job.scenario, job.specs["method"], job.trials
    assert trials is not None
    measuring = job.every or EvaluationSchedule()
    if not measuring.race:  # without a race there must be one setting
        scenario.training.single()
        method.single()
    given = ScenarioData.of(job, device)
    seconds = float(os.environ.get(CHECKPOINT_SECONDS, "20"))
    follow = tuple(dict.fromkeys((*job.follow, *([SPLIT] if measuring.race else []))))
    meaning = checkpoint_fingerprint(given, method, measuring, follow)
    measured = tuple(dict.fromkeys((*method.component.meta["evaluate"], *job.evaluate)))
    settings, failures = setting_runs(scenario, method, measuring.race), Failures()
    known: dict[tuple[int, int], Progress] = {}
    failed: set[tuple[int, int]] = set()
    stopped: dict[int, int] = {}  # setting -> the round after which it stopped

    # in a race every setting needs all trials again and again, else trials come one by one
    data_of = lru_cache(maxsize=len(trials) if measuring.race else 1)(given.trial)

    def finished(
        at: int, trial: int, numbers: Sequence[Number], times: Mapping[str, Any], kept: Any = None
    ) -> FinishedTrial:
        setting, left_at = settings[at], stopped.get(at)
        more = [Number("stopped_at", float(left_at))] if left_at else []
        rows = [MetricRow(trial, setting.method, *n, setting.training) for n in (*numbers, *more)]
        return FinishedTrial(trial, setting, times, rows, None if left_at else kept)

    def go_on(at: int, trial: int, rung: int | None) -> FinishedTrial | None:
        """Run parameter values number `at` in a trial up to the round `rung`, and return None.

        Without `rung`, go on to the end and return the measurements. Errors are noted.
        """
        setting, data = settings[at], data_of(trial)
        own = replace(scenario, training=setting.training)
        splits = data.splits((*measured, *follow))
        rounds = TrialRounds(
            setting.method,
            evaluator_of(own, setting.method, data),
            data.info(setting.method, own.training),
            measuring,
            {name: splits[name] for name in ("test", *follow)},
        )
        name = "" if setting.number is None else f"setting-{setting.number}-"
        path = Path(job.out, CHECKPOINTS, f"{name}trial-{trial}.pt")
        try:
            run = known.get((at, trial))
            if run is None or at not in stopped:
                run = rounds.run(data.rng, Checkpointer(path, meaning, seconds), run, rung)
            if rung is not None:
                known[at, trial] = run
                return None
            end = run.target or run  # rounds after the target do not count
            came = rounds.evaluator.evaluate_final(end, splits, data.rng)
            numbers = [*run.recorded, *came.values]
            if measuring.until is not None:
                test = [n for n in run.recorded if (n.metric, n.split) == ("accuracy", "test")]
                after, accuracies = zip(*((n.round, n.value) for n in test), strict=True)
                reached = rounds_to_target(after, accuracies, measuring.until)
                numbers.append(Number("rounds_to_target", reached))
            why = f", {end.ended}" if end.ended else ""
            name = "" if setting.number is None else f", {setting.name}"
            log(f"trial {trial}{name}: {end.done} rounds{why}, {run.seconds:.1f} s")
            return finished(at, trial, numbers, run.times, came.kept)
        except Exception as error:  # a method's code may raise anything
            failures.note(setting.name, trial, error)
            failed.add((at, trial))
        return None

    def score(at: int, rung: int) -> float:
        for trial in trials:
            go_on(at, trial, rung)
        if any((at, trial) in failed for trial in trials):
            return math.nan
        return float(np.mean([known[at, trial].accuracy(SPLIT, rung) for trial in trials]))

    stopped.update(successive_halving(len(settings), measuring.race, score))
    for at, rung in stopped.items():
        log(f"round {rung}: {settings[at].name} stops")
    none = Progress(0, {}).times
    done = [
        ((at, trial) not in failed and go_on(at, trial, None))
        or finished(at, trial, [Number("failed", 1.0)], none)
        for trial in trials
        for at in range(len(settings))
    ]
    path, more = f"{scenario.token}/{method.token}", failures.diagnostics
    source = given.source(path, method, stand_in=given.prepared.stand_in, **more)
    columns: dict[str, list[Any]] = {
        "trial": [result.trial for result in done],
        "method": [result.setting.name for result in done],
        **{name: [result.times[name] for result in done] for name in none},
    }
    table = Table(scenario.specs)
    for result in done:
        table.add(result.rows)
    keep([result for result in done if result.kept is not None], source)
    write_measured(job, columns, table, source)
    shutil.rmtree(Path(job.out, CHECKPOINTS), ignore_errors=True)


def setting_runs(scenario: Scenario, method: Spec, race: int) -> list[SettingRun]:
    """List what a job runs: every combination of parameter values of the method and local training.

    `race` is the number of rounds of successive halving, 0 without.

    Raises:
        FedreproError: successive halving takes more rounds than the method runs.
    """
    pairs = [(own, how) for own in method.expand() for how in scenario.training.expand()]
    found = []
    for at, (setting, training) in enumerate(pairs):
        name = setting_token(setting, [(key, training[key]) for key in scenario.training.swept])
        found.append(SettingRun(at if len(pairs) > 1 else None, training, setting, name))
        rounds = setting.component.fn(**setting.values).rounds
        require_fits(race, rounds, f"method '{setting.token}'")
    return found


def checkpoint_fingerprint(
    given: ScenarioData, method: Spec, measuring: EvaluationSchedule, follow: Sequence[str]
) -> str:
    """Return a text of all that a run depends on, but for the machine, to which a job may move."""
    source, specs = origin(given.device), (*given.scenario.specs, method)
    parts = [*(spec.resolved for spec in specs), f"measured~{measuring}", *follow]
    parts += [given.prepared.checksum, source["digest"], source["device"]]
    return ";".join([*parts, json.dumps(source["versions"], sort_keys=True)])
