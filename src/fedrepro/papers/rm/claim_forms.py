"""A check on curves over rounds, which only claims of the paper RM+AH need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from fedrepro.numbers.tables_and_selection import area_of
from fedrepro.numbers.verdicts.claim_check_kinds import Form
from fedrepro.numbers.verdicts.claim_numbers import Exhibits, Numbers, Statement, statement


class OverRounds(Form):
    """A claim's check on one number of a curve over rounds: of a metric of one method (`Form`).

    `take` is "end" for its last value, or "mean" for the area under it by trapezoids, per round.
    """

    form: Literal["over_rounds"]
    take: Literal["end", "mean"]

    @property
    def words(self) -> str:
        return f"{self.what} {'in the last round' if self.take == 'end' else 'over all rounds'}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        for cell in self.cells(self._taken(numbers[exhibit]), self.of):
            yield statement(exhibit, cell.place, [cell.trials])

    def missing(self, exhibit: str, numbers: Exhibits) -> Iterator[str]:
        yield from super().missing(exhibit, {exhibit: self._taken(numbers[exhibit])})

    def _taken(self, numbers: Numbers) -> Numbers:
        """Return numbers with the curves of method `of` reduced to one value per trial."""
        import pandas as pd

        row = {"method": self.of, "metric": self.metric, "split": self.split}
        rows = []
        for spot, by_round in numbers.rounds(self.of, self.metric, self.split).items():
            trials = zip(*by_round.values(), strict=True)
            curves = (list(zip(by_round, one, strict=True)) for one in trials)
            values = (c[-1][1] if self.take == "end" else area_of(c) for c in curves)
            rows.append({**dict(spot), **row, "by_trial": " ".join(f"{v:.10g}" for v in values)})
        return replace(numbers, frame=pd.DataFrame(rows, columns=list(numbers.frame.columns)))


FORMS = {"over_rounds": OverRounds}
