"""Runs as values, and the jobs that compute them: each is written down once, as json.

A job is one stage on one block of trials. Its json names everything that the stage reads and
writes, so that a rule of the workflow, a cluster, a machine without Snakemake, an entry and a check
run the stage in one way. Its folder is results/<scale>/<stage>/<data>-<method>-<key>-trials-0-4,
where the key depends on this job alone: more trials or exhibits add folders and rename none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any, Literal

from fedrepro.core.errors import FedreproError, shown, unknown
from fedrepro.core.evaluation_schedule import EvaluationSchedule
from fedrepro.core.finetuning import KIND as TUNE_KIND
from fedrepro.core.finetuning import TUNE
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.params import PAIRED
from fedrepro.core.registry import SCENARIO, components
from fedrepro.core.spec import Spec
from fedrepro.core.tokens import setting_names, setting_token
from fedrepro.data.feature_extraction import resolved_features

TRIALS, CLIENTS = "-trials-", "-clients-"  # in a folder's name, before its blocks
PIECES = re.compile(r"-(trials|clients)-(\d{1,7}(?:-\d{1,7})?):([1-9]\d{0,6})")
METRICS, TIMINGS = "metrics.parquet", "timings.parquet"
LOCAL, MEMBERS = "local.parquet", "partition.parquet"
PUBLIC_INPUTS = "public_inputs"  # the need
DATA = "public_data"  # and the parameter of the method that names the data set
BLOCK = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


def log_of(folder: str) -> str:
    """Name the log of the job of a folder: results/tiny/logs/train/x.log."""
    parts = folder.rsplit("/", 2)
    return f"{parts[0]}/logs/{parts[1]}/{parts[2]}.log" if len(parts) > 2 else f"{folder}.log"


def folders_of(text: str) -> list[str]:
    """Name each folder of a text of `Plan.pieces`.

    x-trials-0-3:2 stands for x-trials-0-1 and x-trials-2-3.
    """
    match = PIECES.search(text)
    if not match:
        return [text]
    before, after = text[: match.start()], text[match.end() :]
    blocks = TrialBlock.parse(match[2]).cut(int(match[3]))
    return [one for b in blocks for one in folders_of(f"{before}-{match[1]}-{b}{after}")]


@dataclass(frozen=True)
class TrialBlock:
    """A range of trials or clients, both ends included; written 0-9, or 3 for a single one."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.first < self.last else str(self.first)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __len__(self) -> int:
        return self.last - self.first + 1

    def cut(self, size: int) -> Iterator[TrialBlock]:
        """Yield its parts of one size; the last may be shorter."""
        for at in range(self.first, self.last + 1, size):
            yield TrialBlock(at, min(at + size - 1, self.last))

    @staticmethod
    def parse(text: str) -> TrialBlock:
        """Read the text of a block; refuse others."""
        match = BLOCK.fullmatch(text)
        block = TrialBlock(int(match[1]), int(match[2] or match[1])) if match else None
        if block is None or block.first > block.last or str(block) != text:
            raise FedreproError(f"'{text}' is not a range; write first-last, such as 0-9, or 3")
        return block


def whole_blocks(count: int, size: int) -> list[TrialBlock]:
    """Return blocks of `size` that together hold 0 … count-1; the last one is whole as well.

    More trials add blocks and rename none.
    """
    return [TrialBlock(at, at + size - 1) for at in range(0, count, size)]


@dataclass(frozen=True)
class Scenario:
    """Data set × partition × model × local training, before any method.

    graph: whom the clients hear, for peer methods; None for all others.
    """

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
        """Return the tokens of its components, which files are marked with."""
        return "/".join(spec.token for spec in self.specs)

    @property
    def clients(self) -> int:
        """Return the number of clients; refuse where only the data can tell."""
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
    """Return the number of clients of a partition, None if only the data can tell."""
    count = partition.component.meta.get("clients")
    clients: Any = count(partition.values) if count else partition.values.get("clients", 1)
    return None if clients is None else int(clients)


def public_data_of(method: Spec) -> Spec | None:
    """Return the data set whose unlabelled inputs a method has at the server, if it needs one.

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
    """A method, perhaps a sweep, that is measured in one scenario.

    every: when a method in rounds is measured, None for all others. tune: how its models are tuned,
    perhaps a sweep, None for not at all. Trials are not part of it: a file holds one block of them.
    Settings that race are one run, whose training may then be a sweep as well. A simulation has no
    scenario.
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
        """Return the column `setting` of one of its settings in its files."""
        swept = self.scenario.training.swept if self.scenario else ()
        return setting_token(setting.method, [(key, setting[key]) for key in swept], setting.tune)


