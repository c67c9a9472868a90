"""Stage train: the local models of a block of clients and trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.artifacts import opened, read_source, write_table
from fedrepro.core.provenance import provenance, resources_used
from fedrepro.core.rng import RngKey
from fedrepro.core.serialization import KIND, model_rows, write_models
from fedrepro.data.partition_table import PartitionIndices
from fedrepro.networks.network import Network
from fedrepro.networks.predict import network_of
from fedrepro.planning.jobs import LOCAL, TIMINGS, Job
from fedrepro.planning.runs import TrialBlock
from fedrepro.stages.devices import device_of
from fedrepro.stages.job_log import log
from fedrepro.stages.trial_data import TrialData, members_of, prepared_for
from fedrepro.training.engine import Trained, train
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.gradients import Layout
from fedrepro.training.loss_terms import with_prior
from fedrepro.training.minibatches import Task
from fedrepro.training.procedure import Settings, settings_of

if TYPE_CHECKING:
    import pyarrow as pa

# Weights in memory at a time; a few copies of them exist while they are trained and written.
SLICE_BYTES = 128 * 2**20


def run(job: Job, device: str = "cpu") -> None:
    """Train every client of the block in every trial of the block, as stacked models.

    Models are written when they are done, so memory does not grow with the number of clients.
    """
    scenario, seed, partition, out = job.scenario, job.seed, Path(job.members), Path(job.out, LOCAL)
    trials, clients = job.trials, job.clients
    assert trials is not None
    assert clients is not None
    prepared = prepared_for(scenario, Path(job.data), partition)
    network = network_of(scenario.model, prepared.shape, len(prepared.classes))
    settings = settings_of(scenario.training)
    where = device_of(device)
    inputs = [prepared.info["provenance"], read_source(partition)]
    stated = partial(
        provenance,
        seed,
        specs=scenario.specs,
        device=where,
        inputs=inputs,
        path=scenario.token,
        data=prepared.checksum,
    )
    source = stated()
    columns: dict[str, list[float]] = {"trial": [], "client": [], "seconds": []}

    def models() -> Iterator[pa.Table]:
        for together in _groups(
            {trial: members_of(scenario, partition, trial) for trial in trials}
        ):
            trial, members = next(iter(together.items()))
            examples = TrialData(prepared, members, RngKey(seed, trial=trial), where).held
            for tasks in _slices(together, clients, seed, network):
                log(f"training {len(tasks)} models, {where}")
                starts = initial_weights(network, settings, [task.rng for task in tasks])
                terms = with_prior(network, ())
                loaded, rows = examples.of([task.rows for task in tasks])
                tasks = [
                    replace(task, rows=task_rows)
                    for task, task_rows in zip(tasks, rows, strict=True)
                ]
                trained = train(network, loaded, tasks, settings, starts, terms=terms).checked()
                yield from model_rows(
                    [task.rng.trial for task in tasks],
                    [task.rng.client for task in tasks],
                    [len(task.rows) for task in tasks],
                    trained.tensors,
                    _epochs(tasks, trained, settings) if settings.patience > 0 else None,
                )
                each = trained.seconds / max(1, int(trained.steps.sum()))
                columns["trial"] += [task.rng.trial for task in tasks]
                columns["client"] += [task.rng.client for task in tasks]
                columns["seconds"] += (trained.steps * each).tolist()
                log(f"{trained.seconds:.1f} s, {each * 1e6:.0f} µs a step")

    write_models(out, models(), source)
    if (at_the_end := stated()) != source:
        source = at_the_end
        # the sources changed meanwhile, so write again with the final provenance
        with opened(out, KIND) as file:
            groups = (file.read_row_group(number) for number in range(file.num_row_groups))
            write_models(out, groups, source)
    write_table(
        Path(job.out, TIMINGS),
        {
            "trial": np.array(columns["trial"], np.int64),
            "client": np.array(columns["client"], np.int64),
            "seconds": np.array(columns["seconds"]),
        },
        "timings",
        source | resources_used(),
    )


def _epochs(tasks: Sequence[Task], trained: Trained, settings: Settings) -> list[int]:
    """Return the number of epochs of each model."""
    each = [task.per_epoch(settings.batch_size) for task in tasks]
    return [int(steps) // per_epoch for steps, per_epoch in zip(trained.steps, each, strict=True)]


def _groups(memberships: dict[int, PartitionIndices]) -> list[dict[int, PartitionIndices]]:
    """Group trials with equal inputs: all of them, or each alone if clients add noise to theirs."""
    if all(members.noise is None for members in memberships.values()):
        return [memberships]
    return [{trial: members} for trial, members in memberships.items()]


def _slices(
    memberships: dict[int, PartitionIndices], clients: TrialBlock, seed: int, network: Network
) -> Iterator[list[Task]]:
    """Yield the models of these trials and clients, as many at a time as memory should hold."""
    tasks = [
        Task(members.rows_of(client), RngKey(seed, trial=trial, client=client))
        for trial, members in memberships.items()
        for client in clients
    ]
    count = max(1, SLICE_BYTES // (4 * Layout(network.shapes).size))
    for at in range(0, len(tasks), count):
        yield tasks[at : at + count]
