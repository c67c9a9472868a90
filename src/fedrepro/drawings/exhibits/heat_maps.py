"""Draw heat maps of accuracy and model size over each pair of a method's parameters that vary.

A map holds other parameters at their defaults, which its heading names. The csv has the whole grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from fedrepro.core.metrics import metrics_of
from fedrepro.drawings.figure_layout import Figured, grid_of, headings, new_figure, parameter_title
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


@dataclass(frozen=True)
class Map:
    """One heat map: the parameters on its axes (`across`, `up`), and constant others (`held`)."""

    across: str
    up: str
    held: dict[str, float]

    def table(self, rows: pd.DataFrame, shade: Shade, what: str = "mean") -> pd.DataFrame:
        """Return column `what` for metric `shade`, by self.up (rows) and self.across."""
        cells = select_series(rows, shade.metric, shade.split)
        for key, value in self.held.items():
            cells = cells[cells[key].astype(float) == value]
        return cells.pivot(index=self.up, columns=self.across, values=what)


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
        maps, size = pair_maps(exhibit, measure, rows), exhibit.size
        name = "training" if self.split == "train" else "test"
        shades = [Shade("accuracy", self.split, f"{name} accuracy (%)", 100.0, "{:.1f}")]
        if self.sizes:
            form = "{:.0f}" if size.factor == 1 else "{:.2g}"
            shades.append(Shade(size.metric, "", size.title.lower(), size.factor, form))
        columns = len(maps) if len(maps) > 1 else len(shades)
        tall = max(rows[panel.up].nunique() for panel in maps)
        lines = len(maps) * len(shades) // columns
        high = max((TALL if self.where else CELL) * tall, 1.0)
        drawn = new_figure(0.85 + lines * (high + 0.55) + 0.05)
        margins = {"left": 0.55, "right": 0.1, "top": 0.85, "bottom": 0.42, "between": 0.62}
        axes = itertools.chain(*grid_of(drawn, lines, columns, **margins))
        for shade in shades:
            means = [panel.table(rows, shade) for panel in maps]
            # one colour scale for all maps of a metric, a point wide at least against noise
            low = min(float(table.to_numpy(float).min()) for table in means)
            high = max(float(table.to_numpy(float).max()) for table in means)
            low -= max(0.0, (0.01 if shade.metric == "accuracy" else 1.0) - (high - low))
            for panel, table in zip(maps, means, strict=True):
                below = panel.table(rows, shade, "sd")
                if self.where:
                    met = panel.table(rows, replace(shade, metric=self.where, split=""), "by_trial")
                    below = met.map(lambda trials: [value == "1" for value in str(trials).split()])
                _draw(next(axes), table, below, shade, panel, (low, high))
        headings(drawn, exhibit)
        return drawn


def varied(exhibit: Exhibit, numbers: pd.DataFrame) -> tuple[ExhibitMethod, pd.DataFrame]:
    """Return (the method whose parameters heat maps vary, its csv rows at the end of runs)."""
    (measure,) = (measure for measure in exhibit.measures if measure.show)
    rows = final(numbers)
    return measure, rows[rows["method"] == measure.label]


def pair_maps(exhibit: Exhibit, measure: ExhibitMethod, rows: pd.DataFrame) -> list[Map]:
    """Return a heat map for each pair of parameters of method `measure` that vary in its `rows`.

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


def _draw(
    axes: Axes,
    table: pd.DataFrame,
    below: pd.DataFrame,
    shade: Shade,
    heat_map: Map,
    limits: tuple[float, float],
) -> None:
    """Draw the values in `table` as cells on `axes`, with colours between `limits`.

    `below` has what is written under each value: an sd, or whether each trial succeeded.
    """
    failed = below.map(lambda one: isinstance(one, list) and not any(one))
    colours = table.astype(float).mask(failed)
    axes.pcolormesh(colours.to_numpy(), cmap=COLOURS, vmin=limits[0], vmax=limits[1])
    axes.grid(False)
    axes.set_xticks(np.arange(table.shape[1]) + 0.5, [f"{v:g}" for v in table.columns])
    axes.set_yticks(np.arange(table.shape[0]) + 0.5, [f"{v:g}" for v in table.index])
    axes.tick_params(length=0)
    axes.set_xlabel(parameter_title(heat_map.across), labelpad=1)
    others = " of the other clients" if heat_map.across == f"{heat_map.up}_first" else ""
    axes.set_ylabel(parameter_title(heat_map.up) + others, labelpad=2)
    held = ", ".join(f"{parameter_title(key)} = {v:g}" for key, v in heat_map.held.items())
    axes.set_title("; ".join(filter(None, (shade.title, held))), loc="left", fontsize=7)
    for (row, column), value in np.ndenumerate(table.to_numpy(float)):
        more: Any = below.iat[row, column]
        crossed = failed.iat[row, column]
        if isinstance(more, list):
            second, small = "" if all(more) else f"{sum(more)} of {len(more)}", 5.5
        else:
            second, small = "" if math.isnan(more) else f"± {shade.text(more)}", 4.8
        texts = [(0.68 if second else 0.5, 6.5, shade.text(value))]
        texts += [(0.25, small, second)] if second else []
        if crossed:
            axes.plot(column + 0.5, row + 0.66, "x", color=CROSS, markersize=8, markeredgewidth=1.8)
            texts = [(0.25, 5.5, shade.text(value))]
        dark = value - limits[0] < 0.55 * (limits[1] - limits[0]) and not crossed
        look: dict[str, Any] = {"color": "white" if dark else "black", "va": "center"}
        for up, points, text in texts:
            axes.text(column + 0.5, row + up, text, fontsize=points, ha="center", **look)
