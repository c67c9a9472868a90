"""Runs (a method in a scenario) as values, and the jobs that compute them, described as json.

A job is one process: a stage of the pipeline for a range of trials. Its json names all files that
the stage reads and writes. Its folder is results/<scale>/<stage>/<data>-<method>-<key>-trials-0-4,
where the key depends on this job alone: more trials or figures add folders and rename none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

from fedrepro.core.component_notation import setting_names, setting_token
from fedrepro.core.errors import FedreproError, shown, unknown
from fedrepro.core.evaluation_schedule import EvaluationSchedule
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.params import PAIRED
from fedrepro.core.registry import SCENARIO, TUNE, component_called, components
from fedrepro.core.spec import Spec
from fedrepro.data.feature_extraction import resolved_features

TRIALS, CLIENTS = "-trials-", "-clients-"  # in a folder's name, before its blocks
PIECES = re.compile(r"-(trials|clients)-(\d{1,7}(?:-\d{1,7})?):([1-9]\d{0,6})")
METRICS, TIMINGS = "metrics.parquet", "timings.parquet"
LOCAL, MEMBERS = "local.parquet", "partition.parquet"
PUBLIC_INPUTS = "public_inputs"  # the need
DATA = "public_data"  # and the parameter of the method that names the data set
BLOCK = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


def log_path(folder: str) -> str:
    """Return the path of a job's log from its result folder: results/tiny/logs/train/x.log."""
    parts = folder.rsplit("/", 2)
    return f"{parts[0]}/logs/{parts[1]}/{parts[2]}.log" if len(parts) > 2 else f"{folder}.log"


def folders_of(text: str) -> list[str]:
    """List the folders that a text stands for: x-trials-0-3:2 is x-trials-0-1, x-trials-2-3."""
    match = PIECES.search(text)
    if not match:
        return [text]
    before, after = text[: match.start()], text[match.end() :]
    blocks = TrialBlock.parse(match[2]).cut(int(match[3]))
    return [one for b in blocks for one in folders_of(f"{before}-{match[1]}-{b}{after}")]


