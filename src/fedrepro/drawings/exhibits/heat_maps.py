"""Draw heat maps of accuracy and model size over each pair of a method's parameters that vary.

If more than two vary, a map holds the others at their defaults, which its heading names. The csv
has the whole grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from fedrepro.core.metrics import Size, metrics_of
from fedrepro.drawings.canvas import Figured, grid_of, headings, new_figure, parameter_title
from fedrepro.planning.figure_interface import (
    MetricName,
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

TRIALS = "by_trial"
CROSS = "#D55E00"
CELL, TALL = 0.27, 0.36  # inches, height of a row: a mean, and below it the sd over trials
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


def shade_of(size: Size) -> Shade:
    """Return the model size `size` as a metric that heat maps show."""
    form = "{:.0f}" if size.factor == 1 else "{:.2g}"
    return Shade(size.metric, "", size.title.lower(), size.factor, form)


@dataclass(frozen=True)
class Map:
    """One heat map: the parameters on its axes (`across`, `up`), and constant others (`held`)."""

    across: str
    up: str
    held: dict[str, float]

    @property
    def heading(self) -> str:
        return ", ".join(f"{parameter_title(key)} = {value:g}" for key, value in self.held.items())


@drawing("heat-maps")
class HeatMaps(Figured):
    """A figure of accuracy and model size over each pair of a method's varied parameters.

    Accuracy has a row of maps, and size another; the two maps of a single pair are side by side.
    """

    split: Literal["train", "test"] = Field("train", description="split of the accuracies")
    sizes: bool = Field(True, description="maps of the size of the model too")
    where: MetricName | None = Field(
        None, description="a metric that is 1 in trials that succeed; without any a cell is crossed"
    )

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
        if self.split not in measure.evaluate:
            yield f"'{measure.spec.name}' is not measured on the split {self.split} of heat maps"
        if self.where and self.where not in metrics_of(measure.spec):
            yield f"'{measure.spec.name}' does not report {self.where}"
        for key in shown.varied:
            if not all(is_number(str(value)) for value in shown.values(key)):
                yield f"heat maps are drawn along numbers, which those of '{key}' are not"
        yield from numbers_shown(measure)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        measure, rows = varied(exhibit, numbers)
        maps, name = maps_of(exhibit, measure, rows), {"train": "training"}.get(self.split, "test")
        shades = [Shade("accuracy", self.split, f"{name} accuracy (%)", 100.0, "{:.1f}")]
        shades += [shade_of(exhibit.size)] if self.sizes else []
        columns = len(maps) if len(maps) > 1 else len(shades)
        tall = max(rows[panel.up].nunique() for panel in maps)
        lines = len(maps) * len(shades) // columns
        drawn = new_figure(
            0.85 + lines * (max((TALL if self.where else CELL) * tall, 1.0) + 0.55) + 0.05
        )
        margins = {"left": 0.55, "right": 0.1, "top": 0.85, "bottom": 0.42}
        axes = itertools.chain(*grid_of(drawn, lines, columns, across=0.5, between=0.62, **margins))
        for shade in shades:
            means = [table_of(rows, shade, panel) for panel in maps]
            # one colour scale for all maps of a metric, a point wide at least against noise
            low = min(float(table.to_numpy(float).min()) for table in means)
            high = max(float(table.to_numpy(float).max()) for table in means)
            low -= max(0.0, (0.01 if shade.metric == "accuracy" else 1.0) - (high - low))
            for panel, table in zip(maps, means, strict=True):
                below = table_of(rows, shade, panel, "sd")
                if self.where:
                    met = table_of(rows, replace(shade, metric=self.where, split=""), panel, TRIALS)
                    below = met.map(lambda trials: [value == "1" for value in str(trials).split()])
                _draw(next(axes), table, below, shade, panel, (low, high))
        headings(drawn, exhibit)
        return drawn


def varied(exhibit: Exhibit, numbers: pd.DataFrame) -> tuple[ExhibitMethod, pd.DataFrame]:
    """Return (the method whose parameters heat maps vary, its csv rows at the end of runs)."""
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

    `rows` is the method's csv, `shade` the metric, and `what` the column: mean, sd or by_trial.
    """
    cells = select_series(rows, shade.metric, shade.split)
    for key, value in heat_map.held.items():
        cells = cells[cells[key].astype(float) == value]
    return cells.pivot(index=heat_map.up, columns=heat_map.across, values=what)


def _draw(
    axes: Axes,
    table: pd.DataFrame,
    below: pd.DataFrame,
    shade: Shade,
    heat_map: Map,
    limits: tuple[float, float],
) -> None:
    """Draw a heat map of the values in `table` on `axes`, with colours between `limits`.

    `shade` is the metric. `below` has what is written under each value: an sd, or whether each
    trial succeeded.
    """
    failed = below.map(lambda one: isinstance(one, list) and not any(one))
    colours = table.astype(float).mask(failed)
    axes.pcolormesh(colours.to_numpy(), cmap=COLOURS, vmin=limits[0], vmax=limits[1])
    name_axes(axes, table, heat_map)
    title = f"{shade.title}; {heat_map.heading}" if heat_map.heading else shade.title
    axes.set_title(title, loc="left", fontsize=7)
    for (row, column), value in np.ndenumerate(table.to_numpy(float)):
        look: dict[str, Any] = {"ha": "center", "va": "center"}
        dark = value - limits[0] < 0.55 * (limits[1] - limits[0])
        look["color"] = "white" if dark and not failed.iat[row, column] else "black"
        number, more = shade.text(value), _second(below.iat[row, column], shade)
        if failed.iat[row, column]:
            axes.plot(column + 0.5, row + 0.66, "x", color=CROSS, markersize=8, markeredgewidth=1.8)
            axes.text(column + 0.5, row + 0.25, number, fontsize=5.5, **look)
            continue
        axes.text(column + 0.5, row + (0.68 if more else 0.5), number, fontsize=6.5, **look)
        if more:
            small = 5.5 if isinstance(below.iat[row, column], list) else 4.8
            axes.text(column + 0.5, row + 0.25, more, fontsize=small, **look)


def _second(below: Any, shade: Shade) -> str:
    """Return the small text in a heat map's cell: an sd, or how many of the trials succeeded."""
    if isinstance(below, list):
        return "" if all(below) else f"{sum(below)} of {len(below)}"
    return "" if math.isnan(below) else f"± {shade.text(below)}"


def name_axes(axes: Axes, table: pd.DataFrame, heat_map: Map) -> None:
    """Write the parameters' names along the axes of a heat map, and values at rows and columns."""
    axes.grid(False)
    axes.set_xticks([at + 0.5 for at in range(table.shape[1])], [f"{v:g}" for v in table.columns])
    axes.set_yticks([at + 0.5 for at in range(table.shape[0])], [f"{v:g}" for v in table.index])
    axes.tick_params(length=0)
    axes.set_xlabel(parameter_title(heat_map.across), labelpad=1)
    others = " of the other clients" if heat_map.across == f"{heat_map.up}_first" else ""
    axes.set_ylabel(parameter_title(heat_map.up) + others, labelpad=2)
