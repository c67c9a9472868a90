"""Stage federate: methods in rounds, with checkpoints, resuming and metrics per round."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import ClientInfo, Federated, GlobalModel, Report, Traffic
from fedrepro.core.artifacts import save_state, write_table
from fedrepro.core.measuring import Measuring, rounds_to_target
from fedrepro.core.metrics import OF_ROUNDS, MetricRow, Table, require_metric
from fedrepro.core.provenance import origin, provenance, provenance_of, spent
from fedrepro.core.racing import SPLIT, race, require_fits, rungs
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Spec, setting_token
from fedrepro.core.states import packed, settled
from fedrepro.data.membership import read_partition
from fedrepro.numbers.measure import EvaluationSplit, Values, communication, measure
from fedrepro.planning.paths import Scenario, TrialBlock
from fedrepro.stages.common import TrialData, prepared_for, say
from fedrepro.stages.devices import device_of
from fedrepro.stages.progress import DIVERGED, REACHED, Keeper, Progress, RoundValues
from fedrepro.training.clients import Clients

EVERY_ROUND = Measuring()
# so many rounds in a row without an update that is finite end a run
MOST_IDLE = 20


def run(
    scenario: Scenario,
    method: Spec,
    data: Path,
    partition: Path,
    trials: TrialBlock,
    seed: int,
    device: str,
    checkpoint_seconds: float,
    out: Path,
    timings: Path,
    model: Path,
    measuring: Measuring = EVERY_ROUND,
    evaluate: Sequence[str] = (),
    follow: Sequence[str] = (),
) -> None:
    """Run every trial to its last round; a killed run goes on from its last checkpoint.

    measuring: the rounds after which test accuracy is measured, and the one at which a run ends.
    In a race method and training may stand for several settings, which it lets stop.
    evaluate: splits to measure on at the end beside those that the method's decorator names;
    follow: those to measure on beside the test split whenever that is measured.
    """
    prepared = prepared_for(scenario, data, partition)
    where = device_of(device)
    folder = out.parent / "checkpoints"
    specs = (*scenario.specs, method)
    follow = tuple(dict.fromkeys((*follow, *([SPLIT] if measuring.race else []))))
    meaning = meaning_of(specs, prepared.checksum, measuring, follow, where)
    contenders = contenders_of(scenario, method, measuring.race)
    measured = dict.fromkeys((*method.component.meta["evaluate"], *evaluate))

    # settings that race take turns at all trials, others finish one after another
    @lru_cache(maxsize=len(trials) if measuring.race else 1)
    def data_of(trial: int) -> TrialData:
        return TrialData(prepared, read_partition(partition, trial), Rng(seed, trial), where)

    job = RoundsJob(
        scenario,
        data_of,
        measuring,
        follow,
        tuple(measured),
        lambda name: Keeper(folder / name, meaning, checkpoint_seconds),
    )
    finished = job.run(contenders, list(trials))
    table = Table(scenario.specs)
    for one in finished:
        table.add(one.rows)
    source = provenance(
        seed,
        specs=specs,
        device=where,
        inputs=[prepared.info["provenance"], provenance_of(partition)],
        path=f"{scenario.folder}/{method.token}",
        data=prepared.checksum,
        stand_in=prepared.stand_in,
    )
    columns = {
        "trial": [one.trial for one in finished],
        "method": [one.contender.name for one in finished],
        **{name: [one.times[name] for one in finished] for name in finished[0].times},
    }
    write_table(timings, columns, "timings", source | spent())
    models = {one.key: _kept(one.model) for one in finished if one.model is not None}
    save_state(model, {"provenance": source, "trials": models})
    write_table(out, table.arrow(), "metrics", source)
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Contender:
    """One of the settings that a job computes; number: its place among them, None if it is alone.

    name: what its rows are called.
    """

    number: int | None
    training: Spec
    method: Spec
    name: str

    def checkpoint(self, trial: int) -> str:
        """The name of its file."""
        own = "" if self.number is None else f"setting-{self.number}-"
        return f"{own}trial-{trial}.pt"


def contenders_of(scenario: Scenario, method: Spec, race: int) -> list[Contender]:
    """The settings of a job in the order of its tokens, methods varying slowest.

    Errors: FedreproError for a race over more rounds than they run for.
    """
    swept = scenario.training.swept
    pairs = [(one, own) for one in method.expand() for own in scenario.training.expand()]
    found = []
    for at, (one, training) in enumerate(pairs):
        name = setting_token(one, [(key, training[key]) for key in swept])
        found.append(Contender(at if len(pairs) > 1 else None, training, one, name))
        require_fits(race, one.component.fn(**one.values).rounds, f"method '{one.token}'")
    return found


@dataclass(frozen=True)
class Finished:
    """A setting in a trial, when nothing more is run of it. model: None where a race stopped it."""

    trial: int
    contender: Contender
    times: Mapping[str, Any]
    rows: Sequence[MetricRow]
    model: GlobalModel | None

    @property
    def key(self) -> str:
        """Of its state among those of the job."""
        alone = self.contender.number is None
        return str(self.trial) if alone else f"{self.trial};{self.contender.name}"


@dataclass(frozen=True)
class RoundsJob:
    """What one job runs: each of its settings in each trial, side by side if they race."""

    scenario: Scenario
    data: Callable[[int], TrialData]
    measuring: Measuring
    follow: Sequence[str]
    evaluate: Sequence[str]
    keeper: Callable[[str], Keeper]

    def run(self, contenders: Sequence[Contender], trials: Sequence[int]) -> list[Finished]:
        """To the end of all but those that the race stops; trial by trial, settings in order."""
        known: dict[tuple[int, int], Progress] = {}

        def score(at: int, rung: int) -> float:
            for trial in trials:
                runner = self._runner(contenders[at], trial)
                known[at, trial] = runner.run(known.get((at, trial)), rung)
            return float(np.mean([known[at, trial].accuracy_at(rung) for trial in trials]))

        stopped = race(len(contenders), self.measuring.race, score)
        for at, rung in stopped.items():
            say(f"round {rung}: {contenders[at].name} stops")
        return [
            self._runner(one, trial).finish(known.get((at, trial)), stopped.get(at))
            for trial in trials
            for at, one in enumerate(contenders)
        ]

    def _runner(self, contender: Contender, trial: int) -> Runner:
        """A setting at the clients of a trial."""
        there = replace(self.scenario, training=contender.training)
        own = self.data(trial)
        splits = own.splits((*self.evaluate, *self.follow))
        rounds = TrialRounds(
            contender.method,
            own.clients(there, contender.method),
            own.info(contender.method, there.training),
            self.measuring,
            {name: splits[name] for name in ("test", *self.follow)},
        )
        keeper = self.keeper(contender.checkpoint(trial))
        return Runner(contender, rounds, own.rng, keeper, splits)


@dataclass(frozen=True)
class Runner:
    """A setting in a trial with its checkpoint, and all the splits that it is measured on."""

    contender: Contender
    rounds: TrialRounds
    rng: Rng
    keeper: Keeper
    splits: Mapping[str, EvaluationSplit]

    def run(self, before: Progress | None, rung: int | None) -> Progress:
        """Further, up to a rung or to the end."""
        return self.rounds.run(self.rng, self.keeper, before, rung)

    def finish(self, before: Progress | None, stopped: int | None) -> Finished:
        """To the end, unless a race stopped it, and measured there."""
        run = before if before and stopped else self.run(before, None)
        trial, end = self.rng.trial, run.outcome
        until = self.rounds.measuring.until
        model = self.rounds.model(end.state)
        numbers = measure(model, self.splits)
        numbers += communication(end.exchanges, end.traffic)
        numbers += to_target(run, until)
        numbers += [("stopped_at", None, float(stopped))] if stopped else []
        places = [*run.recorded, *((None, None, *number) for number in numbers)]
        rows = [self._row(*place) for place in places]
        why = f", {end.ended}" if end.ended else ""
        name = "" if self.contender.number is None else f", {self.contender.name}"
        say(f"trial {trial}{name}: {end.done} rounds{why}, {run.seconds:.1f} s")
        return Finished(trial, self.contender, run.times, rows, None if stopped else model)

    def _row(
        self, done: int | None, client: int | None, metric: str, split: str | None, value: float
    ) -> MetricRow:
        own = self.contender
        return MetricRow(
            self.rng.trial, own.method, metric, value, split, done, client, own.training
        )


def _kept(model: GlobalModel) -> Any:
    """What predicts, as plain data: tensors (m, *shape), and the weights of a mixture.

    Neither what the server nor what a client remembers beside it: a checkpoint has all of that.
    """
    weights = {} if model.weights is None else {"weights": model.weights}
    return packed({"tensors": dict(model.tensors), **weights})


def meaning_of(
    specs: Sequence[Spec], data: str, measuring: Measuring, follow: Sequence[str], device: str
) -> str:
    """All that the rounds of a run depend on: a checkpoint of anything else is not continued.

    The machine is left out: a job that is moved to another goes on there.
    """
    here = origin(device)
    parts = [spec.resolved for spec in specs] + [f"measured~{measuring}", *follow, data]
    parts += [here["digest"], here["device"], json.dumps(here["versions"], sort_keys=True)]
    return ";".join(parts)


@dataclass(frozen=True)
class TrialRounds:
    """A method in rounds at the clients of one trial; followed: splits measured as rounds go by."""

    method: Spec
    clients: Clients
    info: ClientInfo
    measuring: Measuring
    followed: Mapping[str, EvaluationSplit]

    @cached_property
    def made(self) -> Federated:
        """The method with its parameters."""
        made: Federated = self.method.component.fn(**self.method.values)
        return made

    def model(self, state: dict[str, Any]) -> GlobalModel:
        """What predicts at this state."""
        return self.made.model(state, self.clients)

    def run(
        self, rng: Rng, keeper: Keeper, before: Progress | None = None, rung: int | None = None
    ) -> Progress:
        """One trial, round by round, from `before` or the last checkpoint, if there is one.

        rung: the round of a race up to which it is run, rather than to its end. Test accuracy
        decides no race: a run that reached its target goes on to the rung.
        """
        progress = before or keeper.load()
        if progress is None:
            progress = self._begun(rng)
        last = rung or self.made.rounds
        goes_on = ("", REACHED) if rung else ("",)
        while progress.done < last and progress.ended in goes_on:
            progress = self._next(progress, rng)
            keeper.offer(progress, last=bool(progress.ended) or progress.done == last)
        return progress

    def _begun(self, rng: Rng) -> Progress:
        """Before the first round; clients that already train or evaluate for it are counted."""
        ledger = self.clients.ledger
        ledger.begin()
        began = time.perf_counter()
        state = settled(self.made.init(self.clients, self.info, rng))
        return Progress(
            0,
            state,
            seconds=time.perf_counter() - began,
            client_seconds=ledger.seconds,
            exchanges=int(ledger.traffic != Traffic()),
            traffic=ledger.traffic,
            rejected=ledger.rejected,
        )

    def _next(self, before: Progress, rng: Rng) -> Progress:
        """The state after one more round, measured if it is due."""
        ledger, done = self.clients.ledger, before.done + 1
        ledger.begin()
        began = time.perf_counter()
        new, report = self.made.round(
            before.state, self.clients, self.info, rng.at(round=before.done)
        )
        seconds = time.perf_counter() - began
        reached = before.target or (before if before.ended == REACHED else None)
        progress = Progress(
            done,
            settled(new),
            before.recorded,
            before.seconds + seconds,
            before.client_seconds + ledger.seconds,
            [*before.each, seconds],
            before.exchanges + report.exchanges,
            before.traffic + (report.traffic or ledger.traffic),
            before.rejected + ledger.rejected,
            before.idle + 1 if ledger.all_rejected else 0,
            before.ended,
            reached,
        )
        if progress.idle >= MOST_IDLE:
            why = f"no finite update of any client in {MOST_IDLE} rounds in a row"
            last = progress if reached else self._measured(progress, report)
            return replace(last, ended=why)
        if reached is None and self.measuring.is_due(done, self.made.rounds):
            return self._measured(progress, report)
        return self._at_rung(progress) if done in rungs(self.measuring.race) else progress

    def _at_rung(self, progress: Progress) -> Progress:
        """The same with the accuracy that decides a race, where nothing else is measured."""
        model = self.model(progress.state)
        numbers = measure(model, {SPLIT: self.followed[SPLIT]})
        own: RoundValues = [(progress.done, None, *n) for n in numbers if n[0] == "accuracy"]
        ended = progress.ended or ("" if model.finite else DIVERGED)
        return replace(progress, recorded=progress.recorded + own, ended=ended)

    def _measured(self, progress: Progress, report: Report) -> Progress:
        """The same with its numbers, and with the reason to end here, if there is one."""
        for name in (*report.metrics, *report.clients):
            require_metric(name, self.method)
        done, model = progress.done, self.model(progress.state)
        numbers = [n for n in measure(model, self.followed) if n[0] == "accuracy"]
        test = next(value for _, split, value in numbers if split == "test")
        numbers += [(name, None, value) for name, value in sorted(report.metrics.items())]
        numbers += self._account(progress)
        recorded = progress.recorded + [(done, None, *number) for number in numbers]
        recorded += [
            (done, client, name, None, float(value))
            for name, values in sorted(report.clients.items())
            for client, value in enumerate(values)
            if not np.isnan(value)
        ]
        until = self.measuring.until
        reached = REACHED if until is not None and test >= until else ""
        return replace(progress, recorded=recorded, ended=reached if model.finite else DIVERGED)

    def _account(self, progress: Progress) -> Values:
        """What the harness records of a round beside what the method reports."""
        ledger, sent = self.clients.ledger, progress.traffic
        values = (
            ledger.train_loss,
            ledger.selected,
            progress.rejected,
            sent.bytes_up,
            sent.bytes_down,
        )
        return [(name, None, float(v)) for name, v in zip(OF_ROUNDS, values, strict=True)]


def to_target(progress: Progress, target: float | None) -> Values:
    """TrialRounds to the target accuracy, from the measured curve; inf if it was not reached."""
    if target is None:
        return []
    curve = [
        (done, value)
        for done, _, metric, split, value in progress.recorded
        if (metric, split) == ("accuracy", "test")
    ]
    rounds, accuracies = zip(*curve, strict=True)
    return [("rounds_to_target", None, rounds_to_target(rounds, accuracies, target))]
