"""Stage train: the local models of a block of clients and trials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedrepro.artifacts import write_models, write_table
from fedrepro.data.membership import read_partition
from fedrepro.data.prepared import load_prepared
from fedrepro.networks.predict import network_of
from fedrepro.paths import Block, Scenario
from fedrepro.provenance import provenance
from fedrepro.rng import Rng
from fedrepro.stages.common import device_of, examples_of, say
from fedrepro.training.clients import own_starts
from fedrepro.training.engine import train
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
    tasks = _tasks(partition, trials, clients, seed)
    network = network_of(scenario.model, prepared.shape, len(prepared.classes))
    settings = settings_of(scenario.training)
    where = device_of(device)
    say(f"training {len(tasks)} models on {sum(len(t.rows) for t in tasks)} examples, {where}")
    trained = train(
        network,
        examples_of(prepared, "train", where),
        tasks,
        settings,
        own_starts(network, settings, [task.rng for task in tasks]),
    )
    places = {
        "trials": [task.rng.trial for task in tasks],
        "clients": [task.rng.client for task in tasks],
    }
    source = provenance(seed, path=scenario.folder, data=prepared.checksum)
    examples = [len(task.rows) for task in tasks]
    write_models(out, places["trials"], places["clients"], examples, trained.tensors, source)
    seconds = trained.seconds * trained.steps / trained.steps.sum()
    columns = {"trial": places["trials"], "client": places["clients"], "seconds": seconds}
    write_table(timings, columns, "timings", source)
    say(f"{trained.seconds:.1f} s, {trained.seconds / trained.steps.sum() * 1e6:.0f} µs a step")


def _tasks(partition: Path, trials: Block, clients: Block, seed: int) -> Sequence[Task]:
    tasks = []
    for trial in trials:
        rows = read_partition(partition, trial).train
        for client in clients:
            tasks.append(Task(rows[client], Rng(seed, trial=trial, client=client)))
    return tasks
