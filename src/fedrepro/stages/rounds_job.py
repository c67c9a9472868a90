"""The job of a method in rounds: its settings in each of its trials, checkpoints and tables."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.core.artifacts import read_source, write_table
from fedrepro.core.evaluation_schedule import EvaluationSchedule
from fedrepro.core.metrics import MetricRow, Number, Table
from fedrepro.core.provenance import origin, provenance, resources_used
from fedrepro.core.rng import RngKey
from fedrepro.core.selection_rules import SPLIT, require_fits, successive_halving
from fedrepro.core.spec import Spec
from fedrepro.core.tokens import setting_token
from fedrepro.planning.jobs import METRICS, TIMINGS, Job
from fedrepro.planning.runs import Scenario
from fedrepro.stages.devices import device_of
from fedrepro.stages.job_log import Failures, log
from fedrepro.stages.trial_data import TrialData, members_of, prepared_for
from fedrepro.stages.trial_rounds import (
    Checkpointer,
    Evaluator,
    Progress,
    Splits,
    TrialRounds,
    to_target,
)

CHECKPOINTS = "checkpoints"  # their folder, in that of the job
CHECKPOINT_SECONDS = "FEDREPRO_CHECKPOINT_SECONDS"  # environment variable: time between two


EvaluatorOf = Callable[[Scenario, Spec, TrialData], Evaluator]


@dataclass(frozen=True)
class FinishedJob:
    """The result of a job: each setting in each trial, and their provenance."""

    finished: Sequence[FinishedTrial]
    source: Mapping[str, Any]


def run_rounds(inputs: Job, device: str, judge_of: EvaluatorOf) -> FinishedJob:
    """Run every trial to its last round, and write timings.

    A killed run goes on from its last checkpoint, which stays until `write_metrics`.
    """
    scenario, method, trials = inputs.scenario, inputs.specs["method"], inputs.trials
    assert trials is not None
    partition, measuring = Path(inputs.members), inputs.every or EvaluationSchedule()
    if not measuring.race:  # only in a race they have several settings
        scenario.training.single()
        method.single()
    prepared = prepared_for(scenario, Path(inputs.data), partition)
    where, seconds = device_of(device), float(os.environ.get(CHECKPOINT_SECONDS, "20"))
    specs = (*scenario.specs, method)
    follow = tuple(dict.fromkeys((*inputs.follow, *([SPLIT] if measuring.race else []))))
    meaning = checkpoint_fingerprint(specs, prepared.checksum, measuring, follow, where)
    measured = dict.fromkeys((*method.component.meta["evaluate"], *inputs.evaluate))

    # settings that race take turns at all trials, others finish one after another
    @lru_cache(maxsize=len(trials) if measuring.race else 1)
    def data_of(trial: int) -> TrialData:
        members = members_of(scenario, partition, trial)
        return TrialData(prepared, members, RngKey(inputs.seed, trial), where)

    job = RoundsJob(
        scenario,
        data_of,
        judge_of,
        measuring,
        follow,
        tuple(measured),
        lambda name: Checkpointer(Path(inputs.out, CHECKPOINTS, name), meaning, seconds),
    )
    contenders = setting_runs(scenario, method, measuring.race)
    finished = job.run(contenders, list(trials))
    source = provenance(
        inputs.seed,
        specs=specs,
        device=where,
        inputs=[prepared.info["provenance"], read_source(partition)],
        path=f"{scenario.token}/{method.token}",
        data=prepared.checksum,
        stand_in=prepared.stand_in,
        **job.failures.diagnostics,
    )
    columns = {
        "trial": [result.trial for result in finished],
        "method": [result.contender.name for result in finished],
        **{name: [result.times[name] for result in finished] for name in finished[0].times},
    }
    write_table(Path(inputs.out, TIMINGS), columns, "timings", source | resources_used())
    return FinishedJob(finished, source)


def write_metrics(inputs: Job, made: FinishedJob) -> None:
    """Write the last file of a job, and remove its checkpoints."""
    table = Table(inputs.scenario.specs)
    for result in made.finished:
        table.add(result.rows)
    write_table(Path(inputs.out, METRICS), table.arrow(), "metrics", made.source)
    shutil.rmtree(Path(inputs.out, CHECKPOINTS), ignore_errors=True)


@dataclass(frozen=True)
class SettingRun:
    """One of the settings of a job; number: its position among them, None if it is alone.

    name: the column `setting` of its rows.
    """

    number: int | None
    training: Spec
    method: Spec
    name: str

    def checkpoint(self, trial: int) -> str:
        """Return the name of its checkpoint."""
        prefix = "" if self.number is None else f"setting-{self.number}-"
        return f"{prefix}trial-{trial}.pt"


def setting_runs(scenario: Scenario, method: Spec, race: int) -> list[SettingRun]:
    """List the settings of a job in the order of its tokens, methods varying slowest.

    Raises:
        FedreproError: a race takes more rounds than they run for.
    """
    swept = scenario.training.swept
    pairs = [
        (setting, training)
        for setting in method.expand()
        for training in scenario.training.expand()
    ]
    contenders = []
    for at, (setting, training) in enumerate(pairs):
        name = setting_token(setting, [(key, training[key]) for key in swept])
        contenders.append(SettingRun(at if len(pairs) > 1 else None, training, setting, name))
        require_fits(
            race, setting.component.fn(**setting.values).rounds, f"method '{setting.token}'"
        )
    return contenders


@dataclass(frozen=True)
class FinishedTrial:
    """The result of a setting in a trial.

    kept: plain data of its last state; None where a race stopped it.
    """

    trial: int
    contender: SettingRun
    times: Mapping[str, Any]
    rows: Sequence[MetricRow]
    kept: Any

    @property
    def key(self) -> str:
        """Return the key of its state among those of the job."""
        alone = self.contender.number is None
        return str(self.trial) if alone else f"{self.trial};{self.contender.name}"


@dataclass(frozen=True)
class RoundsJob:
    """The runs of one job: each of its settings in each trial, side by side if they race."""

    scenario: Scenario
    data: Callable[[int], TrialData]
    evaluator: EvaluatorOf
    measuring: EvaluationSchedule
    follow: Sequence[str]
    evaluate: Sequence[str]
    keeper: Callable[[str], Checkpointer]
    failures: Failures = field(default_factory=Failures)

    def run(self, contenders: Sequence[SettingRun], trials: Sequence[int]) -> list[FinishedTrial]:
        """Run every setting to its end, unless a race stops it; trial by trial, settings in order.

        A setting that fails with an error of its own stops, and has a row of metric `failed`.
        """
        known: dict[tuple[int, int], Progress] = {}
        failed: set[tuple[int, int]] = set()

        def score(at: int, rung: int) -> float:
            for trial in trials:
                runner = self._runner(contenders[at], trial)
                try:
                    known[at, trial] = runner.run(known.get((at, trial)), rung)
                except Exception as error:
                    self.failures.note(contenders[at].name, trial, error)
                    failed.add((at, trial))
            if any((at, trial) in failed for trial in trials):
                return math.nan
            return float(np.mean([known[at, trial].accuracy_at(rung) for trial in trials]))

        stopped = successive_halving(len(contenders), self.measuring.race, score)
        for at, rung in stopped.items():
            log(f"round {rung}: {contenders[at].name} stops")

        def finish(at: int, trial: int) -> FinishedTrial:
            runner = self._runner(contenders[at], trial)
            if (at, trial) not in failed:
                try:
                    return runner.finish(known.get((at, trial)), stopped.get(at))
                except Exception as error:
                    self.failures.note(contenders[at].name, trial, error)
            return runner.failed(stopped.get(at))

        return [finish(at, trial) for trial in trials for at in range(len(contenders))]

    def _runner(self, contender: SettingRun, trial: int) -> TrialRunner:
        """Return a setting at the clients of a trial."""
        scenario = replace(self.scenario, training=contender.training)
        trial_data = self.data(trial)
        splits = trial_data.splits((*self.evaluate, *self.follow))
        rounds = TrialRounds(
            contender.method,
            self.evaluator(scenario, contender.method, trial_data),
            trial_data.info(contender.method, scenario.training),
            self.measuring,
            {name: splits[name] for name in ("test", *self.follow)},
        )
        keeper = self.keeper(contender.checkpoint(trial))
        return TrialRunner(contender, rounds, trial_data.rng, keeper, splits)


@dataclass(frozen=True)
class TrialRunner:
    """A setting in a trial with its checkpoints, and all the splits that it is measured on."""

    contender: SettingRun
    rounds: TrialRounds
    rng: RngKey
    keeper: Checkpointer
    splits: Splits

    def run(self, before: Progress | None, rung: int | None) -> Progress:
        """Run further, up to a rung or to the end."""
        return self.rounds.run(self.rng, self.keeper, before, rung)

    def finish(self, before: Progress | None, stopped: int | None) -> FinishedTrial:
        """Run to the end, unless a race stopped it, and measure there."""
        run = before if before and stopped else self.run(before, None)
        trial, end, judge = self.rng.trial, run.outcome, self.rounds.evaluator
        came = judge.evaluate_final(end, self.splits, self.rng)
        numbers = to_target(run, self.rounds.measuring.until)
        numbers += [Number("stopped_at", float(stopped))] if stopped else []
        rows = [self._row(number) for number in (*run.recorded, *came.values, *numbers)]
        why = f", {end.ended}" if end.ended else ""
        name = "" if self.contender.number is None else f", {self.contender.name}"
        log(f"trial {trial}{name}: {end.done} rounds{why}, {run.seconds:.1f} s")
        return FinishedTrial(trial, self.contender, run.times, rows, None if stopped else came.kept)

    def failed(self, stopped: int | None) -> FinishedTrial:
        """Return a result that says only that it failed."""
        numbers = [Number("failed", 1.0)]
        numbers += [Number("stopped_at", float(stopped))] if stopped else []
        rows = [self._row(number) for number in numbers]
        return FinishedTrial(self.rng.trial, self.contender, Progress(0, {}).times, rows, None)

    def _row(self, number: Number) -> MetricRow:
        contender = self.contender
        return MetricRow(self.rng.trial, contender.method, *number, contender.training)


def checkpoint_fingerprint(
    specs: Sequence[Spec],
    data: str,
    measuring: EvaluationSchedule,
    follow: Sequence[str],
    device: str,
) -> str:
    """Return everything that the rounds of a run depend on; a checkpoint must have this text.

    The machine is left out: a job that is moved to another one goes on there.
    """
    source = origin(device)
    parts = [spec.resolved for spec in specs] + [f"measured~{measuring}", *follow, data]
    parts += [source["digest"], source["device"], json.dumps(source["versions"], sort_keys=True)]
    return ";".join(parts)
