"""Give checks of claims the numbers of a figure or table: by swept parameters, trial by trial."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field

from fedrepro.core.params import comparable_text
from fedrepro.numbers.intervals import Array, Contrast, Interval, mean_of_contrasts
from fedrepro.numbers.tables_and_selection import NUMBERS
from fedrepro.numbers.trial_statistics import CLIENTS_SD
from fedrepro.numbers.trial_statistics import COLUMNS as PAIRING
from fedrepro.planning.drawing_base import CASE, ROUND, Strict

NOT_PLACES = (*NUMBERS, ROUND, *PAIRING, CLIENTS_SD)
WORDS = {"clients": "J"}  # columns that a reader knows by another name

CellKey = dict[str, Any]  # column -> value
CellItems = tuple[tuple[str, Any], ...]
Trials = tuple[float, ...]  # a value for each trial 0, 1, …


class Range(Strict):
    """All values of a column that are at least `least`, in YAML {from: 5}."""

    least: float = Field(alias="from")

    def __str__(self) -> str:
        return f"from {self.least:g}"


CellFilter = list[Any] | Literal["first", "last"] | Range
Filters = Mapping[str, CellFilter]  # by column


class Cell(NamedTuple):
    """One number of a figure or table: where it is (column -> value), and its value per trial."""

    place: CellKey
    trials: Trials


@dataclass(frozen=True)
class Numbers:
    """The numbers of a figure or table for checks of claims, by its csv (`frame`).

    stand_ins: labels of scenarios on other data than the paper's; empty if all or none are.
    """

    frame: pd.DataFrame
    stand_ins: Sequence[str] = ()

    @classmethod
    def described(cls, frame: pd.DataFrame, about: Mapping[str, Any]) -> Numbers:
        """Build the numbers of a figure or table from its csv (`frame`) and its json (`about`)."""
        titles = tuple(data["title"] for data in about["data"] if data["stand_in"])
        mixed = len(titles) < len(about["data"])
        cases = [case for case in about["cases"] if mixed and titles and case.startswith(titles)]
        return cls(frame, cases)

    @property
    def real(self) -> Numbers:
        """Return the figure's numbers without scenarios on other data than the paper's."""
        if not self.stand_ins:
            return self
        return Numbers(self.frame[~self.frame[CASE].isin(self.stand_ins)])

    @cached_property
    def columns(self) -> list[str]:
        """List the csv columns that locate a number: swept parameters, and the scenario's label."""
        return [str(name) for name in self.frame.columns if name not in NOT_PLACES]

    def _measured(self, method: str, metric: str, split: str) -> Iterator[tuple[int | None, Cell]]:
        own = (self.frame["method"] == method) & (self.frame["metric"] == metric)
        for row in self.frame[own & (self.frame["split"] == split)].to_dict("records"):
            given = {key: v for key, v in row.items() if v not in (None, "") and v == v}
            place = {key: given[key] for key in self.columns if key in given}
            done = int(given[ROUND]) if ROUND in given else None
            yield done, Cell(place, tuple(map(float, row["by_trial"].split())))

    def cells(self, method: str, metric: str, split: str, where: Filters) -> list[Cell]:
        """Return a method's final values of `metric` on `split`, filtered by `where`."""
        cells = (cell for done, cell in self._measured(method, metric, split) if done is None)
        return filter_cells(list(cells), where)

    def rounds(self, method: str, metric: str, split: str) -> dict[CellItems, dict[int, Trials]]:
        """Return {(column, value) pairs of parameters: {round: the method's values by trial}}."""
        by_spot: dict[CellItems, dict[int, Trials]] = {}
        for done, cell in self._measured(method, metric, split):
            if done is not None:
                by_spot.setdefault(tuple(cell.place.items()), {})[done] = cell.trials
        return {spot: dict(sorted(measured.items())) for spot, measured in by_spot.items()}


Exhibits = Mapping[str, Numbers]  # by name, as figure-2a


