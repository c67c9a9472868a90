"""Figures of nodes on graphs: their numbers against samples, theorem 1, and the cost of a shape.

numbers-against-steps has a line for each node as samples come in, errors-and-bounds the bounds of
theorem 1, accuracy-and-graph the cost of a graph's shape in rounds, at the worst node and in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from fedrepro.core.metrics import all_metrics, metrics_of
from fedrepro.drawings import canvas
from fedrepro.drawings.style import CASES, LineStyle, line_styles
from fedrepro.planning import figure_interface
from fedrepro.planning.exhibit import CASE
from fedrepro.planning.figure_interface import ROUND, Planned, drawing, nothing_shown, select_series
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MARKERS = 0.12  # of the width, between two markers of a line
MARGINS = {"right": 0.12, "top": 0.72, "across": 0.5}  # inches


def sheet(exhibit: Exhibit, height: float, handles: Sequence[Line2D], rows: int) -> Figure:
    """Make an empty figure with its headings, and a legend of `handles` in `rows` rows.

    `height` is in inches, without the legend.
    """
    figure = canvas.new_figure(height + canvas.LEGEND_ROW * rows)
    canvas.legend(figure, handles, 0.08, rows)
    canvas.headings(figure, exhibit)
    return figure


def along_steps(axes: Axes) -> None:
    """Make the horizontal axis of `axes` logarithmic, with markers evenly spaced on each line."""
    from matplotlib.ticker import FuncFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    for line in axes.get_lines():
        line.set_markevery(MARKERS)


def single_rounds(rows: pd.DataFrame, metric: str) -> canvas.Line:
    """Return the line of `metric` against rounds: means and standard deviations over trials.

    `rows` are a csv's rows of one method or scenario.
    """
    measured = select_series(rows[rows[ROUND].notna()], metric, "")
    return canvas.line_of(measured, measured[ROUND].astype(float).tolist())


@drawing("numbers-against-steps")
class NumbersAgainstSteps(canvas.Along):
    """A figure of metrics of single nodes against samples seen, a panel for each metric."""

    by_rounds: ClassVar[bool] = True

    metrics: list[figure_interface.MetricName] = Field(
        min_length=1,
        max_length=figure_interface.PANELS,
        description="numbers that are drawn, a panel for each",
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
        known, look = all_metrics(), line_styles(exhibit.measures)
        labels = [measure.label for measure in exhibit.measures]
        rows = canvas.legend_rows(labels) - 1
        added = canvas.LEGEND_ROW * (rows - 1)
        handles = canvas.handles_of(look)
        figure = sheet(exhibit, 3.1 - canvas.LEGEND_ROW, handles, rows)
        (panels,) = canvas.grid_of(
            figure, 1, len(self.metrics), left=0.5, bottom=0.75 + added, **MARGINS
        )
        for index, (axes, metric) in enumerate(zip(panels, self.metrics, strict=True)):
            lines = {
                label: single_rounds(numbers[numbers["method"] == label], metric)
                for label in labels
            }
            canvas.draw_lines(axes, lines, look, banded=set(lines))
            title = known[metric].title
            axes.set_title(f"{canvas.LETTERS[index]}  {title[0].upper()}{title[1:]}", loc="left")
            along_steps(axes)
            axes.set_xlabel(self.x_label or "steps")
            if self.floor is not None:
                axes.axhline(self.floor, color=canvas.SOFT, linewidth=0.8, linestyle=":", zorder=0)
        ends = [axes.get_ylim() for axes in panels]
        for axes in panels:  # one scale, so that errors and beliefs can be set side by side
            axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
        return figure


# what a simulation of a theorem reports, and the parameter along which it is drawn
BOUNDS = {"bound_printed": ":", "bound_corrected": "--"}  # with their styles
NEEDED, NODES = "samples_needed", "nodes"
TICKS = [lead * 10**power for power in range(6) for lead in (1, 2, 5)]


@drawing("errors-and-bounds")
class ErrorsAndBounds(canvas.Along):
    """A figure of the samples that nodes need to learn, and of a theorem's bounds on them.

    Left: share of repeats with an error against samples, with both bounds as vertical lines, for
    scenarios with one number of nodes. Right: samples needed against nodes, for the others.
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
        rows_of = {case: canvas.of_case(numbers, case) for case in canvas.cases(numbers)}
        look = dict(zip(rows_of, CASES, strict=False))
        rows = canvas.legend_rows(list(rows_of))
        figure = sheet(exhibit, 3.4 - 2 * canvas.LEGEND_ROW, canvas.handles_of(look), rows)
        bottom = 0.6 + canvas.LEGEND_ROW * rows
        ((errors, needed),) = canvas.grid_of(figure, 1, 2, left=0.5, bottom=bottom, **MARGINS)
        several = {case: own for case, own in rows_of.items() if own[NODES].nunique() > 1}
        single = {case: own for case, own in rows_of.items() if case not in several}
        for case, own in single.items():
            for metric, style in BOUNDS.items():
                for value in select_series(figure_interface.final(own), metric, "")["mean"]:
                    errors.axvline(value, color=look[case].colour, linestyle=style, linewidth=1.0)
        lines = {case: single_rounds(own, "error") for case, own in single.items()}
        canvas.draw_lines(errors, lines, look, banded=set(lines))
        errors.set_title("a  Repeats in which a node is wrong (%)", loc="left")
        along_steps(errors)
        canvas.percent(errors)
        errors.set_xlabel(self.x_label or "samples")
        _draw_needed(needed, several, look)
        return figure


