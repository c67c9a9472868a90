"""Test accuracy against rounds, or steps of a stream, and against the bytes sent until then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from fedrepro.drawings.canvas import (
    Line,
    draw_lines,
    grid_of,
    line_of,
    percent,
    rounded,
    select,
    sheet,
)
from fedrepro.drawings.close_ups import WithCloseUp, limit_pair
from fedrepro.drawings.draw import Along
from fedrepro.drawings.style import Look, looks
from fedrepro.planning.drawing import PANELS, ROUND, Planned, a_rival, drawing, final, nothing_shown
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = 10
MANY = 1000  # rounds from which the axis is logarithmic, if there is something to see
EARLY, SEEN = 0.05, 5  # measured rounds in the first part of a run that make the axis logarithmic
NEAR = 0.2  # a method that ends further below the best is left out of the close-up
SENT = ("bytes_up", "bytes_down")
FAR = 30  # times as many bytes from which on their axis is logarithmic


@drawing("accuracy-against-rounds")
class AccuracyAgainstRounds(WithCloseUp):
    """Test accuracy as rounds, or steps of a stream, go by, and a close-up of it.

    A method without rounds is a level line across both. Side by side for one scenario, for cases
    one above the other in a column each. The axis of thousands of rounds is logarithmic, because
    all that happens early would be one stroke; it is linear where few early rounds were measured.
    """

    height: ClassVar[float] = 3.3
    sides: ClassVar[Mapping[str, float]] = {"left": 0.45, "right": 0.3, "top": 0.72, "across": 0.55}
    by_rounds: ClassVar[bool] = True
    shows_pairs: ClassVar[bool] = True

    def reasons(self, shown: Planned) -> Iterator[str]:
        if shown.cases > PANELS:
            yield f"it has a panel for each of its cases, at most {PANELS}, not {shown.cases}"
        if len(shown.points) > max(1, shown.cases):
            yield "it is drawn against rounds, so its sweep has one value"
        yield from nothing_shown(shown)
        yield from a_rival(shown)

    def draw_pair(
        self,
        exhibit: Exhibit,
        numbers: pd.DataFrame,
        look: Mapping[str, Look],
        whole: Axes,
        close: Axes,
    ) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        accuracy = round_lines(exhibit, numbers)
        first = min(min(line.x) for line in accuracy.values())
        last = max(max(line.x) for line in accuracy.values())
        measured = max((line.x for line in accuracy.values()), key=len)
        early = last >= MANY and sum(x <= EARLY * last for x in measured) >= SEEN
        for axes in (whole, close):
            draw_lines(axes, accuracy, look, banded=set(accuracy), markers=MARKERS)
            axes.set_xlabel(self.x_label or "communication rounds")
            if early:
                axes.set_xscale("log")
                axes.set_xlim(first / 1.15, last * 1.15)
                axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            else:
                axes.set_xlim(first - 0.02 * (last - first), last + 0.02 * (last - first))
                axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10], integer=True))
        limit_pair(whole, close, ends(exhibit, accuracy))


@drawing("accuracy-and-bytes")
class AccuracyAndBytes(Along):
    """Test accuracy as rounds go by, and against the bytes that clients and server sent until then.

    A method without rounds is a level line on the left and a point on the right.
    """

    by_rounds: ClassVar[bool] = True
    of_rounds: ClassVar[tuple[str, ...]] = SENT

    def reasons(self, shown: Planned) -> Iterator[str]:
        if shown.cases or len(shown.points) > 1:
            yield "it shows one scenario: draw cases as accuracy-against-rounds, a sweep otherwise"
        yield from nothing_shown(shown)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        from matplotlib.ticker import FuncFormatter

        look = looks(exhibit.measures)
        drawn, added = sheet(exhibit, look, AccuracyAgainstRounds.height)
        sides = AccuracyAgainstRounds.sides
        ((left, right),) = grid_of(drawn, 1, 2, bottom=0.95 + added, **sides)
        by_rounds, by_bytes = round_lines(exhibit, numbers), byte_lines(exhibit, numbers)
        ends = [end for line in by_rounds.values() for end in (*line.low, *line.high)]
        values = [value for value in ends if value == value]
        for axes, lines in ((left, by_rounds), (right, by_bytes)):
            draw_lines(axes, lines, look, banded=set(lines), markers=MARKERS)
            percent(axes)
            axes.set_ylim(*rounded(min(values, default=0.0), max(values, default=1.0)))
        left.set_xlabel(self.x_label or "communication rounds")
        left.set_title("a  Test accuracy (%)", loc="left")
        right.set_xlabel("megabytes that clients and server sent")
        right.set_title("b  Test accuracy (%) against bytes", loc="left")
        most = [line.x[-1] for line in by_bytes.values() if line.x[-1] > 0]
        if most and max(most) >= FAR * min(most):
            right.set_xscale("log")
        right.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        return drawn


def byte_lines(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, Line]:
    """Return accuracy against the megabytes sent so far; a method without rounds is a point."""
    lines: dict[str, Line] = {}
    for measure in exhibit.measures:
        rows = numbers[numbers["method"] == measure.label]
        done = rows[rows[ROUND].notna()]
        done = done if len(done) else rows
        accuracy = select(done, "accuracy", "test")
        sent = [select(done, metric, "")["mean"].tolist() for metric in SENT]
        if len(accuracy) and all(len(one) == len(accuracy) for one in sent):
            megabytes = [sum(both) / 1e6 for both in zip(*sent, strict=True)]
            lines[measure.label] = line_of(accuracy, megabytes)
    return lines


def round_lines(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, Line]:
    """Return accuracy after each measured round; a method without rounds has two equal ends."""
    rows = select(numbers, "accuracy", "test")
    done = rows[rows[ROUND].notna()]
    last = float(done[ROUND].max()) if len(done) else 1.0
    lines: dict[str, Line] = {}
    for measure in exhibit.measures:
        curve = done[done["method"] == measure.label]
        if len(curve):
            lines[measure.label] = line_of(curve, curve[ROUND].astype(float).tolist())
            continue
        level = final(rows)
        level = level[level["method"] == measure.label]
        if len(level):
            mean = float(level["mean"].iloc[0])
            start = 1.0 if last >= MANY else 0.0
            lines[measure.label] = Line([start, last], [mean, mean], [0.0, 0.0])
    return lines


def ends(exhibit: Exhibit, accuracy: dict[str, Line]) -> tuple[float, float]:
    """Choose the range in which rivals end, from a little below the worst near the best."""
    bounds = {measure.label for measure in exhibit.measures if measure.reference}
    last = [line.mean[-1] for label, line in accuracy.items() if label not in bounds]
    best = max(last)
    low = min(value for value in last if best - value <= NEAR)
    high = max(max(line.mean) for line in accuracy.values())
    return rounded(low - max(0.01, 0.1 * (high - low)), high)
