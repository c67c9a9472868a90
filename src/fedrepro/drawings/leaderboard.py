"""Draw a leaderboard: methods' scores with intervals and groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedrepro.drawings import figure_layout as layout
from fedrepro.drawings.figure_layout import LEFT, SOFT
from fedrepro.drawings.style import CASES
from fedrepro.numbers.leaderboard import ALL, CLASSES

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
    """Draw a leaderboard from its csv `table`; return .groups.svg and .groups.png as bytes.

    `board` has the leaderboard's title and three methods: `baseline` (score 0), `ceiling` (score 1)
    and `line` (the method to beat).
    """
    with layout.rules():
        figure, title = groups(board, table), f"{board['title']}: groups"
        return {f".groups{end}": layout.image_of(figure, end, title) for end in (".svg", ".png")}


def groups(board: Mapping[str, Any], table: Frame) -> Figure:
    """Draw the methods' scores with 95 % intervals, groups and ranks, a column for each data set.

    A group is its best method and those that paired t-tests do not separate from it. Bounds such as
    pooled training (class reference) and methods without a score have no rank.
    """
    families = []  # clients of one start, and of different ones
    for starts, family in table.groupby("starts", sort=False):
        columns = {str(data): own for data, own in family.groupby("data", sort=False)}
        (*_, last) = columns.values()  # all data sets together, if there are several
        order = last[(last["class"] != "reference") & last["score"].notna()]
        height = ROW * (len(order) + order["class"].nunique())
        families.append((starts, columns, order, height))
    drawn = layout.new_figure(0.75 + sum(height + 0.8 for *_, height in families))
    top, left, ranks = 0.9, 1.95, 0.5
    ends = table[table["class"] != "reference"][["score_low", "score_high"]].to_numpy(float)
    # all intervals and both bounds, but nothing below LEAST
    low, high = float(np.nanmin(ends, initial=0.0)), float(np.nanmax(ends, initial=1.0))
    for starts, columns, order, height in families:
        whole = drawn.get_figheight()
        drawn.text(LEFT, 1 - (top - 0.28) / whole, f"clients of {starts}")
        sides = {"left": left, "right": ranks, "across": ranks, "bottom": whole - top - height}
        (row,) = layout.grid_of(drawn, 1, len(columns), top=top, **sides)
        for axes, (data, rows) in zip(row, columns.items(), strict=True):
            _groups_of(axes, order, rows.set_index("method"), named=axes is row[0])
            axes.axvline(0, color=BOUND, linewidth=0.8, zorder=2)
            axes.axvline(1, color=BOUND, linewidth=0.8, linestyle=(0, (7, 2)), zorder=2)
            for score in rows.loc[rows["method"] == board["line"], "score"].dropna():
                axes.axvline(score, color=BEAT, linewidth=1.0, linestyle=(0, (3, 1.5)), zorder=2)
                look: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 6.5}
                look |= {"color": BEAT, "transform": axes.get_xaxis_transform()}
                axes.text(score, 1.0, board["line"], **look)
            axes.set_xlim(max(LEAST, low) - 0.06, high + 0.06)
            title = f"all {len(columns) - 1} data sets" if data == ALL else data
            axes.set_title(title, loc="left", fontsize=7.5, pad=11)
        top += height + 0.8
    scale = f"score: 0 is {board['baseline']}, 1 is {board['ceiling']}"
    drawn.text(LEFT, 0.12 / drawn.get_figheight(), scale, color=SOFT)
    below = (
        "95 % intervals of each score by itself. Bands: a group, not told apart from its best. "
        "At the right: group, ranks."
    )
    if table["group"].isna().all():
        count = int(table["scenarios"].max())
        below = f"95 % intervals over trials. Scenarios: {count}, too few for groups and ranks."
    layout.write_headings(drawn, f"{board['title']}: groups", below)
    return drawn


def _groups_of(axes: Axes, order: Frame, standings: Frame, *, named: bool) -> None:
    """Draw the scores and intervals of one data set on `axes`, a row for each method.

    `order` has the methods from top to bottom, and `standings` the data set's rows of the
    leaderboard, by method. If `named`, the methods' names are written at the left.
    """
    at, ticks = 0, {}
    room = 0.0033 / axes.get_position().width
    centred: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
    for kind, rows in order.groupby("class", sort=False):
        look = MARKS[str(kind)]
        if named:
            heading = centred | {"ha": "right", "fontsize": 7.5, "fontweight": "bold"}
            axes.text(-room, at, str(kind), color=look.colour, **heading)
        at += 1
        for method, row in standings.reindex(rows["method"]).iterrows():
            ticks[at] = str(method) if named else ""
            if row["score"] == row["score"]:
                if row["group"] % 2 == 1:
                    axes.axhspan(at - 0.5, at + 0.5, color=look.colour, alpha=0.09, linewidth=0)
                ends = [row["score_low"], row["score_high"]]
                axes.plot(ends, [at, at], color=look.colour, linewidth=1.6, zorder=3)
                axes.plot(row["score"], at, look.marker, color=look.colour, zorder=4, **DOT)
                if row["group"] == row["group"]:  # such as "2, 3–5"
                    ranks = dict.fromkeys(f"{row[name]:.0f}" for name in ("rank_low", "rank_high"))
                    place = f"{row['group']:.0f}, {'–'.join(ranks)}"
                    axes.text(1 + room, at, place, fontsize=6, **centred)
            at += 1
    axes.set_yticks([*ticks], [*ticks.values()])
    axes.set_ylim(at - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
