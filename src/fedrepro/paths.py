"""Where artifacts lie: a Hive-style tree per kind of artifact; a path is its parameters.

All wildcards of one job together stay under 200 bytes, because executors join them into one
folder name: a token longer than its share below is replaced by its name and a digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from fedrepro.errors import FedreproError
from fedrepro.registry import parse_token
from fedrepro.spec import Spec, Value, shorten

# bytes of each wildcard; a metrics job uses all but clients, a training job all but methods
LIMITS = {"dataset": 28, "partition": 34, "model": 24, "training": 28, "methods": 66}

BLOCK = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True)
class Block:
    """A range of trials or clients, both ends included; written 0-9."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def meets(self, other: Block) -> bool:
        return self.first <= other.last and other.first <= self.last

    @staticmethod
    def parse(text: str) -> Block:
        match = BLOCK.fullmatch(text)
        if not match or int(match[1]) > int(match[2]):
            raise FedreproError(f"'{text}' is not a range; write first-last, such as 0-9")
        return Block(int(match[1]), int(match[2]))


def blocks(count: int, size: int | None) -> list[Block]:
    """0 … count-1 in ranges of `size` (None: all in one)."""
    size = size or count
    return [Block(at, min(at + size, count) - 1) for at in range(0, count, size)]


@dataclass(frozen=True)
class Pieces:
    """A range cut into blocks of one size, from its first on; written 0-999:1.

    So a command names thousands of files in a few letters: one word of a command may have 128 KiB.
    """

    whole: Block
    size: int

    def __str__(self) -> str:
        return f"{self.whole}:{self.size}"

    def __iter__(self) -> Iterator[Block]:
        for at in range(self.whole.first, self.whole.last + 1, self.size):
            yield Block(at, min(at + self.size - 1, self.whole.last))

    @staticmethod
    def parse(text: str) -> Pieces:
        """Errors: FedreproError if it is not first-last:size."""
        whole, _, size = text.partition(":")
        if not size.isdecimal() or int(size) < 1:
            raise FedreproError(f"'{text}' is not a range cut in pieces; write 0-999:10")
        return Pieces(Block.parse(whole), int(size))


def model_files(folder: str, trials: Pieces, clients: Pieces) -> list[str]:
    """The files of local models of a scenario, one per training job."""
    return [
        f"{folder}/trials={trial_block}/clients={client_block}/local.parquet"
        for trial_block in trials
        for client_block in clients
    ]


@dataclass(frozen=True)
class Scenario:
    """Data set × partition × model × local training, before any method."""

    dataset: Spec
    partition: Spec
    model: Spec
    training: Spec

    @property
    def specs(self) -> tuple[Spec, ...]:
        return (self.dataset, self.partition, self.model, self.training)

    @property
    def clients(self) -> int:
        """Number of clients. Errors: FedreproError if only the data can tell."""
        count = self.partition.component.meta.get("clients", _given_clients)
        found: int | None = count(self.partition.values)
        if found is None:
            raise FedreproError(
                f"partition '{self.partition.token}' leaves the number of clients to the data, "
                "but local models are trained in blocks of known size: give it `clients`"
            )
        return found

    @cached_property  # thousands of files lie in it
    def folder(self) -> str:
        return "/".join(f"{spec.kind}={name_of(spec)}" for spec in self.specs)


def _given_clients(values: Mapping[str, Value]) -> Any:
    """The parameter `clients`; a partition without such a parameter has one client."""
    return values.get("clients", 1)


def name_of(spec: Spec) -> str:
    """The token of a spec as it stands in a path."""
    return spec.short(LIMITS[spec.kind])


def methods_token(methods: Sequence[Spec]) -> str:
    """The full token of the methods that share a job: their tokens, sorted, joined by `;`."""
    return ";".join(sorted(method.token for method in methods))


def methods_name(methods: Sequence[Spec]) -> str:
    """The same as it stands in a path."""
    return shorten(methods_token(methods), LIMITS["methods"])


def parse_methods(token: str) -> list[Spec]:
    """The methods of a job's token."""
    return [parse_token("method", part) for part in token.split(";")]


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
        return str(self.base / "datasets" / f"dataset={name_of(dataset)}")

    def partition(self, dataset: Spec, partition: Spec, trials: Block) -> str:
        folder = f"dataset={name_of(dataset)}/partition={name_of(partition)}/trials={trials}"
        return str(self.tree / "partitions" / folder / "partition.parquet")

    def models(self, scenario: Scenario, trials: Block, clients: Block) -> str:
        return f"{self.models_of(scenario)}/trials={trials}/clients={clients}/local.parquet"

    def models_of(self, scenario: Scenario) -> str:
        """The folder of all local models of a scenario."""
        # as text: joining paths costs more than all else in planning many jobs
        return f"{self.tree}/models/{scenario.folder}"

    def metrics(self, scenario: Scenario, methods: Sequence[Spec], trials: Block) -> str:
        kind = methods[0].component.meta["kind"]
        tree = "federated" if kind in ("federated", "peer") else "metrics"
        folder = f"{scenario.folder}/methods={methods_name(methods)}/trials={trials}"
        return str(self.tree / tree / folder / "metrics.parquet")

    def exhibit(self, key: str, suffix: str) -> str:
        return str(PurePosixPath(self.reports) / self.scale / f"{key}{suffix}")

    @property
    def partition_maps(self) -> str:
        """The folder of the drawings of partitions."""
        return str(PurePosixPath(self.reports) / self.scale / "partitions")

    @property
    def index(self) -> str:
        return str(PurePosixPath(self.reports) / self.scale / "index.html")
