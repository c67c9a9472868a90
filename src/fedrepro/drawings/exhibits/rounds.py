"""Drawing accuracy-against-rounds: test accuracy as rounds, or steps of a stream, go by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from fedrepro.drawings.canvas import (
    Line,
    draw_lines,
    line_of,
    rounded,
    select,
)
from fedrepro.drawings.close_ups import WithCloseUp, limit_pair
from fedrepro.drawings.style import Look
from fedrepro.planning.drawing import PANELS, ROUND, Planned, a_rival, drawing, final, nothing_shown
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MARKERS = 10
MANY = 1000  # rounds from which the axis is logarithmic, if there is something to see
EARLY, SEEN = 0.05, 5  # so many measured rounds in the first part of a run are
NEAR = 0.2  # a method that ends further below the best is left out of the close-up


@drawing("accuracy-against-rounds")
class AccuracyAgainstRounds(WithCloseUp):
    """Test accuracy as rounds, or steps of a stream, go by, and a close-up of it.

    A method without rounds is a level line across both. Side by side for one scenario, for cases
    one above the other in a column each. Thousands of rounds are drawn on a logarithmic axis, or
    all that happens early is one stroke; but for those measured so evenly that there is nothing
    early to be seen.
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


def round_lines(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, Line]:
    """label -> accuracy after each measured round, or two equal ends for a method without."""
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
    """The range that rivals end in, from a little below the worst that ends near the best."""
    bounds = {measure.label for measure in exhibit.measures if measure.reference}
    last = [line.mean[-1] for label, line in accuracy.items() if label not in bounds]
    best = max(last)
    low = min(value for value in last if best - value <= NEAR)
    high = max(max(line.mean) for line in accuracy.values())
    return rounded(low - max(0.01, 0.1 * (high - low)), high)
