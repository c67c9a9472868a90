"""Draw test accuracy: with close-ups, against rounds or bytes, and against model size."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from fedrepro.drawings import lines_and_layout as layout
from fedrepro.drawings.lines_and_layout import Figured, Line
from fedrepro.drawings.style import line_styles
from fedrepro.planning import drawing_base as checks
from fedrepro.planning.drawing_base import CASE, ROUND, Planned, drawing, final, select_series
from fedrepro.planning.exhibit_config import key as option
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = {"left": 0.48, "right": 0.12, "top": 0.86, "across": 0.34, "between": 0.42}


@drawing("accuracy-close-up")
class AccuracyCloseUp(Figured):
    """A figure of test accuracy against the swept parameter, with a close-up of the best methods.

    The two panels are side by side. With several scenarios, such as data sets, each has a column.
    sides: margins in inches. shows_pairs: whether methods may have fewer trials than others.
    """

    height: ClassVar[float] = 3.1  # inches, of one scenario, with a legend of two rows
    sides: ClassVar[Mapping[str, float]] = {"left": 0.48, "right": 0.12, "top": 0.66, "across": 0.5}
    shows_pairs: ClassVar[bool] = True

    x_label: str = option("", "what the horizontal axis is called, if not by itself")

    def reasons(self, shown: Planned) -> Iterator[str]:
        if shown.cases > (most := checks.PANELS):
            yield f"it has a panel for each of its cases, at most {most}, not {shown.cases}"
        if not self.by_rounds:
            yield from checks.one_axis(shown)
            yield from checks.nothing_shown(shown)

    def draw_pair(self, exhibit: Exhibit, numbers: pd.DataFrame, whole: Axes, close: Axes) -> None:
        """Draw a scenario's test accuracies, `numbers`, on `whole`, and a close-up on `close`."""
        accuracy = layout.lines(exhibit, numbers, "accuracy", "test")
        limits, look = layout.close_up(exhibit, accuracy), line_styles(exhibit.measures)
        # in the close-up a band whose line is mostly outside would only be in the way
        inside = {label for label, line in accuracy.items() if min(line.mean) >= limits[0]}
        for axes, banded in ((whole, accuracy), (close, inside)):
            layout.draw_lines(axes, accuracy, look, banded)
            set_x_axis(axes, exhibit, numbers, self.x_label)
        limit_pair(whole, close, limits, titled=CASE not in numbers)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        shown = layout.by_case(numbers)
        if CASE not in numbers:
            drawn, ((whole, close),) = layout.sheet(exhibit, self.height, 1, 2, **self.sides)
            self.draw_pair(exhibit, numbers, whole, close)
            return drawn
        drawn, grid = layout.sheet(exhibit, 4.7, 2, len(shown), **COLUMNS)
        columns = zip(layout.LETTERS, shown.items(), *grid, strict=False)
        for letter, (case, rows), whole, close in columns:
            self.draw_pair(exhibit, rows, whole, close)
            whole.set_title(f"{letter}  {case}".replace(", ", "\n    "), loc="left")
            whole.set_xlabel("")
            close.set_title("close-up", loc="left", fontsize=7)
        for row in grid:
            row[0].set_ylabel("test accuracy (%)", labelpad=2)
        return drawn


def set_x_axis(axes: Axes, exhibit: Exhibit, numbers: pd.DataFrame, label: str = "") -> None:
    """Label the x axis by `label` or the swept parameter's name; mark all values, if 8 or fewer."""
    key, title, _ = layout.axis_of(exhibit)
    values = sorted(set(layout.positions(numbers[key])))
    if len(values) <= 8:
        axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set_xlabel(label or title)


