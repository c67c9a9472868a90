"""Checks that claims of PFNM alone need: on sizes, effects of parameters, and correlations.

A check's number must keep bounds (`Form`). Columns are swept parameters; means are over trials.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal

import numpy as np
from pydantic import Field

from fedrepro.core.params import comparable_text
from fedrepro.numbers.intervals import Contrast, correlation, exact_means, pairs
from fedrepro.numbers.verdicts import claim_numbers as claimed
from fedrepro.numbers.verdicts.claim_check_kinds import Form, best_of, ratio_of


class Smallest(Form):
    """A check of a claim on model size: the smallest size that is nearly best, divided by another.

    Sizes (`metric`) of method `of` are compared over values of the column `over`. A size is nearly
    best if its mean training accuracy is below the best by at most `within`, a difference. The
    divisor is the size of method `to`, in the figure or table `to_exhibit` if one is given.
    """

    over_columns, other_exhibit = ("over",), ("to_exhibit",)
    form: Literal["smallest"]
    metric: str = "hidden_units"
    split: str = ""
    over: str
    within: float = Field(ge=0)
    to: str
    to_exhibit: str | None = None

    @property
    def words(self) -> str:
        near = f"accuracy (train) within {self.within:g} of the best {self.over}"
        return f"smallest {self.what} with {near}, divided by {self.to}"

    def statements(self, exhibit: str, numbers: claimed.Exhibits) -> Iterator[claimed.Statement]:
        accuracies = numbers[exhibit].cells(self.of, "accuracy", "train", self.where)
        sizes = self.cells(numbers[exhibit], self.of)
        wholes = self.cells(numbers[self.to_exhibit or exhibit], self.to)
        groups = (claimed.grouped_rows(cells, [self.over]) for cells in (accuracies, sizes))
        for (place, goods), (_, cells) in zip(*groups, strict=True):
            means = exact_means(claimed.by_trial([cell.trials for cell in goods]))
            enough = means >= max(means) - self.within
            near = [cell for cell, good in zip(cells, enough, strict=True) if good]
            least = min(near, key=lambda cell: float(np.mean(cell.trials)))
            ((_, others),) = claimed.join_cells([claimed.Cell(place, least.trials)], wholes)
            setting = {self.over: least.place[self.over]}
            yield ratio_of(exhibit, place | setting, least.trials, others[0].trials)

    def missing(self, exhibit: str, numbers: claimed.Exhibits) -> Iterator[str]:
        yield from super().missing(exhibit, numbers)
        whole = self.to_exhibit or exhibit
        yield from self.missing_of(self.to, whole, numbers[whole])
        accuracies = self.model_copy(update={"metric": "accuracy", "split": "train"})
        yield from accuracies.missing_of(self.of, exhibit, numbers[exhibit])


class Effect(Form):
    """A check: the spread over column `over`, less the largest of the spreads over columns `than`.

    A column's spread is the largest mean at one of its values, minus the smallest. A mean is over
    trials and the other columns named. Each combination of remaining columns gives a number.
    """

    over_columns = ("over", "than")
    form: Literal["effect"]
    over: str
    than: list[str] = Field(min_length=1)

    @property
    def words(self) -> str:
        return f"spread of {self.what} over {self.over}, less {best_of(self.than)}"

    def statements(self, exhibit: str, numbers: claimed.Exhibits) -> Iterator[claimed.Statement]:
        cells = self.cells(numbers[exhibit], self.of)
        for place, group in claimed.grouped_rows(cells, [self.over, *self.than]):
            series = claimed.by_trial([cell.trials for cell in group])
            spreads = []
            for key in (self.over, *self.than):  # of means over the cells of each value
                levels = np.array([comparable_text(cell.place[key]) for cell in group])
                each = [series[:, levels == one].mean(axis=1) for one in dict.fromkeys(levels)]
                spreads.append(pairs(np.column_stack(each)))
            contrast = Contrast(spreads[0], np.column_stack(spreads[1:]))
            yield claimed.contrasts(claimed.cell_key_text(exhibit, place), contrast)


class Correlation(Form):
    """A check: correlation of means of `of` and `with_method` over scenarios and parameters."""

    compared = ("with_method",)
    form: Literal["correlation"]
    points: Literal["every", "some"] = "every"
    with_method: str

    @property
    def words(self) -> str:
        return f"correlation of {self.what} with {self.with_method}"

    def statements(self, exhibit: str, numbers: claimed.Exhibits) -> Iterator[claimed.Statement]:
        paired = [
            [cell.trials, other.trials]
            for cell, others in self.with_others(numbers[exhibit])
            for other in others
        ]
        trials = min(len(values) for pair in paired for values in pair)
        one, other = np.array([[np.mean(values) for values in pair] for pair in paired]).T
        yield claimed.Statement(f"{exhibit}, all points", trials, partial(correlation, one, other))

    def missing(self, exhibit: str, numbers: claimed.Exhibits) -> Iterator[str]:
        yield from super().missing(exhibit, numbers)
        count = len(list(self.with_others(numbers[exhibit])))
        if count < 4:
            yield f"four points for a correlation in {exhibit}, which has {count}"


FORMS = {"smallest": Smallest, "effect": Effect, "correlation": Correlation}
