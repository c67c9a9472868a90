"""Drawing accuracy-of-clients: what a common point is worth at each client, and what it should be.

A panel for each method, a column for each accuracy ε that its spaces ask for, and in it a mark for
each client and trial; a line across the column is ε.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.metrics import metrics_of
from fedrepro.drawings.canvas import (
    LETTERS,
    Figured,
    grid_of,
    headings,
    legend,
    new_figure,
    parameter_title,
    percent,
    select,
)
from fedrepro.papers.gems.methods._spaces import OF_CLIENTS
from fedrepro.planning.drawing import PANELS, Planned, drawing, final, numbers_shown
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
class AccuracyOfClients(Figured):
    """Accuracies of a common point at each client, and the accuracy that was asked for.

    A panel for each method, a column for each value that it shows, and a mark for each client and
    trial.
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
        figure = new_figure(HEIGHT)
        margins = {"left": 0.48, "right": 0.12, "top": 0.72, "bottom": 0.8}
        (panels,) = grid_of(figure, 1, len(exhibit.measures), across=0.4, **margins)
        for index, (axes, measure) in enumerate(zip(panels, exhibit.measures, strict=True)):
            (key,) = measure.show
            _panel(axes, rows[rows["method"] == measure.label], key)
            axes.set_title(f"{LETTERS[index]}  {measure.label}", loc="left")
            axes.set_xlabel(parameter_title(key), labelpad=1)
        panels[0].set_ylabel("accuracy of the point at a client (%)", labelpad=2)
        handles = [
            Line2D([], [], linestyle="", markersize=4, marker=marker, color=color, label=text)
            for marker, color, text in MARKS
        ]
        threshold = Line2D([], [], color=BAR, linewidth=1.2, label="what a space asks for (ε)")
        legend(figure, [*handles, threshold], 0.08, 1)
        headings(figure, exhibit)
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
    percent(axes)


def of_clients(rows: pd.DataFrame) -> Iterator[np.ndarray]:
    """Return the accuracies at each client in turn, one for each trial."""
    for name in OF_CLIENTS:
        client_rows = select(rows, name, "")
        if client_rows.empty:
            return
        yield np.array([float(value) for value in str(client_rows["by_trial"].iloc[0]).split()])
