"""Where artifacts lie: a Hive-style tree per kind of artifact; a path is its parameters.

All wildcards of one job together stay under 200 bytes, because executors join them into one
folder name. Where tokens do not fit, the longest keeps as many of its parameters as there is room
for, and a digest stands for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from fedrepro.core.errors import FedreproError
from fedrepro.core.kinds import METHOD_KINDS, TRAINING_TREE, TUNED_TREE
from fedrepro.core.measuring import Measuring
from fedrepro.core.params import Value
from fedrepro.core.registry import SCENARIO
from fedrepro.core.spec import Spec
from fedrepro.core.tokens import fitted, shorten

# bytes of the wildcards of a job: its scenario together, and its method
SCENARIO_ROOM, METHODS_ROOM = 122, 56
TUNE_ROOM = 28  # of how models are tuned, which is taken off the method's as well
EVERY_ROOM = 4  # of when rounds are measured, before its text is taken off the method's room

BLOCK = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


@dataclass(frozen=True)
class TrialBlock:
    """A range of trials or clients, both ends included; written 0-9, or 3 if it is one alone."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.first < self.last else str(self.first)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __len__(self) -> int:
        return self.last - self.first + 1

    @staticmethod
    def parse(text: str) -> TrialBlock:
        match = BLOCK.fullmatch(text)
        block = TrialBlock(int(match[1]), int(match[2] or match[1])) if match else None
        if block is None or block.first > block.last:
            raise FedreproError(f"'{text}' is not a range; write first-last, such as 0-9, or 3")
        if str(block) != text:
            raise FedreproError(f"'{text}' is a range of one; write '{block}'")
        return block


def blocks(count: int, size: int | None) -> list[TrialBlock]:
    """0 … count-1 in ranges of `size` (None: all in one)."""
    size = size or count
    return [TrialBlock(at, min(at + size, count) - 1) for at in range(0, count, size)]


def whole_blocks(count: int, size: int) -> list[TrialBlock]:
    """Ranges of `size` that together hold 0 … count-1; the last one is whole as well.

    So the ranges of more trials are these and further ones: what was computed keeps its name.
    """
    return [TrialBlock(at, at + size - 1) for at in range(0, count, size)]


@dataclass(frozen=True)
class Pieces:
    """A range cut into blocks of one size, from its first on; written 0-999:1.

    So a command names thousands of files in a few letters: one word of it may have 128 KiB.
    """

    whole: TrialBlock
    size: int

    def __str__(self) -> str:
        return f"{self.whole}:{self.size}"

    def __iter__(self) -> Iterator[TrialBlock]:
        for at in range(self.whole.first, self.whole.last + 1, self.size):
            yield TrialBlock(at, min(at + self.size - 1, self.whole.last))

    @staticmethod
    def parse(text: str) -> Pieces:
        """Errors: FedreproError if it is not first-last:size."""
        whole, _, size = text.partition(":")
        if not size.isdecimal() or len(size) > 7 or int(size) < 1:
            raise FedreproError(f"'{text}' is not a range cut in pieces; write 0-999:10")
        return Pieces(TrialBlock.parse(whole), int(size))


@dataclass(frozen=True)
class FolderPieces:
    """The folders of a run's trials; written <folder of the run>/trials=0-9:1."""

    folder: str
    trials: Pieces

    def __str__(self) -> str:
        return f"{self.folder}/trials={self.trials}"

    @property
    def folders(self) -> list[PurePosixPath]:
        return [PurePosixPath(self.folder, f"trials={block}") for block in self.trials]

    @staticmethod
    def parse(text: str) -> FolderPieces:
        folder, _, trials = text.rpartition("/trials=")
        return FolderPieces(folder, Pieces.parse(trials))


def model_files(folder: str, trials: TrialBlock, clients: Pieces) -> list[str]:
    """The files of local models of a scenario that hold these trials, one per training job."""
    return [f"{folder}/trials={trials}/clients={block}/local.parquet" for block in clients]


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

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Its components, in the order of a path."""
        specs = (getattr(self, kind) for kind in SCENARIO)
        return tuple(spec for spec in specs if spec is not None)

    @property
    def clients(self) -> int:
        """Number of clients. Errors: FedreproError if only the data can tell."""
        count = clients_of(self.partition)
        if count is None:
            raise FedreproError(
                f"partition '{self.partition.token}' leaves the number of clients to the data, "
                "but local models are trained in blocks of known size: give it `clients`"
            )
        return count

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tokens of its components as they stand in a path."""
        return names_of(self.specs)

    @cached_property  # thousands of files lie in it
    def folder(self) -> str:
        return folder_of(self.specs)


