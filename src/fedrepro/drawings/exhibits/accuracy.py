"""Draw test accuracy with close-ups: against a swept parameter, sizes, rounds or bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from fedrepro.drawings.canvas import (
    LETTERS,
    SOFT,
    WIDTH,
    Axis,
    Figured,
    Line,
    axis_of,
    cases,
    close_up,
    draw_lines,
    lines,
    lines_of,
    of_case,
    percent,
    positions,
    rounded,
    sheet,
)
from fedrepro.drawings.style import line_styles, wrapped
from fedrepro.planning.figure_interface import (
    CASE,
    PANELS,
    ROUND,
    Planned,
    a_rival,
    drawing,
    final,
    nothing_shown,
    one_line_each,
    one_scenario,
    select_series,
)
from fedrepro.planning.plan import Exhibit, ExhibitMethod

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS_HEIGHT = 4.7  # inches, with a legend of two rows
COLUMNS = {"left": 0.48, "right": 0.12, "top": 0.86, "across": 0.34, "between": 0.42}


@drawing("accuracy-close-up")
class AccuracyCloseUp(Figured):
    """A figure of test accuracy against the swept parameter, with a close-up of the best methods.

    Both panels are side by side; if there are several scenarios (such as data sets), each has a
    column.
    """

    height: ClassVar[float] = 3.1  # inches, of one scenario, with a legend of two rows
    sides: ClassVar[Mapping[str, float]] = {"left": 0.48, "right": 0.12, "top": 0.66, "across": 0.5}
    shows_pairs: ClassVar[bool] = True

    x_label: str = Field("", description="what the horizontal axis is called, if not by itself")

    def reasons(self, shown: Planned) -> Iterator[str]:
        if shown.cases > PANELS:
            yield f"it has a panel for each of its cases, at most {PANELS}, not {shown.cases}"
        if not self.by_rounds:
            yield from one_line_each(shown)

    def draw_pair(self, exhibit: Exhibit, numbers: pd.DataFrame, whole: Axes, close: Axes) -> None:
        """Draw one scenario's test accuracies: all on axes `whole`, the best on axes `close`."""
        draw_accuracies(exhibit, numbers, whole, close)
        for axes in (whole, close):
            set_x_axis(axes, exhibit, numbers, self.x_label)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        if not (shown := cases(numbers)):
            drawn, ((whole, close),) = sheet(exhibit, self.height, 1, 2, **self.sides)
            self.draw_pair(exhibit, numbers, whole, close)
            return drawn
        drawn, grid = sheet(exhibit, COLUMNS_HEIGHT, 2, len(shown), **COLUMNS)
        for letter, case, whole, close in zip(LETTERS, shown, *grid, strict=False):
            self.draw_pair(exhibit, of_case(numbers, case), whole, close)
            whole.set_title(f"{letter}  {case}".replace(", ", "\n    "), loc="left")
            whole.set_xlabel("")
            close.set_title("close-up", loc="left", fontsize=7)
        for row in grid:
            row[0].set_ylabel("test accuracy (%)", labelpad=2)
        return drawn


def set_x_axis(axes: Axes, exhibit: Exhibit, numbers: pd.DataFrame, label: str = "") -> None:
    """Name the horizontal axis `label`, or else as the swept parameter, and mark up to 8 values."""
    axis = axis_of(exhibit)
    values = sorted(set(positions(numbers[axis.key])))
    if len(values) <= 8:
        axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set_xlabel(label or axis.label)


def draw_accuracies(exhibit: Exhibit, numbers: pd.DataFrame, whole: Axes, close: Axes) -> None:
    """Draw test accuracies of the csv against the swept parameter: all, and close up the best."""
    accuracy, look = lines(exhibit, numbers, "accuracy", "test"), line_styles(exhibit.measures)
    limits = close_up(exhibit, accuracy)
    draw_lines(whole, accuracy, look)
    # in the close-up a band whose line is mostly outside would only be in the way
    draw_lines(close, accuracy, look, {k for k, x in accuracy.items() if min(x.mean) >= limits[0]})
    limit_pair(whole, close, limits, titled=CASE not in numbers)


def limit_pair(whole: Axes, close: Axes, limits: tuple[float, float], *, titled: bool) -> None:
    """Set the vertical axes: `whole` from 0 to 100 %, and `close` to `limits`, shaded in `whole`.

    If `titled`, the panels have titles and letters.
    """
    for axes in (whole, close):
        percent(axes)
    whole.set_ylim(0, 1)
    close.set_ylim(*limits)
    whole.axhspan(*limits, color="#000000", alpha=0.06, linewidth=0, zorder=0)
    if titled:
        place: dict[str, Any] = {"transform": whole.get_yaxis_transform(), "va": "center"}
        whole.text(1.015, sum(limits) / 2, "b", color=SOFT, **place)
        whole.set_title("a  Test accuracy (%)", loc="left")
        close.set_title("b  Test accuracy (%), close-up", loc="left")


HEIGHT = 3.5  # inches, with a legend of two rows
SIDES = {"left": 0.42, "right": 0.385, "top": 0.6125, "across": 0.51625}
NOTE_ROW = 0.14  # inches that each further line of the note at the foot takes
NOTE = 7  # points


