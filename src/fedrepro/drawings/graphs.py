"""Drawing accuracy-and-graph: what the shape of a graph costs, in rounds, at the worst node and in
bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedrepro.drawings.canvas import (
    LEGEND_ROW,
    Line,
    axis_of,
    cases,
    draw_lines,
    final,
    grid_of,
    headings,
    legend,
    legend_rows,
    line_of,
    new_figure,
    of_case,
    percent,
    select,
)
from fedrepro.drawings.style import CASES, Look
from fedrepro.numbers.summary import ROUND
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 5.0  # inches, with a legend of two rows


@dataclass(frozen=True)
class Against:
    """A panel: a number of all nodes at the end, over another one; a point for each graph."""

    title: str
    metric: str
    along: str
    label: str
    scale: float = 1.0
    log: bool = False


PANELS = (
    Against("c  Accuracy of the worst node (%)", "accuracy_worst", "spectral_gap", "spectral gap"),
    Against("d  Mean accuracy of nodes (%)", "accuracy", "bytes_up", "megabytes sent", 1e6, True),
)


def accuracy_and_graph(exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
    """Lines and dots of the first method by graph; of a second one thin, with hollow dots.

    Above: accuracy against rounds with the most nodes, and at the end against nodes. Below: the
    worst node against the spectral gap, and accuracy against what was sent.
    """
    from matplotlib.lines import Line2D

    shown = cases(numbers)
    look = dict(zip(shown, CASES, strict=False))
    labels = [measure.label for measure in exhibit.measures]
    rows = legend_rows([*shown, *labels])
    drawn = new_figure(HEIGHT + LEGEND_ROW * (rows - 2))
    margins = {"left": 0.45, "right": 0.12, "top": 0.72, "bottom": 0.6 + LEGEND_ROW * rows}
    grid = grid_of(drawn, 2, 2, across=0.45, between=0.72, **margins)
    _against_rounds(grid[0][0], exhibit, numbers, shown, look)
    _against_nodes(grid[0][1], exhibit, numbers, shown, look)
    for axes, panel in zip(grid[1], PANELS, strict=True):
        _dots(axes, panel, labels, numbers, shown, look)
    handles = [Line2D([], [], label=case, **own.line) for case, own in look.items()]
    handles += [
        Line2D([], [], label=label, color="black", linestyle="", marker="o", markersize=5, **style)
        for label, style in zip(labels, DOTS, strict=False)
    ]
    legend(drawn, list(handles), 0.08, rows)
    headings(drawn, exhibit)
    return drawn


DOTS: tuple[dict[str, Any], ...] = (
    {"fillstyle": "full"},
    {"fillstyle": "none"},
)  # of the first method, and of the second


def _against_rounds(
    axes: Axes, exhibit: Exhibit, numbers: pd.DataFrame, shown: Sequence[str], look: dict[str, Look]
) -> None:
    key = axis_of(exhibit).key
    most = numbers[key].astype(float).max()
    own = numbers[(numbers[key].astype(float) == most) & numbers[ROUND].notna()]
    own = select(own[own["method"] == exhibit.measures[0].label], "accuracy", "test")
    lines = {case: of_case(own, case) for case in shown}
    drawn = {case: line_of(r, r[ROUND].astype(float).tolist()) for case, r in lines.items()}
    draw_lines(axes, drawn, look, banded=set(drawn), markers=8)
    axes.set_title(f"a  Accuracy (%), {most:g} nodes", loc="left")
    axes.set_xlabel(exhibit.settings.horizontal or "rounds")
    percent(axes)


def _against_nodes(
    axes: Axes, exhibit: Exhibit, numbers: pd.DataFrame, shown: Sequence[str], look: dict[str, Look]
) -> None:
    key = axis_of(exhibit).key
    for at, measure in enumerate(exhibit.measures[: len(DOTS)]):
        rows = select(final(numbers), "accuracy", "test")
        rows = rows[rows["method"] == measure.label]
        for case in shown:
            own = of_case(rows, case)
            line: Line = line_of(own, own[key].astype(float).tolist())
            style = look[case].line | DOTS[at] | ({} if at == 0 else {"linewidth": 0.7})
            axes.plot(line.x, line.mean, **style)
    nodes = sorted(set(numbers[key].astype(float)))
    axes.set_xscale("log", base=2)
    axes.set_xticks(nodes, [f"{value:g}" for value in nodes])
    axes.set_title("b  Accuracy (%) at the end", loc="left")
    axes.set_xlabel("nodes N")
    percent(axes)


def _dots(
    axes: Axes,
    panel: Against,
    labels: Sequence[str],
    numbers: pd.DataFrame,
    shown: Sequence[str],
    look: dict[str, Look],
) -> None:
    """One number over another, a dot for each number of nodes."""
    rows = final(numbers)
    for style, label in zip(DOTS, labels, strict=False):
        for case in shown:
            own = of_case(rows[rows["method"] == label], case)
            y = select(own, panel.metric, "test")["mean"].tolist()
            x = (select(own, panel.along, "")["mean"] / panel.scale).tolist()
            given = (
                look[case].line | style | {"linestyle": "", "markeredgecolor": look[case].colour}
            )
            axes.plot(x, y, **given)
    if panel.log:
        axes.set_xscale("log")
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.label)
    percent(axes)
