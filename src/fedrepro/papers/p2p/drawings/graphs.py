"""Drawing accuracy-and-graph: the cost of a graph's shape in rounds, worst node and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fedrepro.drawings import canvas
from fedrepro.drawings.style import CASES, LineStyle
from fedrepro.planning.exhibit import CASE
from fedrepro.planning.figure_interface import ROUND, Planned, drawing, nothing_shown
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GRAPH, NODES = "graph", "nodes"  # columns that are added to the numbers
HEIGHT = 5.0  # inches, with a legend of two rows


@dataclass(frozen=True)
class Against:
    """A panel: one number of all nodes at the end of a run over another, a point for each graph."""

    title: str
    metric: str
    along: str
    label: str
    unit: str = ""


PANELS = (
    Against("c  Accuracy of the worst node (%)", "accuracy_worst", "spectral_gap", "spectral gap"),
    Against("d  Mean accuracy of nodes (%)", "accuracy", "bytes_up", "sent by all nodes", "B"),
)


# of the first method, and of the second
DOTS: tuple[dict[str, Any], ...] = ({"fillstyle": "full"}, {"fillstyle": "none"})
CURVE = 4  # measured rounds that make one


@drawing("accuracy-and-graph")
class AccuracyAndGraph(canvas.Along):
    """A figure of the cost of a graph's shape: in rounds, at the worst node and in bytes.

    Lines and dots of the first method by graph; of a second one thin, with hollow dots. Above:
    accuracy against rounds with the most nodes that have curves, and at the end against nodes.
    Below: the worst node against the spectral gap, and accuracy against what was sent.
    """

    by_rounds: ClassVar[bool] = True

    def reasons(self, shown: Planned) -> Iterator[str]:
        if not shown.cases or shown.varied:
            yield "its points are cases, each with a graph and a number of nodes; it sweeps nothing"
        if len(shown.measures) > len(DOTS):
            yield f"two methods can be told apart in it, not {len(shown.measures)}"
        yield from nothing_shown(shown)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        from matplotlib.lines import Line2D

        rows = placed(exhibit, numbers)
        look = dict(zip(dict.fromkeys(rows[GRAPH]), CASES, strict=False))
        labels = [measure.label for measure in exhibit.measures]
        lines = canvas.legend_rows([*look, *labels])
        figure = canvas.new_figure(HEIGHT + canvas.LEGEND_ROW * (lines - 2))
        margins = {
            "left": 0.45,
            "right": 0.12,
            "top": 0.72,
            "bottom": 0.6 + canvas.LEGEND_ROW * lines,
        }
        grid = canvas.grid_of(figure, 2, 2, across=0.45, between=0.72, **margins)
        _against_rounds(grid[0][0], rows[rows["method"] == labels[0]], look)
        grid[0][0].set_xlabel(self.x_label or "exchanges")
        ended = rows[rows[ROUND].isna()]
        for style, label in zip(DOTS, labels, strict=False):
            method_rows = ended[ended["method"] == label]
            _against_nodes(grid[0][1], method_rows, style, look)
            for axes, panel in zip(grid[1], PANELS, strict=True):
                _dots(axes, panel, method_rows, style, look)
        handles = [
            Line2D([], [], label=case, **graph_look.line) for case, graph_look in look.items()
        ]
        handles += [
            Line2D(
                [], [], label=label, color="black", linestyle="", marker="o", markersize=5, **style
            )
            for label, style in zip(labels, DOTS, strict=False)
        ]
        canvas.legend(figure, list(handles), 0.08, lines)
        canvas.headings(figure, exhibit)
        return figure


def placed(exhibit: Exhibit, numbers: pd.DataFrame) -> pd.DataFrame:
    """Add the graph and the number of nodes of each case to the numbers."""
    scenarios = {
        p.values[CASE]: p.scenario for p in exhibit.points if p.scenario and p.scenario.graph
    }
    graphs = {case: s.graph.component.meta["title"] for case, s in scenarios.items() if s.graph}
    nodes = {case: float(s.clients) for case, s in scenarios.items()}
    return numbers.assign(**{GRAPH: numbers[CASE].map(graphs), NODES: numbers[CASE].map(nodes)})


def _against_rounds(axes: Axes, rows: pd.DataFrame, look: Mapping[str, LineStyle]) -> None:
    """Draw accuracy against rounds, of the largest graphs that have enough measured rounds."""
    measured = canvas.select(rows[rows[ROUND].notna()], "accuracy", "test")
    counts = measured.groupby(NODES)[ROUND].nunique()
    enough = counts[counts >= CURVE]
    most = float((enough if len(enough) else counts).index.max())
    largest = measured[measured[NODES] == most]
    lines = {}
    for graph, graph_rows in largest.groupby(GRAPH, sort=False):
        lines[str(graph)] = canvas.line_of(graph_rows, graph_rows[ROUND].astype(float).tolist())
    canvas.draw_lines(axes, lines, look, banded=set(lines), markers=8)
    axes.set_title(f"a  Accuracy (%), {most:g} nodes", loc="left")
    canvas.percent(axes)


def _against_nodes(
    axes: Axes, rows: pd.DataFrame, style: dict[str, Any], look: Mapping[str, LineStyle]
) -> None:
    accuracies = canvas.select(rows, "accuracy", "test")
    thin: dict[str, Any] = {"alpha": 0.6} if style["fillstyle"] == "none" else {}
    for graph, graph_rows in accuracies.groupby(GRAPH, sort=False):
        line = canvas.line_of(graph_rows, graph_rows[NODES].tolist())
        axes.plot(line.x, line.mean, **_look(look[str(graph)], style), **thin)
    nodes = sorted(
        set(accuracies[NODES]) | set(axes.get_xticks() if axes.get_xscale() == "log" else ())
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(nodes, [f"{value:g}" for value in nodes])
    axes.set_title("b  Accuracy (%) at the end", loc="left")
    axes.set_xlabel("nodes N")
    canvas.percent(axes)


def _dots(
    axes: Axes,
    panel: Against,
    rows: pd.DataFrame,
    style: dict[str, Any],
    look: Mapping[str, LineStyle],
) -> None:
    """Draw one number over another, a dot for each number of nodes."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullLocator

    for graph, graph_rows in rows.groupby(GRAPH, sort=False):
        y = canvas.select(graph_rows, panel.metric, "test")["mean"].tolist()
        x = canvas.select(graph_rows, panel.along, "")["mean"].tolist()
        axes.plot(x, y, **(_look(look[str(graph)], style) | {"linestyle": ""}))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_formatter(EngFormatter(panel.unit) if panel.unit else plain)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.label)
    canvas.percent(axes)


def _look(look: LineStyle, style: dict[str, Any]) -> dict[str, Any]:
    """Return the look of a graph with the dots of a method; hollow ones have an edge."""
    hollow = style["fillstyle"] == "none"
    edge = {"markeredgecolor": look.colour, "markeredgewidth": 1.0} if hollow else {}
    return look.line | style | edge
