"""Drawing numbers-against-steps: what single nodes know as samples come in, a panel a number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fedrepro.core.metrics import all_metrics, metrics_of
from fedrepro.drawings.canvas import (
    LEGEND_ROW,
    LETTERS,
    SOFT,
    Along,
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
from fedrepro.drawings.style import line_styles
from fedrepro.planning.drawing import PANELS, ROUND, MetricName, Planned, drawing, nothing_shown
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 3.1  # inches, with a legend of one row
MARKERS = 0.12  # of the width, between two markers of a line


@drawing("numbers-against-steps")
class NumbersAgainstSteps(Along):
    """Knowledge of single nodes against samples, on a logarithmic axis, a panel for each number."""

    by_rounds: ClassVar[bool] = True

    metrics: list[MetricName] = Field(
        min_length=1, max_length=PANELS, description="numbers that are drawn, a panel for each"
    )
    floor: float | None = Field(
        None, description="a value that these numbers cannot be below, drawn as a dotted line"
    )

    def reasons(self, shown: Planned) -> Iterator[str]:
        if len(shown.points) > 1 or shown.cases:
            yield (
                "it is drawn against steps, so it has one point and no cases, not "
                f"{len(shown.points)}"
            )
        yield from nothing_shown(shown)
        known = {name for measure in shown.measures for name in metrics_of(measure.spec)}
        for name in self.metrics:
            if name not in known:
                yield f"none of its methods reports {name}, which `metrics` asks for"

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        known = all_metrics()
        rounds = numbers[numbers[ROUND].notna()]
        look = line_styles(exhibit.measures)
        labels = [measure.label for measure in exhibit.measures]
        rows = legend_rows(labels) - 1
        added = LEGEND_ROW * (rows - 1)
        figure = new_figure(HEIGHT + added)
        margins = {"left": 0.5, "right": 0.12, "top": 0.72, "bottom": 0.75 + added}
        (panels,) = grid_of(figure, 1, len(self.metrics), across=0.5, **margins)
        lowest = []
        for index, (axes, metric) in enumerate(zip(panels, self.metrics, strict=True)):
            by_method = {label: of_method(rounds, label, metric) for label in labels}
            lines = {
                k: line_of(method_rows, method_rows[ROUND].astype(float).tolist())
                for k, method_rows in by_method.items()
            }
            draw_lines(axes, lines, look, banded=set(lines))
            title = known[metric].title
            axes.set_title(f"{LETTERS[index]}  {title[0].upper()}{title[1:]}", loc="left")
            along_steps(axes)
            axes.set_xlabel(self.x_label or "steps")
            if self.floor is not None:
                axes.axhline(self.floor, color=SOFT, linewidth=0.8, linestyle=":", zorder=0)
            lowest.append(axes.get_ylim())
        for axes in panels:  # one scale, so that errors and beliefs can be set side by side
            axes.set_ylim(min(low for low, _ in lowest), max(high for _, high in lowest))
        legend(figure, handles_of(exhibit.measures, look), 0.08, rows)
        headings(figure, exhibit)
        return figure


def along_steps(axes: Axes) -> None:
    """Set a logarithmic axis of steps, and markers evenly along it."""
    from matplotlib.ticker import FuncFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    for line in axes.get_lines():
        line.set_markevery(MARKERS)


def of_method(rounds: pd.DataFrame, label: str, metric: str) -> pd.DataFrame:
    """Single rounds of a number that is measured on no split."""
    metric_rows = select(rounds, metric, "")
    return metric_rows[metric_rows["method"] == label]