@dataclass(frozen=True)
class Local:
    """The local models of a block of trials, in a file for each piece of the clients.

    folder: the beginning of the names of their folders. clients: how many there are; each: in one
    file.
    """

    folder: str
    clients: int
    each: int

    @property
    def pieces(self) -> list[TrialBlock]:
        return list(TrialBlock(0, self.clients - 1).cut(self.each))

    @property
    def folders(self) -> list[str]:
        return [f"{self.folder}{CLIENTS}{block}" for block in self.pieces]

    @property
    def files(self) -> list[str]:
        return [f"{folder}/{LOCAL}" for folder in self.folders]

    @property
    def text(self) -> str:
        """Return one text for all files; see `folders_of`."""
        return f"{self.folder}{CLIENTS}{TrialBlock(0, self.clients - 1)}:{self.each}/{LOCAL}"


@dataclass(frozen=True)
class Job:
    """The work of one process: a stage, its components, its inputs and its folder.

    specs: by kind, the components of scenario and method that the stage depends on, and how models
    are tuned. evaluate, follow: splits to measure on at the end, and after single rounds; these do
    not rename its folder. raw, data, public: folders; members: the file of the partition; local:
    files of local models, as texts of `folders_of`.
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
        return self.specs.get(TUNE_KIND)

    @property
    def before(self) -> list[str]:
        """List the folders of the jobs whose results it reads."""
        members = [self.members.removesuffix(f"/{MEMBERS}")] if self.members else []
        local = [path.removesuffix(f"/{LOCAL}") for path in self.models]
        return [*filter(None, (self.data, self.public)), *members, *local]

    @property
    def models(self) -> list[str]:
        return [path for text in self.local for path in folders_of(text)]

    @property
    def digest(self) -> str:
        """Return 64 bits that change with the files, versions and parameters of its components.

        Where data are prepared, the extractor of their features counts as well.
        """
        parts = [spec.fingerprint for spec in self.specs.values()]
        if self.stage == "prepare":
            parts.append(resolved_features(self.specs["dataset"]))
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()

    @property
    def text(self) -> str:
        specs = {kind: spec.entry for kind, spec in self.specs.items()}
        others = {
            item.name: WRITE[item.name](value) if item.name in WRITE else value
            for item in fields(self)
            if item.name not in ("stage", "out", "specs")
            and (value := getattr(self, item.name)) not in ("", (), None)
        }
        return json.dumps({"stage": self.stage, **specs, **others, "out": self.out})


def read_spec(kind: str, data: Any, where: str = "the job") -> Spec:
    """Read a component from the keys of `Spec.entry`.

    Raises:
        FedreproError: no component takes them.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        raise FedreproError(f"{where}: {kind} must be {{name: ...}}, not {shown(data)}")
    values = {key: value for key, value in data.items() if key not in ("name", PAIRED)}
    known = {TUNE.name: TUNE} if kind == TUNE_KIND else components(kind)
    if data["name"] not in known:
        raise unknown(kind, data["name"], known, where)
    component = known[data["name"]]
    count = data.get(PAIRED)
    return component.listing(values, count, where) if count else component.spec(values, where)


def _block(value: Any) -> TrialBlock:
    first, last = value
    return TrialBlock(_count(first, 0), _count(last, first))


