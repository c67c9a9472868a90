"""Drawing errors-and-bounds: the number of samples that nodes need, and a theorem's bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from fedrepro.core.metrics import metrics_of
from fedrepro.drawings.canvas import (
    LEGEND_ROW,
    Along,
    Line,
    cases,
    draw_lines,
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
from fedrepro.drawings.style import CASES, LineStyle
from fedrepro.papers.p2p.drawings.steps import along_steps
from fedrepro.planning.drawing import ROUND, Planned, drawing, final
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# what a simulation of a theorem reports, and the parameter along which it is drawn
BOUNDS, NEEDED, NODES = ("bound_printed", "bound_corrected"), "samples_needed", "nodes"
HEIGHT = 3.4  # inches, with a legend of two rows
TICKS = [lead * 10**power for power in range(6) for lead in (1, 2, 5)]
STYLES = dict(zip(BOUNDS, (":", "--"), strict=True))  # of the bound as printed, and corrected


@drawing("errors-and-bounds")
class ErrorsAndBounds(Along):
    """Samples that nodes need, and the bounds of a theorem.

    Left: errors of the cases of one number of nodes, and both bounds; right: of several, the
    samples that they need.
    """

    by_rounds: ClassVar[bool] = True

    def reasons(self, shown: Planned) -> Iterator[str]:
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
        figure = new_figure(HEIGHT + LEGEND_ROW * (rows - 2))
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
    """Errors against samples, with an upright line for each bound."""
    lines: dict[str, Line] = {}
    for case in shown:
        case_rows = of_case(numbers, case)
        rounds = select(case_rows[case_rows[ROUND].notna()], "error", "")
        lines[case] = line_of(rounds, rounds[ROUND].astype(float).tolist())
        for metric, style in STYLES.items():
            for value in select(final(case_rows), metric, "")["mean"]:
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
        case_rows = select(final(of_case(numbers, case)), NEEDED, "")
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
