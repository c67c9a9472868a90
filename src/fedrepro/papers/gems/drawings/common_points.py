"""Map of where spaces of GEMS have a common point, and its mean accuracy, over two parameters.

A cell without one in any trial is white with a red cross; its accuracy is that of the model that
was taken instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.core.metrics import metrics_of
from fedrepro.drawings import canvas
from fedrepro.drawings.exhibits import heat_maps
from fedrepro.planning.figure_interface import Planned, drawing, numbers_shown
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
