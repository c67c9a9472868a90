"""Runs (a method in a scenario) as values, and the jobs that compute them, described as json.

A job is one process: a stage of the pipeline for a range of trials. Its json names all files that
the stage reads and writes. Its folder is results/<scale>/<stage>/<data>-<method>-<key>-trials-0-4,
where the key depends on this job alone: more trials or figures add folders and rename none. The
scale is tiny, quick or paper. A block is a range of trials or clients that one job computes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedrepro.core.errors import FedreproError, shown, unknown
from fedrepro.core.evaluation_schedule_and_successive_halving import EvaluationSchedule
from fedrepro.core.literature_names_and_setting_tokens import setting_names, setting_token
from fedrepro.core.method_kinds import TRAIN
from fedrepro.core.params import render
from fedrepro.core.registry import SCENARIO, TUNE, component_called, spec_of_entry
from fedrepro.core.spec import Spec
from fedrepro.data.feature_extraction import feature_spec, resolved_features
from fedrepro.data.prepared import PREPARED_FILES

PIECES = re.compile(r"-(trials|clients)-(\d{1,7})(?:-(\d{1,7}))?:([1-9]\d{0,6})")
METRICS, TIMINGS, MODEL = "metrics.parquet", "timings.parquet", "global.pt"
LOCAL, MEMBERS = "local.parquet", "partition.parquet"
RESULTS = {"prepare": PREPARED_FILES[0], "partition": MEMBERS, TRAIN: LOCAL}
# of a job's json: components, ranges, lists, all keys but components
SPECS = (*SCENARIO, "method", TUNE)
BLOCKS, LISTS = ("trials", "clients"), ("local", "evaluate", "follow")
KEYS = ("every", "seed", *BLOCKS, *LISTS, "raw", "data", "members", "public")


def log_path(folder: str) -> str:
    """Return the log of a job with this result folder: x/logs/train/y.log for x/train/y."""
    parts = folder.rsplit("/", 2)
    return f"{parts[0]}/logs/{parts[1]}/{parts[2]}.log" if len(parts) > 2 else f"{folder}.log"


def folders_of(text: str) -> list[str]:
    """List the folders that a text means: x-trials-0-3:2 is x-trials-0-1 and x-trials-2-3."""
    match = PIECES.search(text)
    if not match:
        return [text]
    before, after = text[: match.start()], text[match.end() :]
    kind, first, last, size = match.groups()
    blocks = cut(range(int(first), int(last or first) + 1), int(size))
    return [one for b in blocks for one in folders_of(f"{before}{block_name(kind, b)}{after}")]


def cut(block: range, size: int) -> list[range]:
    """Divide a block of trials or clients into blocks of `size`; the last may be shorter."""
    return [block[at : at + size] for at in range(0, len(block), size)]


def block_name(kind: str, block: range) -> str:
    """Return the ending for a block (`kind`: trials, clients): -trials-0-9, or of one -trials-3."""
    return f"-{kind}-{block[0]}" + (f"-{block[-1]}" if len(block) > 1 else "")


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
        return tuple(filter(None, (getattr(self, kind) for kind in SCENARIO)))

    @cached_property
    def token(self) -> str:
        return "/".join(spec.token for spec in self.specs)

    @property
    def clients(self) -> int:
        """Return the number of clients; raise FedreproError if that depends on the data."""
        if (count := clients_of(self.partition)) is None:
            said = f"partition '{self.partition.token}' leaves the number of clients to the data"
            fix = "but local models are trained in blocks of known size: give it `clients`"
            raise FedreproError(f"{said}, {fix}")
        return count


def specs_of(scenario: Scenario | None) -> tuple[Spec, ...]:
    return scenario.specs if scenario else ()


def clients_of(partition: Spec) -> int | None:
    """Return the number of clients of a partition, None if that depends on the data."""
    count = partition.component.meta.get("clients")
    clients: Any = count(partition.values) if count else partition.values.get("clients", 1)
    return None if clients is None else int(clients)


def public_data_of(method: Spec) -> Spec | None:
    """Return the data set whose unlabelled inputs `method` needs at the server, or None."""
    if "public_inputs" not in method.component.meta["needs"]:
        return None
    where = f"public_data of method '{method.name}'"
    if "public_data" not in method.values:
        fix = "give it public_data, a parameter"
        raise FedreproError(f"method '{method.name}' needs public inputs: {fix}")
    return component_called("dataset", render(method["public_data"]), where).spec()


@dataclass(frozen=True)
class Run:
    """A method, with one or several settings of its parameters, on one data set and model.

    A run is computed by jobs, one per range of trials; settings in successive halving are one run.
    scenario: None of simulations. every: evaluations, None if one-shot. tune: fine-tuning or None.
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
        return self.method.method_kind.stage

    @property
    def specs(self) -> tuple[Spec, ...]:
        return (*specs_of(self.scenario), self.method, *([self.tune] if self.tune else []))

    def rows_of(self, setting: Any) -> str:
        """Return the text that stands for a `Setting` in the column "setting" of metrics files."""
        swept = self.scenario.training.swept if self.scenario else ()
        return setting_token(setting.method, [(key, setting[key]) for key in swept], setting.tune)


