"""Stage train: the local models of a block of clients and trials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedrepro.artifacts import write_models, write_table
from fedrepro.data.membership import read_partition
from fedrepro.data.prepared import load_prepared
from fedrepro.models.dense import architecture
from fedrepro.paths import Block, Scenario
from fedrepro.provenance import provenance
from fedrepro.rng import Rng
from fedrepro.stages.common import device_of, say
from fedrepro.training.clients import own_starts
from fedrepro.training.engine import one_hot, train
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
    import torch

    prepared = load_prepared(data)
    tasks = _tasks(partition, trials, clients, seed)
    dense = architecture(scenario.model, prepared.dims, len(prepared.classes))
    settings = settings_of(scenario.training)
    where = device_of(device)
    say(f"training {len(tasks)} models on {sum(len(t.rows) for t in tasks)} examples, {where}")
    trained = train(
        dense,
        torch.from_numpy(prepared.inputs("train")).to(where),
        torch.from_numpy(one_hot(prepared.labels("train"), len(prepared.classes))).to(where),
        tasks,
        settings,
        own_starts(dense, settings, [task.rng for task in tasks]),
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
