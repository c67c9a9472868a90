"""Draw accuracy against model size, a panel for each scenario and swept parameter value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedrepro.drawings.canvas import (
    SOFT,
    Figured,
    Line,
    axis_of,
    cases,
    halo,
    line_of,
    of_case,
    percent,
    rounded,
    sheet,
)
from fedrepro.drawings.style import LineStyle, line_styles
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
        look, axis = line_styles(exhibit.measures), axis_of(exhibit)
        shown = cases(numbers) or [""]
        values = list(dict.fromkeys(numbers[axis.key]))
        rows, columns, height = len(shown), len(values), 1.52 + len(shown) * (PANEL + 0.45)
        drawn, grid = sheet(exhibit, look, height, rows, columns, foot=0.06, **PANELS)
        for row, case in zip(grid, shown, strict=True):
            selected = of_case(numbers, case) if case else numbers
            panels = [paths_of(exhibit, selected[selected[axis.key] == value]) for value in values]
            means = [m for paths in panels for _, line in paths.values() for m in line.mean]
            seen = [m for m in means if max(means) - m <= REACH]
            for axes, value, paths in zip(row, values, panels, strict=True):
                if seen:  # one scale for a row, so that its panels can be compared
                    axes.set_ylim(*rounded(min(seen), max(seen)))
                _draw_paths(axes, exhibit, paths, look)
                place = f"{axis.symbol} = {value}"
                axes.set_title(f"{case}, {place}" if case else place, loc="left")
            row[0].set_ylabel("test accuracy (%)", labelpad=2)
        whose = " of the global model" if len(values) <= WIDE_PANELS else ""
        for axes in grid[-1]:
            axes.set_xlabel(exhibit.size.title.lower() + whose)
        return drawn


Path = tuple[list[float], Line]  # values of the shown parameter, and (size, accuracy) at each


def paths_of(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, Path]:
    """Return {label: (parameter values, line of test accuracy against model size)} of methods.

    The values are of the method's own parameter that the figure shows, one for each point of the
    line, and [] if it shows none.
    """
    rows, size = final(numbers), exhibit.size
    paths: dict[str, Path] = {}
    for measure in exhibit.measures:
        method_rows = rows[rows["method"] == measure.label]
        accuracy = select_series(method_rows, "accuracy", "test").set_index("setting")
        sizes = (
            select_series(method_rows, size.metric, "").set_index("setting")["mean"] * size.factor
        )
        at = accuracy[measure.show[0]].astype(float).tolist() if measure.show else []
        paths[measure.label] = at, line_of(accuracy, sizes.loc[accuracy.index].tolist())
    return paths


def _draw_paths(
    axes: Axes, exhibit: Exhibit, paths: Mapping[str, Path], look: Mapping[str, LineStyle]
) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter
    from matplotlib.transforms import ScaledTranslation

    measures = [measure for measure in exhibit.measures if paths[measure.label][1].mean]
    if not measures:
        return
    axes.set_xscale("log")
    low = axes.get_ylim()[0]
    single = {m.label: paths[m.label][1].mean[0] for m in measures if not m.show}
    lost = {label: mean for label, mean in single.items() if mean < low}
    marks = [m for m in measures if m.label in single.keys() - lost.keys() and not m.reference]
    shown = [paths[measure.label] for measure in measures if measure.show]
    values, named = shown[0] if shown else ([], Line([], [], []))
    ratios = {size / value for size, value in zip(named.x, values, strict=True)}
    # where settings are sizes, by a factor, the axis names them
    asked = sorted({x * min(ratios) for at, _ in shown for x in at} if len(ratios) == 1 else ())
    for measure in measures:
        line, style = paths[measure.label][1], dict(look[measure.label].line)
        if measure.show:
            line = broken(line, asked) if asked else line
            axes.errorbar(line.x, line.mean, line.sd, elinewidth=0.6, **style)
        elif measure.reference:  # the level of a bound
            plain = {k: style[k] for k in ("color", "linestyle", "linewidth", "zorder")}
            axes.axhline(line.mean[0], **plain)
        elif measure in marks:
            # to the left of its point: several of one size would hide each other
            left = -BESIDE * (1 + marks.index(measure)) / 72
            aside = ScaledTranslation(left, 0, axes.figure.dpi_scale_trans)
            style |= {"transform": axes.transData + aside, "linestyle": "none"}
            axes.errorbar(line.x, line.mean, line.sd, capsize=2, elinewidth=0.8, **style)
    if marks:
        axes.margins(x=0.06 * (1 + len(marks)))  # room for them
    if len(ratios) > 1:
        _name_values(axes, values, named)
    _name_lost(axes, lost, paths.values())
    percent(axes)
    # ticks at the sizes that were asked for, or else at round numbers
    left, right = axes.get_xlim()
    axes.set_xticks(asked or [tick for tick in ROUND if left <= tick <= right])
    if asked:
        axes.minorticks_off()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def broken(line: Line, sizes: Sequence[float]) -> Line:
    """Return `line` with a point at each of `sizes`, nan where it lacks a result, to show gaps."""
    means, sds = (dict(zip(line.x, values, strict=True)) for values in (line.mean, line.sd))
    mean, sd = ([of.get(size, math.nan) for size in sizes] for of in (means, sds))
    return Line(list(sizes), mean, sd)


def _name_values(axes: Axes, values: list[float], line: Line) -> None:
    """Write parameter values next to the points of a line, at its ends and where there is room."""
    low, high = axes.get_ylim()
    named: list[float] = []
    look: dict[str, Any] = {"ha": "center", "fontsize": 6.5, "zorder": 8, "path_effects": halo()}
    for at in sorted(range(len(values)), key=lambda at: at not in (len(values) - 1, 0)):
        across = axes.transData.transform((line.x[at], low))[0] * 72 / axes.figure.dpi
        if all(abs(across - other) >= APART for other in named):
            named.append(across)
            below = line.mean[at] < low  # it is named at the lower edge of the frame
            text = f"{values[at]:g} ↓" if below else f"{values[at]:g}"
            point = line.x[at], low if below else min(line.mean[at], high)
            axes.annotate(text, point, (0, 5), textcoords="offset points", **look)


def _name_lost(axes: Axes, lost: Mapping[str, float], paths: Iterable[Path]) -> None:
    """Write names and accuracies (`lost`) of methods below a panel into a free lower corner."""
    if not lost:
        return
    points = np.array([both for _, line in paths for both in zip(line.x, line.mean, strict=True)])
    across, up = axes.transAxes.inverted().transform(axes.transData.transform(points)).T
    taken = bool(((across > 0.5) & (across < 1) & (up > 0) & (up < CORNER)).any())
    side: Literal["left", "right"] = "left" if taken else "right"
    axes.annotate(
        "\n".join(f"↓ {label} {100 * mean:.0f} %" for label, mean in reversed([*lost.items()])),
        (0 if taken else 1, 0),
        (3 if taken else -3, 3),
        xycoords="axes fraction",
        textcoords="offset points",
        ha=side,
        multialignment=side,
        va="bottom",
        fontsize=6.5,
        color=SOFT,
        zorder=8,
        path_effects=halo(),
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6},
    )
