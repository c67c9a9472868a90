"""Drawings of test accuracy alone against the sweep, with a close-up of the best.

accuracy-panels has a column for each case, accuracy-close-up one scenario side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from fedrepro.drawings.canvas import along, lines
from fedrepro.drawings.close_ups import WithCloseUp, draw_accuracies
from fedrepro.drawings.style import Look
from fedrepro.planning.drawing import PANELS, Planned, drawing, one_line_each, one_scenario
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@drawing("accuracy-close-up")
class AccuracyCloseUp(WithCloseUp):
    """Test accuracy against the sweep on the left, a close-up of the best on the right."""

    height: ClassVar[float] = 3.1
    sides: ClassVar[Mapping[str, float]] = {"left": 0.48, "right": 0.12, "top": 0.66, "across": 0.5}
    marked: ClassVar[str] = "b"

    def reasons(self, shown: Planned) -> Iterator[str]:
        yield from one_scenario(shown)

    def draw_pair(
        self,
        exhibit: Exhibit,
        numbers: pd.DataFrame,
        look: Mapping[str, Look],
        whole: Axes,
        close: Axes,
    ) -> None:
        accuracy = lines(exhibit, numbers, "accuracy", "test")
        draw_accuracies(whole, close, exhibit, accuracy, look, self.marked)
        for axes in (whole, close):
            along(axes, exhibit, numbers, self.x_label)


@drawing("accuracy-panels")
class AccuracyPanels(AccuracyCloseUp):
    """Test accuracy against the sweep, and below it a close-up; a column of both for each case."""

    shows_pairs: ClassVar[bool] = True
    marked: ClassVar[str] = ""

    def reasons(self, shown: Planned) -> Iterator[str]:
        if not 1 <= shown.cases <= PANELS:
            yield f"it has a panel for each of its cases, 1 to {PANELS} of them, not {shown.cases}"
        yield from one_line_each(shown)
