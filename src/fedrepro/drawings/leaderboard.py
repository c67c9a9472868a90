"""Draw a leaderboard: methods' scores with intervals and groups, and scores against bytes sent.

`board`, a leaderboard's settings, has a title and three methods: `baseline` (score 0), `ceiling`
(score 1) and `line` (the method to beat). `table` has the rows of its csv.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import offset_copy
from scipy.optimize import isotonic_regression

from fedrepro.drawings import lines_and_layout as layout
from fedrepro.drawings.style import CASES
from fedrepro.numbers.leaderboard import ALL, CLASSES

ROW = 0.15  # inches of a method
MARKS = dict(zip(CLASSES, CASES, strict=False))
BOUND, BEAT = "#222222", "#7F3C8D"  # the ceiling, and the method to beat
LEAST = -1.5  # scores below are out of sight
# behind a name; a halo outlines each letter, in four times the bytes
CLEAR = {"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"}
DOT: dict[str, Any] = {"markersize": 4, "markeredgecolor": "white", "markeredgewidth": 0.5}

Frame = pd.DataFrame


def pictures(board: Mapping[str, Any], table: Frame) -> dict[str, bytes]:
    """Draw the pictures of a leaderboard; return their bytes by suffix, such as .groups.svg."""
    with layout.rules():
        drawn = {"groups": groups(board, table), "bytes": layout.new_figure(1.0)}
        if _families(table):
            drawn["bytes"] = bytes_up(board, table)
        else:
            layout.write_headings(drawn["bytes"], board["title"], "No scenario has a score.")
        return {
            f".{name}{end}": layout.image_of(figure, end, f"{board['title']}: {name}")
            for name, figure in drawn.items()
            for end in (".svg", ".png")
        }


def _axis(board: Mapping[str, Any]) -> str:
    return f"score: 0 is {board['baseline']}, 1 is {board['ceiling']}"


def _families(table: Frame) -> list[tuple[str, dict[str, Frame], Frame]]:
    """Return (starts, {data set: rows}, ranked rows of the last set) for each `starts` of a csv."""
    families = []
    for starts, rows in table.groupby("starts", sort=False):
        by_data = {str(data): own for data, own in rows.groupby("data", sort=False)}
        (*_, last) = by_data.values()
        ranked = last[(last["class"] != "reference") & last["score"].notna()]
        families += [(str(starts), by_data, ranked)] if len(ranked) else []
    return families


def groups(board: Mapping[str, Any], table: Frame) -> Figure:
    """Draw methods' scores with intervals, and groups whose scores do not differ significantly."""
    families = _families(table)
    heights = [ROW * (len(rows) + rows["class"].nunique()) for _, _, rows in families]
    drawn = layout.new_figure(0.75 + sum(height + 0.8 for height in heights))
    top, left, ranks = 0.9, 1.95, 0.5
    ends = table[table["class"] != "reference"][["score_low", "score_high"]].to_numpy(float)
    ends = ends[np.isfinite(ends)]  # one trial has no interval
    # all intervals and both bounds, but nothing below LEAST
    low, high = float(np.nanmin(ends, initial=0.0)), float(np.nanmax(ends, initial=1.0))
    for (starts, columns, order), height in zip(families, heights, strict=True):
        whole = drawn.get_figheight()
        drawn.text(layout.LEFT, 1 - (top - 0.28) / whole, f"clients of {starts}")
        sides = {"left": left, "right": ranks, "across": ranks, "bottom": whole - top - height}
        (row,) = layout.grid_of(drawn, 1, len(columns), top=top, **sides)
        for axes, (data, rows) in zip(row, columns.items(), strict=True):
            _groups_of(axes, order, rows.set_index("method"), named=axes is row[0])
            axes.axvline(0, color=BOUND, linewidth=0.8, zorder=2)
            axes.axvline(1, color=BOUND, linewidth=0.8, linestyle=(0, (7, 2)), zorder=2)
            for score in rows.loc[rows["method"] == board["line"], "score"].dropna():
                axes.axvline(score, color=BEAT, linewidth=1.0, linestyle=(0, (3, 1.5)), zorder=2)
                above: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "ha": "center"}
                axes.text(score, 1.0, board["line"], color=BEAT, fontsize=6.5, va="bottom", **above)
            axes.set_xlim(max(LEAST, low) - 0.06, high + 0.06)
            title = f"all {len(columns) - 1} data sets" if data == ALL else data
            axes.set_title(title, loc="left", fontsize=7.5, pad=11)
        top += height + 0.8
    drawn.text(layout.LEFT, 0.12 / drawn.get_figheight(), _axis(board), color=layout.SOFT)
    below = "95 % intervals of each score by itself. A band: methods not separated from its best. "
    below += "At the right: group, ranks."
    if table["group"].isna().all():
        count = int(table["scenarios"].max())
        below = f"95 % intervals over trials. Scenarios: {count}, too few for groups and ranks."
    layout.write_headings(drawn, f"{board['title']}: groups", below)
    return drawn