@drawing("accuracy-and-size")
class AccuracyAndSize(Figured):
    """A figure of test accuracy, with a close-up, and model size, against the swept parameter."""

    shows_pairs: ClassVar[bool] = True

    def reasons(self, shown: Planned) -> Iterator[str]:
        yield from one_scenario(shown)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        look, axis = line_styles(exhibit.measures), axis_of(exhibit)
        groups = _groups_of(exhibit, numbers)
        shared = [
            f"{size_name(line, axis)}: {', '.join(measure.label for measure in members)}"
            for members, line in groups
            if len(members) > 1
        ]
        text = f"Shared lines in c. {'; '.join(shared)}." if shared else ""
        note = wrapped(text, NOTE, WIDTH - 0.2)
        more = NOTE_ROW * max(0, len(note) - 1)
        room = SIDES | {"foot": 0.175 + more, "bottom": 1.0675 + more}
        drawn, ((whole, close, size),) = sheet(exhibit, HEIGHT + more, 1, 3, **room)
        draw_accuracies(exhibit, numbers, whole, close)
        for (first, *others), line in groups:
            draw_lines(size, {first.label: line}, look)
            if others:
                at = (1.0, line.mean[-1])
                place: dict[str, Any] = {"xycoords": size.get_yaxis_transform(), "va": "center"}
                place |= {"textcoords": "offset points", "annotation_clip": False}
                size.annotate(size_name(line, axis), at, (3, 0), **place)
        size.set_ylim(bottom=0)
        size.set_title(f"c  {exhibit.size.title}, global model", loc="left")
        for axes in (whole, close, size):
            set_x_axis(axes, exhibit, numbers)
        middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": NOTE, "color": SOFT}
        drawn.text(0.5, (0.105 + more / 2) / drawn.get_figheight(), "\n".join(note), **middle)
        return drawn


def _groups_of(exhibit: Exhibit, numbers: pd.DataFrame) -> list[tuple[list[ExhibitMethod], Line]]:
    """Group methods whose models are equally large along the whole axis, to share a line of size.

    Returns pairs (methods, line), references first. A method that matches hidden units keeps its
    own line, because its size is a result of the run. Methods of size zero are left out.
    """
    matching = set(numbers.loc[numbers["metric"] == "matched_share", "method"])
    size = exhibit.size
    scaled = numbers.assign(mean=numbers["mean"] * size.factor, sd=numbers["sd"] * size.factor)
    sizes = lines(exhibit, scaled, size.metric, "")
    groups: list[tuple[list[ExhibitMethod], Line]] = []
    for measure in sorted(exhibit.measures, key=lambda m: not m.reference):
        line = sizes.get(measure.label)
        if line is None or not any(line.mean):
            continue
        same = [g for g in groups if g[1] == line and g[0][0].label not in matching]
        if same and measure.label not in matching:
            same[0][0].append(measure)
        else:
            groups.append(([measure], line))
    return groups


def size_name(line: Line, axis: Axis) -> str:
    """Return a label for a line of sizes: "500" if constant, "50·J" if 50 times J, else "same"."""
    if len(set(line.mean)) == 1:
        return f"{line.mean[0]:g}"
    ratios = {m / x for m, x in zip(line.mean, line.x, strict=True)} if all(line.x) else ()
    return f"{min(ratios):g}·{axis.symbol}" if len(ratios) == 1 else "same"


MARKERS = 10
MANY = 1000  # rounds from which the axis is logarithmic, if there is something to see
EARLY, SEEN = 0.05, 5  # measured rounds in the first part of a run that make the axis logarithmic
NEAR = 0.2  # a method that ends further below the best is left out of the close-up
SENT = ("bytes_up", "bytes_down")
FAR = 30  # times as many bytes or rounds from which on their axis is logarithmic


@drawing("accuracy-against-rounds")
class AccuracyAgainstRounds(AccuracyCloseUp):
    """A figure of test accuracy against rounds, or steps of a stream, with a close-up.

    A method without rounds is a level line across both panels. The panels are side by side; if
    there are several scenarios (such as data sets), each has a column. The axis of rounds is
    logarithmic from 1,000 rounds on, unless few early rounds were measured, and where one method
    has 30 times as many rounds as another.
    """

    height: ClassVar[float] = 3.3
    sides: ClassVar[Mapping[str, float]] = {"left": 0.45, "right": 0.3, "top": 0.72, "across": 0.55}
    by_rounds: ClassVar[bool] = True

    best_so_far: bool = Field(
        False, description="draw the highest mean accuracy up to each round, without bands"
    )

    def reasons(self, shown: Planned) -> Iterator[str]:
        yield from super().reasons(shown)
        if len(shown.points) > max(1, shown.cases):
            yield "it is drawn against rounds, so its sweep has one value"
        yield from nothing_shown(shown)
        yield from a_rival(shown)

    def draw_pair(self, exhibit: Exhibit, numbers: pd.DataFrame, whole: Axes, close: Axes) -> None:
        accuracy, look = round_lines(exhibit, numbers), line_styles(exhibit.measures)
        if self.best_so_far:
            for label, line in accuracy.items():
                best = [*itertools.accumulate(line.mean, max)]
                accuracy[label] = Line(line.x, best, [0.0] * len(best))
        rounds = [line.x for line in accuracy.values()]
        first, last = min(map(min, rounds)), max(map(max, rounds))
        early = last >= MANY and sum(x <= EARLY * last for x in max(rounds, key=len)) >= SEEN
        early |= last >= FAR * min((x[-1] for x in rounds if len(x) > 1), default=last)
        for axes in (whole, close):
            draw_lines(axes, accuracy, look, markers=MARKERS)
            axes.set_xlabel(self.x_label or "communication rounds")
            if early:
                axes.set_xscale("log")
                axes.set_xlim(first / 1.15, last * 1.15)
                axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            else:
                axes.set_xlim(first - 0.02 * (last - first), last + 0.02 * (last - first))
                axes.locator_params("x", nbins=7, steps=[1, 2, 5, 10], integer=True)
        limit_pair(whole, close, ends(exhibit, accuracy), titled=CASE not in numbers)


