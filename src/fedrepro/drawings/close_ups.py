"""Test accuracy over the whole range, and a close-up of the best methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from fedrepro.drawings.canvas import (
    LETTERS,
    Line,
    cases,
    close_up,
    draw_lines,
    grid_of,
    mark,
    of_case,
    percent,
    sheet,
)
from fedrepro.drawings.draw import Along
from fedrepro.drawings.style import Look, looks
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS_HEIGHT = 4.7  # inches, with a legend of two rows
COLUMNS = {"left": 0.48, "right": 0.12, "top": 0.86, "across": 0.34, "between": 0.42}


class WithCloseUp(Along):
    """A whole range and a close-up: side by side for one scenario, one above the other for cases.

    `height` is that of a figure of one scenario, in inches, with a legend of two rows.
    """

    height: ClassVar[float]
    sides: ClassVar[Mapping[str, float]]

    def draw_pair(
        self,
        exhibit: Exhibit,
        numbers: pd.DataFrame,
        look: Mapping[str, Look],
        whole: Axes,
        close: Axes,
    ) -> None:
        """Draw the whole range and the close-up of one scenario."""
        raise NotImplementedError

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        look, shown = looks(exhibit.measures), cases(numbers)
        drawn, added = sheet(exhibit, look, COLUMNS_HEIGHT if shown else self.height)
        if not shown:
            ((whole, close),) = grid_of(drawn, 1, 2, bottom=0.95 + added, **self.sides)
            self.draw_pair(exhibit, numbers, look, whole, close)
            title_pair(whole, close)
            return drawn
        upper, lower = grid_of(drawn, 2, len(shown), bottom=0.95 + added, **COLUMNS)
        for letter, case, whole, close in zip(LETTERS, shown, upper, lower, strict=False):
            self.draw_pair(exhibit, of_case(numbers, case), look, whole, close)
            whole.set_title(f"{letter}  {case}".replace(", ", "\n    "), loc="left")
            whole.set_xlabel("")
            close.set_title("close-up", loc="left", fontsize=7)
        for axes in (upper[0], lower[0]):
            axes.set_ylabel("test accuracy (%)", labelpad=2)
        return drawn


def title_pair(whole: Axes, close: Axes) -> None:
    """Write the titles of the pair of axes of a single scenario."""
    whole.set_title("a  Test accuracy (%)", loc="left")
    close.set_title("b  Test accuracy (%), close-up", loc="left")


def draw_accuracies(
    whole: Axes,
    close: Axes,
    exhibit: Exhibit,
    accuracy: Mapping[str, Line],
    look: Mapping[str, Look],
    name: str = "b",
) -> None:
    """Draw lines along a sweep on both axes; `name` marks the close-up's range in the whole."""
    low, high = close_up(exhibit, accuracy)
    draw_lines(whole, accuracy, look, banded=set(accuracy))
    # in the close-up a band whose line is mostly outside would only be in the way
    inside = {k for k, x in accuracy.items() if min(x.mean) >= low}
    draw_lines(close, accuracy, look, banded=inside)
    limit_pair(whole, close, (low, high), name)


def limit_pair(whole: Axes, close: Axes, limits: tuple[float, float], name: str = "b") -> None:
    """Set the ranges of both axes, in percent, and mark the close-up in the whole."""
    for axes in (whole, close):
        percent(axes)
    whole.set_ylim(0, 1)
    close.set_ylim(*limits)
    mark(whole, *limits, name)
