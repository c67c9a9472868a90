"""Figures of the common point of GEMS: its accuracy at each client, and where there is one.

accuracy-of-clients has a panel for each method, a column for each accuracy ε that its spaces ask
for, and in it a mark for each client and trial; a line across the column is ε. common-points is a
map of the mean accuracy over two parameters. Where the spaces have no common point in any trial it
is white with a red cross, and the accuracy is that of the model that was taken instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.core.metrics import metrics_of
from fedrepro.drawings import canvas
from fedrepro.drawings.exhibits import heat_maps
from fedrepro.papers.gems.softmax_spaces import OF_CLIENTS
from fedrepro.planning.figure_interface import (
    PANELS,
    Planned,
    drawing,
    final,
    numbers_shown,
    select_series,
)
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


HEIGHT = 3.3  # inches
REACH = 0.38  # half the width of a column
MARKS = (("o", "#0072B2", "good enough at a client"), ("x", "#D55E00", "not good enough"))
BAR = "#000000"


@drawing("accuracy-of-clients")
class AccuracyOfClients(canvas.Figured):
    """A figure of a common point's accuracy at each client, and of the accuracy asked for.

    It has a panel for each method, in it a column for each value of the shown parameter (ε), and a
    mark for each client and trial.
    """

    def reasons(self, shown: Planned) -> Iterator[str]:
        if len(shown.points) > 1 or len(shown.measures) > PANELS:
            yield f"it has a panel for each of at most {PANELS} methods, at one point of its sweep"
        for measure in shown.measures:
            if len(measure.show) != 1:
                yield f"'{measure.label}' has to show the values of one parameter (show: [...])"
            if OF_CLIENTS[0] not in metrics_of(measure.spec):
                yield f"'{measure.label}' does not tell the accuracy of its model at single clients"
            yield from numbers_shown(measure)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        from matplotlib.lines import Line2D

        rows = final(numbers)
        figure = canvas.new_figure(HEIGHT)
        margins = {"left": 0.48, "right": 0.12, "top": 0.72, "bottom": 0.8}
        (panels,) = canvas.grid_of(figure, 1, len(exhibit.measures), across=0.4, **margins)
        for index, (axes, measure) in enumerate(zip(panels, exhibit.measures, strict=True)):
            (key,) = measure.show
            _panel(axes, rows[rows["method"] == measure.label], key)
            axes.set_title(f"{canvas.LETTERS[index]}  {measure.label}", loc="left")
            axes.set_xlabel(canvas.parameter_title(key), labelpad=1)
        panels[0].set_ylabel("accuracy of the point at a client (%)", labelpad=2)
        handles = [
            Line2D([], [], linestyle="", markersize=4, marker=marker, color=color, label=text)
            for marker, color, text in MARKS
        ]
        threshold = Line2D([], [], color=BAR, linewidth=1.2, label="what a space asks for (ε)")
        canvas.legend(figure, [*handles, threshold], 0.08, 1)
        canvas.headings(figure, exhibit)
        return figure


def _panel(axes: Axes, rows: pd.DataFrame, key: str) -> None:
    bars = sorted(rows[key].astype(float).unique().tolist())
    for column, bar in enumerate(bars):
        column_rows = rows[rows[key].astype(float) == bar]
        by_client = list(of_clients(column_rows))
        for j, values in enumerate(by_client):
            middle = column + REACH * (2 * (j + 0.5) / len(by_client) - 1)
            for good, (marker, color, _) in zip((True, False), MARKS, strict=True):
                shown = values[(values >= bar) == good]
                axes.plot([middle] * len(shown), shown, marker, color=color, markersize=2.6)
        axes.plot([column - REACH, column + REACH], [bar, bar], color=BAR, linewidth=1.2)
    axes.set_xticks(range(len(bars)), [f"{bar:g}" for bar in bars])
    axes.set_ylim(-0.02, 1.02)
    canvas.percent(axes)


def of_clients(rows: pd.DataFrame) -> Iterator[np.ndarray]:
    """Yield for each client in turn the accuracies of the common point there: (trials,).

    `rows` are a csv's rows of one method with one setting.
    """
    for name in OF_CLIENTS:
        client_rows = select_series(rows, name, "")
        if client_rows.empty:
            return
        yield np.array([float(value) for value in str(client_rows["by_trial"].iloc[0]).split()])


FIRST_AND_OTHERS = "epsilon_first", "epsilon"
CELL = 0.36  # inches, height of a row
CROSS = "#D55E00"
ACCURACY = heat_maps.Shade("accuracy", "test", "test accuracy (%)", 100.0, "{:.1f}")
FOUND = heat_maps.Shade("common_point", "", "trials with a common point", 1.0, "{:g}")


@drawing("common-points")
class CommonPoints(canvas.Figured):
    """A map of test accuracy over two parameters, crossed where spaces have no common point.

    A cell holds the mean accuracy, and in how many trials there is a common point.
    """

    def reasons(self, shown: Planned) -> Iterator[str]:
        showing = [measure for measure in shown.measures if measure.show]
        if len(showing) != 1 or len(showing[0].show) != 2 or len(shown.points) > 1:
            yield (
                "it is a map over two parameters of one method, both shown (show: [...]), at one "
                "point of its sweep"
            )
            return
        (measure,) = showing
        if FOUND.metric not in metrics_of(measure.spec):
            yield (
                f"whether spaces have a common point is not known: '{measure.spec.name}' does not "
                "say"
            )
        yield from numbers_shown(measure)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        measure, rows = heat_maps.varied(exhibit, numbers)
        (heat_map,) = heat_maps.maps_of(exhibit, measure, rows)
        accuracy = dict(heat_maps.cells_of(heat_maps.table_of(rows, ACCURACY, heat_map)))
        met = heat_maps.table_of(rows, FOUND, heat_map, "by_trial")
        figure = canvas.new_figure(1.4 + CELL * len(met))
        grid = canvas.grid_of(figure, 1, 1, left=0.62, right=0.4, top=0.62, bottom=0.5)
        axes = grid[0][0]
        heat_maps.name_axes(axes, met, heat_map)
        if (heat_map.across, heat_map.up) == FIRST_AND_OTHERS:
            axes.set_ylabel("ε of the other clients", labelpad=2)
        low, high = min(accuracy.values()), max(accuracy.values())
        colours: np.ndarray = np.full(met.shape, np.nan)  # of cells without a common point
        for cell, value in accuracy.items():
            if any(met_in_trials(str(met.iat[cell]))):
                colours[cell] = value
        mesh = axes.pcolormesh(colours, cmap=heat_maps.COLOURS, vmin=low, vmax=high)
        bar = figure.colorbar(mesh, ax=axes, pad=0.02, fraction=0.05)
        bar.set_label(ACCURACY.title)
        bar.ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f}")
        for cell, value in accuracy.items():
            _say(axes, cell, value, str(met.iat[cell]), value - low < 0.55 * (high - low))
        canvas.headings(figure, exhibit)
        return figure


def met_in_trials(by_trial: str) -> list[bool]:
    """Return for each trial whether there is a common point; False where that was not decided.

    `by_trial` is a csv cell with a number for each trial, 1 for a common point.
    """
    return [value == "1" for value in by_trial.split()]


def _say(axes: Axes, at: tuple[int, int], value: float, by_trial: str, dark: bool) -> None:
    """Write into the map's cell `at` (row, column) its accuracy `value`, and trials that succeeded.

    `by_trial` has a 1 for each trial with a common point; without any, the cell gets a red cross.
    Letters are white if the cell is `dark`.
    """
    middle, low = at[1] + 0.5, at[0]
    style: dict[str, Any] = {"ha": "center", "va": "center"}
    text = ACCURACY.form.format(ACCURACY.scale * value)
    trials = met_in_trials(by_trial)
    if not any(trials):
        axes.plot(middle, low + 0.62, "x", color=CROSS, markersize=8, markeredgewidth=1.8)
        axes.text(middle, low + 0.2, text, fontsize=5.5, **style)
        return
    style["color"] = "white" if dark else "black"
    always = all(trials)
    axes.text(middle, low + (0.5 if always else 0.66), text, fontsize=7, **style)
    if not always:
        axes.text(middle, low + 0.24, f"{sum(trials)} of {len(trials)}", fontsize=5.5, **style)
