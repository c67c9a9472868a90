"""Drawing hyper-parameters: what a method that adapts them uses as rounds go by, and its reward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from fedrepro.core.spec import Spec
from fedrepro.drawings.canvas import (
    LEGEND_ROW,
    Line,
    draw_lines,
    grid_of,
    headings,
    legend,
    legend_rows,
    line_of,
    new_figure,
    of_case,
    select,
)
from fedrepro.drawings.style import CASES, Look
from fedrepro.numbers.summary import ROUND
from fedrepro.planning.exhibit import CASE
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW_HEIGHT = 1.35  # inches
LETTERS = "abcdefgh"


@dataclass(frozen=True)
class Row:
    """A row of panels: a line of one metric and dots of another, if there is such."""

    metric: str
    dots: str | None
    title: str
    grid: str = ""  # the method's parameter that lists the values
    log: bool = False


ROWS = (
    Row("mean_lr", "sampled_lr", "learning rate", "lrs", log=True),
    Row("mean_steps", "sampled_steps", "steps a round", "step_counts"),
    Row("reward", None, "reward"),
)


@dataclass(frozen=True)
class Panel:
    """A column: a data set, the method there, and its cases by their labels."""

    title: str
    method: Spec
    cases: Mapping[str, str]  # label -> the case as the numbers call it


def hyper_parameters(exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
    """A column for each data set, a line for each of its cases; rows are ROWS.

    Lines are means over trials, with a band of one sd; dots are what single trials drew.
    """
    columns = panels_of(exhibit)
    labels = list(dict.fromkeys(label for panel in columns for label in panel.cases))
    look = dict(zip(labels, CASES, strict=False))
    rows = legend_rows(labels) - 1
    margins = {"left": 0.7, "right": 0.12, "top": 0.72, "bottom": 0.66 + LEGEND_ROW * rows}
    between = 0.18
    height = margins["top"] + margins["bottom"] + len(ROWS) * (ROW_HEIGHT + between) - between
    drawn = new_figure(height)
    grid = grid_of(drawn, len(ROWS), len(columns), across=0.5, between=between, **margins)
    for row, across in zip(ROWS, grid, strict=True):
        for axes, panel in zip(across, columns, strict=True):
            _draw(axes, row, panel, numbers, look)
        across[0].set_ylabel(row.title)
    for at, panel in enumerate(columns):
        grid[0][at].set_title(f"{LETTERS[at]}  {panel.title}", loc="left")
        grid[-1][at].set_xlabel(exhibit.settings.horizontal or "communication rounds")
    legend(drawn, list(_handles(look)), 0.08, rows)
    headings(drawn, exhibit)
    return drawn


def panels_of(exhibit: Exhibit) -> list[Panel]:
    """A panel for each data set, in the order of the cases."""
    found: dict[str, dict[str, str]] = {}
    methods: dict[str, Spec] = {}
    for point in exhibit.points:
        title = str(point.scenario.dataset.component.meta["title"])
        label = exhibit.settings.cases[str(point.case)].label
        found.setdefault(title, {})[label] = str(point.values[CASE])
        methods[title] = point.measures[0].spec
    return [Panel(title, methods[title], cases) for title, cases in found.items()]


def _draw(
    axes: Axes, row: Row, panel: Panel, numbers: pd.DataFrame, look: Mapping[str, Look]
) -> None:
    """One panel: dots below lines."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    lines: dict[str, Line] = {}
    for label, case in panel.cases.items():
        own = of_case(numbers, case)
        own = own[own[ROUND].notna()]
        measured = select(own, row.metric, "")
        lines[label] = line_of(measured, measured[ROUND].astype(float).tolist())
        if row.dots is not None:
            x, y = trials_of(select(own, row.dots, ""))
            axes.scatter(x, y, s=2, color=look[label].colour, alpha=0.3, linewidths=0, zorder=1)
    draw_lines(axes, lines, look, banded=set(lines), markers=6)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
    if row.log:
        axes.set_yscale("log")
    if row.grid:
        values = [float(value) for value in panel.method[row.grid]]
        axes.set_yticks(values, [f"{value:g}" for value in values], minor=False)
        axes.yaxis.set_minor_locator(NullLocator())
    if row is not ROWS[-1]:
        axes.tick_params(labelbottom=False)


def trials_of(rows: pd.DataFrame) -> tuple[list[float], list[float]]:
    """The value of every trial in every round: rounds, values."""
    pairs = [
        (float(done), float(value))
        for done, values in zip(rows[ROUND], rows["by_trial"], strict=True)
        for value in str(values).split()
    ]
    return [x for x, _ in pairs], [y for _, y in pairs]


def _handles(look: Mapping[str, Look]) -> Iterator[Artist]:
    from matplotlib.lines import Line2D

    for label, own in look.items():
        yield Line2D([], [], label=label, **own.line)
