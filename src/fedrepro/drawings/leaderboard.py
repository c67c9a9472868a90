"""Draw a leaderboard: methods' scores with intervals and groups, and scores against bytes sent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedrepro.drawings.canvas import LEFT, SOFT, WIDTH, image_of, new_figure, rules, write_headings
from fedrepro.drawings.style import CASES
from fedrepro.numbers.leaderboard import ALL, CLASSES, STARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 0.15  # inches of a method
MARKS = dict(zip(CLASSES, CASES, strict=False))
BOUND, BEAT = "#222222", "#7F3C8D"  # the ceiling, and the method to beat
LEAST = -1.5  # scores below are out of sight
# behind a name; a halo outlines each letter, in four times the bytes
CLEAR = {"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"}
DOT: dict[str, Any] = {"markersize": 4, "markeredgecolor": "white", "markeredgewidth": 0.5}

Frame = pd.DataFrame


def pictures(board: Mapping[str, Any], table: Frame) -> dict[str, bytes]:
    """Draw the pictures of a leaderboard; return their bytes by suffix, such as .groups.svg.

    `board` has the leaderboard's title and three methods: `baseline` (score 0), `ceiling` (score 1)
    and `line` (the method to beat). `table` is its csv.
    """
    images = {}
    with rules():
        for name, drawn in (("groups", groups(board, table)), ("bytes", bytes_up(board, table))):
            for end in (".svg", ".png"):
                images[f".{name}{end}"] = image_of(drawn, end, f"{board['title']}: {name}")
    return images


def _starts(table: Frame) -> list[str]:
    return [starts for starts in STARTS if (table["starts"] == starts).any()]


def _axis(board: Mapping[str, Any]) -> str:
    return f"score: 0 is {board['baseline']}, 1 is {board['ceiling']}"


def _by_data(table: Frame, starts: str) -> dict[str, Frame]:
    """Return {data set: leaderboard rows} for one start of clients; "all", if there, is last."""
    rows = table[table["starts"] == starts]
    return {str(data): own for data, own in rows.groupby("data", sort=False)}


def _ranked(table: Frame, starts: str) -> Frame:
    """Return the rows over all data sets of methods with a score, without bounds (references)."""
    rows = [*_by_data(table, starts).values()][-1]
    return rows[(rows["class"] != "reference") & rows["score"].notna()]


def groups(board: Mapping[str, Any], table: Frame) -> Figure:
    """Draw the methods' scores with 95 % intervals, groups and ranks, a column for each data set.

    Methods of one group are those that a test does not separate from its best. `board` has the
    title and names of `baseline`, `ceiling` and `line` (the method to beat), `table` is the csv.
    """
    present = _starts(table)
    families = [(starts, _ranked(table, starts)) for starts in present]
    heights = [ROW * (len(rows) + rows["class"].nunique()) for _, rows in families]
    drawn = new_figure(0.75 + sum(height + 0.8 for height in heights))
    top, left, beside = 0.9, 1.95, 0.5
    ends = table[table["class"] != "reference"][["score_low", "score_high"]].to_numpy(float)
    # all intervals and both bounds, but nothing below LEAST
    low, high = float(np.nanmin(ends, initial=0.0)), float(np.nanmax(ends, initial=1.0))
    for (starts, order), height in zip(families, heights, strict=True):
        columns = _by_data(table, starts)
        wide = (WIDTH - left) / len(columns)
        drawn.text(LEFT, 1 - (top - 0.28) / drawn.get_figheight(), f"clients of {starts}")
        for at, (data, rows) in enumerate(columns.items()):
            axes = _axes(
                drawn, left + at * wide, WIDTH - left - (at + 1) * wide + beside, top, height
            )
            _groups_of(axes, order, rows.set_index("method"), named=at == 0)
            _lines(axes, board, rows)
            axes.set_xlim(max(LEAST, low) - 0.06, high + 0.06)
            title = f"all {len(columns) - 1} data sets" if data == ALL else data
            axes.set_title(title, loc="left", fontsize=7.5, pad=11)
        top += height + 0.8
    axis = _axis(board)
    drawn.text(LEFT, 0.12 / drawn.get_figheight(), axis, color=SOFT)
    below = (
        "95 % intervals of each score by itself. Bands: a group, not told apart from its best. "
        "At the right: group, ranks."
    )
    if table["group"].isna().all():
        count = int(table["scenarios"].max())
        below = f"95 % intervals over trials. Scenarios: {count}, too few for groups and ranks."
    write_headings(drawn, f"{board['title']}: groups", below)
    return drawn


def _axes(drawn: Figure, left: float, right: float, top: float, height: float) -> Axes:
    """Add axes, `height` inches high and at these inches from a figure's edges; return them."""
    whole, wide = drawn.get_figheight(), WIDTH - left - right
    return drawn.add_axes((left / WIDTH, 1 - (top + height) / whole, wide / WIDTH, height / whole))


