"""A run as a value: a scenario, a method with its settings, and when it is measured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedrepro.core.errors import FedreproError
from fedrepro.core.evaluation_schedule import EvaluationSchedule
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.registry import SCENARIO, components
from fedrepro.core.spec import Spec
from fedrepro.core.tokens import setting_token

PUBLIC_INPUTS = "public_inputs"  # the need
DATA = "public_data"  # and the parameter of the method that names the data set
BLOCK = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


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
        """Read the text of a block.

        Raises:
            FedreproError: it is not the text of one.
        """
        match = BLOCK.fullmatch(text)
        block = TrialBlock(int(match[1]), int(match[2] or match[1])) if match else None
        if block is None or block.first > block.last or str(block) != text:
            raise FedreproError(f"'{text}' is not a range; write first-last, such as 0-9, or 3")
        return block


def blocks(count: int, size: int | None) -> list[TrialBlock]:
    """Cut 0 … count-1 into blocks of `size`, or one block if it is None."""
    return list(TrialBlock(0, count - 1).cut(size or count))


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
        """Return its components in a fixed order."""
        specs = (getattr(self, kind) for kind in SCENARIO)
        return tuple(spec for spec in specs if spec is not None)

    @cached_property
    def token(self) -> str:
        """Return the tokens of its components, which files are marked with."""
        return "/".join(spec.token for spec in self.specs)

    @property
    def clients(self) -> int:
        """Return the number of clients.

        Raises:
            FedreproError: only the data can tell.
        """
        count = clients_of(self.partition)
        if count is None:
            raise FedreproError(
                f"partition '{self.partition.token}' leaves the number of clients to the data, "
                "but local models are trained in blocks of known size: give it `clients`"
            )
        return count


def specs_of(scenario: Scenario | None) -> tuple[Spec, ...]:
    """Return the components of a scenario; a simulation has none."""
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
        """Return the stage that computes it."""
        return METHOD_KINDS[self.method.component.meta["kind"]].stage

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Return all components that it is computed from."""
        return (*specs_of(self.scenario), self.method, *([self.tune] if self.tune else []))

    def rows_of(self, setting: Any) -> str:
        """Return the column `setting` of one of its settings in its files."""
        swept = self.scenario.training.swept if self.scenario else ()
        return setting_token(setting.method, [(key, setting[key]) for key in swept], setting.tune)