def limit_pair(whole: Axes, close: Axes, limits: tuple[float, float], *, titled: bool) -> None:
    """Set the axes of accuracy: `whole` shows 0–100 %, `close` shows `limits`, shares (low, high).

    The range `limits` is shaded in `whole`. If `titled`, both axes get titles.
    """
    for axes, ends in ((whole, (0, 1)), (close, limits)):
        layout.percent(axes)
        axes.set_ylim(*ends)
    whole.axhspan(*limits, color="#000000", alpha=0.06, linewidth=0, zorder=0)
    if titled:
        place: dict[str, Any] = {"transform": whole.get_yaxis_transform(), "va": "center"}
        whole.text(1.015, sum(limits) / 2, "b", color=layout.SOFT, **place)
        whole.set_title("a  Test accuracy (%)", loc="left")
        close.set_title("b  Test accuracy (%), close-up", loc="left")


SIDES = {"left": 0.42, "right": 0.385, "top": 0.6125, "across": 0.51625}


@drawing("accuracy-and-size")
class AccuracyAndSize(Figured):
    """Three panels against the swept parameter: test accuracy, a close-up of it, model size."""

    shows_pairs: ClassVar[bool] = True

    def reasons(self, shown: Planned) -> Iterator[str]:
        if shown.cases:
            yield "it has cases; draw it as accuracy-close-up, a panel for each, or as a table"
        yield from checks.one_axis(shown)
        yield from checks.nothing_shown(shown)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        look, groups = line_styles(exhibit.measures), _groups_of(exhibit, numbers)
        shared = [f"{name}: {', '.join(labels)}" for labels, _, name in groups if len(labels) > 1]
        note = textwrap.wrap(f"Alike in c. {'; '.join(shared)}.", 126) if shared else []
        more = 0.14 * max(0, len(note) - 1)  # inches
        room = SIDES | {"foot": 0.175 + more, "bottom": 1.0675 + more}
        drawn, ((whole, close, size),) = layout.sheet(exhibit, 3.5 + more, 1, 3, **room)
        AccuracyCloseUp(x_label="").draw_pair(exhibit, numbers, whole, close)
        for (first, *others), line, name in groups:
            layout.draw_lines(size, {first: line}, look)
            if others:
                place: dict[str, Any] = {"xycoords": size.get_yaxis_transform(), "va": "center"}
                place |= {"textcoords": "offset points", "annotation_clip": False}
                size.annotate(name, (1.0, line.mean[-1]), (3, 0), **place)
        size.set_ylim(bottom=0)
        size.set_title(f"c  {size_title(exhibit).capitalize()}, global model", loc="left")
        set_x_axis(size, exhibit, numbers)
        up = (0.105 + more / 2) / drawn.get_figheight()
        drawn.text(0.5, up, "\n".join(note), fontsize=7, color=layout.SOFT, **layout.CENTRED)
        return drawn


def _groups_of(exhibit: Exhibit, numbers: pd.DataFrame) -> list[tuple[list[str], Line, str]]:
    """Group methods whose models are equally large at every x, to draw one line of size for all."""
    matching = set(numbers.loc[numbers["metric"] == "matched_share", "method"])
    *_, symbol = layout.axis_of(exhibit)
    sizes = layout.lines(exhibit, numbers, exhibit.settings.size, "")
    groups: list[tuple[list[str], Line, str]] = []
    for label in (m.label for m in sorted(exhibit.measures, key=lambda m: not m.reference)):
        if label not in sizes or not any((line := sizes[label]).mean):
            continue
        same = [g for g in groups if g[1] == line and matching.isdisjoint((g[0][0], label))]
        ratios = {m / x for m, x in zip(line.mean, line.x, strict=True)} if all(line.x) else ()
        name = f"{min(ratios):g}·{symbol}" if len(ratios) == 1 else "same"
        if same:
            same[0][0].append(label)
        else:
            level = len(set(line.mean)) == 1
            groups.append(([label], line, f"{line.mean[0]:g}" if level else name))
    return groups


MARKERS = 10
MANY = 1000  # rounds from which the axis is logarithmic, if there is something to see
SENT = ("bytes_up", "bytes_down")
FAR = 30  # times as many bytes or rounds from which on their axis is logarithmic


