"""Draw a table: numbers in rows and columns, as html, with the paper's values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.metrics import TIMES
from fedrepro.core.paper_files import published_file
from fedrepro.planning import drawing_base as base
from fedrepro.planning.drawing_base import TABLE, Drawing, MetricName, Planned, a_rival, drawing
from fedrepro.planning.exhibit_config import key as option

if TYPE_CHECKING:
    import pandas as pd

    from fedrepro.planning.exhibit import Exhibit


@drawing(TABLE)
class TableDrawing(Drawing):
    """A table of numbers in rows and columns, each with the value that the paper printed.

    Rows and columns are labelled by `method`, `case` (scenario), and names of parameters.
    """

    shows_pairs: ClassVar[bool] = True
    suffix: ClassVar[str] = ".html"

    rows: list[str] = option(list, "what labels rows; by default methods and their settings")
    columns: list[str] = option(list, "what labels columns; by default cases and swept parameters")
    metric: MetricName = option("accuracy", "the number in each cell")
    split: str = option("test", "split on which it is measured; empty if on none")
    sizes: bool = option(True, "the size of the model stands under each number")
    best: Literal["column", "row", "none"] = option(
        "column", "mark the best number of each column or row; ties and bounds are not marked"
    )

    @property
    def number(self) -> tuple[str, str]:
        return self.metric, self.split

    def reasons(self, shown: Planned) -> Iterator[str]:
        yield from a_rival(shown)
        # each parameter has its place in rows or columns, once
        settings = [key for measure in shown.measures for key in measure.show]
        points = shown.points[0]
        known = dict.fromkeys(["method", *points, *settings])
        placed = [*itertools.chain(*self.sides(points, settings))]
        for key in placed:
            if key not in known:
                yield f"its table has '{key}' in rows or columns; what it has is {', '.join(known)}"
            if placed.count(key) > 1:
                yield f"its table has '{key}' twice in rows and columns; take one out"
        varied = ["method"] if len(shown.measures) > 1 else []
        varied += [key for key in points if len(shown.values(key)) > 1]
        for key in (*varied, *settings):
            if key not in placed:
                yield f"'{key}' takes several values, but its table has no rows or columns of it"
        for measure in shown.measures if self.metric in TIMES else ():
            in_rounds = METHOD_KINDS[measure.spec.component.meta["kind"]].in_rounds
            if not in_rounds or len(measure.settings) > 1:
                yield (
                    f"times are of rounds of one setting of a method; '{measure.spec.name}' has "
                    + ("several settings" if in_rounds else "no rounds")
                )

    def sides(self, points: Iterable[str], settings: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return two lists of csv columns: those that label the table's rows, and its columns.

        By default "method" and the methods' own parameters (`settings`) label rows. Swept
        parameters and "case", the scenario (`points`), label columns.
        """
        rows = self.rows or ["method", *dict.fromkeys(settings)]
        return rows, self.columns or [key for key in points if key not in rows]

    def files(self, exhibit: Exhibit, about: base.About, numbers: pd.DataFrame) -> dict[str, bytes]:
        """Return {".html": table, ".printed.csv": printed values and ours}, as bytes."""
        from fedrepro.drawings.tables import arrangement_of, fixed_keys, html, table_of
        from fedrepro.numbers.tables_and_selection import csv_text, read_csv
        from fedrepro.numbers.verdicts import verdicts_on_printed_values as verdicts

        lost = not {"failed", "left_out"}.isdisjoint(numbers["metric"])
        if not lost and base.select_series(base.final(numbers), *self.number).empty:
            said = f"{exhibit.key}: none of its methods has {self.metric} on the split"
            fix = "name another split, or '' for none"
            raise FedreproError(f"{said} '{self.split}' at its end: {fix}")
        stand_ins = {data["token"]: data["stand_in"] for data in about["data"]}
        published = verdicts.read_published(published_file(exhibit.paper))
        printed = csv_text(verdicts.printed_rows(exhibit, published, numbers, stand_ins))
        caption = f"{exhibit.caption} {fixed_keys(about, numbers)}."
        table = table_of(about, numbers, arrangement_of(about), read_csv(printed), caption)
        return {".html": html(table).encode(), ".printed.csv": printed.encode()}