def _groups_of(axes: Axes, order: Frame, standings: Frame, *, named: bool) -> None:
    """Draw the scores and intervals of one data set on `axes`, a row for each method.

    `order` has the methods from top to bottom, and `standings` the data set's rows of the
    leaderboard, by method. If `named`, the methods' names are written at the left.
    """
    at, ticks = 0.0, []
    beside, room = axes.get_yaxis_transform(), 0.0033 / axes.get_position().width
    for kind, rows in order.groupby("class", sort=False):
        look = MARKS[str(kind)]
        heading: dict[str, Any] = {"ha": "right", "fontsize": 7.5, "fontweight": "bold"}
        heading |= {"color": look.colour, "transform": beside, "va": "center"}
        if named:
            axes.text(-room, at, str(kind), **heading)
        at += 1
        for method in rows["method"]:
            ticks.append((at, str(method) if named else ""))
            row: Any = standings.loc[method] if method in standings.index else {"score": math.nan}
            if row["score"] == row["score"]:
                if row["group"] == row["group"] and int(row["group"]) % 2 == 1:
                    axes.axhspan(at - 0.5, at + 0.5, color=look.colour, alpha=0.09, linewidth=0)
                ends = [row["score_low"], row["score_high"]]
                axes.plot(ends, [at, at], color=look.colour, linewidth=1.6, zorder=3)
                axes.plot(row["score"], at, look.marker, color=look.colour, zorder=4, **DOT)
                axes.text(1 + room, at, _place(row), transform=beside, va="center", fontsize=6)
            at += 1
    axes.set_yticks([y for y, _ in ticks], [name for _, name in ticks])
    axes.set_ylim(at - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def _place(standing: pd.Series) -> str:
    """Return a method's group and range of ranks as text, such as "2, 3–5"; "" without a group."""
    if standing["group"] != standing["group"]:
        return ""
    low, high = int(standing["rank_low"]), int(standing["rank_high"])
    ranks = f"{low}" if low == high else f"{low}–{high}"
    return f"{int(standing['group'])}, {ranks}"


def _lines(axes: Axes, board: Mapping[str, Any], rows: Frame) -> None:
    """Draw vertical lines at the scores of baseline (0), ceiling (1), and the method to beat."""
    axes.axvline(0, color=BOUND, linewidth=0.8, zorder=2)
    axes.axvline(1, color=BOUND, linewidth=0.8, linestyle=(0, (7, 2)), zorder=2)
    line = rows[(rows["method"] == board["line"]) & rows["score"].notna()]
    if len(line):
        score = float(line["score"].iloc[0])
        axes.axvline(score, color=BEAT, linewidth=1.0, linestyle=(0, (3, 1.5)), zorder=2)
        where: dict[str, Any] = {"ha": "center", "va": "bottom", "color": BEAT, "fontsize": 6.5}
        axes.text(score, 1.0, board["line"], transform=axes.get_xaxis_transform(), **where)


def bytes_up(board: Mapping[str, Any], table: Frame) -> Figure:
    """Draw the methods' scores against the bytes that clients send, with the Pareto frontier.

    `board` has the title and names of the methods `baseline` and `ceiling`, `table` is the csv.
    """
    from matplotlib.lines import Line2D

    families = _starts(table)
    drawn = new_figure(0.85 + 3.1 * len(families))
    axis = _axis(board)
    fewest = np.nanmin(table["parameters"].to_numpy(float))
    for at, starts in enumerate(families):
        axes = _axes(drawn, 0.55, 0.2, 0.62 + 3.1 * at, 2.5)
        rows = _ranked(table, starts)
        rows = rows[rows["score"] > LEAST]
        rows = rows.assign(points=np.sqrt(22 * np.sqrt(rows["parameters"] / fewest)))
        best = rows.sort_values(["bytes_up", "score"], ascending=[True, False])
        best = best[best["score"] > best["score"].cummax().shift(fill_value=-math.inf)]
        axes.step(best["bytes_up"], best["score"], where="post", color="#9AA0A8", linewidth=1.0)
        for row in rows.to_dict("records"):
            look, size = MARKS[str(row["class"])], {"markersize": row["points"]}
            axes.plot(
                row["bytes_up"],
                row["score"],
                look.marker,
                color=look.colour,
                zorder=4,
                **DOT | size,
            )
        _names(axes, rows)
        low, high = axes.get_ylim()
        room = (high - low) * float(rows["points"].max()) / (2.5 * 72)  # of a mark at an edge
        scores = rows["score"].astype(float)
        axes.set_ylim(min(low, scores.min() - room), max(high, scores.max() + room))
        axes.set_xscale("log")
        low, high = float(rows["bytes_up"].min()), float(rows["bytes_up"].max())
        wide = max(high / low, 2.0)
        axes.set_xlim(low / wide**0.44, high * wide**0.22)
        every = (m * 10**e for e in range(-1, 4) for m in (1, 2, 5))
        ticks = [tick for tick in every if low * 0.8 <= tick <= high * 2]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_title(f"clients of {starts}", loc="left", fontsize=8)
        axes.set_ylabel(axis)
    axes.set_xlabel("bytes that clients send, as multiples of their models")
    handles = [
        Line2D([], [], linestyle="", marker=look.marker, color=look.colour, label=kind)
        for kind, look in MARKS.items()
        if kind != "reference" and (table["class"] == kind).any()
    ]
    drawn.legend(handles=handles, loc="lower center", ncols=len(handles), bbox_to_anchor=(0.5, 0.0))
    below = "Marks: by class; their size: parameters of what predicts. Line: the frontier."
    write_headings(drawn, f"{board['title']}: accuracy and bytes", below)
    return drawn


def _names(axes: Axes, own: Frame) -> None:
    """Write the methods' names next to their marks, without overlap.

    `own` has a row for each method: its score, the bytes sent, and the mark's size in `points`.
    Names of methods that send about equally many bytes are in one column.
    """
    from matplotlib.transforms import offset_copy

    gap = 0.062 * max(0.5, float(own["score"].max() - own["score"].min()))
    rows = own.sort_values("score", ascending=False)
    # values within a fifth of each other share a column of names
    ordered = sorted(set(rows["bytes_up"].tolist()))
    starts = [v for at, v in enumerate(ordered) if at == 0 or v > 1.2 * ordered[at - 1]]
    places = [sum(value >= start for start in starts) - 1 for value in rows["bytes_up"]]
    for column in range(max(places, default=-1) + 1):
        column_rows = rows[[place == column for place in places]].to_dict("records")
        heights = spread([float(row["score"]) for row in column_rows], gap)
        # names of the first column have the room to the left of it
        ends = [float(row["bytes_up"]) for row in column_rows]
        aside = 2.5 + 0.7 * max(float(row["points"]) for row in column_rows)
        side, end, aside = ("left", max(ends), aside) if column else ("right", min(ends), -aside)
        moved = offset_copy(axes.transData, axes.get_figure(root=True), x=aside, units="points")
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, heights[-1] - gap), max(high, heights[0] + gap))
        for row, height in zip(column_rows, heights, strict=True):
            line: dict[str, Any] = {"arrowstyle": "-", "color": "#B5BAC2", "linewidth": 0.5}
            line |= {"shrinkA": 0, "shrinkB": 0.7 * row["points"]}
            look: dict[str, Any] = {"arrowprops": line, "zorder": 5}
            look |= {"ha": side, "va": "center", "fontsize": 6.5, "bbox": CLEAR}
            at = (row["bytes_up"], row["score"])
            axes.annotate(str(row["method"]), at, (end, height), textcoords=moved, **look)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Return the `heights` of labels, moved at least `gap` apart by as little as possible.

    `heights` go from the highest down. Labels that would touch are stacked around their mean.
    """

    def end(block: Sequence[float], side: int) -> float:
        return sum(block) / len(block) + side * (gap * (len(block) - 1) / 2)

    blocks: list[list[float]] = []
    for height in heights:
        blocks.append([height])
        while len(blocks) > 1 and end(blocks[-2], -1) - gap < end(blocks[-1], 1):
            last = blocks.pop()
            blocks[-1] = blocks[-1] + last
    return [end(block, 1) - gap * at for block in blocks for at in range(len(block))]
