"""The forms of a check, each from the numbers of exhibits to statements.

A claim is checked by forms such as "method A minus method B at every point, at least -0.02". Forms
are data, not code: nothing of a claim's file is executed. Those with an extreme in them (the best
of several rivals, a best number of clients, a spread, an effect) leave the choice of what is best
to their intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fedrepro.core.params import written
from fedrepro.numbers.choice import area_of, end_of
from fedrepro.numbers.intervals import Array, Contrast, mean, pairs
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
from fedrepro.verdicts.ratios import Ratio, Smallest
from fedrepro.verdicts.statements import (
    Contrasts,
    Rounds,
    Statement,
    Together,
    by_trial,
    statement,
    zero,
)


class Value(Form):
    """The number itself."""

    form: Literal["value"]

    @property
    def words(self) -> str:
        return self.what

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        for cell in self.cells(numbers[exhibit], self.of):
            yield statement(exhibit, cell.place, [cell.trials], [])


class OverRounds(Form):
    """The number of single rounds: where it ended, or its mean over rounds (trapezoids)."""

    form: Literal["over_rounds"]
    take: Literal["end", "mean"]

    @property
    def words(self) -> str:
        return f"{self.what} {'in the last round' if self.take == 'end' else 'over all rounds'}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        for cell in self.cells(self._taken(numbers[exhibit]), self.of):
            yield statement(exhibit, cell.place, [cell.trials], [])

    def missing(self, exhibit: str, numbers: Exhibits) -> Iterator[str]:
        yield from super().missing(exhibit, {exhibit: self._taken(numbers[exhibit])})

    def _taken(self, numbers: Numbers) -> Numbers:
        take = end_of if self.take == "end" else area_of
        return numbers.over_rounds(self.of, self.metric, self.split, take)


class Difference(Form):
    """The number minus that of another method, the best of several if a list is given."""

    form: Literal["difference"]
    minus: list[str] = Field(min_length=1)

    @property
    def others(self) -> list[str]:
        return self.minus

    @property
    def words(self) -> str:
        return f"{self.what} minus {best_of(self.minus)}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        for cell, rivals in self.beside(numbers[exhibit]):
            yield statement(exhibit, cell.place, [cell.trials], [r.trials for r in rivals])


class Gain(Form):
    """What a method adds to another, less the most that others add to theirs."""

    form: Literal["gain"]
    over: str
    than: dict[str, str] = Field(min_length=1, description="method: what it adds to")

    @property
    def others(self) -> list[str]:
        return [self.over, *self.than, *self.than.values()]

    @property
    def words(self) -> str:
        rivals = [f"{method} over {base}" for method, base in self.than.items()]
        return f"gain of {self.what} over {self.over}, less {best_of(rivals)}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        def added(one: str, to: str) -> Iterator[Cell]:
            return apart(*(self.cells(numbers[exhibit], name) for name in (one, to)))

        rivals = [cell for method, base in self.than.items() for cell in added(method, base)]
        for cell, others in beside(list(added(self.of, self.over)), rivals):
            yield statement(exhibit, cell.place, [cell.trials], [other.trials for other in others])


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


class Effect(Form):
    """How far the means over all else lie apart for one column, less the most for any other."""

    form: Literal["effect"]
    over: str
    than: list[str] = Field(min_length=1)

    @property
    def columns(self) -> list[str]:
        return [*self.where, self.over, *self.than]

    @property
    def words(self) -> str:
        return f"spread of {self.what} over {self.over}, less {best_of(self.than)}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        cells = self.cells(numbers[exhibit], self.of)
        for place, group in grouped(cells, [self.over, *self.than]):
            series = by_trial([cell.trials for cell in group])
            spread = pairs(_means(self.over, group, series))
            rivals = [pairs(_means(key, group, series)) for key in self.than]
            yield Contrasts(at(exhibit, place), [Contrast(spread, np.column_stack(rivals))])

    def missing(self, exhibit: str, numbers: Exhibits) -> Iterator[str]:
        yield from super().missing(exhibit, numbers)
        for key in (self.over, *self.than):
            yield from too_few(self.cells(numbers[exhibit], self.of), key, exhibit)


def _means(key: str, cells: Sequence[Cell], series: Array) -> Array:
    """Means over all cells with the same value of a column: (trials, cells) -> (trials, values)."""
    levels = [written(cell.place[key]) for cell in cells]
    masks = [[cell_level == level for cell_level in levels] for level in dict.fromkeys(levels)]
    return np.column_stack([series[:, mask].mean(axis=1) for mask in masks])


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


class Correlation(Form):
    """Pearson's correlation of two methods (Fisher's interval).

    Of their means across an exhibit's points, or of their values across the trials of each point,
    every one taken from the mean of its point.
    """

    form: Literal["correlation"]
    points: Literal["every", "some"] = "every"
    with_method: str
    across: Literal["points", "trials"] = "points"

    @property
    def others(self) -> list[str]:
        return [self.with_method]

    @property
    def words(self) -> str:
        across = " across the trials of a point" if self.across == "trials" else ""
        return f"correlation of {self.what} with {self.with_method}{across}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        paired = [
            (cell.trials, other.trials)
            for cell, others in self.beside(numbers[exhibit])
            for other in others
        ]
        trials = min(len(values) for pair in paired for values in pair)
        if self.across == "points":
            means = np.array([[np.mean(left), np.mean(right)] for left, right in paired])
            yield Together(f"{exhibit}, all points", trials, means[:, 0], means[:, 1])
            return
        deviations = [
            series - series.mean(axis=0) for series in (by_trial(pair) for pair in paired)
        ]
        first, second = np.concatenate(deviations).T
        yield Together(
            f"{exhibit}, {len(paired)} points together", trials, first, second, len(paired)
        )

    def missing(self, exhibit: str, numbers: Exhibits) -> Iterator[str]:
        yield from super().missing(exhibit, numbers)
        count = len(list(self.beside(numbers[exhibit])))
        if count < 4 and self.across == "points":
            yield f"four points for a correlation in {exhibit}, which has {count}"


Check = Annotated[
    Value
    | OverRounds
    | Difference
    | Gain
    | Ratio
    | Smallest
    | Change
    | Spread
    | Effect
    | RoundsTo
    | Correlation,
    Field(discriminator="form"),
]
