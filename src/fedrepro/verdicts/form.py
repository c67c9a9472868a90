"""Base of all forms of a check: exhibits, the number that is judged, where, and bounds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fedrepro.core.errors import unknown
from fedrepro.core.metrics import all_metrics
from fedrepro.core.params import written
from fedrepro.verdicts.cells import (
    Cell,
    Exhibits,
    Numbers,
    Wanted,
    absent,
    at,
    beside,
    through,
)
from fedrepro.verdicts.statements import Statement

BOUNDS = {"above": "above", "at_least": "at least", "below": "below", "at_most": "at most"}


class Bounds(BaseModel):
    """Bounds of a check, at least one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Bounds:
        if not self.bounds:
            raise ValueError("a check needs a bound: above, at_least, below or at_most")
        return self

    @property
    def bounds(self) -> dict[str, float]:
        values = {key: getattr(self, key) for key in BOUNDS}
        return {key: value for key, value in values.items() if value is not None}


class Form(Bounds):
    """A check: exhibits, the number that is judged, where, and bounds."""

    exhibits: list[str] = Field(min_length=1)
    of: str = Field(description="method, by its label")
    metric: str = "accuracy"
    split: str = "test"
    where: dict[str, Wanted] = Field(
        default_factory=dict, description="only these values of a column"
    )
    points: Literal["every", "some", "most", "mean"] = "every"
    ragged: bool = Field(
        False, description="the exhibit leaves out points of some methods by design"
    )
    shows: str = Field("", description="the word of the file's head that the bounds are for")

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        if metric not in all_metrics():
            raise ValueError(str(unknown("metric", metric, all_metrics())))
        return metric

    @property
    def named(self) -> list[str]:
        """Every exhibit that the check needs."""
        return list(self.exhibits)

    @property
    def alike(self) -> list[str]:
        """List the exhibits that must have its method and its columns."""
        return self.named

    @property
    def others(self) -> list[str]:
        """List the methods that it is compared with at the same place."""
        return []

    @property
    def methods(self) -> list[str]:
        """Every method that is needed in each exhibit."""
        return [self.of, *self.others]

    @property
    def columns(self) -> list[str]:
        """Every column that it names."""
        return list(self.where)

    @property
    @abstractmethod
    def words(self) -> str:
        """Write in words which number is judged."""

    @property
    def bound(self) -> str:
        """The bounds in words."""
        phrase = " and ".join(f"{BOUNDS[key]} {value:g}" for key, value in self.bounds.items())
        return f"{self.shows}, {phrase}" if self.shows else phrase

    @property
    def what(self) -> str:
        split = f" ({self.split})" if self.split else ""
        return f"{self.metric.replace('_', ' ')}{split} of {self.of}"

    @abstractmethod
    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        """Return a statement for each point of one exhibit."""

    def cells(self, numbers: Numbers, method: str) -> list[Cell]:
        """List the final cells of a method whose places satisfy `where`."""
        return numbers.cells(method, self.metric, self.split, self.where)

    def beside(self, numbers: Numbers) -> Iterator[tuple[Cell, list[Cell]]]:
        """Each cell of the method with those of the others, where there are any."""
        other_cells = [cell for name in self.others for cell in self.cells(numbers, name)]
        return (pair for pair in beside(self.cells(numbers, self.of), other_cells) if pair[1])

    def missing(self, exhibit: str, numbers: Exhibits) -> Iterator[str]:
        """Say what one exhibit lacks of what the check names; nothing if it is whole."""
        lacking = []
        for name in dict.fromkeys(self.methods):
            lacking += list(self.missing_of(name, exhibit, numbers[exhibit]))
        cells = numbers[exhibit].cells(self.of, self.metric, self.split, {})
        for key in self.columns:
            if cells and not all(key in cell.place for cell in cells):
                lacking.append(f"{key} of {self.of} in {exhibit}")
        yield from lacking
        if not lacking and not self.ragged:
            yield from self._alone(exhibit, numbers[exhibit])

    def _alone(self, exhibit: str, numbers: Numbers) -> Iterator[str]:
        """List the places at which only one of two methods stands that the check compares."""
        of_cells = self.cells(numbers, self.of)
        for name in self.others:
            others = self.cells(numbers, name)
            for have, cells, method in ((of_cells, others, name), (others, of_cells, self.of)):
                alone = (cell for cell, matches in beside(have, cells) if not matches)
                yield from (f"{method} at {at(exhibit, cell.place)}" for cell in alone)

    def missing_of(self, method: str, exhibit: str, numbers: Numbers) -> Iterator[str]:
        cells = numbers.cells(method, self.metric, self.split, {})
        places = [cell.place for cell in cells]
        # what a method could not give by design is not still to come
        known = [*places, *(numbers.left_out(method) if self.ragged else ())]
        if not cells:
            yield f"{self.metric.replace('_', ' ')} of {method} in {exhibit}"
            return
        for key, wanted in self.where.items():
            if isinstance(wanted, list):
                present = {written(place[key]) for place in known if key in place}
                lacking = [v for v in map(written, wanted) if present and v not in present]
                yield from (f"{key} = {value} of {method} in {exhibit}" for value in lacking)
        if not through(known, self.where):
            yield f"{method} in {exhibit} where {where_words(self.where)}"
        if method in numbers.grid or not self.ragged:
            kept = [*places, *numbers.left_out(method)]
            for place in absent(numbers.expected(method, places), kept, self.where):
                yield f"{method} at {at(exhibit, place)}"


def where_words(where: Mapping[str, Wanted]) -> str:
    """Which values of columns are looked at, in words."""
    parts = []
    for key, wanted in where.items():
        values = "/".join(map(written, wanted)) if isinstance(wanted, list) else str(wanted)
        parts.append(f"{key} {values}")
    return ", ".join(parts)


def too_few(cells: Sequence[Cell], key: str, exhibit: str) -> Iterator[str]:
    values = {written(cell.place[key]) for cell in cells if key in cell.place}
    if len(values) < 2:
        yield f"a second value of {key} in {exhibit}"


def best_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"the larger of {' and '.join(names)}"
