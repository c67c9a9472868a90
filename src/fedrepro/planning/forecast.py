"""Forecast of the jobs and hours that one figure or table, or all of them, still take.

Jobs whose files are missing count. Seconds per multiplication of a network were measured: of jobs
of equal stage, model and method finished here, else of less alike ones, or of reports/record.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.core.checksummed_files import read_json, read_provenance, read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.evaluation_schedule_and_successive_halving import whole_runs
from fedrepro.core.method_kinds import STAGES as COMPUTING
from fedrepro.core.spec import Spec
from fedrepro.data.prepared import PREPARED_FILES, read_info
from fedrepro.planning.plan import Plan, Run
from fedrepro.planning.scenarios_runs_and_jobs import TIMINGS, Job, Scenario, clients_of

STAGES = ("prepare", "partition", *COMPUTING, "exhibit")
# of data sets that are not prepared yet: shape of an example, classes, training examples
FORMS: dict[str, tuple[tuple[int, ...], int, int]] = {
    "digits": ((8, 8), 10, 1437),
    **dict.fromkeys(("mnist", "fashion_mnist"), ((28, 28), 10, 60_000)),
    "cifar10": ((3, 32, 32), 10, 50_000),
}
SIZE, NAME = r"(?:(tiny|quick|paper)(?:/|$))?", r"(?:index|([^/]+/[^/.]+))?"
TARGET = re.compile(rf"(?:reports/)?{SIZE}{NAME}(?:\.\w+)*")
LEAST_PRODUCTS = 10_000  # below, overhead counts more than a network's size
Key = tuple[str, str, str]  # stage, model, method; "" is any model or method


@dataclass
class Forecast:
    """Work left, by stage: `jobs` to run, their `seconds` on one core, jobs of `unknown` time."""

    jobs: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    unknown: Counter[str] = field(default_factory=Counter)

    @property
    def hours(self) -> float:
        return sum(self.seconds.values()) / 3600


def forecast(plan: Plan, key: str | None) -> Forecast:
    """Estimate the work left for exhibit `key` (paper/name), or if None for all in config.yaml."""
    chosen = plan.selected if key is None else [plan.exhibit(key)]
    total, rates = Forecast(), _rates(plan)
    files = [path for exhibit in chosen for path in plan.metrics_files(exhibit)]
    needed = plan.needed(*(path.rpartition("/")[0] for path in files if not Path(path).exists()))
    left = [job for job in needed if not Path(job.result).exists()]
    total.jobs.update(job.stage for job in left)
    for job in (job for job in left if job.stage in COMPUTING):
        rate = next((rates[key] for key in _keys(job) if key in rates), 0.0)
        # no work is known of data that are not prepared and have no entry in FORMS
        if seconds := rate * _work(plan, job):
            total.seconds[job.stage] += seconds
        else:
            total.unknown[job.stage] += 1
    drawn = (plan.exhibit_file(exhibit.key, exhibit.suffix) for exhibit in chosen)
    total.jobs["exhibit"] = sum(not Path(file).exists() for file in drawn)
    return total


def _rates(plan: Plan) -> dict[Key, float]:
    """Return {(stage, model, method): seconds per multiplication} of finished or recorded jobs."""
    recorded, finished = defaultdict[Key, list[float]](list), defaultdict[Key, list[float]](list)
    cuda = plan.config.device == "cuda"
    for exhibit in plan.exhibits.values():
        works = [(job, _work(plan, job)) for job in plan.jobs_of(exhibit) if job.stage in COMPUTING]
        for job, work in works:
            if work and (timings := Path(job.out, TIMINGS)).exists():
                about = read_provenance(table := read_table(timings, "timings"))
                if (about.get("device", "cpu") != "cpu") == cuda:
                    took = about.get("cpu_seconds") or sum(table["seconds"].to_pylist())
                    for each in set(_keys(job)):
                        finished[each].append(took / work)
        path = Path(f"reports/record/{plan.scale}/{exhibit.key}.json")
        run = read_json(path, {"run": dict})["run"] if path.exists() else {}
        for stage, took in (run.get("seconds", {}) | run.get("cpu_seconds", {})).items():
            whole = sum(work for job, work in works if job.stage == stage)
            if whole and cuda == any(m["device"] != "cpu" for m in run.get("machines", ())):
                alike = (_keys(job)[2:] for job, _ in works if job.stage == stage)
                for each in set(chain(*alike)):
                    recorded[each].append(took / whole)
    return {key: float(np.median(each)) for key, each in (recorded | finished).items()}


def _keys(job: Job) -> list[Key]:
    """List keys (stage, model, method) of speeds that fit a job, from most to least specific."""
    model, method = (job.specs[k].name if k in job.specs else "" for k in ("model", "method"))
    return [(job.stage, *key) for key in ((model, method), ("", method), (model, ""), ("", ""))]


def parse_target(target: str, scale: str) -> tuple[str, str | None]:
    """Split `target`, a path in reports/ such as quick/pfnm/figure-2a.svg, into (scale, key).

    The key names a figure or table, None all. A target without tiny, quick or paper is of `scale`.
    """
    found = TARGET.fullmatch(target)
    if found and target:
        return found[1] or scale, found[2]
    said = f"'{target}' is not a target; use a path such as reports/paper/pfnm/figure-2a.svg,"
    raise FedreproError(f"{said} or reports/quick/index.html for a whole scale")


def whole_settings(run: Run) -> float:
    """Count the models that a run computes per trial; one that stops early counts as a fraction."""
    samples = sum(tune["repetitions"] for tune in run.tune.expand()) if run.tune else 0
    trainings = len(list(run.scenario.training.expand())) if run.scenario else 1
    count = len(list(run.method.expand())) * (1 + samples) * trainings
    return whole_runs(count) if run.is_race else count


def trained_on(method: Spec, training: Spec, held: float, clients: int) -> float:
    """Estimate how many examples all clients use in all rounds, each counted as often as used.

    Each of `clients` clients holds `held` examples. In a round it takes as many minibatches as a
    parameter of `method` says, else its epochs.
    """
    values: Any = method.values
    counts = (values[k] for k, p in method.component.params.items() if p.arg.unit == "minibatches")
    listed = [np.mean(count) for count in counts if count is not None]
    batch: Any = training["batch_size"] or held
    each = np.mean(listed) * batch if listed else values.get("epochs", 1) * held
    return float(values.get("rounds", 1) * max(1.0, values.get("fraction", 1.0) * clients) * each)


def _work(plan: Plan, job: Job) -> float:
    """Estimate a job's work in multiplications, or a simulation's in trials times settings."""
    trials, method = float(len(job.trials or ())), job.specs.get("method")
    scenario = job.scenario if "dataset" in job.specs else None
    if method:
        trials *= whole_settings(Run(scenario, method, job.every, job.tune))
    if scenario is None:
        return trials
    try:
        products, examples = _network(plan, scenario)
    except FedreproError:  # it does not fit its data
        return 0.0
    clients = clients_of(scenario.partition) or 1  # where it depends on the data
    if job.clients:
        passes: float = len(job.clients) / clients * scenario.training["epochs"] * examples
    elif method and job.every is not None:
        pairs = product(method.expand(), scenario.training.expand())
        trained = [trained_on(*pair, examples / clients, clients) for pair in pairs]
        passes = float(np.mean(trained))
    else:
        passes = float(clients * examples)
    return trials * passes * max(LEAST_PRODUCTS, products)


def _network(plan: Plan, scenario: Scenario) -> tuple[int, int]:
    """Return (multiplications of the network per example, training examples)."""
    from fedrepro.networks.predict import network_of

    folder = Path(plan.dataset(scenario.dataset))
    shape, classes, examples = FORMS.get(scenario.dataset.name, ((), 0, 0))
    if Path(folder, PREPARED_FILES[0]).exists():
        info = read_info(folder)
        shape, classes = tuple(info["shape"]), len(info["classes"])
        examples = sum(info["counts"]["train"])
    return (network_of(scenario.model, shape, classes).products if examples else 0), examples
