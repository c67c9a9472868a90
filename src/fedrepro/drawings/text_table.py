"""Drawing table: test accuracy and size of every method and setting at every point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedrepro.core.metrics import SIZES, Size, size_text
from fedrepro.drawings.canvas import SOFT, WIDTH, final, headings, name_of, new_figure, select
from fedrepro.planning.exhibit import CASE
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW, HEAD, TOP = 0.3, 0.42, 0.55  # inches: a row, the column heads, the headings
METHOD, SETTING, MARGIN = 0.85, 0.55, 0.1  # widths, inches
TINY = 6.5  # points; columns are narrow


@dataclass(frozen=True)
class TableRow:
    """A method at one setting: the values of shown parameters, and a cell per point."""

    label: str
    values: Sequence[str]
    cells: Sequence[tuple[float, float, str]]  # accuracy, its sd, the size in words
    reference: bool


def table(exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
    """Accuracy in percent ± sd above the size of the model; the best of a column in bold."""
    rows = rows_of(exhibit, final(numbers))
    drawn = new_figure(TOP + HEAD + ROW * len(rows) + MARGIN)
    height = drawn.get_figheight()
    count = len(exhibit.shown)
    first = MARGIN + METHOD + SETTING * count
    step = (WIDTH - MARGIN - first) / len(exhibit.points)

    def write(x: float, y: float, text: str, **style: Any) -> None:
        given = {"ha": "center", "va": "center", "fontsize": TINY, **style}
        drawn.text(x / WIDTH, 1 - y / height, text, **given)

    for at, key in enumerate(exhibit.shown):
        words = name_of(key).replace(" ", "\n")
        write(MARGIN + METHOD + SETTING * (at + 0.5), TOP + HEAD / 2, words)
    for at, point in enumerate(exhibit.points):
        write(first + step * (at + 0.5), TOP + HEAD / 2, head_of(exhibit, point.values))
    best = [
        max(r.cells[at][0] for r in rows if not r.reference) for at in range(len(exhibit.points))
    ]
    for number, row in enumerate(rows):
        y = TOP + HEAD + ROW * (number + 0.5)
        write(MARGIN, y, row.label, ha="left", fontsize=7)
        for at, value in enumerate(row.values):
            write(MARGIN + METHOD + SETTING * (at + 0.5), y, value)
        for at, (mean, sd, large) in enumerate(row.cells):
            weight = "bold" if mean == best[at] and not row.reference else "normal"
            x = first + step * (at + 0.5)
            write(x, y - 0.062, percent_text(mean, sd), weight=weight)
            write(x, y + 0.062, large, color=SOFT, fontsize=6)
    _rules(drawn, len(rows))
    headings(drawn, exhibit)
    return drawn


def rows_of(exhibit: Exhibit, numbers: pd.DataFrame) -> list[TableRow]:
    """A row per method and setting, in the exhibit's order."""
    found = []
    for measure in exhibit.measures:
        own = numbers[numbers["method"] == measure.label]
        for _, group in own.groupby(list(measure.show), sort=False) if measure.show else [(0, own)]:
            values = [
                _text(group[key].iloc[0]) if key in measure.show else "" for key in exhibit.shown
            ]
            size = SIZES[exhibit.settings.size]
            cells = [_cell(_at(group, point.values), size) for point in exhibit.points]
            found.append(TableRow(measure.label, values, cells, measure.reference))
    return found


def head_of(exhibit: Exhibit, values: Mapping[str, Any]) -> str:
    """A column's head: its case, then what varies in it."""
    several = {
        key for key in values if len({str(point.values[key]) for point in exhibit.points}) > 1
    }
    parts = [str(values[CASE])] if CASE in several else []
    for key in values:
        value = str(values[key])
        if key == CASE or key not in several:
            continue
        if key == "hidden":  # in few letters, since columns are narrow
            parts.append(f"hidden {_widths(value)}")
        else:
            parts.append(f"{'J' if key == 'clients' else name_of(key)} = {value}")
    return "\n".join(parts).replace(", ", "\n")


def percent_text(mean: float, sd: float) -> str:
    return f"{100 * mean:.1f}" if pd.isna(sd) else f"{100 * mean:.1f} ± {100 * sd:.1f}"


def _widths(value: str) -> str:
    """Widths of layers, as 50@50, in few letters; anything else as it is."""
    each = value.split("@")
    return f"{len(each)} × {each[0]}" if len(each) > len(set(each)) == 1 else " + ".join(each)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _at(rows: pd.DataFrame, values: Mapping[str, Any]) -> pd.DataFrame:
    for key, value in values.items():
        rows = rows[rows[key].astype(str) == str(value)]
    return rows


def _cell(rows: pd.DataFrame, size: Size) -> tuple[float, float, str]:
    accuracy = select(rows, "accuracy", "test").iloc[0]
    large = select(rows, size.metric, "")["mean"]
    words = size_text(float(large.iloc[0]), size) if len(large) else ""
    return float(accuracy["mean"]), float(accuracy["sd"]), words


def _rules(drawn: Figure, rows: int) -> None:
    """Lines above and below the heads, and below the last row."""
    from matplotlib.lines import Line2D

    height = drawn.get_figheight()
    for y in (TOP, TOP + HEAD, TOP + HEAD + ROW * rows):
        at = 1 - y / height
        line = Line2D(
            [MARGIN / 2 / WIDTH, 1 - MARGIN / 2 / WIDTH],
            [at, at],
            transform=drawn.transFigure,
            color=SOFT,
            linewidth=0.6,
        )
        drawn.add_artist(line)
