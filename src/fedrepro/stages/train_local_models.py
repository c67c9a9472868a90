"""Stage train: train the local models of a range of clients and trials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa

from fedrepro.core.checkpoint_and_model_files import KIND, model_rows
from fedrepro.core.checksummed_files import write_table
from fedrepro.core.provenance import resources_used
from fedrepro.networks.predict import network_of
from fedrepro.planning.scenarios_runs_and_jobs import LOCAL, TIMINGS, Job
from fedrepro.stages.job_log_results_gpu_lock import log
from fedrepro.stages.trial_data import ScenarioData
from fedrepro.training.engine import train
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.flat_models_and_optimiser_steps import Layout
from fedrepro.training.loss_terms import with_prior
from fedrepro.training.minibatches_and_augmentation import Task
from fedrepro.training.training_examples import Examples
from fedrepro.training.training_settings_and_procedures import settings_of

# Bytes of weights that are trained at once; a few copies of them exist in memory meanwhile.
SLICE_BYTES = 128 * 2**20


def run(job: Job, device: str = "cpu") -> None:
    """Train the local models of a job, many at once, and write them as soon as they are trained."""
    scenario, trials, clients, out = job.scenario, job.trials, job.clients, Path(job.out, LOCAL)
    assert trials is not None
    assert clients is not None
    given = ScenarioData.of(job, device)
    network = network_of(scenario.model, given.prepared.shape, len(given.prepared.classes))
    settings, source = settings_of(scenario.training), given.source(scenario.token)
    measured: list[tuple[int, int, float]] = []

    def models() -> Iterator[pa.Table]:
        each = [given.trial(trial) for trial in trials]
        # trials are trained together unless their inputs differ by noise
        noisy = any(data.members.noise is not None for data in each)
        most = max(1, SLICE_BYTES // (4 * Layout(network.shapes).size))
        for together in [[data] for data in each] if noisy else [each]:
            examples = replace(together[0]).held  # a copy, so that no trial keeps its noisy inputs
            pairs = product(together, clients)
            every = [Task(own.members.train[j], own.rng.at(client=j)) for own, j in pairs]
            for at in range(0, len(every), most):
                yield from trained_together(every[at : at + most], examples)

    def trained_together(tasks: list[Task], examples: Examples) -> Iterator[pa.Table]:
        log(f"training {len(tasks)} models, {given.device}")
        starts = initial_weights(network, settings, [task.rng for task in tasks])
        loaded, rows = examples.of([task.rows for task in tasks])
        tasks = [replace(task, rows=own) for task, own in zip(tasks, rows, strict=True)]
        terms = with_prior(network, ())
        trained = train(network, loaded, tasks, settings, starts, terms=terms).checked()
        epochs = None
        if settings.patience > 0:
            steps = zip(trained.steps, tasks, strict=True)
            epochs = [int(own) // task.per_epoch(settings.batch_size) for own, task in steps]
        each = trained.seconds / max(1, int(trained.steps.sum()))
        log(f"{trained.seconds:.1f} s, {each * 1e6:.0f} µs a step")
        places = [task.rng.trial for task in tasks], [task.rng.client for task in tasks]
        measured.extend(zip(*places, (trained.steps * each).tolist(), strict=True))
        return model_rows(*places, [len(task.rows) for task in tasks], trained.tensors, epochs)

    write_table(out, models(), KIND, source)
    columns = map(np.array, zip(*measured, strict=True))
    timings = dict(zip(("trial", "client", "seconds"), columns, strict=True))
    write_table(Path(job.out, TIMINGS), timings, "timings", source | resources_used())
