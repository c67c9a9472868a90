"""Stage simulate: run methods that simulate a process by themselves, without data or a model."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from fedrepro.api import Simulated
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import MetricRow, Table
from fedrepro.core.provenance import provenance
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.planning.scenarios_runs_and_jobs import Job
from fedrepro.stages.job_log_results_gpu_lock import log, write_measured


def run(job: Job) -> None:
    """Run a job's simulation per trial and choice of parameters; write metrics and times."""
    method, seed, table = job.specs["method"], job.seed, Table(())
    assert job.trials is not None
    measured: list[tuple[int, str, float]] = []
    for trial in job.trials:
        for setting in method.expand():
            began = time.perf_counter()
            simulated = setting.component.make(Simulated, rng=RngKey(seed, trial), **setting.values)
            table.add(_rows(trial, setting, simulated))
            measured.append((trial, setting.token, time.perf_counter() - began))
        log(f"trial {trial}: {method.name}")
    source = provenance(seed, specs=(method,), path=method.token)
    columns = dict(zip(("trial", "method", "seconds"), zip(*measured, strict=True), strict=True))
    write_measured(job, columns, table, source)


def _rows(trial: int, setting: Spec, simulated: Simulated) -> Iterator[MetricRow]:
    """Yield metrics of each step; then, with round None, the last step's and the whole run's."""
    rounds = simulated.rounds
    if not rounds:
        raise FedreproError(f"simulation '{setting.name}' took no step; let it take at least one")
    for step, numbers in (*rounds.items(), (None, rounds[max(rounds)]), (None, simulated.ended)):
        for metric, value in numbers.items():
            of_all = np.ndim(value) == 0  # one number for all nodes
            for node, v in [(None, value)] if of_all else enumerate(np.asarray(value)):
                yield MetricRow(trial, setting, metric, float(v), round=step, client=node)