@drawing("accuracy-against-rounds")
class AccuracyAgainstRounds(AccuracyCloseUp):
    """A figure of test accuracy against rounds, or steps of a stream, with a close-up.

    A method without rounds is a horizontal line. The two panels are side by side. With several
    scenarios, such as data sets, each has a column. The axis of rounds is logarithmic in two cases.
    One method has at least 30 times the rounds of another; or there are at least 1,000 rounds, with
    at least five evaluations in the first 5 % of them.
    """

    height: ClassVar[float] = 3.3
    sides: ClassVar[Mapping[str, float]] = {"left": 0.45, "right": 0.3, "top": 0.72, "across": 0.55}
    by_rounds: ClassVar[bool] = True

    best_so_far: bool = option(
        False, "draw the highest mean accuracy up to each round, without bands"
    )

    def reasons(self, shown: Planned) -> Iterator[str]:
        yield from super().reasons(shown)
        if len(shown.points) > max(1, shown.cases):
            yield "it is drawn against rounds, so its sweep has one value"
        yield from checks.nothing_shown(shown)
        yield from checks.a_rival(shown)

    def draw_pair(self, exhibit: Exhibit, numbers: pd.DataFrame, whole: Axes, close: Axes) -> None:
        accuracy, look = round_lines(exhibit, numbers), line_styles(exhibit.measures)
        if self.best_so_far:
            for label, line in accuracy.items():
                best = [*itertools.accumulate(line.mean, max)]
                accuracy[label] = Line(line.x, best, [0.0] * len(best))
        rounds = [line.x for line in accuracy.values()]
        first, last = min(map(min, rounds)), max(map(max, rounds))
        early = last >= MANY and sum(x <= 0.05 * last for x in max(rounds, key=len)) >= 5
        early |= last >= FAR * min((x[-1] for x in rounds if len(x) > 1), default=last)
        for axes in (whole, close):
            layout.draw_lines(axes, accuracy, look, markers=MARKERS)
            axes.set_xlabel(self.x_label or "communication rounds")
            if early:
                axes.set_xscale("log")
                axes.set_xlim(first / 1.15, last * 1.15)
                axes.xaxis.set_major_formatter("{x:g}")
            else:
                axes.set_xlim(first - 0.02 * (last - first), last + 0.02 * (last - first))
                axes.locator_params("x", nbins=7, steps=[1, 2, 5, 10], integer=True)
        limits = layout.close_up(exhibit, accuracy, at_end=True)
        limit_pair(whole, close, limits, titled=CASE not in numbers)


def round_lines(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, Line]:
    """Return {method's label: line of test accuracy by rounds, horizontal if it has no rounds}."""
    rows = select_series(numbers, "accuracy", "test").assign(x=numbers[ROUND])
    curves = layout.lines_of(exhibit, rows[rows[ROUND].notna()])
    last = float(rows[ROUND].max()) if curves else 1.0
    both, level = [1.0 if last >= MANY else 0.0, last], layout.lines_of(exhibit, final(rows))
    found = {k: Line(both, 2 * line.mean, [0.0, 0.0]) for k, line in level.items()} | curves
    return {m.label: found[m.label] for m in exhibit.measures if m.label in found}