def _draw_needed(
    axes: Axes, rows_of: Mapping[str, pd.DataFrame], look: Mapping[str, LineStyle]
) -> None:
    """Draw the samples until errors are rare against the number of nodes, a line a scenario.

    `rows_of` holds the csv's rows of each scenario by its label, and `look` its line style.
    """
    from matplotlib.ticker import NullLocator

    lines: dict[str, canvas.Line] = {}
    for case, rows in rows_of.items():
        needed = select_series(figure_interface.final(rows), NEEDED, "")
        lines[case] = canvas.line_of(needed, needed[NODES].astype(float).tolist())
    canvas.draw_lines(axes, lines, look, banded=set(lines))
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


GRAPH = "graph"  # a column that is added to the numbers, as `NODES` is
FILLS: tuple[Literal["full", "none"], ...] = (
    "full",
    "none",
)  # of the dots of the first method, and of the second
CURVE = 4  # measured rounds that make one
# title, metric, the metric along the axis, its label, and unit
PANELS = (
    ("c  Accuracy of the worst node (%)", "accuracy_worst", "spectral_gap", "spectral gap", ""),
    ("d  Mean accuracy of nodes (%)", "accuracy", "bytes_up", "sent by all nodes", "B"),
)


@drawing("accuracy-and-graph")
class AccuracyAndGraph(canvas.Along):
    """A figure of the cost of a graph's shape: in rounds, at the worst node and in bytes.

    A colour is a shape of graph; dots of a second method are hollow, its lines thin. Above:
    accuracy against rounds on the largest graphs, and final accuracy against the number of nodes.
    Below: the worst node's accuracy against the spectral gap, and mean accuracy against bytes sent.
    """

    by_rounds: ClassVar[bool] = True

    def reasons(self, shown: Planned) -> Iterator[str]:
        if not shown.cases or shown.varied:
            yield "its points are cases, each with a graph and a number of nodes; it sweeps nothing"
        if len(shown.measures) > len(FILLS):
            yield f"two methods can be told apart in it, not {len(shown.measures)}"
        yield from nothing_shown(shown)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        from matplotlib.lines import Line2D

        scenarios = {
            p.values[CASE]: p.scenario for p in exhibit.points if p.scenario and p.scenario.graph
        }
        graphs = {case: s.graph.component.meta["title"] for case, s in scenarios.items() if s.graph}
        nodes = {case: float(s.clients) for case, s in scenarios.items()}
        rows = numbers.assign(**{GRAPH: numbers[CASE].map(graphs), NODES: numbers[CASE].map(nodes)})
        look = dict(zip(dict.fromkeys(rows[GRAPH]), CASES, strict=False))
        labels = [measure.label for measure in exhibit.measures]
        mark: dict[str, Any] = {"color": "black", "linestyle": "", "marker": "o", "markersize": 5}
        of_methods = [
            Line2D([], [], label=label, fillstyle=fill, **mark)
            for label, fill in zip(labels, FILLS, strict=False)
        ]
        lines = canvas.legend_rows([*look, *labels])
        handles = [*canvas.handles_of(look), *of_methods]
        figure = sheet(exhibit, 5.0 - 2 * canvas.LEGEND_ROW, handles, lines)
        bottom = 0.6 + canvas.LEGEND_ROW * lines
        places = {"left": 0.45, "bottom": bottom, "between": 0.72, **MARGINS, "across": 0.45}
        (curves, by_nodes), below = canvas.grid_of(figure, 2, 2, **places)
        _draw_curves(curves, rows[rows["method"] == labels[0]], look)
        curves.set_xlabel(self.x_label or "exchanges")
        ended = rows[rows[ROUND].isna()]
        for fill, label in zip(FILLS, labels, strict=False):
            styles = {graph: dots_of(own, fill) for graph, own in look.items()}
            method_rows = ended[ended["method"] == label]
            _draw_by_nodes(by_nodes, method_rows, styles, thin=fill == "none")
            for axes, panel in zip(below, PANELS, strict=True):
                _draw_dots(axes, *panel, method_rows, styles)
        return figure


