"""Stage train: the local models of a block of clients and trials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.artifacts import opened, read_source, write_table
from fedrepro.core.provenance import provenance, resources_used
from fedrepro.core.rng import RngKey
from fedrepro.core.serialization import KIND, model_rows, write_models
from fedrepro.networks.predict import network_of
from fedrepro.planning.jobs import LOCAL, TIMINGS, Job
from fedrepro.stages.devices import device_of
from fedrepro.stages.job_log import log
from fedrepro.stages.trial_data import TrialData, members_of, prepared_for
from fedrepro.training.engine import train
from fedrepro.training.examples import Examples
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.flat_models import Layout
from fedrepro.training.loss_terms import with_prior
from fedrepro.training.minibatches import Task
from fedrepro.training.training_settings import settings_of

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
    measured: list[tuple[int, int, float]] = []

    def models() -> Iterator[pa.Table]:
        each = {trial: members_of(scenario, partition, trial) for trial in trials}
        groups = [each]  # trials with equal inputs go together, but clients may add noise to theirs
        if any(members.noise is not None for members in each.values()):
            groups = [{trial: members} for trial, members in each.items()]
        most = max(1, SLICE_BYTES // (4 * Layout(network.shapes).size))
        for together in groups:
            trial, members = next(iter(together.items()))
            examples = TrialData(prepared, members, RngKey(seed, trial=trial), where).held
            every = [
                Task(own.rows_of(client), RngKey(seed, trial=trial, client=client))
                for trial, own in together.items()
                for client in clients
            ]
            for at in range(0, len(every), most):
                yield from trained_together(every[at : at + most], examples)

    def trained_together(tasks: list[Task], examples: Examples) -> Iterator[pa.Table]:
        log(f"training {len(tasks)} models, {where}")
        starts = initial_weights(network, settings, [task.rng for task in tasks])
        loaded, rows = examples.of([task.rows for task in tasks])
        tasks = [replace(task, rows=own) for task, own in zip(tasks, rows, strict=True)]
        terms = with_prior(network, ())
        trained = train(network, loaded, tasks, settings, starts, terms=terms).checked()
        places = [(task.rng.trial, task.rng.client) for task in tasks]
        epochs = None
        if settings.patience > 0:
            steps = zip(trained.steps, tasks, strict=True)
            epochs = [int(own) // task.per_epoch(settings.batch_size) for own, task in steps]
        each = trained.seconds / max(1, int(trained.steps.sum()))
        took = (trained.steps * each).tolist()
        measured.extend((*place, own) for place, own in zip(places, took, strict=True))
        log(f"{trained.seconds:.1f} s, {each * 1e6:.0f} µs a step")
        counts = [len(task.rows) for task in tasks]
        trials_of, clients_of = zip(*places, strict=True)
        return model_rows(trials_of, clients_of, counts, trained.tensors, epochs)

    write_models(out, models(), source)
    if (at_the_end := stated()) != source:
        source = at_the_end
        # the sources changed meanwhile, so write again with the final provenance
        with opened(out, KIND) as file:
            groups = (file.read_row_group(number) for number in range(file.num_row_groups))
            write_models(out, groups, source)
    columns = [np.array(column) for column in zip(*measured, strict=True)]
    timings = dict(zip(("trial", "client", "seconds"), columns, strict=True))
    write_table(Path(job.out, TIMINGS), timings, "timings", source | resources_used())