@drawing("accuracy-and-bytes")
class AccuracyAndBytes(Figured):
    """A figure of test accuracy against rounds (left) and bytes sent by clients and server (right).

    A method without rounds is a level line on the left and a point on the right. by_rounds:
    whether it needs csv rows after single rounds. of_rounds: metrics of cost in these rows.
    """

    by_rounds: ClassVar[bool] = True
    of_rounds: ClassVar[tuple[str, ...]] = SENT

    def reasons(self, shown: Planned) -> Iterator[str]:
        if shown.cases or len(shown.points) > 1:
            yield "it shows one scenario: draw cases as accuracy-against-rounds, a sweep otherwise"
        yield from checks.nothing_shown(shown)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        look, like = line_styles(exhibit.measures), AccuracyAgainstRounds
        drawn, ((left, right),) = layout.sheet(exhibit, like.height, 1, 2, **like.sides)
        by_rounds, by_bytes = round_lines(exhibit, numbers), byte_lines(exhibit, numbers)
        values = [v for line in by_rounds.values() for ends in line.band for v in ends if v == v]
        for axes, curves in ((left, by_rounds), (right, by_bytes)):
            layout.draw_lines(axes, curves, look, markers=MARKERS)
            layout.percent(axes)
            axes.set_ylim(*layout.rounded(min(values, default=0.0), max(values, default=1.0)))
        left.set_xlabel("communication rounds")
        left.set_title("a  Test accuracy (%)", loc="left")
        right.set_xlabel("megabytes that clients and server sent")
        right.set_title("b  Test accuracy (%) against bytes", loc="left")
        most = [line.x[-1] for line in by_bytes.values() if line.x[-1] > 0]
        if most and max(most) >= FAR * min(most):
            if any(line.x[0] <= 0 for line in by_bytes.values()):  # controls send nothing
                least = 10.0 ** math.floor(math.log10(min(most)))
                right.set_xscale("symlog", linthresh=least, linscale=0.5)
                right.set_xlim(left=-least / 2)
            else:
                right.set_xscale("log")
        right.xaxis.set_major_formatter("{x:g}")
        return drawn


def byte_lines(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, Line]:
    """Return {method's label: line of test accuracy by MB sent in all; a point without rounds}."""
    with_rounds = numbers["method"].isin(numbers.loc[numbers[ROUND].notna(), "method"])
    rows = numbers[numbers[ROUND].notna() | ~with_rounds]
    peers = [m.label for m in exhibit.measures if m.spec.method_kind.on_graph]
    twice = rows["method"].isin(peers) & (rows["metric"] == "bytes_down")  # sent along an edge
    rows = rows.assign(mean=rows["mean"].mask(twice, 0.0))
    sent = rows[rows["metric"].isin(SENT)].groupby(["method", ROUND], dropna=False)["mean"]
    megabytes = sent.sum(min_count=len(SENT)).div(1e6).rename("x").dropna().reset_index()
    accuracy = select_series(rows, "accuracy", "test")
    return layout.lines_of(exhibit, accuracy.merge(megabytes, on=["method", ROUND]))


GRID = {"left": 0.45, "right": 0.1, "top": 0.78, "bottom": 0.92, "across": 0.38, "between": 0.42}
BESIDE = 5  # points between marks of one size
TICKS = (10, 20, 50, 100, 200, 500, 1000, 2000)

Path = tuple[list[float], Line]  # values of the shown parameter, and (size, accuracy) at each


@drawing("accuracy-against-size")
class AccuracyAgainstSize(Figured):
    """A figure of test accuracy against model size, a panel per scenario and swept parameter value.

    A method that is run with several values of a parameter is a line through their results.
    """

    def reasons(self, shown: Planned) -> Iterator[str]:
        yield from checks.one_axis(shown)
        for measure in shown.measures:
            if len(measure.show) > 1:
                yield f"method '{measure.spec.name}' shows more than one parameter along its path"
            yield from checks.numbers_shown(measure)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        (key, _, symbol), shown = layout.axis_of(exhibit), layout.by_case(numbers)
        values = numbers[key].unique().tolist()
        rows, columns = len(shown), len(values)
        drawn, grid = layout.sheet(exhibit, 1.52 + 2.2 * rows, rows, columns, foot=0.06, **GRID)
        for row, (case, own) in zip(grid, shown.items(), strict=True):
            panels = [paths_of(exhibit, own[own[key] == value]) for value in values]
            means = [m for paths in panels for _, line in paths.values() for m in line.mean]
            seen = [m for m in means if max(means) - m <= 0.25]  # what is further below is cut off
            for axes, value, paths in zip(row, values, panels, strict=True):
                if seen:  # one scale for a row, so that its panels can be compared
                    axes.set_ylim(*layout.rounded(min(seen), max(seen)))
                _draw_paths(axes, exhibit, paths)
                place = f"{symbol} = {value}"
                axes.set_title(f"{case}, {place}" if case else place, loc="left")
            row[0].set_ylabel("test accuracy (%)", labelpad=2)
        whose = " of the global model" if columns <= 3 else ""  # a narrower panel has no room
        for axes in grid[-1]:
            axes.set_xlabel(size_title(exhibit) + whose)
        return drawn


