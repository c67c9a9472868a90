"""A form of a check that claims of RM+AH alone need: single rounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fedrepro.numbers.choice import area_of, end_of
from fedrepro.verdicts.cells import Exhibits, Numbers
from fedrepro.verdicts.form import Form
from fedrepro.verdicts.statements import Statement, statement


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


FORMS = {"over_rounds": OverRounds}