def filter_cells(cells: Sequence[Cell], where: Filters) -> list[Cell]:
    """Keep `cells` that fit `where`, {column: values, Range, "first" or "last"}, or lack it."""
    kept = list(cells)
    for key, wanted in where.items():
        values = dict.fromkeys(cell.place[key] for cell in kept if key in cell.place)
        if isinstance(wanted, Range):
            allowed = {v for v in values if not isinstance(v, str | bool) and v >= wanted.least}
        elif isinstance(wanted, str):
            ordered = sorted(values, key=order)
            allowed = set(ordered[-1:] if wanted == "last" else ordered[:1])
        else:
            texts = {comparable_text(value) for value in wanted}
            allowed = {value for value in values if comparable_text(value) in texts}
        kept = [cell for cell in kept if key not in cell.place or cell.place[key] in allowed]
    return kept


def join_cells(cells: Sequence[Cell], others: Sequence[Cell]) -> Iterator[tuple[Cell, list[Cell]]]:
    """Yield each of `cells` with all `others` that are equal to it in the columns they share."""
    # columns of a cell -> (columns in common, values there) -> the others with these
    indexes: dict[tuple[str, ...], dict[tuple[Any, ...], list[Cell]]] = {}
    for cell in cells:
        if (names := tuple(cell.place)) not in indexes:
            indexes[names] = {}
            for other in others:
                common = tuple(key for key in names if key in other.place)
                indexes[names].setdefault((common, _key(other.place, common)), []).append(other)
        shared = dict.fromkeys(common for common, _ in indexes[names])
        found = (indexes[names].get((keys, _key(cell.place, keys)), []) for keys in shared)
        yield cell, list(itertools.chain.from_iterable(found))


def _key(place: CellKey, keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(comparable_text(place[key]) for key in keys)


def grouped_rows(cells: Sequence[Cell], over: Sequence[str]) -> list[tuple[CellKey, list[Cell]]]:
    """Group cells that differ in columns `over` alone; return [({other column: value}, cells)]."""
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        if all(key in cell.place for key in over):
            rest = tuple((k, v) for k, v in cell.place.items() if k not in over)
            groups.setdefault(rest, []).append(cell)
    return [(dict(place), group) for place, group in groups.items()]


def order(value: Any) -> tuple[float, str]:
    """Return a sort key: numbers by size, widths as 50@50 by count and sum; texts keep order."""
    if isinstance(value, str):
        parts = value.split("@")
        if all(part.replace(".", "", 1).isdigit() for part in parts):
            return len(parts) + sum(map(float, parts)) * 1e-6, value
        return 0.0, ""
    return float(value), ""


def cell_key_text(exhibit: str, place: CellKey) -> str:
    """Write a figure's or table's name and swept parameters as text: "figure-2a, J = 10"."""
    parts = [
        str(value) if key == CASE else f"{WORDS.get(key, key)} = {comparable_text(value)}"
        for key, value in place.items()
    ]
    return ", ".join([exhibit, *parts])


@dataclass(frozen=True)
class Statement:
    """A number that a check compares with bounds, with its interval at any confidence.

    at: figure and swept parameters, in words. trials: how many. interval: a function of the
    confidence, as 0.95. parts: the contrasts (differences of best means) that it averages, or ().
    """

    at: str
    trials: int
    interval: Callable[[float], Interval]
    parts: Sequence[Contrast] = ()


def contrasts(at: str, *parts: Contrast) -> Statement:
    """Return the mean of contrasts `parts` as a number to judge; `at` says in words where it is."""
    trials = min(part.trials for part in parts)
    return Statement(at, trials, partial(mean_of_contrasts, parts), parts)


def statement(
    exhibit: str, place: CellKey, gains: Sequence[Trials], rivals: Sequence[Trials] = ()
) -> Statement:
    """Return the largest mean of `gains`, minus the largest of `rivals` if any, to be judged.

    Both list numbers, each by trial, at parameters `place` of the figure `exhibit`. The result is
    at least 0 if every rival is among the gains, and at most 0 if every gain is a rival.
    """
    both = by_trial([*gains, *rivals])
    values, others = both[:, : len(gains)], both[:, len(gains) :]
    least = 0.0 if rivals and all(rival in gains for rival in rivals) else -math.inf
    most = 0.0 if rivals and all(gain in rivals for gain in gains) else math.inf
    others = others if rivals else np.zeros((len(both), 1))
    return contrasts(cell_key_text(exhibit, place), Contrast(values, others, least, most))


def by_trial(numbers: Sequence[Trials]) -> Array:
    """Arrange `numbers`, each by trial, as float64 (trials, numbers), in trials that all have."""
    count = min(map(len, numbers))
    return np.array([trials[:count] for trials in numbers], dtype=np.float64).T
