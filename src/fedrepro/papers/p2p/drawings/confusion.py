"""Drawing confusion: which classes a node takes for which, a map for each method of an exhibit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedrepro.core.errors import FedreproError
from fedrepro.drawings.canvas import final, grid_of, headings, new_figure
from fedrepro.drawings.panels import LETTERS
from fedrepro.drawings.style import SHARES
from fedrepro.numbers.confusion import CONFUSION
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES = re.compile(r"(\d+) as (\d+)")
HEIGHT = 3.9  # inches, with two maps
LEAST = 0.005  # shares above it are written: half a percent
DARK = 0.5  # shares from which letters are white


def confusion(exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
    """Maps side by side: classes down, what they are taken for across, shares in percent."""
    drawn = new_figure(HEIGHT)
    margins = {"left": 0.45, "right": 0.12, "top": 0.78, "bottom": 0.42}
    (panels,) = grid_of(drawn, 1, len(exhibit.measures), across=0.45, **margins)
    for at, (axes, measure) in enumerate(zip(panels, exhibit.measures, strict=True)):
        _draw(axes, map_of(numbers, measure.label, exhibit.key))
        axes.set_title(f"{LETTERS[at]}  {measure.label}", loc="left")
    panels[0].set_ylabel("class")
    headings(drawn, exhibit)
    return drawn


def map_of(numbers: pd.DataFrame, label: str, where: str) -> np.ndarray:
    """Mean shares by class and predicted class, (K, K); groups are left to the csv."""
    rows = final(numbers)
    rows = rows[(rows["method"] == label) & (rows["metric"] == CONFUSION)]
    found = {}
    for split, mean in zip(rows["split"], rows["mean"], strict=True):
        pair = CLASSES.fullmatch(split)
        if pair:
            found[int(pair[1]), int(pair[2])] = float(mean)
    if not found:
        raise FedreproError(f"{where}: there is nothing of what '{label}' confuses")
    classes = 1 + max(label for label, _ in found)
    return np.array([[found[i, j] for j in range(classes)] for i in range(classes)])


def _draw(axes: Axes, shares: np.ndarray) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("shares", SHARES)
    axes.imshow(shares, cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for (row, column), share in np.ndenumerate(shares):
        if share > LEAST + 1e-9:
            colour = "white" if share > DARK else "black"
            text = f"{100 * share:.0f}"
            axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=7)
    classes = range(len(shares))
    axes.set_xticks(list(classes), [str(label) for label in classes])
    axes.set_yticks(list(classes), [str(label) for label in classes])
    axes.set_xlabel("taken for class, % of those of a class")
    axes.grid(visible=False)
    axes.tick_params(length=0)


DRAWINGS = {"confusion": confusion}