def _groups_of(axes: Axes, order: Frame, standings: Frame, *, named: bool) -> None:
    """Draw the scores and intervals of one data set on `axes`, a row for each method."""
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


def bytes_up(board: Mapping[str, Any], table: Frame) -> Figure:
    """Draw methods' scores against bytes that all clients send, with the Pareto front as a line.

    Bytes are in uploads of all clients' models. It draws rows of `table` on all data sets together.
    """
    families = _families(table)
    drawn = layout.new_figure(0.85 + 3.1 * len(families))
    fewest = np.nanmin(table["parameters"].to_numpy(float))
    sides = {"left": 0.55, "right": 0.2, "top": 0.62, "bottom": 0.83, "between": 0.6}
    panels = itertools.chain(*layout.grid_of(drawn, len(families), 1, **sides))
    for axes, (starts, _, rows) in zip(panels, families, strict=True):
        rows = rows[rows["score"] > LEAST]
        rows = rows.assign(points=np.sqrt(22 * np.sqrt(rows["parameters"] / fewest)))
        best = rows.sort_values(["bytes_up", "score"], ascending=[True, False])
        best = best[best["score"] > best["score"].cummax().shift(fill_value=-math.inf)]
        axes.step(best["bytes_up"], best["score"], where="post", color="#9AA0A8", linewidth=1.0)
        for row in rows.to_dict("records"):
            mark = MARKS[str(row["class"])]
            look = DOT | {"markersize": row["points"], "color": mark.colour, "zorder": 4}
            axes.plot(row["bytes_up"], row["score"], mark.marker, **look)
        _names(axes, rows)
        low, high = axes.get_ylim()
        room = (high - low) * float(rows["points"].max()) / (2.5 * 72)  # of a mark at an edge
        scores = rows["score"].astype(float)
        axes.set_ylim(min(low, scores.min() - room), max(high, scores.max() + room))
        axes.set_xscale("log")
        low, high = rows["bytes_up"].min(), rows["bytes_up"].max()
        wide = max(high / low, 2.0)
        axes.set_xlim(low / wide**0.44, high * wide**0.22)
        every = (m * 10**e for e in range(-1, 4) for m in (1, 2, 5))
        ticks = [tick for tick in every if low * 0.8 <= tick <= high * 2]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_title(f"clients of {starts}", loc="left", fontsize=8)
        axes.set_ylabel(_axis(board))
    axes.set_xlabel("bytes that clients send, as multiples of their models")
    handles = [
        Line2D([], [], linestyle="", marker=look.marker, color=look.colour, label=kind)
        for kind, look in MARKS.items()
        if kind != "reference" and (table["class"] == kind).any()
    ]
    drawn.legend(handles=handles, loc="lower center", ncols=len(handles), bbox_to_anchor=(0.5, 0.0))
    below = "Marks: by class; their size: parameters of what predicts. Line: the frontier."
    layout.write_headings(drawn, f"{board['title']}: accuracy and bytes", below)
    return drawn


def _names(axes: Axes, own: Frame) -> None:
    """Write the methods' names next to their marks, without overlap."""
    gap = 0.062 * max(0.5, float(own["score"].max() - own["score"].min()))
    # values within a fifth of each other share a column of names
    ordered = own["bytes_up"].sort_values()
    columns = (ordered > 1.2 * ordered.shift()).cumsum()
    rows = own.assign(column=columns).sort_values("score", ascending=False)
    for column, of_column in rows.groupby("column"):
        heights = spread(of_column["score"].to_numpy(float), gap)
        # names of the first column have the room to the left of it
        ends, shift = of_column["bytes_up"], 2.5 + 0.7 * of_column["points"].max()
        side, end, shift = ("left", ends.max(), shift) if column else ("right", ends.min(), -shift)
        moved = offset_copy(axes.transData, axes.get_figure(root=True), x=shift, units="points")
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, heights[-1] - gap), max(high, heights[0] + gap))
        for row, height in zip(of_column.to_dict("records"), heights, strict=True):
            line = {"arrowstyle": "-", "color": "#B5BAC2", "linewidth": 0.5, "shrinkA": 0}
            line["shrinkB"] = 0.7 * row["points"]
            look: dict[str, Any] = {"ha": side, "va": "center", "fontsize": 6.5, "bbox": CLEAR}
            look |= {"arrowprops": line, "zorder": 5}
            at = (row["bytes_up"], row["score"])
            axes.annotate(str(row["method"]), at, (end, height), textcoords=moved, **look)


def spread(heights: np.ndarray, gap: float) -> np.ndarray:
    """Return label `heights` (highest first), shifted just enough to be `gap` or more apart."""
    below = gap * np.arange(len(heights))
    return np.asarray(isotonic_regression(heights + below, increasing=False).x) - below