@drawing("accuracy-and-bytes")
class AccuracyAndBytes(Figured):
    """A figure of test accuracy against rounds (left) and bytes sent by clients and server (right).

    A method without rounds is a level line on the left and a point on the right.
    """

    by_rounds: ClassVar[bool] = True
    of_rounds: ClassVar[tuple[str, ...]] = SENT

    def reasons(self, shown: Planned) -> Iterator[str]:
        if shown.cases or len(shown.points) > 1:
            yield "it shows one scenario: draw cases as accuracy-against-rounds, a sweep otherwise"
        yield from nothing_shown(shown)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        look, rounds = line_styles(exhibit.measures), AccuracyAgainstRounds
        drawn, ((left, right),) = sheet(exhibit, rounds.height, 1, 2, **rounds.sides)
        by_rounds, by_bytes = round_lines(exhibit, numbers), byte_lines(exhibit, numbers)
        ends = [end for line in by_rounds.values() for end in (*line.low, *line.high)]
        values = [value for value in ends if value == value]
        for axes, curves in ((left, by_rounds), (right, by_bytes)):
            draw_lines(axes, curves, look, markers=MARKERS)
            percent(axes)
            axes.set_ylim(*rounded(min(values, default=0.0), max(values, default=1.0)))
        left.set_xlabel("communication rounds")
        left.set_title("a  Test accuracy (%)", loc="left")
        right.set_xlabel("megabytes that clients and server sent")
        right.set_title("b  Test accuracy (%) against bytes", loc="left")
        most = [line.x[-1] for line in by_bytes.values() if line.x[-1] > 0]
        if most and max(most) >= FAR * min(most):
            right.set_xscale("log")
        right.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        return drawn


def byte_lines(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, Line]:
    """Return {label of a method: line of test accuracy against megabytes sent}.

    Megabytes are those of clients and server. A method without rounds is a single point.
    """
    with_rounds = numbers["method"].isin(numbers.loc[numbers[ROUND].notna(), "method"])
    rows = numbers[numbers[ROUND].notna() | ~with_rounds]
    sent = rows[rows["metric"].isin(SENT)].groupby(["method", ROUND], dropna=False)["mean"]
    megabytes = sent.sum(min_count=len(SENT)).div(1e6).rename("x").dropna().reset_index()
    accuracy = select_series(rows, "accuracy", "test")
    return lines_of(exhibit, accuracy.merge(megabytes, on=["method", ROUND]))


def round_lines(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, Line]:
    """Return {label of a method: line of test accuracy against measured rounds}.

    A method without rounds is a level line, with its final accuracy at the first and last round.
    """
    rows = select_series(numbers, "accuracy", "test").assign(x=numbers[ROUND])
    curves = lines_of(exhibit, rows[rows[ROUND].notna()])
    last = float(rows[ROUND].max()) if curves else 1.0
    both = [1.0 if last >= MANY else 0.0, last]
    level = lines_of(exhibit, final(rows))
    flat = {label: Line(both, 2 * line.mean, [0.0, 0.0]) for label, line in level.items()}
    found = flat | curves
    return {m.label: found[m.label] for m in exhibit.measures if m.label in found}


def ends(exhibit: Exhibit, accuracy: dict[str, Line]) -> tuple[float, float]:
    """Return (low, high) of a close-up's vertical axis, without methods far below the best."""
    bounds = {measure.label for measure in exhibit.measures if measure.reference}
    found = {k: [m for m in line.mean if math.isfinite(m)] for k, line in accuracy.items()}
    known = {label: means for label, means in found.items() if means}  # others failed at once
    if not known:
        return 0.0, 1.0
    last = {label: means[-1] for label, means in known.items()}
    rivals = [mean for label, mean in last.items() if label not in bounds] or [*last.values()]
    low = min(mean for mean in rivals if max(rivals) - mean <= NEAR)
    high = max(map(max, known.values()))
    return rounded(low - max(0.01, 0.1 * (high - low)), high)
