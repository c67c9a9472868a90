"""Figure of confusion: which class a graph's node predicts for which, a matrix for each method.

A number's split says which share it is: `6 as 0` is the share of class 6 that is predicted as class
0, and `6 right` the share predicted right. Groups of classes may count too: `6 as 0, 2, 3 or 4`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from fedrepro.core.checksummed_files import read_table
from fedrepro.core.errors import FedreproError
from fedrepro.drawings.lines_and_layout import LETTERS, Figured, grid_of, headings, new_figure
from fedrepro.drawings.style import SHARES
from fedrepro.planning.drawing_base import PANELS, Paths, Planned, drawing, final, nothing_shown
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from fedrepro.planning.exhibit_methods import ExhibitMethod

CONFUSION, FILE = "confusion", "confusion.parquet"
CLASSES = re.compile(r"^(\d+) as (\d+)$")
LEAST = 0.005  # shares above half a percent are written into the matrix


@drawing("confusion")
class Confusion(Figured):
    """A figure with one matrix per method: which class a graph's node predicts for which class."""

    groups: dict[str, Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="classes that the csv also takes together, by a name such as 0, 2, 3 or 4",
    )

    def reasons(self, shown: Planned) -> Iterator[str]:
        if len(shown.points) > 1 or shown.cases:
            yield f"confusion is drawn at one point and without cases, not at {len(shown.points)}"
        if len(shown.measures) > PANELS:
            yield f"it has a map for each of at most {PANELS} methods, not {len(shown.measures)}"
        for measure in shown.measures:
            if measure.node is None or measure.belief is None:
                yield f"'{measure.label}' needs a node and a belief, of which it is drawn"
        yield from nothing_shown(shown)

    def further(
        self, metrics: Paths, setting: str, measure: ExhibitMethod, trials: int, where: str
    ) -> dict[tuple[str, str], list[float]]:
        """Read how the node of `measure` confuses classes, from a file next to each of `metrics`.

        Returns {("confusion", such as "6 as 0"): shares of class 6 that are predicted as 0, by
        trial}. Other arguments are those of `Drawing.further`; `where` is not used.
        """
        import pandas as pd

        # a row for each trial, setting, belief, node (client, from 0), class and predicted class
        paths = [Path(path).with_name(FILE) for path in metrics]
        rows = pd.concat([read_table(path, CONFUSION).to_pandas() for path in paths])
        rows = rows[(rows["setting"] == setting) & (rows["belief"] == measure.belief)]
        by_trial = rows[rows["client"] + 1 == measure.node].groupby("trial")
        if {*range(trials)} - by_trial.groups.keys():  # a trial failed
            return {}
        shape = {"index": "label", "columns": "predicted", "values": "count"}
        counts = (by_trial.get_group(trial).pivot(**shape).to_numpy() for trial in range(trials))
        found = pd.DataFrame([shares(of_trial, self.groups) for of_trial in counts])
        return {(CONFUSION, str(split)): values.tolist() for split, values in found.items()}

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        from matplotlib.colors import LinearSegmentedColormap

        figure = new_figure(3.9)
        margins = {"left": 0.45, "right": 0.12, "top": 0.78, "bottom": 0.42}
        (panels,) = grid_of(figure, 1, len(exhibit.measures), across=0.45, **margins)
        colours = LinearSegmentedColormap.from_list("shares", SHARES)
        for letter, axes, measure in zip(LETTERS, panels, exhibit.measures, strict=False):
            if not (found := map_of(numbers, measure.label)).size:
                axes.set_title(f"{letter}  {measure.label}: failed", loc="left")
                continue
            axes.imshow(found, cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
            for (row, column), share in np.ndenumerate(found):
                if share > LEAST + 1e-9:
                    text = axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center")
                    text.set(color="white" if share > 0.5 else "black", fontsize=7)
            classes = range(len(found))
            axes.set(xticks=classes, yticks=classes)
            axes.set_xlabel("taken for class, % of those of a class")
            axes.grid(visible=False)
            axes.tick_params(length=0)
            axes.set_title(f"{letter}  {measure.label}", loc="left")
        panels[0].set_ylabel("class")
        headings(figure, exhibit)
        return figure


def shares(counts: np.ndarray, groups: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Turn counts of predictions into shares of each class's examples, by `6 as 0` or `6 right`.

    `counts` are (K, K) by class and predicted class; a group of `groups` counts as a class too.
    """
    sets: dict[str, Sequence[int]] = {str(label): [label] for label in range(len(counts))}
    for name, rows in groups.items():
        if name in sets or sorted({*rows} & {*range(len(counts))}) != sorted(rows):
            said = f"group '{name}' of the confusion matrix is {rows}; name it unlike a class, and"
            raise FedreproError(f"{said} list each of its classes, 0 to {len(counts) - 1}, once")
    sets |= groups
    by_split: dict[str, float] = {}
    for true, rows in sets.items():
        total = max(1, int(counts[rows].sum()))
        for taken, columns in sets.items():
            by_split[f"{true} as {taken}"] = float(counts[np.ix_(rows, columns)].sum() / total)
        by_split[f"{true} right"] = float(counts[rows, rows].sum() / total)
    return by_split


def map_of(numbers: pd.DataFrame, label: str) -> np.ndarray:
    """Return the confusion matrix of method `label` from a figure's csv: mean shares (K, K)."""
    rows = final(numbers)
    rows = rows[(rows["method"] == label) & (rows["metric"] == CONFUSION)]
    pairs = rows["split"].str.extract(CLASSES).dropna().astype(int)  # without groups of classes
    rows = rows.assign(true=pairs[0], taken=pairs[1])
    return rows.pivot_table("mean", "true", "taken").to_numpy()
