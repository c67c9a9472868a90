"""The kinds of checks that decide a claim: classes that compute numbers to compare with bounds.

Intervals of extremes (the best of several methods, a spread) allow for the fact that measured
values chose them. A kind for one paper is in `FORMS` of its claim_forms.py.
"""

from __future__ import annotations

import math
import operator
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pydantic
from pydantic import Field, InstanceOf, field_validator, model_validator

from fedrepro.core.errors import unknown
from fedrepro.core.metrics import all_metrics
from fedrepro.core.paper_files import attributes_of_papers
from fedrepro.core.params import comparable_text
from fedrepro.numbers.intervals import Contrast, exact_means, first_closed, pairs
from fedrepro.numbers.trial_statistics import LEFT_OUT
from fedrepro.numbers.verdicts import claim_numbers as claimed
from fedrepro.numbers.verdicts.claim_numbers import Cell, CellKey, Exhibits, Numbers, Statement
from fedrepro.planning.drawing_base import Strict

BOUNDS = {  # of a check, and how a number within it compares with it
    "above": operator.gt,
    "at_least": operator.ge,
    "below": operator.lt,
    "at_most": operator.le,
}
POINTS = {
    "every": "at every point",
    "some": "at some point",
    "most": "at more than half of the points",
    "mean": "on average",
}


