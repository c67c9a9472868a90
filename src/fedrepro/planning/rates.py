"""Seconds of jobs before they run, from what was measured before.

They come from, in this order,

1. the timings of finished jobs of the same method or the same training, per trial and client,
2. the recorded run of the same exhibit, or of another one of the scale (reports/record) that is
   most like it: with the same method or, for rounds and local training, the same network; what
   local training took tells of rounds too; shared by trials, clients and settings,
3. the measured microseconds of a minibatch (benchmarks/results/training.json), for training only.

On other data or another network, seconds are taken to grow with the multiplications of a local
model times the examples: all of them for a method, since most of what it costs is predicting them,
and those of all epochs for local training. In rounds it is the examples that clients train on, up
to the last round where a run may end sooner.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from fedrepro.core.artifacts import read_json_of, read_provenance, read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.kinds import METHOD_KINDS
from fedrepro.core.provenance import on_a_gpu
from fedrepro.core.racing import whole_runs
from fedrepro.core.spec import Spec
from fedrepro.core.tuning import tuning_of
from fedrepro.data.population import population_of
from fedrepro.data.prepared import PREPARED_FILES, read_info
from fedrepro.planning.fitting import FORMS, Form
from fedrepro.planning.paths import Scenario, TrialBlock
from fedrepro.planning.plan import Exhibit, Plan, Run

if TYPE_CHECKING:
    import pyarrow as pa

    from fedrepro.networks.network import Network

RATES = Path("benchmarks/results/training.json")
LEAST_PRODUCTS = 10_000  # below, overhead counts more than a network's size


@dataclass(frozen=True)
class PlannedJob:
    """A method in a block of trials: what one job measures."""

    run: Run
    trials: TrialBlock

    @property
    def stage(self) -> str:
        return stage_of(self.run)


def job_file(plan: Plan, run: Run, trials: TrialBlock) -> Path:
    """The metrics that one job writes."""
    return Path(plan.paths.metrics(run.scenario, run.method, trials, run.every, run.tune))


def stage_of(run: Run) -> str:
    """The stage that computes a run."""
    return METHOD_KINDS[run.method.component.meta["kind"]].stage


def setting_count(run: Run) -> int:
    """Settings that a run computes, with every tuning of what they make."""
    tuned = run.tune.expand() if run.tune else ()
    samples = sum(tuning_of(tune).repetitions for tune in tuned)
    trainings = len(list(run.scenario.training.expand())) if run.scenario else 1
    return len(list(run.method.expand())) * (1 + samples) * trainings


def whole_settings(run: Run) -> float:
    """The same from end to end; of a race, what comes to as much."""
    return whole_runs(setting_count(run)) if run.is_race else setting_count(run)


def clients_known(scenario: Scenario) -> int | None:
    """The number of clients; None where only the data can tell."""
    try:
        return scenario.clients
    except FedreproError:
        return None


def trained_on(method: Spec, training: Spec, held: float, clients: int) -> float:
    """Examples that clients, who hold so many each, train on in all rounds of a method.

    A round's minibatches are the mean of the numbers that the method lists, or whole epochs.
    """
    values: Any = method.values
    listed = [
        mean(values[name] if param.many else [values[name]])
        for name, param in method.component.params.items()
        if param.arg.unit == "minibatches" and values[name] is not None
    ]
    batch: Any = training["batch_size"] or held
    each = mean(listed) * batch if listed else values.get("epochs", 1) * held
    return float(values.get("rounds", 1) * max(1.0, values.get("fraction", 1.0) * clients) * each)


class Rates:
    """Measured speeds of this folder: finished jobs, recorded runs, benchmarks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.records: dict[tuple[str, str], tuple[float, float]] = {}
        self.orders: dict[object, list[Exhibit]] = {}
        self.names: dict[tuple[str, str], set[object]] = {}
        self.forms: dict[tuple[Spec, Spec], Form | None] = {}
        self.known: dict[str, set[bool]] = {}
        self.models: dict[str, list[float]] = defaultdict(list)  # seconds of a model by its token
        self.trials: dict[str, list[float]] = defaultdict(list)  # seconds of a trial and its work
        for run, trials in plan.trials.items():
            for block in plan.blocks_of(run, trials):
                self._read_methods(run, block)
        trained = {
            (run.scenario, block)
            for run, trials in plan.trials.items()
            for block in plan.blocks(trials)
            if run.every is None and run.scenario
        }
        for scenario, block in trained:
            self._read_training(scenario, block)

    def _read_methods(self, run: Run, trials: TrialBlock) -> None:
        table = self._timings(job_file(self.plan, run, trials))
        if table is None:
            return
        rows = table.to_pylist()
        # reading and measuring belong to no setting alone: they are shared out by its seconds
        whole = read_provenance(table).get("cpu_seconds", 0.0)
        more = max(1.0, whole / max(1e-9, sum(row["seconds"] for row in rows)))
        more *= setting_count(run) / whole_settings(run)  # a race stops some early
        for row in rows:
            seconds = row["seconds"] * more / self.work(run)
            self.trials[run.method.name].append(seconds)

    def _read_training(self, scenario: Scenario, trials: TrialBlock) -> None:
        for model in self.plan.model_files(scenario, trials):
            table = self._timings(Path(model))
            if table is not None:
                seconds = table["seconds"].to_pylist()
                each = sum(seconds) / len(seconds)
                self.models[self._kind(scenario)].append(each * scenario.clients)

    def _timings(self, file: Path) -> pa.Table | None:
        """What a finished job took; None where there is none, or where it ran on another device."""
        path = file.with_name("timings.parquet")
        if not path.exists():
            return None
        table = read_table(path, "timings")
        on_gpu = read_provenance(table).get("device", "cpu") != "cpu"
        return table if on_gpu == (self.plan.config.device == "cuda") else None

    def _kind(self, scenario: Scenario) -> str:
        return "/".join(s.token for s in (scenario.dataset, scenario.model, scenario.training))

    def training(
        self, scenario: Scenario, trials: int, clients: int, exhibit: Exhibit
    ) -> tuple[float, str] | None:
        """Seconds to train these models: all clients of a trial together see the data once."""
        share = trials * clients / scenario.clients
        known = self.models[self._kind(scenario)]
        if known:
            return sum(known) / len(known) * share, "timings of finished training jobs"
        if self.form(scenario) is None:
            return None
        size = self.local_work(scenario) * share
        for other in self.alike(exhibit, "train", None, scenario):
            whole, took = self._recorded(other, "train")
            if whole:
                return took * size / whole, f"the recorded run of {other.key}"
        if not RATES.exists():
            return None
        fields = {"microseconds_a_minibatch": float, "multiplications_a_minibatch": int}
        measured = read_json_of(RATES, fields)
        rate = measured["microseconds_a_minibatch"] / measured["multiplications_a_minibatch"]
        return size * rate * 1e-6, "the training benchmark's seconds for a minibatch"

    def methods(self, job: PlannedJob, exhibit: Exhibit) -> tuple[float, str] | None:
        """Seconds of a method over the trials of a job."""
        run = job.run
        known = self.trials.get(run.method.name)
        if known:
            each = sum(known) / len(known) * whole_settings(run)
            return each * len(job.trials) * self.work(run), "timings of the same methods"
        alike = self.alike(exhibit, job.stage, run.method.name, run.scenario)
        stages = (job.stage, "train") if job.stage == "federate" else (job.stage,)
        for other, stage in product(alike, stages):
            whole, took = self._recorded(other, stage)
            if whole:
                share = self._size(run, len(job.trials)) / whole
                return took * share, f"the recorded run of {other.key}"
        return None

    def alike(
        self, exhibit: Exhibit, stage: str, method: str | None, scenario: Scenario | None
    ) -> list[Exhibit]:
        """An exhibit and all others, as they can tell its seconds, which are those of all runs.

        First those with the method; in rounds, which are local training for the most part, and in
        training those with this network, then with one of its kind and nearly its size: small
        convolutions take several times as long for a multiplication as wide ones. Then those that
        share most of their methods, networks and data. Where the form of data is not known, as
        until they are prepared, work can be compared with that of such data only.
        """
        model = scenario.model if scenario else None
        key = exhibit.key, stage, method, scenario
        if key not in self.orders:
            ours = self._names(exhibit, stage)
            known = {self.form(scenario) is not None} if scenario else set()

            def unlike(other: Exhibit) -> tuple[float, ...]:
                theirs = self._names(other, stage)
                network = model not in theirs, model is not None and model.name not in theirs
                trained = () if stage == "aggregate" else network
                return (
                    *trained,
                    method is not None and method not in theirs,
                    0.0 if stage == "aggregate" else self._apart(other, scenario),
                    1 - len(ours & theirs) / len(ours | theirs),
                )

            others = [
                other
                for other in self.plan.exhibits.values()
                if other is not exhibit and self._known(other) == known
            ]
            self.orders[key] = [exhibit, *sorted(others, key=unlike)]
        return self.orders[key]

    def _names(self, exhibit: Exhibit, stage: str) -> set[object]:
        """Paper, methods of a stage, networks, their kinds and data of an exhibit."""
        if (exhibit.key, stage) not in self.names:
            cases = {run.scenario for run in exhibit.runs if run.scenario}
            names: set[object] = {exhibit.key.partition("/")[0]}
            names |= {run.method.name for run in exhibit.runs if stage_of(run) == stage}
            names |= {
                part for case in cases for part in (case.model, case.model.name, case.dataset)
            }
            self.names[exhibit.key, stage] = names
        return self.names[exhibit.key, stage]

    def _apart(self, exhibit: Exhibit, scenario: Scenario | None) -> float:
        """How often the multiplications of its nearest network of that kind double, or halve."""
        if scenario is None or not (products := self.products(scenario)):
            return 0.0
        cases = {run.scenario for run in exhibit.runs if run.scenario}
        sizes = {self.products(case) for case in cases if case.model.name == scenario.model.name}
        return min(
            (abs(round(math.log2(size / products))) for size in sizes if size), default=math.inf
        )

    def _known(self, exhibit: Exhibit) -> set[bool]:
        """Whether the form of its data is known; both, where it is of some."""
        if exhibit.key not in self.known:
            cases = {run.scenario for run in exhibit.runs if run.scenario}
            self.known[exhibit.key] = {self.form(case) is not None for case in cases}
        return self.known[exhibit.key]

    def _recorded(self, exhibit: Exhibit, stage: str) -> tuple[float, float]:
        """The size of all recorded work of a stage, 0 where it tells nothing, and its seconds."""
        key = exhibit.key, stage
        if key not in self.records:
            path = Path(f"reports/record/{self.plan.scale}/{exhibit.key}.run.json")
            run = read_json_of(path, {}) if path.exists() else {}
            took = (run.get("seconds", {}) | run.get("cpu_seconds", {})).get(stage)
            if on_a_gpu(run) != (self.plan.config.device == "cuda"):
                took = None
            whole = 0.0 if took is None else self._whole(exhibit, stage)
            self.records[key] = whole * self._recorded_share(exhibit), took or 0.0
        return self.records[key]

    def _recorded_share(self, exhibit: Exhibit) -> float:
        """Trials of the recorded run for each that an exhibit has now, by what all cases have."""
        path = Path(f"reports/record/{self.plan.scale}/{exhibit.key}.json")
        then = read_json_of(path, {"trials": int})["trials"] if path.exists() else None
        return float(then or exhibit.settings.trials) / exhibit.settings.trials

    def _whole(self, exhibit: Exhibit, stage: str) -> float:
        """The size of all work of a stage that an exhibit takes."""
        if stage != "train":
            like = {run: n for run, n in exhibit.trials.items() if stage_of(run) == stage}
            return sum(self._size(run, self._computed(run, n)) for run, n in like.items())
        trained = dict.fromkeys(
            (run.scenario, block)
            for run, trials in exhibit.trials.items()
            for block in self.plan.blocks_of(run, trials)
            if run.every is None and run.scenario
        )
        return sum(self.local_work(scenario) * len(block) for scenario, block in trained)

    def work(self, run: Run) -> float:
        """What seconds of a trial are taken to grow with: size of a model times examples.

        Each client's model predicts all of them, or clients train on some of theirs in each round.
        Blocks of a simulation take what they take.
        """
        if run.scenario is None:
            return 1.0
        form = self.form(run.scenario)
        examples = form[2] if form else 1
        clients = clients_known(run.scenario) or 1
        if run.every is None:
            passes = float(clients * examples)
        else:
            passes = mean(
                trained_on(method, training, examples / clients, clients)
                for method in run.method.expand()
                for training in run.scenario.training.expand()
            )
        return passes * max(LEAST_PRODUCTS, self.products(run.scenario))

    def _computed(self, run: Run, trials: int) -> int:
        """Trials that jobs compute where so many are asked for: whole blocks."""
        return sum(map(len, self.plan.blocks_of(run, trials)))

    def _size(self, run: Run, trials: int) -> float:
        return trials * whole_settings(run) * self.work(run)

    def parameters(self, scenario: Scenario) -> int:
        """Numbers in one model; 0 where the form of the data is not known yet."""
        network = self._network(scenario)
        return sum(map(math.prod, network.shapes.values())) if network else 0

    def products(self, scenario: Scenario) -> int:
        """Multiplications of one model for an example; 0 where the form is not known yet."""
        network = self._network(scenario)
        return network.products if network else 0

    def _network(self, scenario: Scenario) -> Network | None:
        from fedrepro.networks.predict import network_of

        form = self.form(scenario)
        return network_of(scenario.model, form[0], form[1]) if form else None

    def local_work(self, scenario: Scenario) -> float:
        """Multiplications of a forward pass over all examples in all epochs of one trial."""
        form = self.form(scenario)
        examples = form[2] if form else 0
        products = max(LEAST_PRODUCTS, self.products(scenario))
        epochs: Any = scenario.training["epochs"]
        return float(examples * epochs * products)

    def form(self, scenario: Scenario) -> Form | None:
        """That of a scenario's data, None where it is not known yet."""
        key = scenario.dataset, scenario.partition
        if key not in self.forms:
            self.forms[key] = self._form(*key)
        return self.forms[key]

    def _form(self, dataset: Spec, partition: Spec) -> Form | None:
        folder = Path(self.plan.paths.dataset(dataset))
        if Path(folder, PREPARED_FILES[0]).exists():
            info = read_info(folder)
            examples = sum(info["counts"]["train"])
            population = population_of(dataset, partition)
            if population:  # clients that it keeps stand for those that it makes
                examples = examples * population.clients // population.made.kept
            return tuple(info["shape"]), len(info["classes"]), examples
        return FORMS.get(dataset.name)
