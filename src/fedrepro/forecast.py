"""How many jobs, hours and GiB a target takes before it starts, from what was measured before.

Jobs are counted exactly: those whose file is not there. Seconds come from, in this order,

1. the timings of finished jobs of the same method or the same training, per trial and client,
2. the recorded run of the same exhibit, or of another one of the scale (reports/record), shared
   by trials, clients and settings,
3. the measured microseconds of a minibatch (benchmarks/results/training.json), for training only.

On other data or another network, seconds of methods are taken to grow with the parameters of a
local model times the examples: most of what a method costs is predicting all of them.
What has none of these is named, and counts nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from fedrepro.artifacts import read_json_of, read_provenance, read_table
from fedrepro.config import SCALES, Config, ExhibitFile
from fedrepro.data.prepared import PREPARED_FILES, read_info
from fedrepro.errors import FedreproError
from fedrepro.paths import Block, Scenario
from fedrepro.plan import Exhibit, Plan, Run
from fedrepro.spec import Spec

RATES = Path("benchmarks/results/training.json")
# Form of one example, classes and training examples, until a data set is prepared and says itself.
FORMS: dict[str, tuple[tuple[int, ...], int, int]] = {
    "digits": ((8, 8), 10, 1437),
    "mnist": ((28, 28), 10, 60_000),
    "fashion_mnist": ((28, 28), 10, 60_000),
    "cifar10": ((3, 32, 32), 10, 50_000),
}
HOUR = 3600.0
LEAST_PARAMETERS = 10_000  # below, overhead counts more than a network's size
STAGES = ("prepare", "partition", "train", "aggregate", "federate", "exhibit")


@dataclass
class Forecast:
    """Jobs by stage, seconds of one core and bytes; where the seconds come from, in words."""

    jobs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STAGES, 0))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    bytes: float = 0.0
    sources: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    unknown: dict[str, int] = field(default_factory=lambda: defaultdict(int))

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


def forecast(target: str, config: Config, files: dict[str, ExhibitFile]) -> Forecast:
    """What `target` still takes: an exhibit's path, or reports/<scale>/index.html for a scale."""
    scale, key = parse_target(target, config)
    plan = Plan(config, files, scale)
    chosen = plan.selected if key is None else [plan.exhibit(key)]
    found = Forecast()
    rates = Rates(plan)
    runs = dict.fromkeys(run for exhibit in chosen for run in exhibit.runs if not _there(plan, run))
    recorded = {run: exhibit for exhibit in reversed(chosen) for run in exhibit.runs}
    _data(plan, runs, found)
    for scenario, trials, clients in _training(plan, runs):
        found.add("train", scenario.model.name, rates.training(scenario, trials, clients))
        found.bytes += 4.0 * rates.parameters(scenario) * trials * clients
    for run in runs:
        stage = "federate" if run.federated else "aggregate"
        names = ", ".join(method.name for method in run.methods)
        found.add(stage, names, rates.methods(run, stage, recorded[run]))
    found.jobs["exhibit"] = sum(
        not Path(plan.paths.exhibit(e.key, ".svg")).exists() for e in chosen
    )
    return found


def parse_target(target: str, config: Config) -> tuple[str, str | None]:
    """Scale and exhibit (None: all that are selected) of a path or of a word such as pfnm/x."""
    parts = PurePosixPath(target).with_suffix("").parts
    if parts[:1] == ("reports",):
        parts = parts[1:]
    scale = config.scale
    if parts and parts[0] in SCALES:
        scale, parts = parts[0], parts[1:]
    if not parts or parts == ("index",):
        return scale, None
    if len(parts) != 2:
        raise FedreproError(
            f"'{target}' is no target; name one such as reports/paper/pfnm/figure-2a.svg, "
            "or reports/quick/index.html for a whole scale"
        )
    return scale, "/".join(parts)


def _there(plan: Plan, run: Run) -> bool:
    return Path(plan.metrics_file(run)).exists()


def _data(plan: Plan, runs: Iterable[Run], found: Forecast) -> None:
    """Preparing data sets and cutting them: seconds of start-up, so only their number counts."""
    scenarios = [run.scenario for run in runs]
    folders = {plan.paths.dataset(scenario.dataset) for scenario in scenarios}
    found.jobs["prepare"] = sum(not Path(f, PREPARED_FILES[0]).exists() for f in folders)
    cuts = {plan.partition_file(scenario.dataset, scenario.partition) for scenario in scenarios}
    found.jobs["partition"] = sum(not Path(path).exists() for path in cuts)


def _training(plan: Plan, runs: Iterable[Run]) -> Iterator[tuple[Scenario, int, int]]:
    """Training jobs whose file is missing: scenario, number of trials and of clients."""
    seen: set[str] = set()
    for run in runs:
        if run.federated:
            continue
        for path in plan.model_files(run.scenario, run.block):
            if path not in seen and not Path(path).exists():
                seen.add(path)
                parts = PurePosixPath(path).parts[-3:-1]
                trials, clients = (Block.parse(part.partition("=")[2]) for part in parts)
                yield run.scenario, len(list(trials)), len(list(clients))