@dataclass(frozen=True)
class Job:
    """The work of one process: a stage of the pipeline, its components, inputs and output folder.

    specs: components by kind, as "model". every: when to evaluate, None if one-shot. trials,
    clients: indices computed. evaluate, follow: example sets, as "test", for the end and for
    rounds; they do not change the folder's name. raw, data, public: folders of raw files, arrays,
    and the public data set. members: the partition's file. local: paths of models (`folders_of`).
    """

    stage: str
    out: str
    specs: Mapping[str, Spec]
    seed: int = 0
    every: EvaluationSchedule | None = None
    trials: range | None = None
    clients: range | None = None
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
    def result(self) -> str:
        """Return the path, in the folder `out`, of the file that is there if this job is done.

        It is dataset.json (prepare), partition.parquet, local.parquet (train) or metrics.parquet.
        """
        return f"{self.out}/{RESULTS.get(self.stage, METRICS)}"

    @property
    def inputs(self) -> list[str]:
        """Return the paths of files and folders that this job reads, other than raw files."""
        return [path for path in (self.data, self.members, *self.models, self.public) if path]

    @property
    def before(self) -> list[str]:
        """Return the folders that this job reads, whose jobs must run before it."""
        files = [path for path in (self.members, *self.models) if path]
        return [*filter(None, (self.data, self.public)), *(f.rpartition("/")[0] for f in files)]

    @property
    def digest(self) -> str:
        """Return a hash of the components, source code too; a new hash makes the job run again.

        It covers each one's name, parameter values, version, source file and files that it reads.
        """
        parts = [spec.fingerprint for spec in self.specs.values()]
        if self.stage == "prepare":  # which extracts features of the data
            parts.append(resolved_features(self.specs["dataset"]))
            text = self.specs["dataset"].values.get("features")
            if isinstance(text, str) and text != "pixels":
                parts.append(feature_spec(text).fingerprint)
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()

    @property
    def text(self) -> str:
        """Return the job as json text, from which `read_job` builds it again in another process."""
        specs = {kind: spec.entry for kind, spec in self.specs.items()}
        others = {k: v for k, v in vars(self).items() if k in KEYS and v not in ("", (), None)}
        others |= {key: [others[key][0], others[key][-1]] for key in BLOCKS if key in others}
        others |= {"every": vars(self.every)} if self.every else {}
        return json.dumps({"stage": self.stage, **specs, **others, "out": self.out})


def read_job(data: Mapping[str, Any], where: str = "the job") -> Job:
    """Build a job from the content of its json; FedreproErrors name the json by `where`."""
    values: dict[str, Any] = {}
    specs: dict[str, Spec] = {}
    for key, value in data.items():
        if key not in (known := (*SPECS, *KEYS, "stage", "out")):
            raise unknown("key", key, known, where)
        try:
            if key in SPECS:
                specs[key] = spec_of_entry(key, value, where)
            elif key == "every":
                values[key] = EvaluationSchedule(**value)
            elif key in BLOCKS:
                first, last = value
                values[key] = range(first, last + 1)
                if not values[key]:
                    raise ValueError
            else:
                values[key] = tuple(value) if key in LISTS else value
        except (TypeError, ValueError, KeyError, AttributeError):
            raise FedreproError(f"{where}: '{key}' cannot be {shown(value)}") from None
    for key in ("stage", "out"):
        if not values.get(key):
            raise FedreproError(f"{where}: the key '{key}' is missing")
    return Job(specs=specs, **values)


def dataset_folder(scale: str, dataset: Spec) -> str:
    return f"results/{scale}/prepare/{setting_names([dataset], [dataset])}"
