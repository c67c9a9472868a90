"""Draw the hyper-parameters that an adaptive method uses in each round, and its reward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedrepro.core.metrics import metrics_of
from fedrepro.drawings import canvas
from fedrepro.drawings.style import CASES, LineStyle
from fedrepro.planning.figure_interface import ROUND, Planned, drawing, nothing_shown, select_series
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# what a method that adapts its hyper-parameters reports of single rounds
ADAPTED = ("mean_lr", "mean_steps", "sampled_lr", "sampled_steps", "reward")
HEIGHT = 2.9  # inches, with a legend of one row
MARKERS = 7


@dataclass(frozen=True)
class Followed:
    """Contents of one panel: `metric` drawn as a line, and `dots`, a second metric (empty: none).

    `grid` names the parameter of the method whose values become the ticks of the vertical axis.
    """

    title: str
    metric: str
    dots: str = ""
    grid: str = ""
    log: bool = False


FOLLOWED = (
    Followed("a  Learning rate", "mean_lr", "sampled_lr", "lrs", log=True),
    Followed("b  Steps a round", "mean_steps", "sampled_steps", "step_counts"),
    Followed("c  Reward", "reward"),
)


@drawing("hyper-parameters")
class HyperParameters(canvas.Along):
    """A figure of an adaptive method's hyper-parameters against rounds, and of its reward.

    It has three panels (learning rate, local steps, reward) with a line for each compared scenario:
    means over trials in a band of one standard deviation. Dots are values drawn in single trials.
    """

    by_rounds: ClassVar[bool] = True

    def reasons(self, shown: Planned) -> Iterator[str]:
        if len(shown.measures) != 1:
            yield f"the hyper-parameters of one method are drawn, not of {len(shown.measures)}"
        for measure in shown.measures:
            if not set(ADAPTED) <= set(metrics_of(measure.spec)):
                yield (
                    f"the hyper-parameters that '{measure.spec.name}' chooses are not known: it "
                    f"does not report {', '.join(ADAPTED)}"
                )
        if shown.cases != len(shown.points):
            yield (
                "it has a line for each of its cases and sweeps nothing else, but it has "
                f"{shown.cases} cases and {len(shown.points)} points"
            )
        yield from nothing_shown(shown)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        from matplotlib.lines import Line2D

        rounds = numbers[numbers[ROUND].notna()]
        names = canvas.cases(numbers)
        look = dict(zip(names, CASES, strict=False))
        rows = canvas.legend_rows(names) - 1
        added = canvas.LEGEND_ROW * (rows - 1)
        figure = canvas.new_figure(HEIGHT + added)
        margins = {"left": 0.45, "right": 0.12, "top": 0.72, "bottom": 0.75 + added}
        (panels,) = canvas.grid_of(figure, 1, len(FOLLOWED), across=0.5, **margins)
        for axes, followed in zip(panels, FOLLOWED, strict=True):
            axes.set_xlabel(self.x_label or "communication rounds")
            _draw(
                axes,
                followed,
                exhibit,
                {case: canvas.of_case(rounds, case) for case in names},
                look,
            )
        handles = [Line2D([], [], label=case, **case_look.line) for case, case_look in look.items()]
        canvas.legend(figure, list(handles), 0.08, rows)
        canvas.headings(figure, exhibit)
        return figure


def _draw(
    axes: Axes,
    followed: Followed,
    exhibit: Exhibit,
    numbers: Mapping[str, pd.DataFrame],
    look: Mapping[str, LineStyle],
) -> None:
    """Draw the panel `followed` into `axes`: dots of single trials, and above them lines of means.

    `numbers` has each scenario's rows of single rounds by its label, `look` its line style.
    """
    from matplotlib.ticker import MaxNLocator, NullLocator

    lines: dict[str, canvas.Line] = {}
    for case, case_rows in numbers.items():
        measured = select_series(case_rows, followed.metric, "")
        lines[case] = canvas.line_of(measured, measured[ROUND].astype(float).tolist())
        if followed.dots:
            x, y = dots_of(select_series(case_rows, followed.dots, ""))
            axes.scatter(x, y, s=3, color=look[case].colour, alpha=0.3, linewidths=0, zorder=1)
    canvas.draw_lines(axes, lines, look, banded=set(lines), markers=MARKERS)
    axes.set_title(followed.title, loc="left")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
    if followed.log:
        axes.set_yscale("log")
    if followed.grid:
        grids = (measure.spec[followed.grid] for p in exhibit.points for measure in p.measures)
        values = sorted({float(value) for grid in grids for value in grid})
        axes.set_yticks(values, [f"{value:g}" for value in values])
        axes.yaxis.set_minor_locator(NullLocator())


def dots_of(rows: pd.DataFrame) -> tuple[list[float], list[float]]:
    """Return x and y of a dot for each trial in each round of `rows`: the round, the value."""
    pairs = [
        (float(done), float(value))
        for done, values in zip(rows[ROUND], rows["by_trial"], strict=True)
        for value in str(values).split()
    ]
    return [x for x, _ in pairs], [y for _, y in pairs]
