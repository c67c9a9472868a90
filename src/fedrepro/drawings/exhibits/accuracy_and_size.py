"""Drawing accuracy-and-size: test accuracy, a close-up of it, and size, against the sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from fedrepro.drawings.canvas import (
    SOFT,
    WIDTH,
    Axis,
    Line,
    along,
    axis_of,
    draw_lines,
    grid_of,
    lines,
    sheet,
    size_lines,
)
from fedrepro.drawings.close_ups import draw_accuracies, title_pair
from fedrepro.drawings.draw import Along
from fedrepro.drawings.style import Look, looks
from fedrepro.drawings.words import wrapped
from fedrepro.planning.drawing import Planned, drawing, one_scenario
from fedrepro.planning.plan import Exhibit, Measure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 3.5  # inches, with a legend of two rows
SIDES = {"left": 0.42, "right": 0.385, "top": 0.6125, "across": 0.51625}
NOTE_ROW = 0.14  # inches that each further line of the note at the foot takes
NOTE = 7  # points
Group = tuple[list[Measure], Line]


@drawing("accuracy-and-size")
class AccuracyAndSize(Along):
    """Test accuracy (whole range, and a close-up of the best) and size against the sweep."""

    shows_pairs: ClassVar[bool] = True

    def reasons(self, shown: Planned) -> Iterator[str]:
        yield from one_scenario(shown)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        look, axis = looks(exhibit.measures), axis_of(exhibit)
        groups = groups_of(exhibit, numbers)
        note = wrapped(shared_lines(groups, axis), NOTE, WIDTH - 0.2)
        more = NOTE_ROW * max(0, len(note) - 1)
        drawn, added = sheet(exhibit, look, HEIGHT + more, 0.175 + more)
        ((whole, close, size),) = grid_of(drawn, 1, 3, bottom=1.0675 + added + more, **SIDES)
        draw_accuracies(whole, close, exhibit, lines(exhibit, numbers, "accuracy", "test"), look)
        title_pair(whole, close)
        _draw_sizes(size, groups, axis, look)
        size.set_title(f"c  {exhibit.size.title}, global model", loc="left")
        for axes in (whole, close, size):
            along(axes, exhibit, numbers, self.x_label)
        foot = (0.105 + more / 2) / drawn.get_figheight()
        middle: dict[str, Any] = {"ha": "center", "va": "center"}
        drawn.text(0.5, foot, "\n".join(note), fontsize=NOTE, color=SOFT, **middle)
        return drawn


def groups_of(exhibit: Exhibit, numbers: pd.DataFrame) -> list[Group]:
    """Group the methods of one size, which share a line; matching methods have their own."""
    matching = set(numbers.loc[numbers["metric"] == "matched_share", "method"])
    return size_groups(exhibit.measures, size_lines(exhibit, numbers), matching)


def shared_lines(groups: Sequence[Group], axis: Axis) -> str:
    """Write the sentence that says which methods share a line; empty if none do."""
    parts = [
        f"{size_name(line, axis)}: {', '.join(m.label for m in members)}"
        for members, line in groups
        if len(members) > 1
    ]
    return f"Shared lines in c. {'; '.join(parts)}." if parts else ""


def _draw_sizes(axes: Axes, groups: Sequence[Group], axis: Axis, look: Mapping[str, Look]) -> None:
    for members, line in groups:
        draw_lines(axes, {members[0].label: line}, look, banded=[members[0].label])
        if len(members) > 1:
            axes.annotate(
                size_name(line, axis),
                (1.0, line.mean[-1]),
                (3, 0),
                xycoords=axes.get_yaxis_transform(),
                textcoords="offset points",
                va="center",
                annotation_clip=False,
            )
    axes.set_ylim(bottom=0)


def size_groups(
    measures: tuple[Measure, ...], sizes: Mapping[str, Line], matching: set[str]
) -> list[Group]:
    """Group methods that are equally large everywhere, with their size.

    A method that matches units keeps its own line: that its size equals another's is a result.
    References come first in their group, since they are bounds. A size of zero has no line.
    """
    groups: list[Group] = []
    for measure in sorted(measures, key=lambda m: not m.reference):
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
    """Write a shared size: `500`, or `50·J` where it grows with the clients."""
    if len(set(line.mean)) == 1:
        return f"{line.mean[0]:g}"
    if not all(line.x):
        return "same"
    ratios = {m / x for m, x in zip(line.mean, line.x, strict=True)}
    return f"{ratios.pop():g}·{axis.symbol}" if len(ratios) == 1 else "same"
