"""The picture of a leaderboard: scores with intervals, groups and ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
DOT: dict[str, Any] = {"markersize": 4, "markeredgecolor": "white", "markeredgewidth": 0.5}

Frame = pd.DataFrame


def pictures(board: Mapping[str, Any], table: Frame) -> dict[str, bytes]:
    """Draw the picture of a leaderboard; return its bytes by suffix, .groups.svg and .groups.png.

    `board` has its settings (`title`, `baseline`, `ceiling`, `line`), `table` its csv.
    """
    with rules():
        drawn, title = groups(board, table), f"{board['title']}: groups"
        return {f".groups{end}": image_of(drawn, end, title) for end in (".svg", ".png")}


def _by_data(table: Frame, starts: str) -> dict[str, Frame]:
    """Return the leaderboard rows of clients that start as `starts` says, by data set.

    All data sets together, or the only data set, come last.
    """
    rows = table[table["starts"] == starts]
    return {str(data): own for data, own in rows.groupby("data", sort=False)}


def _ranked(table: Frame, starts: str) -> Frame:
    """Return the methods' rows over all data sets for one start of the clients, in order."""
    rows = [*_by_data(table, starts).values()][-1]
    return rows[(rows["class"] != "reference") & rows["score"].notna()]


def groups(board: Mapping[str, Any], table: Frame) -> Figure:
    """Draw the methods' scores with 95 % intervals, groups and ranks, a column for each data set.

    `board` has the leaderboard's settings, and `table` is its csv.
    """
    present = [starts for starts in STARTS if (table["starts"] == starts).any()]
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
    axis = f"score: 0 is {board['baseline']}, 1 is {board['ceiling']}"
    drawn.text(LEFT, 0.12 / drawn.get_figheight(), axis, color=SOFT)
    below = (
        "95 % intervals of each score by itself. Bands: a group, not told apart from its best. "
        "At the right: group, ranks."
    )
    write_headings(drawn, f"{board['title']}: groups", below)
    return drawn


def _axes(drawn: Figure, left: float, right: float, top: float, height: float) -> Axes:
    """Add axes to a figure at these inches from its left, right and top edges, and return them."""
    whole, wide = drawn.get_figheight(), WIDTH - left - right
    return drawn.add_axes((left / WIDTH, 1 - (top + height) / whole, wide / WIDTH, height / whole))


def _groups_of(axes: Axes, order: Frame, standings: Frame, *, named: bool) -> None:
    """Draw the scores and intervals of one data set, a row for each method.

    `order` has the methods from top to bottom, and `standings` the data set's rows by method;
    `named` also writes the methods' names at the left.
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
    """Write a method's group and ranks, such as "2, 3–5"; "" where methods are not compared."""
    if standing["group"] != standing["group"]:
        return ""
    low, high = int(standing["rank_low"]), int(standing["rank_high"])
    ranks = f"{low}" if low == high else f"{low}–{high}"
    return f"{int(standing['group'])}, {ranks}"


def _lines(axes: Axes, board: Mapping[str, Any], rows: Frame) -> None:
    """Draw lines at the scores of the baseline (0), the ceiling (1), and the method to beat."""
    axes.axvline(0, color=BOUND, linewidth=0.8, zorder=2)
    axes.axvline(1, color=BOUND, linewidth=0.8, linestyle=(0, (7, 2)), zorder=2)
    line = rows[(rows["method"] == board["line"]) & rows["score"].notna()]
    if len(line):
        score = float(line["score"].iloc[0])
        axes.axvline(score, color=BEAT, linewidth=1.0, linestyle=(0, (3, 1.5)), zorder=2)
        where: dict[str, Any] = {"ha": "center", "va": "bottom", "color": BEAT, "fontsize": 6.5}
        axes.text(score, 1.0, board["line"], transform=axes.get_xaxis_transform(), **where)
