"""Forms of a check, each a function from the numbers of exhibits to statements.

A claim is checked by forms such as "method A minus method B at every point, at least -0.02". Forms
are data, not code: nothing of a claim's file is executed. Forms with an extreme (the best of
several rivals, a best number of clients, a spread) leave the choice of the best to their intervals.
A form that one paper alone needs is in its folder: `FORMS` of its forms.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, InstanceOf, ValidationError, model_validator

from fedrepro.core.errors import unknown
from fedrepro.core.packs import forms_of_papers
from fedrepro.core.params import written
from fedrepro.numbers.intervals import Contrast, mean, pairs
from fedrepro.verdicts.cells import (
    Cell,
    Exhibits,
    Numbers,
    Place,
    Trials,
    at,
    beside,
    grouped,
    order,
)
from fedrepro.verdicts.form import Form, best_of, too_few
from fedrepro.verdicts.statements import (
    Contrasts,
    Rounds,
    Statement,
    by_trial,
    statement,
    zero,
)


class Value(Form):
    """The number itself, or what it has above another method's: the best of several in a list."""

    form: Literal["value", "difference"]
    minus: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _named(self) -> Value:
        if (self.form == "difference") != bool(self.minus):
            raise ValueError("a difference needs `minus`, and a value has none")
        return self

    @property
    def others(self) -> list[str]:
        return self.minus

    @property
    def words(self) -> str:
        return f"{self.what} minus {best_of(self.minus)}" if self.minus else self.what

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        if not self.minus:
            for cell in self.cells(numbers[exhibit], self.of):
                yield statement(exhibit, cell.place, [cell.trials], [])
        for cell, rivals in self.beside(numbers[exhibit]):
            yield statement(exhibit, cell.place, [cell.trials], [r.trials for r in rivals])


def ratio_of(exhibit: str, place: Place, one: Trials, other: Trials) -> Contrasts:
    """Linearise the ratio of two means in each trial."""
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


def apart(cells: Sequence[Cell], others: Sequence[Cell]) -> Iterator[Cell]:
    """Each cell less the others at its place, by trial."""
    for cell, matches in beside(cells, others):
        for other in matches:
            values, other_values = by_trial([cell.trials, other.trials]).T
            yield Cell(cell.place, tuple(values - other_values))


class Change(Form):
    """The number at the end of a column minus that at its start, each or where it is highest."""

    form: Literal["change"]
    along: str
    start: Literal["first", "best"] = "first"
    end: Literal["last", "best"] = "last"
    minus: str | None = Field(None, description="a method whose number is taken off first")

    @property
    def others(self) -> list[str]:
        return [self.minus] if self.minus else []

    @property
    def columns(self) -> list[str]:
        return [*self.where, self.along]

    @property
    def words(self) -> str:
        less = f" minus {self.minus}" if self.minus else ""
        return f"change of {self.what}{less} along {self.along}, {self.start} to {self.end}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        cells = list(self._cells(numbers[exhibit]))
        for place, group in grouped(cells, [self.along]):
            ordered = sorted(group, key=lambda cell: order(cell.place[self.along]))
            best = ordered[int(mean(by_trial([cell.trials for cell in ordered])).argmax())]
            start, starts = self._end(self.start, ordered[0], best, ordered)
            end, ends = self._end(self.end, ordered[-1], best, ordered)
            named = {self.along: f"{written(start)} to {written(end)}"}
            yield statement(exhibit, place | named, ends, starts)

    def _end(
        self, which: str, fixed: Cell, best: Cell, ordered: Sequence[Cell]
    ) -> tuple[Any, list[Trials]]:
        """Where one end was measured to be, and the numbers it is the best of."""
        if which == "best":
            return best.place[self.along], [cell.trials for cell in ordered]
        return fixed.place[self.along], [fixed.trials]

    def _cells(self, numbers: Numbers) -> Iterator[Cell]:
        cells = self.cells(numbers, self.of)
        if self.minus is None:
            yield from cells
        else:
            yield from apart(cells, self.cells(numbers, self.minus))

    def missing(self, exhibit: str, numbers: Exhibits) -> Iterator[str]:
        yield from super().missing(exhibit, numbers)
        yield from too_few(self.cells(numbers[exhibit], self.of), self.along, exhibit)


