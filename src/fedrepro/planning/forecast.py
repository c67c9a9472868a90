"""How many jobs, hours and GiB a target takes before it starts.

Jobs are counted exactly: those whose file is not there. Their seconds are those of `rates`; what
has none is named, and counts nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fedrepro.core.errors import FedreproError
from fedrepro.core.kinds import STAGE_OF_TREE
from fedrepro.data.prepared import PREPARED_FILES
from fedrepro.planning.config import SCALES
from fedrepro.planning.elsewhere import public_data_of
from fedrepro.planning.fitting import doubts
from fedrepro.planning.paths import Scenario
from fedrepro.planning.plan import Exhibit, Plan
from fedrepro.planning.rates import PlannedJob, Rates, job_file

HOUR = 3600.0
STAGES = ("prepare", "partition", *dict.fromkeys(STAGE_OF_TREE.values()), "exhibit")


@dataclass
class Forecast:
    """Jobs by stage, seconds of one core and bytes; where the seconds come from, in words."""

    jobs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STAGES, 0))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    bytes: float = 0.0
    sources: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    unknown: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    notes: list[str] = field(default_factory=list)

    @property
    def hours(self) -> float:
        """Of one core."""
        return sum(self.seconds.values()) / HOUR

    def add(self, stage: str, what: str, estimate: tuple[float, str] | None) -> None:
        self.jobs[stage] += 1
        if estimate is None:
            self.unknown[what] += 1
            return
        seconds, source = estimate
        self.seconds[stage] += seconds
        self.sources[source] += 1


def forecast(plan: Plan, key: str | None) -> Forecast:
    """What an exhibit still takes, or all that are selected if none is named."""
    chosen = plan.selected if key is None else [plan.exhibit(key)]
    total = Forecast()
    rates = Rates(plan)
    asked = dict.fromkeys(
        PlannedJob(run, block)
        for exhibit in chosen
        for run, trials in exhibit.trials.items()
        for block in plan.blocks_of(run, trials)
    )
    jobs = [job for job in asked if not job_file(plan, job.run, job.trials).exists()]
    recorded = {run: exhibit for exhibit in reversed(chosen) for run in exhibit.runs}
    first = {run.scenario: exhibit for run, exhibit in recorded.items()}
    _data(plan, jobs, total)
    for scenario, trials, clients in _training(plan, jobs):
        estimate = rates.training(scenario, trials, clients, first[scenario])
        total.add("train", scenario.model.name, estimate)
        total.bytes += 4.0 * rates.parameters(scenario) * trials * clients
    for job in jobs:
        estimate = rates.methods(job, recorded[job.run])
        total.add(job.stage, job.run.method.name, estimate)
    total.jobs["exhibit"] = sum(
        not Path(plan.paths.exhibit(e.key, e.suffix)).exists() for e in chosen
    )
    total.notes.extend(note for exhibit in chosen for note in notes_of(plan, exhibit))
    if key is None:
        total.notes.extend(plan.mistakes)
    return total


def notes_of(plan: Plan, exhibit: Exhibit) -> list[str]:
    """What people should know of an exhibit before it is computed, a sentence each."""
    more: dict[tuple[int, int], None] = {}
    for run, trials in exhibit.trials.items():
        computed = plan.blocks_of(run, trials)[-1].last + 1
        if computed > trials:
            more[trials, computed] = None
    whole = [
        f"{exhibit.key}: where trials is {few}, {many} are computed, since a job does whole "
        f"blocks; granularity: {{trials_per_job: {few}}} in config/config.yaml computes no more"
        for few, many in sorted(more)
    ]
    return [*doubts(exhibit), *whole]


def parse_target(target: str, scale: str) -> tuple[str, str | None]:
    """Scale and exhibit (None: all that are selected) of a path or of a word such as pfnm/x.

    scale: that of a word which names none.
    """
    path = PurePosixPath(target)
    parts = path.with_suffix("").parts if path.name else ()
    if not parts or path.is_absolute():
        raise _no_target(target)
    if parts[:1] == ("reports",):
        parts = parts[1:]
    if parts and parts[0] in SCALES:
        scale, parts = parts[0], parts[1:]
    if not parts or parts == ("index",):
        return scale, None
    if len(parts) != 2:
        raise _no_target(target)
    return scale, "/".join(parts)


def _no_target(target: str) -> FedreproError:
    return FedreproError(
        f"'{target}' is no target; name one such as reports/paper/pfnm/figure-2a.svg, "
        "or reports/quick/index.html for a whole scale"
    )


def _data(plan: Plan, jobs: Sequence[PlannedJob], forecast: Forecast) -> None:
    """Preparing data sets and cutting them: seconds of start-up, so only their number counts."""
    scenarios = {(job.run.scenario, job.trials) for job in jobs if job.run.scenario}
    datasets = {scenario.dataset for scenario, _ in scenarios}
    datasets |= {data for job in jobs if (data := public_data_of(job.run.method))}
    folders = {plan.paths.dataset(dataset) for dataset in datasets}
    forecast.jobs["prepare"] = sum(not Path(f, PREPARED_FILES[0]).exists() for f in folders)
    cuts = {
        plan.partition_file(scenario.dataset, scenario.partition, trials)
        for scenario, trials in scenarios
    }
    forecast.jobs["partition"] = sum(not Path(path).exists() for path in cuts)


def _training(plan: Plan, jobs: Sequence[PlannedJob]) -> Iterator[tuple[Scenario, int, int]]:
    """Training jobs whose file is missing: scenario, number of trials and of clients."""
    at_once = [job for job in jobs if job.run.every is None]
    wanted = dict.fromkeys((j.run.scenario, j.trials) for j in at_once if j.run.scenario)
    for scenario, trials in wanted:
        files = plan.model_files(scenario, trials)
        for path, clients in zip(files, plan.client_pieces(scenario), strict=True):
            if not Path(path).exists():
                yield scenario, len(trials), len(clients)