def dots_of(look: LineStyle, fill: str) -> dict[str, Any]:
    """Return matplotlib options of a graph's dots, filled or hollow by `fill` ("full", "none").

    `look` is the line style of the graph's shape; `fill` tells two methods apart.
    """
    edge = {"markeredgecolor": look.colour, "markeredgewidth": 1.0} if fill == "none" else {}
    return look.line | {"fillstyle": fill} | edge


def _draw_curves(axes: Axes, rows: pd.DataFrame, look: Mapping[str, LineStyle]) -> None:
    """Draw test accuracy against rounds, a line for each shape of graph, in the panel `axes`.

    Drawn are the graphs of the largest number of nodes at which a method has at least CURVE rounds.
    """
    measured = select_series(rows[rows[ROUND].notna()], "accuracy", "test")
    counts = measured.groupby(NODES)[ROUND].nunique()
    enough = counts[counts >= CURVE]
    most = float((enough if len(enough) else counts).index.max())
    lines = {
        str(graph): canvas.line_of(own, own[ROUND].astype(float).tolist())
        for graph, own in measured[measured[NODES] == most].groupby(GRAPH, sort=False)
    }
    canvas.draw_lines(axes, lines, look, banded=set(lines), markers=8)
    axes.set_title(f"a  Accuracy (%), {most:g} nodes", loc="left")
    canvas.percent(axes)


def _draw_by_nodes(
    axes: Axes, rows: pd.DataFrame, styles: Mapping[str, dict[str, Any]], thin: bool
) -> None:
    accuracies = select_series(rows, "accuracy", "test")
    for graph, own in accuracies.groupby(GRAPH, sort=False):
        line = canvas.line_of(own, own[NODES].tolist())
        axes.plot(line.x, line.mean, **styles[str(graph)], alpha=0.6 if thin else None)
    # with those of the method before
    there = axes.get_xticks() if axes.get_xscale() == "log" else ()
    nodes = sorted(set(accuracies[NODES]) | set(there))
    axes.set_xscale("log", base=2)
    axes.set_xticks(nodes, [f"{value:g}" for value in nodes])
    axes.set_title("b  Accuracy (%) at the end", loc="left")
    axes.set_xlabel("nodes N")
    canvas.percent(axes)


def _draw_dots(
    axes: Axes,
    title: str,
    metric: str,
    along: str,
    label: str,
    unit: str,
    rows: pd.DataFrame,
    styles: Mapping[str, dict[str, Any]],
) -> None:
    """Draw `metric` against the metric `along`, a dot for each shape of graph and number of nodes.

    `title`, `label` and `unit` name the panel and its horizontal axis; `styles` is by shape.
    """
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullLocator

    for graph, own in rows.groupby(GRAPH, sort=False):
        y = select_series(own, metric, "test")["mean"].tolist()
        x = select_series(own, along, "")["mean"].tolist()
        axes.plot(x, y, **(styles[str(graph)] | {"linestyle": ""}))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_formatter(EngFormatter(unit) if unit else plain)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_title(title, loc="left")
    axes.set_xlabel(label)
    canvas.percent(axes)
