"""Drawing heat-maps: training accuracy and size over every pair of the parameters that vary.

Where more than two vary, a map holds the others at their defaults, which its heading names. The
csv has the whole grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.core.metrics import Size
from fedrepro.drawings.canvas import Figured, grid_of, headings, new_figure, parameter_title
from fedrepro.planning.figure_interface import (
    Planned,
    drawing,
    final,
    is_number,
    numbers_shown,
    select_series,
)
from fedrepro.planning.plan import Exhibit, ExhibitMethod

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL = 0.27  # inches, height of a row: a mean, and below it the sd over trials
COLOURS = "cividis"  # one order of lightness, made for any colour vision


@dataclass(frozen=True)
class Shade:
    """A metric that heat maps show: its name, split and title, and how its values are written."""

    metric: str
    split: str
    title: str
    scale: float
    form: str

    def text(self, value: float) -> str:
        return self.form.format(self.scale * value)


TRAINING = Shade("accuracy", "train", "training accuracy (%)", 100.0, "{:.1f}")


def shades_of(size: Size) -> tuple[Shade, Shade]:
    """Return the two metrics that heat maps show: training accuracy, and the model size `size`."""
    form = "{:.0f}" if size.factor == 1 else "{:.2g}"
    return TRAINING, Shade(size.metric, "", size.title.lower(), size.factor, form)


@dataclass(frozen=True)
class Map:
    """One heat map: the parameters `across` and `up`, and the values at which others are `held`."""

    across: str
    up: str
    held: dict[str, float]

    @property
    def heading(self) -> str:
        return ", ".join(f"{parameter_title(key)} = {value:g}" for key, value in self.held.items())


@drawing("heat-maps")
class HeatMaps(Figured):
    """A figure of training accuracy and model size over each pair of a method's varied parameters.

    A row of maps for each of the two; side by side where there is a single pair.
    """

    def reasons(self, shown: Planned) -> Iterator[str]:
        showing = [measure for measure in shown.measures if measure.show]
        if len(showing) != 1 or shown.cases:
            yield (
                "heat maps are of one method that shows every value of a parameter (show: [...]), "
                f"without cases; {len(showing)} of its methods do"
            )
            return
        (measure,) = showing
        if len(shown.varied) + len(measure.show) < 2:
            yield "heat maps need two parameters that vary; show one more, or sweep one"
        if TRAINING.split not in measure.evaluate:
            yield (
                f"heat maps show training accuracy, and '{measure.spec.name}' is not measured for "
                "it"
            )
        for key in shown.varied:
            if not all(is_number(str(value)) for value in shown.values(key)):
                yield f"heat maps are drawn along numbers, which those of '{key}' are not"
        yield from numbers_shown(measure)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        measure, rows = varied(exhibit, numbers)
        maps, shades = maps_of(exhibit, measure, rows), shades_of(exhibit.size)
        columns = len(maps) if len(maps) > 1 else len(shades)
        tall = max(rows[panel.up].nunique() for panel in maps)
        lines = len(maps) * len(shades) // columns
        drawn = new_figure(0.85 + lines * (max(CELL * tall, 1.0) + 0.55) + 0.05)
        margins = {"left": 0.55, "right": 0.1, "top": 0.85, "bottom": 0.42}
        axes = itertools.chain(*grid_of(drawn, lines, columns, across=0.5, between=0.62, **margins))
        for shade in shades:
            means = [table_of(rows, shade, panel) for panel in maps]
            # one colour scale for all maps of a metric, a point wide at least against noise
            low = min(float(table.to_numpy(float).min()) for table in means)
            high = max(float(table.to_numpy(float).max()) for table in means)
            low -= max(0.0, (0.01 if shade.metric == "accuracy" else 1.0) - (high - low))
            for panel, table in zip(maps, means, strict=True):
                place, spreads = next(axes), table_of(rows, shade, panel, "sd")
                _draw(place, table, spreads, shade, panel, (low, high))
        headings(drawn, exhibit)
        return drawn


def varied(exhibit: Exhibit, numbers: pd.DataFrame) -> tuple[ExhibitMethod, pd.DataFrame]:
    """Return the one method whose parameter values heat maps show, with its final results."""
    (measure,) = (measure for measure in exhibit.measures if measure.show)
    rows = final(numbers)
    return measure, rows[rows["method"] == measure.label]


def maps_of(exhibit: Exhibit, measure: ExhibitMethod, rows: pd.DataFrame) -> list[Map]:
    """Return a heat map for each pair of parameters that take several values in `rows`.

    Other parameters are held at their default, or else at a middle value.
    """
    several = [key for key in (*exhibit.swept, *measure.show) if rows[key].nunique() > 1]
    defaults = measure.spec.component.spec().values
    held = {}
    for key in several:
        values, default = rows[key].astype(float).unique().tolist(), defaults.get(key)
        held[key] = float(default) if default in values else values[len(values) // 2]  # type: ignore[arg-type]
    return [
        Map(a, b, {key: value for key, value in held.items() if key not in (a, b)})
        for a, b in itertools.combinations(several, 2)
    ]


def table_of(rows: pd.DataFrame, shade: Shade, heat_map: Map, what: str = "mean") -> pd.DataFrame:
    """Return the values of a heat map: a row per value of `up`, a column per value of `across`.

    `rows` is the method's csv, `shade` the metric, and `what` the column: mean or sd.
    """
    cells = select_series(rows, shade.metric, shade.split)
    for key, value in heat_map.held.items():
        cells = cells[cells[key].astype(float) == value]
    return cells.pivot(index=heat_map.up, columns=heat_map.across, values=what)


def _draw(
    axes: Axes,
    table: pd.DataFrame,
    spreads: pd.DataFrame,
    shade: Shade,
    heat_map: Map,
    limits: tuple[float, float],
) -> None:
    axes.pcolormesh(table.to_numpy(float), cmap=COLOURS, vmin=limits[0], vmax=limits[1])
    name_axes(axes, table, heat_map)
    title = f"{shade.title}; {heat_map.heading}" if heat_map.heading else shade.title
    axes.set_title(title, loc="left", fontsize=7)
    around = dict(cells_of(spreads))
    for (row, column), value in cells_of(table):
        dark = value - limits[0] < 0.55 * (limits[1] - limits[0])
        look: dict[str, Any] = {"ha": "center", "va": "center"}
        look["color"] = "white" if dark else "black"
        spread = around[row, column]
        height = row + (0.5 if math.isnan(spread) else 0.68)
        axes.text(column + 0.5, height, shade.text(value), fontsize=6.5, **look)
        if not math.isnan(spread):
            axes.text(column + 0.5, row + 0.25, f"± {shade.text(spread)}", fontsize=4.8, **look)


def name_axes(axes: Axes, table: pd.DataFrame, heat_map: Map) -> None:
    """Write the parameters' names along both axes of a heat map, and their value at each cell."""
    axes.grid(False)
    axes.set_xticks([at + 0.5 for at in range(table.shape[1])], [f"{v:g}" for v in table.columns])
    axes.set_yticks([at + 0.5 for at in range(table.shape[0])], [f"{v:g}" for v in table.index])
    axes.tick_params(length=0)
    axes.set_xlabel(parameter_title(heat_map.across), labelpad=1)
    axes.set_ylabel(parameter_title(heat_map.up), labelpad=2)


def cells_of(table: pd.DataFrame) -> list[tuple[tuple[int, int], float]]:
    """Return the numbers of a table as pairs ((row, column), value), to write them into cells."""
    cells = np.ndenumerate(table.to_numpy(float))
    return [((int(row), int(column)), float(value)) for (row, column), value in cells]
