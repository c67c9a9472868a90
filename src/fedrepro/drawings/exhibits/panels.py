"""Drawings of test accuracy alone against the sweep, with a close-up of the best.

accuracy-panels has a column for each case, accuracy-close-up one scenario side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from fedrepro.drawings.canvas import (
    LEGEND_ROW,
    LETTERS,
    along,
    cases,
    close_up,
    draw_lines,
    grid_of,
    handles_of,
    headings,
    legend,
    legend_rows,
    lines,
    mark,
    names_of,
    new_figure,
    of_case,
    percent,
)
from fedrepro.drawings.draw import Along
from fedrepro.drawings.style import looks
from fedrepro.planning.drawing import PANELS, Planned, drawing, one_line_each, one_scenario
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

HEIGHT = 4.7  # inches, with a legend of two rows


@drawing("accuracy-panels")
class AccuracyPanels(Along):
    """Test accuracy against the sweep, and below it a close-up; a column of both for each case."""

    shows_pairs: ClassVar[bool] = True

    def reasons(self, shown: Planned) -> Iterator[str]:
        if not 1 <= shown.cases <= PANELS:
            yield f"it has a panel for each of its cases, 1 to {PANELS} of them, not {shown.cases}"
        yield from one_line_each(shown)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        look = looks(exhibit.measures)
        shown = cases(numbers)
        names = names_of(exhibit)
        rows = legend_rows(list(names.values()))
        added = LEGEND_ROW * (rows - 2)
        drawn = new_figure(HEIGHT + added)
        margins = {"left": 0.48, "right": 0.12, "top": 0.86, "bottom": 0.95 + added}
        whole, close = grid_of(drawn, 2, len(shown), across=0.34, between=0.42, **margins)
        for at, case in enumerate(shown):
            own = of_case(numbers, case)
            accuracy = lines(exhibit, own, "accuracy", "test")
            low, high = close_up(exhibit, accuracy)
            draw_lines(whole[at], accuracy, look, banded=set(accuracy))
            inside = {k for k, x in accuracy.items() if min(x.mean) >= low}
            draw_lines(close[at], accuracy, look, banded=inside)
            whole[at].set_title(f"{LETTERS[at]}  {case}".replace(", ", "\n    "), loc="left")
            whole[at].set_ylim(0, 1)
            mark(whole[at], low, high, "")
            close[at].set_title("close-up", loc="left", fontsize=7)
            close[at].set_ylim(low, high)
            for axes in (whole[at], close[at]):
                percent(axes)
                along(axes, exhibit, own, self.x_label)
            whole[at].set_xlabel("")
        for row in (whole, close):
            row[0].set_ylabel("test accuracy (%)", labelpad=2)
        legend(drawn, handles_of(exhibit.measures, look, names), 0.08, rows)
        headings(drawn, exhibit)
        return drawn


@drawing("accuracy-close-up")
class AccuracyCloseUp(Along):
    """Test accuracy against the sweep on the left, a close-up of the best on the right."""

    def reasons(self, shown: Planned) -> Iterator[str]:
        yield from one_scenario(shown)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        look = looks(exhibit.measures)
        names = names_of(exhibit)
        rows = legend_rows(list(names.values()))
        added = LEGEND_ROW * (rows - 2)
        drawn = new_figure(3.1 + added)
        margins = {"left": 0.48, "right": 0.12, "top": 0.66, "bottom": 0.95 + added}
        ((whole, close),) = grid_of(drawn, 1, 2, across=0.5, **margins)
        accuracy = lines(exhibit, numbers, "accuracy", "test")
        low, high = close_up(exhibit, accuracy)
        draw_lines(whole, accuracy, look, banded=set(accuracy))
        draw_lines(
            close, accuracy, look, banded={k for k, x in accuracy.items() if min(x.mean) >= low}
        )
        whole.set_ylim(0, 1)
        close.set_ylim(low, high)
        mark(whole, low, high)
        for axes, title in (
            (whole, "a  Test accuracy (%)"),
            (close, "b  Test accuracy (%), close-up"),
        ):
            axes.set_title(title, loc="left")
            percent(axes)
            along(axes, exhibit, numbers, self.x_label)
        legend(drawn, handles_of(exhibit.measures, look, names), 0.08, rows)
        headings(drawn, exhibit)
        return drawn