def size_title(exhibit: Exhibit) -> str:
    return exhibit.settings.size.replace("_", " ")


def paths_of(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, Path]:
    """Return {method's label: (parameter values, line of test accuracy against model size)}.

    `numbers` are csv rows of one panel. Along a line one parameter varies; the list has its value
    at each point. A method with a single point has an empty list.
    """
    rows, keys = final(numbers), ["method", "setting"]
    sizes = select_series(rows, exhibit.settings.size, "").set_index(keys)["mean"]
    accuracy = select_series(rows, "accuracy", "test").join(sizes.rename("x"), on=keys)
    paths: dict[str, Path] = {}
    for measure in exhibit.measures:
        own = accuracy[accuracy["method"] == measure.label]
        at = own[measure.show[0]].astype(float).tolist() if measure.show else []
        paths[measure.label] = at, layout.line_of(own)
    return paths


def _draw_paths(axes: Axes, exhibit: Exhibit, paths: Mapping[str, Path]) -> None:
    """Draw `paths` of `paths_of` as lines, points or level lines; list methods below the axis."""
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import ScaledTranslation

    axes.set_xscale("log")
    layout.percent(axes)
    (low, high), styles = axes.get_ylim(), line_styles(exhibit.measures)
    shown = [path for path in paths.values() if path[0]]
    values, named = shown[0] if shown else ([], Line([], [], []))
    free = 0 in values or len({x / value for x, value in zip(named.x, values, strict=True)}) > 1
    lost: list[str] = []
    marks = 0
    for measure in exhibit.measures:
        (along, line), style = paths[measure.label], styles[measure.label].line
        if along:
            axes.errorbar(line.x, line.mean, line.sd, elinewidth=0.6, **style)
        elif line.mean and line.mean[0] < low:
            lost.append(f"↓ {measure.label} {100 * line.mean[0]:.0f} %")
        elif line.mean and measure.reference:  # the level of a bound
            plain = {k: style[k] for k in ("color", "linestyle", "linewidth", "zorder")}
            axes.axhline(line.mean[0], **plain)
        elif line.mean:
            marks += 1
            # to the left of its point: several of one size would hide each other
            shift = ScaledTranslation(-BESIDE * marks / 72, 0, axes.figure.dpi_scale_trans)
            style |= {"transform": axes.transData + shift, "linestyle": "none"}
            axes.errorbar(line.x, line.mean, line.sd, capsize=2, elinewidth=0.8, **style)
    if marks:
        axes.margins(x=0.06 * (1 + marks))  # room for them
    for at in (0, -1) if free else ():  # sizes are results: a path's ends name their values
        place = named.x[at], max(named.mean[at], low)
        look: dict[str, Any] = {"fontsize": 6.5, "ha": "center", "textcoords": "offset points"}
        halo = [withStroke(linewidth=2, foreground="white")]
        axes.annotate(f"{values[at]:g}", place, (0, 5), path_effects=halo, zorder=8, **look)
    left, right = axes.get_xlim()
    if lost:  # in the corner at the right, or if a line is there at the left
        middle, below = (left * right) ** 0.5, low + 0.15 * (high - low)
        points = (both for _, line in shown for both in zip(line.x, line.mean, strict=True))
        taken = any(x > middle and low < y < below for x, y in points)
        none = [Line2D([], [], linestyle="none")] * len(lost)
        room: dict[str, Any] = {"handlelength": 0, "handletextpad": 0, "borderaxespad": 0.2}
        room |= {"borderpad": 0.2, "labelspacing": 0.2, "frameon": True, "edgecolor": "none"}
        room["loc"] = "lower left" if taken else "lower right"
        axes.legend(none, lost, fontsize=6.5, labelcolor=layout.SOFT, **room)
    asked = sorted({size for _, line in shown for size in line.x})
    ticks = [tick for tick in TICKS if left <= tick <= right] if free or not asked else asked
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
