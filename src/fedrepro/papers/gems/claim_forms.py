"""A check that only claims of the paper GEMS need: how much one method gains over another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from fedrepro.numbers.verdicts.claim_check_kinds import Form, best_of, cell_differences
from fedrepro.numbers.verdicts.claim_numbers import Cell, Exhibits, Statement, join_cells, statement


class Gain(Form):
    """A check of a claim: what method `of` gains over method `over`, less the best rival's gain.

    `than` maps each rival to the method over which it gains, as {"Averaged tuned": "Averaged"}. A
    gain is a difference of `metric`, by default accuracy, in one trial at equal parameters.
    """

    form: Literal["gain"]
    over: str
    than: dict[str, str] = Field(min_length=1)

    @property
    def others(self) -> list[str]:
        return [self.over, *self.than, *self.than.values()]

    @property
    def words(self) -> str:
        rivals = [f"{method} over {base}" for method, base in self.than.items()]
        return f"gain of {self.what} over {self.over}, less {best_of(rivals)}"

    def statements(self, exhibit: str, numbers: Exhibits) -> Iterator[Statement]:
        def added(one: str, to: str) -> Iterator[Cell]:
            return cell_differences(*(self.cells(numbers[exhibit], name) for name in (one, to)))

        rivals = [cell for method, base in self.than.items() for cell in added(method, base)]
        for cell, others in join_cells(list(added(self.of, self.over)), rivals):
            yield statement(exhibit, cell.place, [cell.trials], [other.trials for other in others])


FORMS = {"gain": Gain}
