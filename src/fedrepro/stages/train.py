"""Stage train: the local models of a block of clients and trials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedrepro.artifacts import write_models, write_table
from fedrepro.data.membership import Membership, read_partition
from fedrepro.data.prepared import load_prepared
from fedrepro.networks.predict import network_of
from fedrepro.paths import Block, Scenario
from fedrepro.provenance import provenance
from fedrepro.rng import Rng
from fedrepro.stages.common import held_examples, say
from fedrepro.stages.devices import device_of
from fedrepro.training.clients import own_starts
from fedrepro.training.engine import Trained, train
from fedrepro.training.minibatches import Task
from fedrepro.training.settings import settings_of


def run(
    scenario: Scenario,
    data: Path,
    partition: Path,
    trials: Block,
    clients: Block,
    seed: int,
    device: str,
    out: Path,
    timings: Path,
) -> None:
    """Train every client of the block in every trial of the block, as one stacked model."""
    prepared = load_prepared(data)
    network = network_of(scenario.model, prepared.shape, len(prepared.classes))
    settings = settings_of(scenario.training)
    where = device_of(device)
    done: list[tuple[Task, int]] = []
    parts: list[Trained] = []
    for together in _groups({trial: read_partition(partition, trial) for trial in trials}):
        tasks = [
            Task(members.train[client], Rng(seed, trial=trial, client=client))
            for trial, members in together.items()
            for client in clients
        ]
        say(f"training {len(tasks)} models on {sum(len(t.rows) for t in tasks)} examples, {where}")
        trial, members = next(iter(together.items()))
        examples = held_examples(prepared, members, Rng(seed, trial=trial), where)
        starts = own_starts(network, settings, [task.rng for task in tasks])
        parts.append(train(network, examples, tasks, settings, starts))
        done += [(task, len(task.rows)) for task in tasks]
        say(f"{parts[-1].seconds:.1f} s, {_microseconds(parts[-1]):.0f} µs a step")
    places = {
        "trials": [task.rng.trial for task, _ in done],
        "clients": [task.rng.client for task, _ in done],
    }
    tensors = {
        name: np.concatenate([part.tensors[name] for part in parts]) for name in network.shapes
    }
    source = provenance(seed, path=scenario.folder, data=prepared.checksum)
    write_models(out, places["trials"], places["clients"], [n for _, n in done], tensors, source)
    seconds = np.concatenate([part.seconds * part.steps / part.steps.sum() for part in parts])
    columns = {"trial": places["trials"], "client": places["clients"], "seconds": seconds}
    write_table(timings, columns, "timings", source)


def _groups(memberships: dict[int, Membership]) -> Sequence[dict[int, Membership]]:
    """Trials that share their inputs: all of them, or each alone if clients add noise to theirs."""
    if all(members.noise is None for members in memberships.values()):
        return [memberships]
    return [{trial: members} for trial, members in memberships.items()]


def _microseconds(trained: Trained) -> float:
    return trained.seconds / max(1, int(trained.steps.sum())) * 1e6
