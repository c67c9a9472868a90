"""The job of a method in rounds: its settings in each of its trials, checkpoints and tables."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.core.artifacts import write_table
from fedrepro.core.evaluation_schedule import EvaluationSchedule, rounds_to_target
from fedrepro.core.metrics import MetricRow, Number, Table
from fedrepro.core.provenance import origin, resources_used
from fedrepro.core.rng import RngKey
from fedrepro.core.selection_rules import SPLIT, require_fits, successive_halving
from fedrepro.core.spec import Spec
from fedrepro.core.tokens import setting_token
from fedrepro.planning.jobs import METRICS, TIMINGS, Job, Scenario
from fedrepro.stages.devices import device_of
from fedrepro.stages.job_log import Failures, log
from fedrepro.stages.trial_data import ScenarioData, TrialData
from fedrepro.stages.trial_rounds import Checkpointer, Evaluator, Progress, Splits, TrialRounds

CHECKPOINTS = "checkpoints"  # their folder, in that of the job
CHECKPOINT_SECONDS = "FEDREPRO_CHECKPOINT_SECONDS"  # environment variable: time between two

EvaluatorOf = Callable[[Scenario, Spec, TrialData], Evaluator]


@dataclass(frozen=True)
class SettingRun:
    """A setting of method and training in a job; number: its position, None if it is the only one.

    name: the column `setting` of its rows.
    """

    number: int | None
    training: Spec
    method: Spec
    name: str


@dataclass(frozen=True)
class FinishedTrial:
    """The measurements of one setting in one trial.

    key: of its state among those of the job; kept: plain data of its last state; None where a race
    stopped it.
    """

    trial: int
    setting: SettingRun
    times: Mapping[str, Any]
    rows: Sequence[MetricRow]
    kept: Any

    @property
    def key(self) -> str:
        return str(self.trial) + ("" if self.setting.number is None else f";{self.setting.name}")


@dataclass(frozen=True)
class FinishedJob:
    """The measurements of a job, by setting and trial, with their provenance."""

    finished: Sequence[FinishedTrial]
    source: Mapping[str, Any]


def run_rounds(inputs: Job, device: str, evaluator_of: EvaluatorOf) -> FinishedJob:
    """Run every trial to its last round, and write timings.

    A setting that fails with an error of its own stops, and has a row of metric `failed`. A killed
    run goes on from its last checkpoint, which stays until `write_metrics`.
    """
    scenario, method, trials = inputs.scenario, inputs.specs["method"], inputs.trials
    assert trials is not None
    measuring = inputs.every or EvaluationSchedule()
    if not measuring.race:  # only in a race they have several settings
        scenario.training.single()
        method.single()
    given, seconds = (
        ScenarioData.of(inputs, device_of(device)),
        float(os.environ.get(CHECKPOINT_SECONDS, "20")),
    )
    follow = tuple(dict.fromkeys((*inputs.follow, *([SPLIT] if measuring.race else []))))
    meaning = checkpoint_fingerprint(given, method, measuring, follow)
    measured = tuple(dict.fromkeys((*method.component.meta["evaluate"], *inputs.evaluate)))
    settings, failures = setting_runs(scenario, method, measuring.race), Failures()
    known: dict[tuple[int, int], Progress] = {}
    failed: set[tuple[int, int]] = set()

    # settings that race take turns at all trials, others finish one after another
    data_of = lru_cache(maxsize=len(trials) if measuring.race else 1)(given.trial)

    def rows(
        at: int, trial: int, numbers: Sequence[Number], stopped: int | None
    ) -> list[MetricRow]:
        setting = settings[at]
        more = [Number("stopped_at", float(stopped))] if stopped else []
        return [MetricRow(trial, setting.method, *n, setting.training) for n in (*numbers, *more)]

    def finished_trial(
        rounds: TrialRounds,
        run: Progress,
        splits: Splits,
        at: int,
        rng: RngKey,
        stopped: int | None,
    ) -> FinishedTrial:
        """Measure a setting after its last round, or where successive halving stopped it."""
        setting, end = settings[at], run.target or run  # nothing after the target counts
        came = rounds.evaluator.evaluate_final(end, splits, rng)
        numbers = [*run.recorded, *came.values]
        if measuring.until is not None:
            curve = [
                (number.round, number.value)
                for number in run.recorded
                if (number.metric, number.split) == ("accuracy", "test")
            ]
            done, accuracies = zip(*curve, strict=True)
            reached = rounds_to_target(done, accuracies, measuring.until)
            numbers.append(Number("rounds_to_target", reached))
        why = f", {end.ended}" if end.ended else ""
        name = "" if setting.number is None else f", {setting.name}"
        log(f"trial {rng.trial}{name}: {end.done} rounds{why}, {run.seconds:.1f} s")
        kept = None if stopped else came.kept
        own = rows(at, rng.trial, numbers, stopped)
        return FinishedTrial(rng.trial, setting, run.times, own, kept)

    def go_on(
        at: int, trial: int, rung: int | None, stopped: int | None = None
    ) -> FinishedTrial | None:
        """Run a setting up to a rung of successive halving, or to its end; None before that."""
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
        path = Path(inputs.out, CHECKPOINTS, f"{name}trial-{trial}.pt")
        try:
            run = known.get((at, trial))
            if run is None or not stopped:
                run = rounds.run(data.rng, Checkpointer(path, meaning, seconds), run, rung)
            if rung is None:
                return finished_trial(rounds, run, splits, at, data.rng, stopped)
            known[at, trial] = run
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

    def finish(at: int, trial: int) -> FinishedTrial:
        left_at = stopped.get(at)
        done = None if (at, trial) in failed else go_on(at, trial, None, left_at)
        none = rows(at, trial, [Number("failed", 1.0)], left_at)
        return done or FinishedTrial(trial, settings[at], Progress(0, {}).times, none, None)

    stopped = successive_halving(len(settings), measuring.race, score)
    for at, rung in stopped.items():
        log(f"round {rung}: {settings[at].name} stops")
    finished = [finish(at, trial) for trial in trials for at in range(len(settings))]
    path, more = f"{scenario.token}/{method.token}", failures.diagnostics
    source = given.source(path, method, stand_in=given.prepared.stand_in, **more)
    columns = {
        "trial": [result.trial for result in finished],
        "method": [result.setting.name for result in finished],
        **{name: [result.times[name] for result in finished] for name in finished[0].times},
    }
    write_table(Path(inputs.out, TIMINGS), columns, "timings", source | resources_used())
    return FinishedJob(finished, source)


def write_metrics(inputs: Job, made: FinishedJob) -> None:
    """Write the metrics of a job, its last file, and remove its checkpoints."""
    table = Table(inputs.scenario.specs)
    for result in made.finished:
        table.add(result.rows)
    write_table(Path(inputs.out, METRICS), table.arrow(), "metrics", made.source)
    shutil.rmtree(Path(inputs.out, CHECKPOINTS), ignore_errors=True)


def setting_runs(scenario: Scenario, method: Spec, race: int) -> list[SettingRun]:
    """List the settings of a job in the order of its tokens, methods varying slowest.

    Raises:
        FedreproError: a race takes more rounds than they run for.
    """
    pairs = [(own, how) for own in method.expand() for how in scenario.training.expand()]
    found = []
    for at, (setting, training) in enumerate(pairs):
        name = setting_token(setting, [(key, training[key]) for key in scenario.training.swept])
        found.append(SettingRun(at if len(pairs) > 1 else None, training, setting, name))
        require_fits(
            race, setting.component.fn(**setting.values).rounds, f"method '{setting.token}'"
        )
    return found


def checkpoint_fingerprint(
    given: ScenarioData, method: Spec, measuring: EvaluationSchedule, follow: Sequence[str]
) -> str:
    """Describe all that a run depends on, in a text that its checkpoints must have to be continued.

    The machine is left out: a job that is moved to another one goes on there.
    """
    source, specs = origin(given.device), (*given.scenario.specs, method)
    parts = [spec.resolved for spec in specs] + [f"measured~{measuring}", *follow]
    parts.append(given.prepared.checksum)
    parts += [source["digest"], source["device"], json.dumps(source["versions"], sort_keys=True)]
    return ";".join(parts)
