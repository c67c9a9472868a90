"""Draw accuracy against model size, a panel for each scenario and swept parameter value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.drawings.canvas import (
    SOFT,
    Figured,
    Line,
    axis_of,
    cases,
    line_of,
    of_case,
    percent,
    rounded,
    sheet,
)
from fedrepro.drawings.style import line_styles
from fedrepro.planning.figure_interface import (
    Planned,
    drawing,
    final,
    numbers_shown,
    one_axis,
    select_series,
)
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = 1.75  # inches, height of a panel of accuracy against size
PANELS = {"left": 0.45, "right": 0.1, "top": 0.78, "bottom": 0.92, "across": 0.38, "between": 0.42}
WIDE_PANELS = 3  # of a row, above which a panel is too narrow for a long label
APART = 16  # points between two named settings of a path
BESIDE = 5  # points between marks of one size
ROUND = (10, 20, 50, 100, 200, 500, 1000, 2000)
CORNER = 0.15  # of a panel's height, in which a corner's text stands
REACH = 0.25  # accuracy further below the best than this is cut off

Path = tuple[list[float], Line]  # values of the shown parameter, and (size, accuracy) at each


@drawing("accuracy-against-size")
class AccuracyAgainstSize(Figured):
    """A figure of test accuracy against model size, a panel per scenario and swept parameter value.

    A method that is run with several values of a parameter is a line through their results.
    """

    def reasons(self, shown: Planned) -> Iterator[str]:
        yield from one_axis(shown)
        for measure in shown.measures:
            if len(measure.show) > 1:
                yield f"method '{measure.spec.name}' shows more than one parameter along its path"
            yield from numbers_shown(measure)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        axis, shown = axis_of(exhibit), cases(numbers) or [""]
        values = list(dict.fromkeys(numbers[axis.key]))
        height = 1.52 + len(shown) * (PANEL + 0.45)
        drawn, grid = sheet(exhibit, height, len(shown), len(values), foot=0.06, **PANELS)
        for row, case in zip(grid, shown, strict=True):
            selected = of_case(numbers, case)
            panels = [paths_of(exhibit, selected[selected[axis.key] == value]) for value in values]
            means = [m for paths in panels for _, line in paths.values() for m in line.mean]
            seen = [m for m in means if max(means) - m <= REACH]
            for axes, value, paths in zip(row, values, panels, strict=True):
                if seen:  # one scale for a row, so that its panels can be compared
                    axes.set_ylim(*rounded(min(seen), max(seen)))
                _draw_paths(axes, exhibit, paths)
                place = f"{axis.symbol} = {value}"
                axes.set_title(f"{case}, {place}" if case else place, loc="left")
            row[0].set_ylabel("test accuracy (%)", labelpad=2)
        whose = " of the global model" if len(values) <= WIDE_PANELS else ""
        for axes in grid[-1]:
            axes.set_xlabel(exhibit.size.title.lower() + whose)
        return drawn


def paths_of(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, Path]:
    """Return {label: (parameter values, line of test accuracy against model size)} of methods.

    The values are of the method's own parameter that the figure shows, one for each point of the
    line, and [] if it shows none.
    """
    rows, size, keys = final(numbers), exhibit.size, ["method", "setting"]
    sizes = select_series(rows, size.metric, "").set_index(keys)["mean"] * size.factor
    accuracy = select_series(rows, "accuracy", "test").join(sizes.rename("x"), on=keys)
    paths: dict[str, Path] = {}
    for measure in exhibit.measures:
        own = accuracy[accuracy["method"] == measure.label]
        at = own[measure.show[0]].astype(float).tolist() if measure.show else []
        paths[measure.label] = at, line_of(own)
    return paths


def _draw_paths(axes: Axes, exhibit: Exhibit, paths: Mapping[str, Path]) -> None:
    from matplotlib.ticker import NullFormatter
    from matplotlib.transforms import ScaledTranslation

    measures = [measure for measure in exhibit.measures if paths[measure.label][1].mean]
    if not measures:
        return
    axes.set_xscale("log")
    low, styles = axes.get_ylim()[0], line_styles(exhibit.measures)
    single = {m.label: paths[m.label][1].mean[0] for m in measures if not m.show}
    lost = {label: mean for label, mean in single.items() if mean < low}
    marks = [m for m in measures if m.label in single.keys() - lost.keys() and not m.reference]
    shown = [paths[measure.label] for measure in measures if measure.show]
    values, named = shown[0] if shown else ([], Line([], [], []))
    ratios = {size / value for size, value in zip(named.x, values, strict=True)}
    # where settings are sizes, by a factor, the axis names them
    asked = sorted({x * min(ratios) for at, _ in shown for x in at} if len(ratios) == 1 else ())
    for measure in measures:
        line, style = paths[measure.label][1], styles[measure.label].line
        x, mean, sd = line.x, line.mean, line.sd
        if measure.show:
            if asked:  # a gap where there is no result
                points = dict(zip(x, zip(mean, sd, strict=True), strict=True))
                found = [points.get(size, (math.nan, math.nan)) for size in asked]
                x, mean, sd = asked, *map(list, zip(*found, strict=True))
            axes.errorbar(x, mean, sd, elinewidth=0.6, **style)
        elif measure.reference:  # the level of a bound
            plain = {k: style[k] for k in ("color", "linestyle", "linewidth", "zorder")}
            axes.axhline(mean[0], **plain)
        elif measure in marks:
            # to the left of its point: several of one size would hide each other
            left = -BESIDE * (1 + marks.index(measure)) / 72
            aside = ScaledTranslation(left, 0, axes.figure.dpi_scale_trans)
            style |= {"transform": axes.transData + aside, "linestyle": "none"}
            axes.errorbar(x, mean, sd, capsize=2, elinewidth=0.8, **style)
    if marks:
        axes.margins(x=0.06 * (1 + len(marks)))  # room for them
    if len(ratios) > 1:
        _name_values(axes, values, named)
    if lost:
        _name_lost(axes, lost, paths.values())
    percent(axes)
    # ticks at the sizes that were asked for, or else at round numbers
    left, right = axes.get_xlim()
    axes.set_xticks(asked or [tick for tick in ROUND if left <= tick <= right])
    if asked:
        axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _write(axes: Axes, text: str, point: tuple[float, float], aside: Any, **look: Any) -> None:
    """Write a small text at `point`, `aside` by points, with a white outline, over all lines."""
    from matplotlib.patheffects import withStroke

    look |= {"fontsize": 6.5, "zorder": 8, "textcoords": "offset points"}
    halo = [withStroke(linewidth=2, foreground="white")]
    axes.annotate(text, point, aside, path_effects=halo, **look)


def _name_values(axes: Axes, values: list[float], line: Line) -> None:
    """Write parameter values next to the points of a line, at its ends and where there is room."""
    low, high = axes.get_ylim()
    named: list[float] = []
    for at in sorted(range(len(values)), key=lambda at: at not in (len(values) - 1, 0)):
        across = axes.transData.transform((line.x[at], low))[0] * 72 / axes.figure.dpi
        if all(abs(across - other) >= APART for other in named):
            named.append(across)
            below = line.mean[at] < low  # it is named at the lower edge of the frame
            point = line.x[at], low if below else min(line.mean[at], high)
            _write(axes, f"{values[at]:g}{' ↓' if below else ''}", point, (0, 5), ha="center")


def _name_lost(axes: Axes, lost: Mapping[str, float], paths: Iterable[Path]) -> None:
    """Write names and accuracies (`lost`) of methods below a panel into a free lower corner."""
    points = np.array([both for _, line in paths for both in zip(line.x, line.mean, strict=True)])
    across, up = axes.transAxes.inverted().transform(axes.transData.transform(points)).T
    taken = bool(((across > 0.5) & (across < 1) & (up > 0) & (up < CORNER)).any())
    side, x, aside = ("left", 0, 3) if taken else ("right", 1, -3)
    text = "\n".join(f"↓ {label} {100 * mean:.0f} %" for label, mean in reversed(lost.items()))
    look: dict[str, Any] = {"ha": side, "multialignment": side, "va": "bottom", "color": SOFT}
    look["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6}
    _write(axes, text, (x, 0), (aside, 3), xycoords="axes fraction", **look)