@dataclass(frozen=True)
class TrialBlock:
    """A range of trials or clients, `first` to `last` inclusive, written 0-9, or 3 for one."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.first < self.last else str(self.first)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __len__(self) -> int:
        return self.last - self.first + 1

    def cut(self, size: int) -> Iterator[TrialBlock]:
        """Divide this range into consecutive ranges of `size` numbers; the last may be shorter."""
        for at in range(self.first, self.last + 1, size):
            yield TrialBlock(at, min(at + size - 1, self.last))

    @staticmethod
    def parse(text: str) -> TrialBlock:
        """Read a range from text such as 0-9 or 3; raise FedreproError for other texts."""
        match = BLOCK.fullmatch(text)
        block = TrialBlock(int(match[1]), int(match[2] or match[1])) if match else None
        if block is None or block.first > block.last or str(block) != text:
            raise FedreproError(f"'{text}' is not a range; write first-last, such as 0-9, or 3")
        return block


def whole_blocks(count: int, size: int) -> list[TrialBlock]:
    """Return ranges of `size` trials that together contain `count`, the last one whole too."""
    return [TrialBlock(at, at + size - 1) for at in range(0, count, size)]


@dataclass(frozen=True)
class Scenario:
    """Data set, partition, model and training of a run; a graph for decentralised methods."""

    dataset: Spec
    partition: Spec
    model: Spec
    training: Spec
    graph: Spec | None = None

    @cached_property
    def specs(self) -> tuple[Spec, ...]:
        specs = (getattr(self, kind) for kind in SCENARIO)
        return tuple(spec for spec in specs if spec is not None)

    @cached_property
    def token(self) -> str:
        return "/".join(spec.token for spec in self.specs)

    @property
    def clients(self) -> int:
        """Return the number of clients; raise FedreproError if that depends on the data."""
        count = clients_of(self.partition)
        if count is None:
            raise FedreproError(
                f"partition '{self.partition.token}' leaves the number of clients to the data, "
                "but local models are trained in blocks of known size: give it `clients`"
            )
        return count


def specs_of(scenario: Scenario | None) -> tuple[Spec, ...]:
    return scenario.specs if scenario else ()


def clients_of(partition: Spec) -> int | None:
    """Return the number of clients of a partition, None if that depends on the data."""
    count = partition.component.meta.get("clients")
    clients: Any = count(partition.values) if count else partition.values.get("clients", 1)
    return None if clients is None else int(clients)


def public_data_of(method: Spec) -> Spec | None:
    """Return the data set whose unlabelled inputs `method` needs at the server, or None.

    Raises:
        FedreproError: the method does not name one known data set.
    """
    if PUBLIC_INPUTS not in method.component.meta["needs"]:
        return None
    name, known = method[DATA], components("dataset")
    if not isinstance(name, str) or name not in known:
        raise FedreproError(
            f"method '{method.name}': {DATA} '{name}' is not the name of one data set: known are "
            f"{', '.join(sorted(known))}"
        )
    return known[name].spec()


@dataclass(frozen=True)
class Run:
    """A method, with one or several settings of its parameters, on one data set and model.

    A run is computed by jobs, one per range of trials; settings in successive halving are one run.
    It has no scenario if it is a simulation, and no rounds to evaluate at (`every`) if its method
    is one-shot. tune: how the models are fine-tuned, or None.
    """

    scenario: Scenario | None
    method: Spec
    every: EvaluationSchedule | None = None
    tune: Spec | None = None

    @property
    def is_race(self) -> bool:
        return self.every is not None and self.every.race > 0

    @property
    def stage(self) -> str:
        return METHOD_KINDS[self.method.component.meta["kind"]].stage

    @property
    def specs(self) -> tuple[Spec, ...]:
        return (*specs_of(self.scenario), self.method, *([self.tune] if self.tune else []))

    def rows_of(self, setting: Any) -> str:
        """Return how files of metrics name a `setting` (values of the method's parameters)."""
        swept = self.scenario.training.swept if self.scenario else ()
        return setting_token(setting.method, [(key, setting[key]) for key in swept], setting.tune)


@dataclass(frozen=True)
class Job:
    """The work of one process: a stage of the pipeline, its components, inputs and output folder.

    evaluate, follow: the splits to evaluate on at the end, and after single rounds; they do not
    change the folder's name. raw, data, public: folders of raw files, of arrays, and of the public
    data set. members: the file of the partition. local: paths of local models.
    """

    stage: str
    out: str
    specs: Mapping[str, Spec]
    seed: int = 0
    every: EvaluationSchedule | None = None
    trials: TrialBlock | None = None
    clients: TrialBlock | None = None
    evaluate: tuple[str, ...] = ()
    follow: tuple[str, ...] = ()
    raw: str = ""
    data: str = ""
    members: str = ""
    local: tuple[str, ...] = ()
    public: str = ""

    @property
    def scenario(self) -> Scenario:
        return Scenario(**{kind: self.specs[kind] for kind in SCENARIO if kind in self.specs})

    @property
    def tune(self) -> Spec | None:
        return self.specs.get(TUNE)

    @property
    def models(self) -> list[str]:
        return [path for text in self.local for path in folders_of(text)]

    @property
    def before(self) -> list[str]:
        """Return the folders that this job reads, whose jobs must run before it."""
        files = [path for path in (self.members, *self.models) if path]
        return [*filter(None, (self.data, self.public)), *(f.rpartition("/")[0] for f in files)]

    @property
    def digest(self) -> str:
        """Return a hash of files, versions and parameters of the job's code, to notice changes."""
        parts = [spec.fingerprint for spec in self.specs.values()]
        if self.stage == "prepare":  # which extracts features of the data
            parts.append(resolved_features(self.specs["dataset"]))
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()

    @property
    def text(self) -> str:
        """Return the job as json text, from which `read_job` builds it again in another process."""
        specs = {kind: spec.entry for kind, spec in self.specs.items()}
        others = {k: v for k, v in vars(self).items() if k in KEYS and v not in ("", (), None)}
        others |= {key: [others[key].first, others[key].last] for key in BLOCKS if key in others}
        others |= {"every": vars(self.every)} if self.every else {}
        return json.dumps({"stage": self.stage, **specs, **others, "out": self.out})


def read_spec(kind: str, data: Any, where: str = "the job") -> Spec:
    """Build a component (data set, method, …) from its part `data` of a job's json.

    `data` has the name, and parameters as keys; `kind` is such as dataset; `where` is for errors.

    Raises:
        FedreproError: the component or one of its parameters is unknown.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        raise FedreproError(f"{where}: {kind} must be {{name: ...}}, not {shown(data)}")
    values = {key: value for key, value in data.items() if key not in ("name", PAIRED)}
    component, count = component_called(kind, data["name"], where), data.get(PAIRED)
    return component.listing(values, count, where) if count else component.spec(values, where)


SPECS = (*SCENARIO, "method", TUNE)
BLOCKS, LISTS = ("trials", "clients"), ("local", "evaluate", "follow")
KEYS = ("every", "seed", *BLOCKS, *LISTS, "raw", "data", "members", "public")


def _read(key: str, value: Any) -> Any:
    if key == "every":
        return EvaluationSchedule(value["every"], value["until"], value["race"])
    parts = value if key in (*BLOCKS, *LISTS) else [value]
    kind = int if key in (*BLOCKS, "seed") else str
    if not isinstance(parts, list) or any(type(part) is not kind for part in parts):
        raise ValueError
    if any(part < 0 if kind is int else "\x00" in part for part in parts):
        raise ValueError
    if key not in BLOCKS:
        return tuple(parts) if key in LISTS else value
    first, last = parts
    if first > last:
        raise ValueError
    return TrialBlock(first, last)


def read_job(data: Mapping[str, Any], where: str = "the job") -> Job:
    """Build a job from the content of its json; `where` names it in errors.

    Raises:
        FedreproError: a key or value is not one of a job.
    """
    known = [*SPECS, *KEYS, "stage", "out"]
    values: dict[str, Any] = {}
    specs: dict[str, Spec] = {}
    for key, value in data.items():
        if key in SPECS:
            specs[key] = read_spec(key, value, where)
            # a run in rounds may have settings of its training
            if key in SCENARIO and (key != "training" or data.get("stage") == "train"):
                specs[key].single(where)
        elif key in known:
            try:
                values[key] = _read(key, value)
            except (TypeError, ValueError, KeyError):
                raise FedreproError(f"{where}: '{key}' cannot be {shown(value)}") from None
        else:
            raise unknown("key", key, known, where)
    for key in ("stage", "out"):
        if not values.get(key):
            raise FedreproError(f"{where}: the key '{key}' is missing")
    return Job(specs=specs, **values)


# --------------------------------------------------------------------------- the jobs of a scale


@dataclass(frozen=True)
class Jobs:
    """Names the result folders of jobs (processes) of one scale and seed, and creates the jobs.

    splits: a function from a run to the example sets ("test", …) to evaluate on, as (at its end,
    after single rounds). made: by folder, a function that creates its job; names are never parsed.
    """

    scale: str
    seed: int
    clients_per_job: int | Literal["all"] = "all"
    splits: Callable[[Run], tuple[tuple[str, ...], tuple[str, ...]]] = lambda run: ((), ())
    made: dict[str, Callable[[], Job]] = field(default_factory=dict)
    _names: dict[Any, str] = field(default_factory=dict)
    _local: set[str] = field(default_factory=set)

    def job(self, folder: str) -> Job:
        return self.made[folder]()

    def dataset(self, dataset: Spec) -> str:
        """Create the job that prepares a data set; return the folder where its arrays will be."""
        folder = dataset_folder(self.scale, dataset)
        raw = f"resources/{dataset.name}"
        job = partial(Job, "prepare", folder, {"dataset": dataset}, raw=raw)
        self.made.setdefault(folder, job)
        return folder

    def partition(self, dataset: Spec, partition: Spec, trials: TrialBlock) -> str:
        """Create the job that divides a data set in these trials; return the file it will write."""
        folder = f"{self.base((dataset, partition), 'partition')}{TRIALS}{trials}"
        if folder not in self.made:
            specs, data = {"dataset": dataset, "partition": partition}, self.dataset(dataset)
            job = partial(Job, "partition", folder, specs, self.seed, trials=trials, data=data)
            self.made[folder] = job
        return f"{folder}/{MEMBERS}"

    def local(self, scenario: Scenario, trials: TrialBlock) -> str:
        """Create the jobs that train local models; return their path, for `folders_of` to list."""
        base = f"{self.base(scenario, 'train')}{TRIALS}{trials}{CLIENTS}"
        pieces = f"{base}{self.pieces_of_clients(scenario)}"
        if pieces not in self._local:  # many methods read them
            self._local.add(pieces)
            specs = {spec.kind: spec for spec in scenario.specs}
            given: dict[str, Any] = {"trials": trials, **self._data(scenario, trials)}
            for folder in folders_of(pieces):
                clients = TrialBlock.parse(folder.removeprefix(base))
                job = partial(Job, "train", folder, specs, self.seed, clients=clients, **given)
                self.made[folder] = job
        return f"{pieces}/{LOCAL}"

    def pieces_of_clients(self, scenario: Scenario) -> str:
        """Return how clients share files of local models: 0-9:5 is clients 0 to 9, 5 per file."""
        count, size = scenario.clients, self.clients_per_job
        return f"{TrialBlock(0, count - 1)}:{count if size == 'all' else size}"

    def run(self, run: Run, trials: TrialBlock) -> str:
        """Create the job that computes a run for a range of trials; return its result folder."""
        folder = f"{self.base(run, run.stage)}{TRIALS}{trials}"
        if folder not in self.made:
            self.made[folder] = partial(self._run, run, trials, folder)
        return folder

    def _run(self, run: Run, trials: TrialBlock, folder: str) -> Job:
        specs = {spec.kind: spec for spec in run.specs}
        given: dict[str, Any] = {"every": run.every, "trials": trials}
        if run.scenario:
            given |= self._data(run.scenario, trials)
            given["evaluate"], given["follow"] = self.splits(run)
            if run.every is None:
                given["local"] = (self.local(run.scenario, trials),)
            if public := public_data_of(run.method):
                given["public"] = self.dataset(public)
        return Job(run.stage, folder, specs, self.seed, **given)

    def _data(self, scenario: Scenario, trials: TrialBlock) -> dict[str, Any]:
        members = self.partition(scenario.dataset, scenario.partition, trials)
        return {"data": self.dataset(scenario.dataset), "members": members}

    def begins(self, run: Run) -> Iterator[str]:
        """Yield prefixes of all folders that the jobs of a run write, by which to find them."""
        yield self.base(run, run.stage)
        if scenario := run.scenario:
            for dataset in filter(None, (scenario.dataset, public_data_of(run.method))):
                yield dataset_folder(self.scale, dataset)
            yield self.base((scenario.dataset, scenario.partition), "partition")
            yield self.base(scenario, "train")

    def base(self, what: Any, stage: str) -> str:
        """Return results/<scale>/<stage>/<components, hash>, a folder of run or scenario `what`."""
        key = (stage, what)
        if key not in self._names:
            specs = what if isinstance(what, tuple) else what.specs
            by_kind = {spec.kind: spec for spec in specs}
            last = {"partition": "partition", "train": "model"}.get(stage, "method")
            shown_by = [by_kind[kind] for kind in ("dataset", last) if kind in by_kind]
            every = str(getattr(what, "every", None) or "")
            name = setting_names(shown_by, specs, stage, str(self.seed), every)
            self._names[key] = f"results/{self.scale}/{stage}/{name}"
        return self._names[key]


def dataset_folder(scale: str, dataset: Spec) -> str:
    return f"results/{scale}/prepare/{setting_names([dataset], [dataset])}"