def _count(value: Any, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\x00" in value:
        raise ValueError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(map(_text, value))


WRITE: dict[str, Callable[[Any], Any]] = {
    "every": vars,
    "trials": lambda block: [block.first, block.last],
    "clients": lambda block: [block.first, block.last],
}
READ: dict[str, Callable[[Any], Any]] = {
    "every": lambda value: EvaluationSchedule(value["every"], value["until"], value["race"]),
    "local": _texts,
    "trials": _block,
    "clients": _block,
    "evaluate": _texts,
    "follow": _texts,
    "seed": lambda value: _count(value, 0),
    **dict.fromkeys(("stage", "out", "raw", "data", "members", "public"), _text),
}
SPECS = (*SCENARIO, "method", TUNE_KIND)


def read_job(data: Mapping[str, Any], where: str = "the job") -> Job:
    """Read the json of a job.

    Raises:
        FedreproError: a key or value is not one of a job.
    """
    values: dict[str, Any] = {}
    specs: dict[str, Spec] = {}
    for key, value in data.items():
        if key in SPECS:
            specs[key] = read_spec(key, value, where)
            # a run in rounds may have settings of its training
            single = key in SCENARIO and (key != "training" or data.get("stage") == "train")
            for name, listed in specs[key].values.items() if single else ():
                if isinstance(listed, tuple) and not specs[key].component.params[name].many:
                    raise FedreproError(
                        f"{where}: {key} '{specs[key].name}' takes one value of '{name}', not "
                        f"{shown(list(listed))}"
                    )
        elif key in READ:
            try:
                values[key] = READ[key](value)
            except (TypeError, ValueError, KeyError):
                raise FedreproError(f"{where}: '{key}' cannot be {shown(value)}") from None
        else:
            raise unknown("key", key, [*SPECS, *READ], where)
    for key in ("stage", "out"):
        if not values.get(key):
            raise FedreproError(f"{where}: the key '{key}' is missing")
    return Job(specs=specs, **values)


# --------------------------------------------------------------------------- the jobs of a scale


@dataclass(frozen=True)
class Jobs:
    """The jobs of one scale and seed. splits: of a run, see `Job.evaluate` and `Job.follow`.

    Methods that name files keep the jobs that make them in `made`, by folder, so that no name is
    read back.
    """

    scale: str
    seed: int
    clients_per_job: int | Literal["all"] = "all"
    splits: Callable[[Run], tuple[tuple[str, ...], tuple[str, ...]]] = lambda run: ((), ())
    made: dict[str, Callable[[], Job]] = field(default_factory=dict)
    _names: dict[Any, str] = field(default_factory=dict)
    _locals: dict[str, Local] = field(default_factory=dict)

    def job(self, folder: str) -> Job:
        """Return the job of a folder that was named here."""
        return self.made[folder]()

    def dataset(self, dataset: Spec) -> str:
        """Name the folder of a data set's arrays."""
        folder = dataset_folder(self.scale, dataset)
        raw = f"resources/{dataset.name}"
        job = partial(Job, "prepare", folder, {"dataset": dataset}, raw=raw)
        self.made.setdefault(folder, job)
        return folder

    def partition(self, dataset: Spec, partition: Spec, trials: TrialBlock) -> str:
        """Name the file of the partition in a block of trials."""
        base = self._base((dataset, partition), "partition", [dataset, partition])
        folder = f"{base}{TRIALS}{trials}"
        if folder not in self.made:
            specs, data = {"dataset": dataset, "partition": partition}, self.dataset(dataset)
            job = partial(Job, "partition", folder, specs, self.seed, trials=trials, data=data)
            self.made[folder] = job
        return f"{folder}/{MEMBERS}"

    def training(self, scenario: Scenario) -> str:
        """Return the beginning of the folders of a scenario's local models."""
        return self._base(scenario, "train", [scenario.dataset, scenario.model])

    def local(self, scenario: Scenario, trials: TrialBlock) -> Local:
        """Name the local models of a block of trials."""
        folder = f"{self.training(scenario)}{TRIALS}{trials}"
        if folder not in self._locals:  # many methods read them
            clients, size = scenario.clients, self.clients_per_job
            local = Local(folder, clients, clients if size == "all" else size)
            self._locals[folder] = local
            for piece, one in zip(local.pieces, local.folders, strict=True):
                self.made[one] = partial(self._train, scenario, trials, piece, one)
        return self._locals[folder]

    def _train(
        self, scenario: Scenario, trials: TrialBlock, clients: TrialBlock, folder: str
    ) -> Job:
        specs = {spec.kind: spec for spec in scenario.specs}
        given = self._data(scenario, trials)
        return Job("train", folder, specs, self.seed, trials=trials, clients=clients, **given)

    def name(self, run: Run) -> str:
        """Return the beginning of the folders of a run's blocks."""
        return self._base(run, run.stage, [*specs_of(run.scenario)[:1], run.method])

    def run(self, run: Run, trials: TrialBlock) -> str:
        """Name the folder of a run in a block of trials."""
        folder = f"{self.name(run)}{TRIALS}{trials}"
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
                given["local"] = (self.local(run.scenario, trials).text,)
            if public := public_data_of(run.method):
                given["public"] = self.dataset(public)
        return Job(run.stage, folder, specs, self.seed, **given)

    def starts(self, run: Run) -> Iterator[tuple[str, Callable[[TrialBlock], object]]]:
        """Yield how the folders of a run and its inputs begin, and the method that names each."""
        yield f"{self.name(run)}{TRIALS}", partial(self.run, run)
        if run.scenario is None:
            return
        data, partition = run.scenario.dataset, run.scenario.partition
        base = self._base((data, partition), "partition", [data, partition])
        yield f"{base}{TRIALS}", partial(self.partition, data, partition)
        if run.every is None:
            yield f"{self.training(run.scenario)}{TRIALS}", partial(self.local, run.scenario)
        for dataset in filter(None, (data, public_data_of(run.method))):
            folder = dataset_folder(self.scale, dataset)
            yield folder, lambda _, dataset=dataset: self.dataset(dataset)  # type: ignore[misc]

    def _data(self, scenario: Scenario, trials: TrialBlock) -> dict[str, Any]:
        members = self.partition(scenario.dataset, scenario.partition, trials)
        return {"data": self.dataset(scenario.dataset), "members": members}

    def _base(self, what: Any, stage: str, shown_by: Sequence[Spec]) -> str:
        """Join the names of some components and a key of everything that the folder depends on."""
        key = (stage, what)
        if key not in self._names:
            specs = what if isinstance(what, tuple) else what.specs
            every = str(getattr(what, "every", None) or "")
            name = setting_names(shown_by, specs, stage, str(self.seed), every)
            self._names[key] = f"results/{self.scale}/{stage}/{name}"
        return self._names[key]


def dataset_folder(scale: str, dataset: Spec) -> str:
    """Name the folder of a data set's arrays."""
    return f"results/{scale}/prepare/{setting_names([dataset], [dataset])}"
