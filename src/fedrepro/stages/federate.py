"""Stage federate: methods in rounds, with checkpoints, resuming and metrics per round."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrepro.api import Federated
from fedrepro.core.artifacts import load_state, save_state, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import FLOAT_BYTES, MetricRow, Table
from fedrepro.core.provenance import origin, provenance, provenance_of, spent
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Spec
from fedrepro.core.states import packed, settled, unpacked
from fedrepro.data.membership import Membership, read_partition
from fedrepro.data.prepared import Prepared
from fedrepro.networks.predict import network_of
from fedrepro.numbers.measure import EvaluationSplit, Values, communication, measure
from fedrepro.planning.paths import Scenario, TrialBlock
from fedrepro.stages.common import held_examples, prepared_for, say, splits_as_held
from fedrepro.stages.devices import device_of
from fedrepro.training.clients import Clients
from fedrepro.training.flat import Layout
from fedrepro.training.settings import settings_of

RoundValues = list[tuple[int, str, str | None, float]]  # round, metric, split, value


@dataclass(frozen=True)
class Progress:
    """How far a trial has come: rounds done, the method's state, and what was recorded."""

    done: int
    state: dict[str, Any]
    recorded: RoundValues
    seconds: float


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
    measure_every: int = 1,
) -> None:
    """Run every trial to its last round; a killed run goes on from its last checkpoint.

    Test accuracy is measured every `measure_every` rounds, and in the first and the last one.
    """
    prepared = prepared_for(scenario, data, partition)
    where = device_of(device)
    folder = out.parent / "checkpoints"
    specs = (*scenario.specs, method)
    meaning = meaning_of(specs, prepared.checksum, measure_every, where)
    table = Table(scenario.specs)
    models, seconds = {}, []
    for trial in trials:
        members = read_partition(partition, trial)
        rng = Rng(seed, trial)
        clients = _clients(scenario, prepared, members, rng, where)
        wanted = method.component.meta["evaluate"]
        splits = splits_as_held(wanted, prepared, members, rng, where)
        keeper = Keeper(folder / f"trial-{trial}.pt", meaning, checkpoint_seconds)
        method_object = method.component.fn(**method.values)
        progress = run_trial(method_object, clients, rng, splits["test"], keeper, measure_every)
        table.add(
            MetricRow(trial, method, metric, value, split, round=done)
            for done, metric, split, value in progress.recorded
        )
        sent = Layout(clients.network.shapes).numbers * FLOAT_BYTES
        final = method_object.model(progress.state, clients)
        up, down = method_object.messages(clients.count)
        numbers = measure(final, splits)
        exchanges = method_object.rounds * getattr(method_object, "exchanges", 1)
        numbers += communication(sent, exchanges, up, down)
        table.add(
            MetricRow(trial, method, metric, value, split) for metric, split, value in numbers
        )
        models[trial] = progress.state
        seconds.append(progress.seconds)
        say(f"trial {trial}: {method_object.rounds} rounds, {progress.seconds:.1f} s")
    source = provenance(
        seed,
        specs=specs,
        device=where,
        inputs=[prepared.info["provenance"], provenance_of(partition)],
        path=f"{scenario.folder}/{method.token}",
        data=prepared.checksum,
        stand_in=prepared.stand_in,
    )
    columns = {"trial": list(trials), "method": [method.token] * len(seconds), "seconds": seconds}
    write_table(timings, columns, "timings", source | spent())
    states = {str(trial): packed(state) for trial, state in models.items()}
    save_state(model, {"provenance": source, "trials": states})
    write_table(out, table.arrow(), "metrics", source)
    shutil.rmtree(folder, ignore_errors=True)


def meaning_of(specs: Sequence[Spec], data: str, measure_every: int, device: str) -> str:
    """All that the rounds of a run depend on: a checkpoint of anything else is not continued.

    The machine is left out: a job that is moved to another goes on there.
    """
    here = origin(device)
    parts = [spec.resolved for spec in specs] + [f"measure_every~{measure_every}", data]
    parts += [here["digest"], here["device"], json.dumps(here["versions"], sort_keys=True)]
    return ";".join(parts)


def run_trial(
    method: Federated,
    clients: Clients,
    rng: Rng,
    test: EvaluationSplit,
    keeper: Keeper,
    every: int = 1,
) -> Progress:
    """One trial, round by round, from the last checkpoint if there is one."""
    progress = keeper.load() or Progress(0, settled(method.init(clients, rng)), [], 0.0)
    for done in range(progress.done, method.rounds):
        began = time.perf_counter()
        new, diagnostics = method.round(progress.state, clients, rng.at(round=done))
        seconds = progress.seconds + time.perf_counter() - began
        state = settled(new)
        recorded = progress.recorded
        if is_measured(done + 1, method.rounds, every):
            numbers = _round_numbers(method, state, clients, test, diagnostics)
            recorded = recorded + [(done + 1, *number) for number in numbers]
        progress = Progress(done + 1, state, recorded, seconds)
        keeper.offer(progress, last=done + 1 == method.rounds)
    return progress


def is_measured(done: int, rounds: int, every: int) -> bool:
    """Whether accuracy is measured after `done` of `rounds` rounds."""
    return done in (1, rounds) or done % every == 0


def _round_numbers(
    method: Federated,
    state: dict[str, Any],
    clients: Clients,
    test: EvaluationSplit,
    diagnostics: Mapping[str, float],
) -> Values:
    right = measure(method.model(state, clients), {"test": test})
    accuracy = [number for number in right if number[0] == "accuracy"]
    return accuracy + [(name, None, value) for name, value in sorted(diagnostics.items())]


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
        kept["recorded"] = [tuple(row) for row in kept["recorded"]]
        return Progress(**{**kept, "state": unpacked(kept["state"])})

    def offer(self, progress: Progress, *, last: bool) -> None:
        """Keep this state if enough time has passed since the last one."""
        now = time.perf_counter()
        if last or now - self.written >= self.seconds:
            kept = {**vars(progress), "state": packed(progress.state)}
            save_state(self.path, {"meaning": self.meaning, **kept})
            self.written = now


def _clients(
    scenario: Scenario, prepared: Prepared, members: Membership, rng: Rng, device: str
) -> Clients:
    return Clients(
        model=scenario.model,
        network=network_of(scenario.model, prepared.shape, len(prepared.classes)),
        settings=settings_of(scenario.training),
        examples=held_examples(prepared, members, rng, device),
        rows=members.train,
    )
