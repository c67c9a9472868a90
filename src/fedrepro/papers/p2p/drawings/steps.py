"""Drawing numbers-against-steps: what single nodes know as samples come in, a panel a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from fedrepro.core.metrics import all_metrics
from fedrepro.drawings.canvas import (
    LEGEND_ROW,
    SOFT,
    draw_lines,
    grid_of,
    handles_of,
    headings,
    legend,
    legend_rows,
    line_of,
    new_figure,
    select,
)
from fedrepro.drawings.panels import LETTERS
from fedrepro.drawings.style import looks
from fedrepro.numbers.summary import ROUND
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 3.1  # inches, with a legend of one row
MARKERS = 0.12  # of the width, between two markers of a line


def numbers_against_steps(exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
    """A panel for each of the exhibit's `metrics`, against steps on a logarithmic axis."""
    metrics, known = exhibit.settings.metrics, all_metrics()
    rounds = numbers[numbers[ROUND].notna()]
    look = looks(exhibit.measures)
    labels = [measure.label for measure in exhibit.measures]
    rows = legend_rows(labels) - 1
    added = LEGEND_ROW * (rows - 1)
    drawn = new_figure(HEIGHT + added)
    margins = {"left": 0.5, "right": 0.12, "top": 0.72, "bottom": 0.75 + added}
    (panels,) = grid_of(drawn, 1, len(metrics), across=0.5, **margins)
    lowest = []
    for at, (axes, metric) in enumerate(zip(panels, metrics, strict=True)):
        shown = {label: of_method(rounds, label, metric) for label in labels}
        lines = {k: line_of(own, own[ROUND].astype(float).tolist()) for k, own in shown.items()}
        draw_lines(axes, lines, look, banded=set(lines))
        title = known[metric].title
        axes.set_title(f"{LETTERS[at]}  {title[0].upper()}{title[1:]}", loc="left")
        _finish(axes, exhibit)
        lowest.append(axes.get_ylim())
    for axes in panels:  # one scale, so that errors and beliefs can be set side by side
        axes.set_ylim(min(low for low, _ in lowest), max(high for _, high in lowest))
    legend(drawn, handles_of(exhibit.measures, look), 0.08, rows)
    headings(drawn, exhibit)
    return drawn


def along_steps(axes: Axes) -> None:
    """Steps on a logarithmic axis, and markers evenly along it."""
    from matplotlib.ticker import FuncFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    for line in axes.get_lines():
        line.set_markevery(MARKERS)


def of_method(rounds: pd.DataFrame, label: str, metric: str) -> pd.DataFrame:
    """Single rounds of a number that is measured on no split."""
    own = select(rounds, metric, "")
    return own[own["method"] == label]


def _finish(axes: Axes, exhibit: Exhibit) -> None:
    """Axes, and the level that nobody can be below."""
    along_steps(axes)
    axes.set_xlabel(exhibit.settings.horizontal or "steps")
    if exhibit.settings.floor is not None:
        axes.axhline(exhibit.settings.floor, color=SOFT, linewidth=0.8, linestyle=":", zorder=0)


DRAWINGS = {"numbers-against-steps": numbers_against_steps}