class Spread(Form):
    """The largest minus the smallest number as columns vary; less another exhibit's, if named."""

    form: Literal["spread"]
    over: list[str] = Field(min_length=1)
    minus_exhibit: str | None = None

    @property
    def named(self) -> list[str]:
        return [*self.exhibits, *([self.minus_exhibit] if self.minus_exhibit else [])]

    @property
    def columns(self) -> list[str]:
        return [*self.where, *self.over]

    @property
    def words(self) -> str:
        less = f", less that of {self.minus_exhibit}" if self.minus_exhibit else ""
        return f"spread of {self.what} over {', '.join(self.over)}{less}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        groups = self._groups(numbers[exhibit])
        if self.minus_exhibit is None:
            for place, trials in groups:
                series = by_trial(trials)
                yield Contrasts(
                    at(exhibit, place), [Contrast(pairs(series), zero(series), least=0)]
                )
            return
        other_groups = self._groups(numbers[self.minus_exhibit])
        others = {frozenset(place.items()): trials for place, trials in other_groups}
        for place, trials in groups:
            other_trials = others.get(frozenset(place.items()))
            if other_trials is not None:
                both = by_trial([*trials, *other_trials])
                gains, rivals = both[:, : len(trials)], both[:, len(trials) :]
                yield Contrasts(at(exhibit, place), [Contrast(pairs(gains), pairs(rivals))])

    def _groups(self, numbers: Numbers) -> list[tuple[Place, list[Trials]]]:
        groups = grouped(self.cells(numbers, self.of), self.over)
        return [(place, [cell.trials for cell in group]) for place, group in groups]

    def missing(self, exhibit: str, numbers: Exhibits) -> Iterator[str]:
        yield from super().missing(exhibit, numbers)
        for key in self.over:
            yield from too_few(self.cells(numbers[exhibit], self.of), key, exhibit)
        if self.minus_exhibit is None:
            return
        yield from self.missing_of(self.of, self.minus_exhibit, numbers[self.minus_exhibit])
        places = [place for place, _ in self._groups(numbers[self.minus_exhibit])]
        for place, _ in self._groups(numbers[exhibit]):
            if place not in places:
                yield f"{self.of} at {at(self.minus_exhibit, place)}"


class RoundsTo(Form):
    """The first measured round in which a method is within reach of what another ended with."""

    form: Literal["rounds_to"]
    points: Literal["every", "some"] = "every"
    reach: str
    within: float = Field(0.0, ge=0)

    @property
    def others(self) -> list[str]:
        return [self.reach]

    @property
    def words(self) -> str:
        return f"rounds until {self.what} is within {self.within:g} of {self.reach}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        measured = numbers[exhibit].rounds(self.of, self.metric, self.split)
        for cell, goals in self.beside(numbers[exhibit]):
            by_round = measured.get(tuple(cell.place.items()), {})
            if by_round:
                series = by_trial([goals[0].trials, *by_round.values()])
                behind = series[:, [0]] - self.within - series[:, 1:]
                yield Rounds(at(exhibit, cell.place), list(by_round), behind)

    def missing(self, exhibit: str, numbers: Exhibits) -> Iterator[str]:
        yield from super().missing(exhibit, numbers)
        measured = numbers[exhibit].rounds(self.of, self.metric, self.split)
        for cell in self.cells(numbers[exhibit], self.of):
            by_round = measured.get(tuple(cell.place.items()), {})
            if not by_round:
                yield f"single rounds of {self.of} at {at(exhibit, cell.place)}"
            for done in numbers[exhibit].due(self.of, list(by_round)):
                yield f"round {done} of {self.of} at {at(exhibit, cell.place)}"


FORMS: dict[str, type[Form]] = {
    "value": Value,
    "difference": Value,
    "ratio": Ratio,
    "change": Change,
    "spread": Spread,
    "rounds_to": RoundsTo,
}


def _of_its_form(given: Any) -> Any:
    """Build a check from its keys; ValueError for an unknown form or a wrong key."""
    if isinstance(given, Form):
        return given
    forms = {**FORMS, **forms_of_papers()}
    name = given.get("form") if isinstance(given, dict) else None
    if name not in forms:
        raise ValueError(str(unknown("form of a check", str(name), forms)))
    try:
        return forms[name].model_validate(given)
    except ValidationError as error:
        told = (
            ": ".join([*map(str, one["loc"]), one["msg"].removeprefix("Value error, ")])
            for one in error.errors()
        )
        raise ValueError("; ".join(told)) from None


Check = Annotated[InstanceOf[Form], BeforeValidator(_of_its_form)]