class Rates:
    """Measured speeds of this folder: finished jobs, recorded runs, benchmarks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.models: dict[str, list[float]] = defaultdict(list)  # seconds of a model by its token
        self.trials: dict[str, list[float]] = defaultdict(list)  # seconds of a trial and its work
        for run in plan.runs:
            self._read(run)

    def _read(self, run: Run) -> None:
        path = Path(self.plan.metrics_file(run)).with_name("timings.parquet")
        if path.exists():
            table = read_table(path, "timings")
            rows = table.to_pylist()
            # reading and measuring belong to no method alone: they are shared out by its seconds
            whole = read_provenance(table).get("cpu_seconds", 0.0)
            more = max(1.0, whole / max(1e-9, sum(row["seconds"] for row in rows)))
            for row in rows:
                name = row.get("method", "").partition("+")[0]
                self.trials[name].append(row["seconds"] * more / self.work(run.scenario))
        if run.federated:
            return
        for model in self.plan.model_files(run.scenario, run.block):
            times = Path(model).with_name("timings.parquet")
            if times.exists():
                given = read_table(times, "timings")["seconds"].to_pylist()
                each = sum(given) / len(given)
                self.models[self._kind(run.scenario)].append(each * run.scenario.clients)

    def _kind(self, scenario: Scenario) -> str:
        return "/".join(s.token for s in (scenario.dataset, scenario.model, scenario.training))

    def training(self, scenario: Scenario, trials: int, clients: int) -> tuple[float, str] | None:
        """Seconds to train these models: all clients of a trial together see the data once."""
        share = trials * clients / scenario.clients
        known = self.models[self._kind(scenario)]
        if known:
            return sum(known) / len(known) * share, "timings of finished training jobs"
        form = self.form(scenario.dataset)
        if form is None or not RATES.exists():
            return None
        steps = self.steps(scenario, form[2]) * share
        measured = read_json_of(RATES, {"microseconds_a_minibatch": float, "parameters": int})
        rate = measured["microseconds_a_minibatch"] * 1e-6
        # the cost of a minibatch grows with the parameters; small models cost their overhead
        rate *= max(0.2, self.parameters(scenario) / measured["parameters"])
        return steps * rate, "the training benchmark's seconds for a minibatch"

    def methods(self, run: Run, stage: str, exhibit: Exhibit) -> tuple[float, str] | None:
        """Seconds of the run's methods over its trials."""
        settings = [setting for method in run.methods for setting in method.expand()]
        known = [self.trials.get(setting.name) for setting in settings]
        if all(known):
            each = sum(sum(seconds) / len(seconds) for seconds in known if seconds)
            return each * run.trials * self.work(run.scenario), "timings of the same methods"
        for other in (exhibit, *self.plan.exhibits.values()):
            path = Path(f"reports/record/{self.plan.scale}/{other.key}.run.json")
            sizes = [self._size(one) for one in other.runs if one.federated == run.federated]
            if path.exists() and sizes:
                took = read_json_of(path, {"seconds": dict})
                total = float((took["seconds"] | took.get("cpu_seconds", {})).get(stage, 0.0))
                return total * self._size(run) / sum(sizes), f"the recorded run of {other.key}"
        return None

    def work(self, scenario: Scenario) -> float:
        """What seconds of a trial are taken to grow with: clients, size of a model, examples."""
        form = self.form(scenario.dataset)
        examples = form[2] if form else 1
        return float(scenario.clients * max(LEAST_PARAMETERS, self.parameters(scenario)) * examples)

    def _size(self, run: Run) -> float:
        settings = sum(len(list(method.expand())) for method in run.methods)
        return run.trials * settings * self.work(run.scenario)

    def parameters(self, scenario: Scenario) -> int:
        """Numbers in one model; 0 where the form of the data is not known yet."""
        from fedrepro.networks.predict import network_of

        form = self.form(scenario.dataset)
        if form is None:
            return 0
        shapes = network_of(scenario.model, form[0], form[1]).shapes.values()
        return sum(math.prod(shape) for shape in shapes)

    def steps(self, scenario: Scenario, examples: int) -> float:
        """Minibatches of one trial of all clients."""
        values: Any = scenario.training.values
        each = math.ceil(examples / scenario.clients / values["batch_size"])
        return float(each * scenario.clients * values["epochs"])

    def form(self, dataset: Spec) -> tuple[tuple[int, ...], int, int] | None:
        """Shape of an example, classes, training examples."""
        folder = Path(self.plan.paths.dataset(dataset))
        if Path(folder, PREPARED_FILES[0]).exists():
            info = read_info(folder)
            return tuple(info["shape"]), len(info["classes"]), sum(info["counts"]["train"])
        return FORMS.get(dataset.name)