class Bounds(Strict):
    """The bounds on a check's number, at least one of: above, at_least, below, at_most."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Bounds:
        if not self.bounds:
            raise ValueError(f"a check needs a bound: {', '.join(BOUNDS)}")
        return self

    @property
    def bounds(self) -> dict[str, float]:
        return {key: value for key in BOUNDS if (value := getattr(self, key)) is not None}


class Form(Bounds):
    """A check of a paper's claim: whether a number of the method `of` keeps bounds in `exhibits`.

    Subclasses compute the number, such as a difference. where: {column: values, range, "first" or
    "last"}, to which points (combinations of swept parameters) are restricted. points: whether
    every point, some, most, or their mean must keep the bounds. ragged: whether a method may have
    no number at some points. shows: a name, under which the claims file lists the bounds, or "".
    """

    exhibits: list[str] = Field(min_length=1)
    of: str
    metric: str = "accuracy"
    split: str = "test"
    where: dict[str, claimed.CellFilter] = Field(default={})
    points: Literal["every", "some", "most", "mean"] = "every"
    ragged: bool = False
    shows: str = ""

    # fields that name methods at the same place, columns that vary, and another exhibit
    compared: ClassVar[tuple[str, ...]] = ()
    over_columns: ClassVar[tuple[str, ...]] = ()
    other_exhibit: ClassVar[tuple[str, ...]] = ()

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        if metric not in all_metrics():
            raise ValueError(str(unknown("metric", metric, all_metrics())))
        return metric

    def _names(self, keys: Sequence[str]) -> list[str]:
        given = [getattr(self, key) or [] for key in keys]
        return [name for names in given for name in ([names] if isinstance(names, str) else names)]

    @property
    def named(self) -> list[str]:
        """List all figures and tables that the check reads."""
        return [*self.exhibits, *self._names(self.other_exhibit)]

    @property
    def others(self) -> list[str]:
        """List the labels of the methods that `of` is compared with."""
        return self._names(self.compared)

    @property
    def columns(self) -> list[str]:
        return [*self.where, *self._names(self.over_columns)]

    @property
    @abstractmethod
    def words(self) -> str:
        """Return a phrase on the judged number, such as "accuracy (test) of FedAvg minus PFNM"."""

    @property
    def bound(self) -> str:
        parts = [f"{key.replace('_', ' ')} {value:g}" for key, value in self.bounds.items()]
        return f"{self.shows}, " * bool(self.shows) + " and ".join(parts)

    @property
    def what(self) -> str:
        split = f" ({self.split})" if self.split else ""
        return f"{self.metric.replace('_', ' ')}{split} of {self.of}"

    @property
    def sentence(self) -> str:
        """Return the check in words: "accuracy (test) of A minus B, at every point: above 0"."""
        where = f", {where_words(self.where)}" if self.where else ""
        return f"{self.words}{where}, {POINTS[self.points]}: {self.bound}"

    @abstractmethod
    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        """Yield a number to judge for each combination of swept parameters in numbers[exhibit]."""

    def cells(self, numbers: Numbers, method: str) -> list[Cell]:
        return numbers.cells(method, self.metric, self.split, self.where)

    def with_others(self, numbers: Numbers) -> Iterator[tuple[Cell, list[Cell]]]:
        """Yield (number of `of`, those of `others` at equal parameters) where `others` have any."""
        others = [cell for name in self.others for cell in self.cells(numbers, name)]
        pairs = claimed.join_cells(self.cells(numbers, self.of), others)
        return (pair for pair in pairs if pair[1] or not self.others)

    def missing(self, exhibit: str, numbers: Exhibits) -> Iterator[str]:
        """Yield a phrase for each number that the check needs and `exhibit` lacks."""
        own = numbers[exhibit]
        names = dict.fromkeys((self.of, *self.others))
        lacking = [one for name in names for one in self.missing_of(name, exhibit, own)]
        yield from lacking
        for cell, matches in self.with_others(own) if self.ragged else ():
            yield from self._not_finite(self.of, exhibit, [cell])
            yield from self._not_finite(best_of(self.others), exhibit, matches)
        kept = self.cells(own, self.of)
        # places at which only one of two methods stands
        for name in () if lacking or self.ragged else self.others:
            others = self.cells(own, name)
            for have, against, method in ((kept, others, name), (others, kept, self.of)):
                pairs = claimed.join_cells(have, against)
                lone = (cell.place for cell, matches in pairs if not matches)
                yield from (f"{method} at {claimed.cell_key_text(exhibit, at)}" for at in lone)
        for key in self._names(self.over_columns):
            if len({comparable_text(cell.place[key]) for cell in kept if key in cell.place}) < 2:
                yield f"a second value of {key} in {exhibit}"

    def missing_of(self, method: str, exhibit: str, numbers: Numbers) -> Iterator[str]:
        cells = numbers.cells(method, self.metric, self.split, {})
        if not cells:
            yield f"{self.metric.replace('_', ' ')} of {method} in {exhibit}"
            return
        # what a method could not give by design is not still to come
        known = [*cells, *(numbers.cells(method, LEFT_OUT, "", {}) if self.ragged else ())]
        for key, wanted in self.where.items():
            present = {comparable_text(cell.place[key]) for cell in known if key in cell.place}
            for value in map(comparable_text, wanted if isinstance(wanted, list) else ()):
                if present and value not in present:
                    yield f"{key} = {value} of {method} in {exhibit}"
        if not claimed.filter_cells(known, self.where):
            yield f"{method} in {exhibit} where {where_words(self.where)}"
        if not self.ragged:
            yield from self._not_finite(method, exhibit, claimed.filter_cells(cells, self.where))

    def _not_finite(self, who: str, exhibit: str, cells: list[Cell]) -> Iterator[str]:
        decisive = self.points not in ("some", "most")  # diverged, or a target never reached
        for cell in cells if decisive else ():
            if not all(map(math.isfinite, cell.trials)):
                yield f"a finite number of {who} at {claimed.cell_key_text(exhibit, cell.place)}"


def where_words(where: Mapping[str, claimed.CellFilter]) -> str:
    """Write as text which values of columns a check is restricted to: "clients 5/10, case iid"."""
    return ", ".join(
        f"{key} {'/'.join(map(comparable_text, wanted)) if isinstance(wanted, list) else wanted}"
        for key, wanted in where.items()
    )


def best_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"the larger of {' and '.join(names)}"


class Value(Form):
    """A check on a number of method `of`, less the largest of methods `minus` if given."""

    compared = ("minus",)
    form: Literal["value", "difference"]
    minus: list[str] = Field(default=[])

    @model_validator(mode="after")
    def _named(self) -> Value:
        if (self.form == "difference") != bool(self.minus):
            raise ValueError("a difference needs `minus`, and a value has none")
        return self

    @property
    def words(self) -> str:
        return f"{self.what} minus {best_of(self.minus)}" if self.minus else self.what

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        for cell, rivals in self.with_others(numbers[exhibit]):
            yield claimed.statement(exhibit, cell.place, [cell.trials], [r.trials for r in rivals])


def ratio_of(exhibit: str, place: CellKey, one: claimed.Trials, other: claimed.Trials) -> Statement:
    """Return mean of `one` / mean of `other`, both by trial; `place` has parameters in `exhibit`.

    If r is this ratio, its value in a trial is r + (one - r * other) / mean of `other`.
    """
    numerator, denominator = claimed.by_trial([one, other]).T
    ratio = float(numerator.mean() / denominator.mean())
    moved = ratio + (numerator - ratio * denominator) / float(denominator.mean())
    return claimed.statement(exhibit, place, [tuple(moved)])


class Ratio(Form):
    """A check on a number of method `of`, such as accuracy, divided by that of method `to`."""

    compared = ("to",)
    form: Literal["ratio"]
    to: str

    @property
    def words(self) -> str:
        return f"{self.what} divided by {self.to}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        for cell, others in self.with_others(numbers[exhibit]):
            yield from (ratio_of(exhibit, cell.place, cell.trials, o.trials) for o in others)


def cell_differences(cells: Sequence[Cell], others: Sequence[Cell]) -> Iterator[Cell]:
    """Yield each of `cells` minus numbers of `others` at equal parameters, trial by trial."""
    for cell, matches in claimed.join_cells(cells, others):
        for other in matches:
            values, other_values = claimed.by_trial([cell.trials, other.trials]).T
            yield Cell(cell.place, tuple(values - other_values))


class Change(Form):
    """A check on change along column `along`: `end` less `start`, where best is the largest."""

    compared, over_columns = ("minus",), ("along",)
    form: Literal["change"]
    along: str
    start: Literal["first", "best"] = "first"
    end: Literal["last", "best"] = "last"
    minus: str | None = None  # a method whose number is taken off first

    @property
    def words(self) -> str:
        less = f" minus {self.minus}" if self.minus else ""
        return f"change of {self.what}{less} along {self.along}, {self.start} to {self.end}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        cells = self.cells(numbers[exhibit], self.of)
        if self.minus:
            cells = list(cell_differences(cells, self.cells(numbers[exhibit], self.minus)))
        for place, group in claimed.grouped_rows(cells, [self.along]):
            ordered = sorted(group, key=lambda cell: claimed.order(cell.place[self.along]))
            series = [cell.trials for cell in ordered]
            best = int(exact_means(claimed.by_trial(series)).argmax())
            # each end: where it was measured to be, and the numbers it is the best of
            (first, starts), (last, ends) = (
                (best, series) if which == "best" else (fixed, [series[fixed]])
                for which, fixed in ((self.start, 0), (self.end, -1))
            )
            names = [comparable_text(ordered[at].place[self.along]) for at in (first, last)]
            yield claimed.statement(exhibit, place | {self.along: " to ".join(names)}, ends, starts)


class Spread(Form):
    """A check on a number's spread: the largest minus the smallest value as columns `over` vary.

    minus_exhibit: a figure or table whose spread is subtracted, or None.
    """

    over_columns, other_exhibit = ("over",), ("minus_exhibit",)
    form: Literal["spread"]
    over: list[str] = Field(min_length=1)
    minus_exhibit: str | None = None

    @property
    def words(self) -> str:
        less = f", less that of {self.minus_exhibit}" if self.minus_exhibit else ""
        return f"spread of {self.what} over {', '.join(self.over)}{less}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        others = self._groups(numbers[self.minus_exhibit]) if self.minus_exhibit else []
        for place, trials in self._groups(numbers[exhibit]):
            if self.minus_exhibit is None:
                values = claimed.by_trial(trials)
                one = Contrast(pairs(values), np.zeros((len(values), 1)), least=0)
                yield claimed.contrasts(claimed.cell_key_text(exhibit, place), one)
            for other in (series for at, series in others if at == place):
                both = claimed.by_trial([*trials, *other])
                one = Contrast(pairs(both[:, : len(trials)]), pairs(both[:, len(trials) :]))
                yield claimed.contrasts(claimed.cell_key_text(exhibit, place), one)

    def _groups(self, numbers: Numbers) -> list[tuple[CellKey, list[claimed.Trials]]]:
        groups = claimed.grouped_rows(self.cells(numbers, self.of), self.over)
        return [(place, [cell.trials for cell in group]) for place, group in groups]

    def missing(self, exhibit: str, numbers: Exhibits) -> Iterator[str]:
        yield from super().missing(exhibit, numbers)
        if name := self.minus_exhibit:
            yield from self.missing_of(self.of, name, numbers[name])


class RoundsTo(Form):
    """A check on the first round where `of` is at most `within` below `reach`'s final value."""

    compared = ("reach",)
    form: Literal["rounds_to"]
    points: Literal["every", "some"] = "every"
    reach: str
    within: float = Field(0.0, ge=0)

    @property
    def words(self) -> str:
        return f"rounds until {self.what} is within {self.within:g} of {self.reach}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        measured = numbers[exhibit].rounds(self.of, self.metric, self.split)
        for cell, goals in self.with_others(numbers[exhibit]):
            if by_round := measured.get(tuple(cell.place.items())):
                series = claimed.by_trial([goals[0].trials, *by_round.values()])
                behind = series[:, [0]] - self.within - series[:, 1:]
                reached = partial(first_closed, list(by_round), behind)
                yield Statement(claimed.cell_key_text(exhibit, cell.place), len(behind), reached)


FORMS: dict[str, type[Form]] = {"value": Value, "difference": Value, "ratio": Ratio}
FORMS |= {"change": Change, "spread": Spread, "rounds_to": RoundsTo}


def _of_its_form(given: Any) -> Any:
    """Build a check from the keys and values `given` in a claims file; `form` names its class."""
    if isinstance(given, Form):
        return given
    forms = FORMS.copy()
    for own in attributes_of_papers("claim_forms", "FORMS").values():
        forms |= own
    name = given.get("form") if isinstance(given, dict) else None
    if name not in forms:
        raise ValueError(str(unknown("form of a check", str(name), forms)))
    try:
        return forms[name].model_validate(given)
    except pydantic.ValidationError as error:
        reasons = (
            ": ".join([*map(str, one["loc"]), one["msg"].removeprefix("Value error, ")])
            for one in error.errors()
        )
        raise ValueError("; ".join(reasons)) from None


Check = Annotated[InstanceOf[Form], pydantic.BeforeValidator(_of_its_form)]