def specs_of(scenario: Scenario | None) -> tuple[Spec, ...]:
    """The components of a scenario; a simulation has none."""
    return scenario.specs if scenario else ()


def clients_of(partition: Spec) -> int | None:
    """Number of clients of a partition, None if only the data can tell."""
    count = partition.component.meta.get("clients", _given_clients)
    clients: int | None = count(partition.values)
    return clients


def _given_clients(values: Mapping[str, Value]) -> Any:
    """The parameter `clients`; a partition without such a parameter has one client."""
    return values.get("clients", 1)


def names_of(specs: Sequence[Spec]) -> tuple[str, ...]:
    """The tokens of components that stand in one path together, shortened where they must be."""
    return fitted([spec.token for spec in specs], SCENARIO_ROOM)


def folder_of(specs: Sequence[Spec]) -> str:
    return "/".join(f"{s.kind}={name}" for s, name in zip(specs, names_of(specs), strict=True))


def tune_name(tune: Spec) -> str:
    """The token of how a job tunes, perhaps a sweep, as it stands in a path."""
    return shorten(tune.token, TUNE_ROOM)


def method_name(method: Spec, every: Measuring | None = None, tune: Spec | None = None) -> str:
    """The token of a job's method, perhaps a sweep, as it stands in a path.

    What says when rounds are measured takes of its room if it is more than a number of rounds, and
    so does what says how models are tuned.
    """
    beside = tune_name(tune) if tune else str(every or "")
    more = len(beside) - EVERY_ROOM
    return shorten(method.token, METHODS_ROOM - max(0, more))


@dataclass(frozen=True)
class Paths:
    """Paths of one scale and seed."""

    scale: str
    seed: int
    results: str = "results"
    reports: str = "reports"

    @cached_property
    def base(self) -> PurePosixPath:
        return PurePosixPath(self.results) / self.scale

    @cached_property
    def tree(self) -> PurePosixPath:
        return self.base / f"seed={self.seed}"

    def dataset(self, dataset: Spec) -> str:
        return str(self.base / "datasets" / folder_of([dataset]))

    def partition(self, dataset: Spec, partition: Spec, trials: TrialBlock) -> str:
        folder = self.tree / "partitions" / folder_of([dataset, partition])
        return str(folder / f"trials={trials}" / "partition.parquet")

    def models(self, scenario: Scenario, trials: TrialBlock, clients: TrialBlock) -> str:
        return f"{self.models_of(scenario)}/trials={trials}/clients={clients}/local.parquet"

    def models_of(self, scenario: Scenario) -> str:
        """The folder of all local models of a scenario."""
        # as text: joining paths costs more than all else in planning many jobs
        return f"{self.tree}/{TRAINING_TREE}/{scenario.folder}"

    def metrics(
        self,
        scenario: Scenario | None,
        method: Spec,
        trials: TrialBlock,
        every: Measuring | None,
        tune: Spec | None = None,
    ) -> str:
        """The metrics of a method in a block of trials; see `metrics_of`."""
        return f"{self.metrics_of(scenario, method, every, tune)}/trials={trials}/metrics.parquet"

    def metrics_of(
        self,
        scenario: Scenario | None,
        method: Spec,
        every: Measuring | None,
        tune: Spec | None = None,
    ) -> str:
        """The folder of a method's metrics; `every` is set for those that run in rounds, `tune` for
        those whose models are tuned. A simulation has no scenario."""
        tree = TUNED_TREE if tune else METHOD_KINDS[method.component.meta["kind"]].tree
        place = f"{tree}/{scenario.folder}" if scenario else tree
        more = "" if every is None else f"/every={every}"
        more = f"/tune={tune_name(tune)}" if tune else more
        return f"{self.tree}/{place}/methods={method_name(method, every, tune)}{more}"

    def exhibit(self, key: str, suffix: str) -> str:
        return str(PurePosixPath(self.reports) / self.scale / f"{key}{suffix}")

    @property
    def partition_maps(self) -> str:
        """The folder of the drawings of partitions."""
        return str(PurePosixPath(self.reports) / self.scale / "partitions")

    @property
    def graph_maps(self) -> str:
        """The folder of the drawings of graphs."""
        return str(PurePosixPath(self.reports) / self.scale / "graphs")

    @property
    def index(self) -> str:
        return str(PurePosixPath(self.reports) / self.scale / "index.html")
