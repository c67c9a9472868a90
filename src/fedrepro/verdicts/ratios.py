"""The forms of a check that divide one number by another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from fedrepro.numbers.intervals import mean
from fedrepro.verdicts.cells import (
    Cell,
    Exhibits,
    Place,
    Trials,
    absent,
    at,
    beside,
    grouped,
)
from fedrepro.verdicts.form import Form, too_few
from fedrepro.verdicts.statements import Contrasts, Statement, by_trial, statement


def ratio_of(exhibit: str, place: Place, one: Trials, other: Trials) -> Contrasts:
    """The ratio of two means, by how each trial moves it, to first order."""
    numerator, denominator = by_trial([one, other]).T
    ratio = float(numerator.mean() / denominator.mean())
    moved = ratio + (numerator - ratio * denominator) / float(denominator.mean())
    return statement(exhibit, place, [tuple(moved)], [])


class Ratio(Form):
    """The number divided by that of another method."""

    form: Literal["ratio"]
    to: str

    @property
    def others(self) -> list[str]:
        return [self.to]

    @property
    def words(self) -> str:
        return f"{self.what} divided by {self.to}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        for cell, others in self.beside(numbers[exhibit]):
            for other in others:
                yield ratio_of(exhibit, cell.place, cell.trials, other.trials)

    def missing(self, exhibit: str, numbers: Exhibits) -> Iterator[str]:
        yield from super().missing(exhibit, numbers)
        for cell in self.cells(numbers[exhibit], self.to):
            if not any(cell.trials):
                yield f"anything to divide by of {self.to} at {at(exhibit, cell.place)}"


class Smallest(Form):
    """The least size of all settings that are nearly as good as the best, divided by another size.

    Nearly as good is by the means over all trials, as an exhibit's settings are chosen; which
    setting it is stands as measured, and the interval is that of its size.
    """

    form: Literal["smallest"]
    metric: str = "hidden_units"
    split: str = ""
    over: str
    within: float = Field(ge=0)
    by: str = "accuracy"
    by_split: str = "train"
    to: str
    to_exhibit: str | None = None

    @property
    def named(self) -> list[str]:
        return [*self.exhibits, *([self.to_exhibit] if self.to_exhibit else [])]

    @property
    def alike(self) -> list[str]:
        return list(self.exhibits)

    @property
    def columns(self) -> list[str]:
        return [*self.where, self.over]

    @property
    def words(self) -> str:
        by = f"{self.by.replace('_', ' ')} ({self.by_split})"
        near = f"smallest {self.what} with {by} within {self.within:g} of the best {self.over}"
        return f"{near}, divided by {self.to}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        goodness = numbers[exhibit].cells(self.of, self.by, self.by_split, self.where)
        goods = grouped(goodness, [self.over])
        sizes = grouped(self.cells(numbers[exhibit], self.of), [self.over])
        wholes = self._wholes(exhibit, numbers)
        for (place, accuracies), (_, cells) in zip(goods, sizes, strict=True):
            means = mean(by_trial([cell.trials for cell in accuracies]))
            enough = means >= max(means) - self.within
            near = [cell for cell, good in zip(cells, enough, strict=True) if good]
            least = min(near, key=lambda cell: float(np.mean(cell.trials)))
            ((_, others),) = beside([Cell(place, least.trials)], wholes)
            setting = {self.over: least.place[self.over]}
            yield ratio_of(exhibit, place | setting, least.trials, others[0].trials)

    def _wholes(self, exhibit: str, numbers: Exhibits) -> list[Cell]:
        return self.cells(numbers[self.to_exhibit or exhibit], self.to)

    def missing(self, exhibit: str, numbers: Exhibits) -> Iterator[str]:
        yield from super().missing(exhibit, numbers)
        whole = self.to_exhibit or exhibit
        yield from self.missing_of(self.to, whole, numbers[whole])
        cells = self.cells(numbers[exhibit], self.of)
        yield from too_few(cells, self.over, exhibit)
        good = numbers[exhibit].cells(self.of, self.by, self.by_split, self.where)
        for place in absent([cell.place for cell in cells], [cell.place for cell in good], {}):
            yield f"{self.by} ({self.by_split}) of {self.of} at {at(exhibit, place)}"
        for cell, others in beside(cells, self._wholes(exhibit, numbers)):
            if not others or not any(others[0].trials):
                yield f"anything to divide by of {self.to} at {at(exhibit, cell.place)}"
