"""Stage federate: methods in rounds, with checkpoints, resuming and metrics per round."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import ClientInfo, Federated, GlobalModel, Report, Traffic
from fedrepro.core.artifacts import load_state, save_state, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.measuring import Measuring, rounds_to_target
from fedrepro.core.metrics import OF_ROUNDS, MetricRow, Table, require_metric
from fedrepro.core.provenance import origin, provenance, provenance_of, spent
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Spec
from fedrepro.core.states import packed, settled, unpacked
from fedrepro.data.membership import read_partition
from fedrepro.numbers.measure import EvaluationSplit, Values, communication, measure
from fedrepro.planning.paths import Scenario, TrialBlock
from fedrepro.stages.common import client_info, clients_of, prepared_for, say, splits_as_held
from fedrepro.stages.devices import device_of
from fedrepro.training.clients import Clients

EVERY_ROUND = Measuring()
# so many rounds in a row without an update that is finite end a run
MOST_IDLE = 20

# round, client (None: of all), metric, split, value
RoundValues = list[tuple[int, int | None, str, str | None, float]]


@dataclass(frozen=True)
class Progress:
    """How far a trial has come: rounds done, the method's state, and what was recorded.

    seconds: of all rounds and the start, client_seconds: of these, those in which clients worked;
    each: of single rounds. exchanges, traffic, rejected: of all rounds so far. idle: rounds in a
    row, up to the last, in which every update was rejected. ended: why there are no further rounds,
    `reached` (the target), `diverged`, or that too many rounds were idle, or nothing.
    """

    done: int
    state: dict[str, Any]
    recorded: RoundValues = field(default_factory=list)
    seconds: float = 0.0
    client_seconds: float = 0.0
    each: list[float] = field(default_factory=list)
    exchanges: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    rejected: int = 0
    idle: int = 0
    ended: str = ""

    def packed(self) -> dict[str, Any]:
        """As plain data and tensors, for a checkpoint."""
        return {**vars(self), "state": packed(self.state), "traffic": vars(self.traffic)}

    @staticmethod
    def unpacked(kept: Mapping[str, Any]) -> Progress:
        """The inverse of `packed`."""
        recorded = [tuple(row) for row in kept["recorded"]]
        state, traffic = unpacked(kept["state"]), Traffic(**kept["traffic"])
        return Progress(**{**kept, "recorded": recorded, "state": state, "traffic": traffic})


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
    evaluate: splits to measure on at the end beside those that the method's decorator names;
    follow: those to measure on beside the test split whenever that is measured.
    """
    prepared = prepared_for(scenario, data, partition)
    where = device_of(device)
    folder = out.parent / "checkpoints"
    specs = (*scenario.specs, method)
    meaning = meaning_of(specs, prepared.checksum, measuring, follow, where)
    table = Table(scenario.specs)
    models, ended = {}, []
    for trial in trials:
        members = read_partition(partition, trial)
        rng = Rng(seed, trial)
        clients = clients_of(scenario, method, prepared, members, rng, where)
        info = client_info(method, scenario.training, prepared, members, rng, where)
        wanted = dict.fromkeys((*method.component.meta["evaluate"], *evaluate, *follow))
        splits = splits_as_held(wanted, prepared, members, rng, where)
        keeper = Keeper(folder / f"trial-{trial}.pt", meaning, checkpoint_seconds)
        rounds = TrialRounds(
            method, clients, info, measuring, {name: splits[name] for name in ("test", *follow)}
        )
        progress = rounds.run(rng, keeper)
        table.add(
            MetricRow(trial, method, metric, value, split, round=done, client=client)
            for done, client, metric, split, value in progress.recorded
        )
        numbers = measure(rounds.model(progress.state), splits)
        numbers += communication(progress.exchanges, progress.traffic)
        numbers += _to_target(progress, measuring.until)
        table.add(
            MetricRow(trial, method, metric, value, split) for metric, split, value in numbers
        )
        models[str(trial)] = _kept(rounds.model(progress.state))
        ended.append(progress)
        why = f", {progress.ended}" if progress.ended else ""
        say(f"trial {trial}: {progress.done} rounds{why}, {progress.seconds:.1f} s")
    source = provenance(
        seed,
        specs=specs,
        device=where,
        inputs=[prepared.info["provenance"], provenance_of(partition)],
        path=f"{scenario.folder}/{method.token}",
        data=prepared.checksum,
        stand_in=prepared.stand_in,
    )
    columns = {"trial": list(trials), "method": [method.token] * len(ended), **_times(ended)}
    write_table(timings, columns, "timings", source | spent())
    save_state(model, {"provenance": source, "trials": models})
    write_table(out, table.arrow(), "metrics", source)
    shutil.rmtree(folder, ignore_errors=True)


def _times(ended: Sequence[Progress]) -> dict[str, list[Any]]:
    """Columns of the timings, a row per trial: seconds of all, of clients, of single rounds."""
    return {
        "seconds": [one.seconds for one in ended],
        "client_seconds": [one.client_seconds for one in ended],
        "server_seconds": [one.seconds - one.client_seconds for one in ended],
        "round_seconds": [one.each for one in ended],
    }


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

    def run(self, rng: Rng, keeper: Keeper) -> Progress:
        """One trial, round by round, from the last checkpoint if there is one."""
        progress = keeper.load()
        if progress is None:
            progress = self._begun(rng)
        while progress.done < self.made.rounds and not progress.ended:
            progress = self._next(progress, rng)
            last = bool(progress.ended) or progress.done == self.made.rounds
            keeper.offer(progress, last=last)
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
        )
        if progress.idle >= MOST_IDLE:
            why = f"no finite update of any client in {MOST_IDLE} rounds in a row"
            return replace(self._measured(progress, report), ended=why)
        if not self.measuring.is_due(done, self.made.rounds):
            return progress
        return self._measured(progress, report)

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
        reached = "reached" if until is not None and test >= until else ""
        return replace(progress, recorded=recorded, ended=reached if model.finite else "diverged")

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


def _to_target(progress: Progress, target: float | None) -> Values:
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


class Keeper:
    """Checkpoints of one trial: written at most every `seconds`, and at the end."""

    def __init__(self, path: Path, meaning: str, seconds: float) -> None:
        self.path, self.meaning, self.seconds = path, meaning, seconds
        self.written = time.perf_counter()

    def load(self) -> Progress | None:
        """The last checkpoint, if there is one of the same meaning that can be read."""
        if not self.path.exists():
            return None
        try:
            kept = load_state(self.path)
        except FedreproError as error:
            say(f"{error}; starting this trial anew")
            return None
        if kept.pop("meaning") != self.meaning:
            say(f"{self.path} is of other sources, settings or another device; starting anew")
            return None
        say(f"going on from round {kept['done']} of {self.path.name}")
        return Progress.unpacked(kept)

    def offer(self, progress: Progress, *, last: bool) -> None:
        """Keep this state if enough time has passed since the last one."""
        now = time.perf_counter()
        if last or now - self.written >= self.seconds:
            save_state(self.path, {"meaning": self.meaning, **progress.packed()})
            self.written = now
