"""Run a job of a method in rounds: all parameter values, all trials, with checkpoints."""

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
from fedrepro.core.component_tokens import setting_token
from fedrepro.core.evaluation_schedule import EvaluationSchedule, rounds_to_target
from fedrepro.core.metrics import MetricRow, Number, Table
from fedrepro.core.provenance import origin, resources_used
from fedrepro.core.rng import RngKey
from fedrepro.core.selection_rules import SPLIT, require_fits, successive_halving
from fedrepro.core.spec import Spec
from fedrepro.planning.jobs import METRICS, TIMINGS, Job, Scenario
from fedrepro.stages.devices import device_of
from fedrepro.stages.job_log import Failures, log
from fedrepro.stages.trial_data import ScenarioData, TrialData
from fedrepro.stages.trial_rounds import Checkpointer, Evaluator, Progress, Splits, TrialRounds

CHECKPOINTS = "checkpoints"  # name of their folder in the job's folder
CHECKPOINT_SECONDS = "FEDREPRO_CHECKPOINT_SECONDS"  # environment variable

EvaluatorOf = Callable[[Scenario, Spec, TrialData], Evaluator]


@dataclass(frozen=True)
class SettingRun:
    """One choice of parameter values of a method and its local training, which a job runs.

    number: its index among the choices that the job runs, None if there is only one. training,
    method: the components with these values. name: the text that identifies the choice in metrics.
    """

    number: int | None
    training: Spec
    method: Spec
    name: str


@dataclass(frozen=True)
class FinishedTrial:
    """The measurements of a method in rounds, with one choice of parameter values, in one trial.

    setting: the parameter values. times: seconds, by column of the table of times. rows: metrics.
    kept: data of the last state, such as models, as plain Python and tensors; None if successive
    halving stopped these parameter values.
    """

    trial: int
    setting: SettingRun
    times: Mapping[str, Any]
    rows: Sequence[MetricRow]
    kept: Any

    @property
    def key(self) -> str:
        return str(self.trial) + ("" if self.setting.number is None else f";{self.setting.name}")


def run_rounds(
    inputs: Job,
    device: str,
    evaluator_of: EvaluatorOf,
    keep: Callable[[list[FinishedTrial], Mapping[str, Any]], None],
) -> None:
    """Run a method in rounds in every trial of a job, and write tables of times and metrics.

    A choice of parameter values with which the method's code raises an error stops, and has the
    metric `failed`. A killed job continues from its checkpoints.

    `inputs` is the job, which names files and parameters. `evaluator_of` builds the object that
    evaluates the models of a trial. `keep` is called at the end to write further files, such as
    models: keep(finished trials that have data to keep, provenance).
    """
    scenario, method, trials = inputs.scenario, inputs.specs["method"], inputs.trials
    assert trials is not None
    measuring = inputs.every or EvaluationSchedule()
    if not measuring.race:  # without a race there must be one setting
        scenario.training.single()
        method.single()
    given = ScenarioData.of(inputs, device_of(device))
    seconds = float(os.environ.get(CHECKPOINT_SECONDS, "20"))
    follow = tuple(dict.fromkeys((*inputs.follow, *([SPLIT] if measuring.race else []))))
    meaning = checkpoint_fingerprint(given, method, measuring, follow)
    measured = tuple(dict.fromkeys((*method.component.meta["evaluate"], *inputs.evaluate)))
    settings, failures = setting_runs(scenario, method, measuring.race), Failures()
    known: dict[tuple[int, int], Progress] = {}
    failed: set[tuple[int, int]] = set()

    # in a race every setting needs all trials again and again, else trials come one by one
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
        """Return the measurements of a trial that has ended, with parameter values number `at`.

        `run` is the trial's progress, and `rounds` evaluates its models on `splits`. `stopped` is
        the round in which successive halving stopped these parameter values, if it did.
        """
        setting, end = settings[at], run.target or run  # rounds after the target do not count
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
        """Run parameter values number `at` in a trial up to the round `rung`, and return None.

        Without `rung`, go on to the last round, unless successive halving `stopped` these parameter
        values in a round, and return the measurements. If the method raises an error, `failures`
        records it.
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
    keep([result for result in finished if result.kept is not None], source)
    table = Table(scenario.specs)
    for result in finished:
        table.add(result.rows)
    write_table(Path(inputs.out, METRICS), table.arrow(), "metrics", source)
    shutil.rmtree(Path(inputs.out, CHECKPOINTS), ignore_errors=True)


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
        require_fits(
            race, setting.component.fn(**setting.values).rounds, f"method '{setting.token}'"
        )
    return found


def checkpoint_fingerprint(
    given: ScenarioData, method: Spec, measuring: EvaluationSchedule, follow: Sequence[str]
) -> str:
    """Return a text of all that a run depends on, so that it uses no checkpoint of another run.

    The text names the data (`given`), method, rounds of evaluation (`measuring`), splits evaluated
    during the run (`follow`), code and device. It does not name the machine, so a job that is moved
    to another machine continues.
    """
    source, specs = origin(given.device), (*given.scenario.specs, method)
    parts = [spec.resolved for spec in specs] + [f"measured~{measuring}", *follow]
    parts.append(given.prepared.checksum)
    parts += [source["digest"], source["device"], json.dumps(source["versions"], sort_keys=True)]
    return ";".join(parts)
