"""Drawings numbers-against-steps and errors-and-bounds: nodes as samples come in, and theorem 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fedrepro.core.metrics import all_metrics, metrics_of
from fedrepro.drawings.canvas import (
    LEGEND_ROW,
    LETTERS,
    SOFT,
    Along,
    Line,
    cases,
    draw_lines,
    grid_of,
    handles_of,
    headings,
    legend,
    legend_rows,
    line_of,
    new_figure,
    of_case,
    percent,
    select,
)
from fedrepro.drawings.style import CASES, LineStyle, line_styles
from fedrepro.planning import figure_interface
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


HEIGHT = 3.1  # inches, with a legend of one row
MARKERS = 0.12  # of the width, between two markers of a line


@figure_interface.drawing("numbers-against-steps")
class NumbersAgainstSteps(Along):
    """A figure of numbers of single nodes against samples, a panel for each number."""

    by_rounds: ClassVar[bool] = True

    metrics: list[figure_interface.MetricName] = Field(
        min_length=1,
        max_length=figure_interface.PANELS,
        description="numbers that are drawn, a panel for each",
    )
    floor: float | None = Field(
        None, description="a value that these numbers cannot be below, drawn as a dotted line"
    )

    def reasons(self, shown: figure_interface.Planned) -> Iterator[str]:
        if len(shown.points) > 1 or shown.cases:
            yield (
                "it is drawn against steps, so it has one point and no cases, not "
                f"{len(shown.points)}"
            )
        yield from figure_interface.nothing_shown(shown)
        known = {name for measure in shown.measures for name in metrics_of(measure.spec)}
        for name in self.metrics:
            if name not in known:
                yield f"none of its methods reports {name}, which `metrics` asks for"

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        known = all_metrics()
        rounds = numbers[numbers[figure_interface.ROUND].notna()]
        look = line_styles(exhibit.measures)
        labels = [measure.label for measure in exhibit.measures]
        rows = legend_rows(labels) - 1
        added = LEGEND_ROW * (rows - 1)
        figure = new_figure(HEIGHT + added)
        margins = {"left": 0.5, "right": 0.12, "top": 0.72, "bottom": 0.75 + added}
        (panels,) = grid_of(figure, 1, len(self.metrics), across=0.5, **margins)
        lowest = []
        for index, (axes, metric) in enumerate(zip(panels, self.metrics, strict=True)):
            lines = {}
            for label in labels:
                rows_of = select(rounds[rounds["method"] == label], metric, "")
                lines[label] = line_of(
                    rows_of, rows_of[figure_interface.ROUND].astype(float).tolist()
                )
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
    """Make the axis of steps logarithmic, with markers evenly along it."""
    from matplotlib.ticker import FuncFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    for line in axes.get_lines():
        line.set_markevery(MARKERS)


# what a simulation of a theorem reports, and the parameter along which it is drawn
BOUNDS, NEEDED, NODES = ("bound_printed", "bound_corrected"), "samples_needed", "nodes"
HEIGHT_OF_BOUNDS = 3.4  # inches, with a legend of two rows
TICKS = [lead * 10**power for power in range(6) for lead in (1, 2, 5)]
STYLES = dict(zip(BOUNDS, (":", "--"), strict=True))  # of the bound as printed, and corrected


@figure_interface.drawing("errors-and-bounds")
class ErrorsAndBounds(Along):
    """A figure of the samples that nodes need, and the bounds of a theorem on them.

    Left: errors of the cases of one number of nodes, and both bounds; right: of several, the
    samples that they need.
    """

    by_rounds: ClassVar[bool] = True

    def reasons(self, shown: figure_interface.Planned) -> Iterator[str]:
        for measure in shown.measures:
            if not {*BOUNDS, "error", NEEDED} <= set(metrics_of(measure.spec)):
                yield f"'{measure.spec.name}' tells neither errors nor bounds on samples"
            if measure.show != (NODES,):
                yield f"'{measure.spec.name}' has to show every number of nodes (show: [{NODES}])"
        methods, cases, points = len(shown.measures), shown.cases, len(shown.points)
        if methods != 1 or cases != points or cases > len(CASES):
            yield (
                f"it has a line for each of at most {len(CASES)} cases of one method and sweeps "
                f"nothing else, but {methods} methods, {cases} cases and {points} points"
            )

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        from matplotlib.lines import Line2D

        names = cases(numbers)
        look = dict(zip(names, CASES, strict=False))
        several = [case for case in names if of_case(numbers, case)[NODES].nunique() > 1]
        single = [case for case in names if case not in several]
        rows = legend_rows(names)
        figure = new_figure(HEIGHT_OF_BOUNDS + LEGEND_ROW * (rows - 2))
        margins = {"left": 0.5, "right": 0.12, "top": 0.72, "bottom": 0.6 + LEGEND_ROW * rows}
        ((errors, needed),) = grid_of(figure, 1, 2, across=0.5, **margins)
        _errors(errors, numbers, single, look)
        errors.set_xlabel(self.x_label or "samples")
        _needed(needed, numbers, several, look)
        handles = [Line2D([], [], label=case, **case_look.line) for case, case_look in look.items()]
        legend(figure, list(handles), 0.08, rows)
        headings(figure, exhibit)
        return figure


def _errors(
    axes: Axes, numbers: pd.DataFrame, shown: Sequence[str], look: dict[str, LineStyle]
) -> None:
    """Draw errors against samples, with an upright line for each bound."""
    lines: dict[str, Line] = {}
    for case in shown:
        case_rows = of_case(numbers, case)
        rounds = select(case_rows[case_rows[figure_interface.ROUND].notna()], "error", "")
        lines[case] = line_of(rounds, rounds[figure_interface.ROUND].astype(float).tolist())
        for metric, style in STYLES.items():
            for value in select(figure_interface.final(case_rows), metric, "")["mean"]:
                axes.axvline(value, color=look[case].colour, linestyle=style, linewidth=1.0)
    draw_lines(axes, lines, look, banded=set(lines))
    axes.set_title("a  Repeats in which a node is wrong (%)", loc="left")
    along_steps(axes)
    percent(axes)


def _needed(
    axes: Axes, numbers: pd.DataFrame, shown: Sequence[str], look: dict[str, LineStyle]
) -> None:
    """Draw samples from which errors are as rare as asked for, against nodes."""
    from matplotlib.ticker import NullLocator

    lines: dict[str, Line] = {}
    for case in shown:
        case_rows = select(figure_interface.final(of_case(numbers, case)), NEEDED, "")
        lines[case] = line_of(case_rows, case_rows[NODES].astype(float).tolist())
    draw_lines(axes, lines, look, banded=set(lines))
    axes.set_title("b  Samples of a node until errors are rare", loc="left")
    axes.set_xlabel("nodes N")
    axes.set_xscale("log", base=2)
    nodes = sorted({x for line in lines.values() for x in line.x})
    axes.set_xticks(nodes, [f"{value:g}" for value in nodes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    round_numbers = [tick for tick in TICKS if low <= tick <= high]
    axes.set_yticks(round_numbers, [f"{value:g}" for value in round_numbers])
    axes.yaxis.set_minor_locator(NullLocator())
