"""Two methods, trial by trial: the mean difference at each point of the exhibits that have both."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.metrics import all_metrics
from fedrepro.core.registry import components
from fedrepro.core.tokens import method_of
from fedrepro.numbers.exhibit_files import open_exhibit
from fedrepro.numbers.intervals import half_width, mean
from fedrepro.numbers.results_table import drawn_exhibits
from fedrepro.numbers.summary import ROUND, leading_columns
from fedrepro.planning.drawing import final

CONFIDENCE = 0.95
RUNS = ("setting", "by_trial")  # columns that tell runs from others


@dataclass(frozen=True)
class PairedDifference:
    """One number of two methods at a point of an exhibit, `one` less `other`, over `trials` trials.

    also: other exhibits that show the same runs. low, high: the interval of the difference by
    Student's t at CONFIDENCE, infinite for one trial.
    """

    exhibit: str
    point: Mapping[str, Any]
    labels: tuple[str, str]
    one: float
    other: float
    difference: float
    low: float
    high: float
    trials: int
    also: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The point in words: clients 10, alpha 0.1."""
        return ", ".join(f"{key} {value}" for key, value in self.point.items() if value != "")

    @property
    def sign(self) -> int:
        """1 if `one` is larger beyond what trials scatter, -1 if it is smaller, 0 if neither."""
        return int(self.low > 0) - int(self.high < 0)


def paired_differences(
    scale: str,
    one: str,
    other: str,
    reports: Path,
    metric: str = "accuracy",
    split: str = "test",
    exhibit: str = "",
) -> list[PairedDifference]:
    """Compare two methods, named by label or component, wherever a drawn exhibit measures both.

    In a trial both have the same data, partition and, of one-shot methods, local models, so what
    these change cancels. Final values of the chosen settings are taken, of the trials that both
    have. `exhibit` narrows this to one exhibit, or a paper.

    Raises:
        FedreproError: if no exhibit has both.
    """
    if metric not in all_metrics():
        raise unknown("metric", metric, all_metrics())
    if one.lower() == other.lower():
        raise FedreproError(f"{one} is named twice: name two methods")
    differences: dict[tuple[str, ...], PairedDifference] = {}
    names: set[str] = set()
    splits: set[str] = set()
    for drawn in drawn_exhibits(scale, reports, exhibit):
        table = final(open_exhibit(reports / scale, drawn.key, scale).table(".csv"))
        names |= set(table["method"])
        table = table[table["metric"] == metric]
        splits |= set(table["split"].fillna("")) - {""}
        # what a model costs is measured on no examples
        table = table[table["split"].fillna("").isin([split, ""])]
        for runs, difference in _of_exhibit(drawn.key, table, one, other):
            known = differences.setdefault(runs, difference)
            if known is not difference:
                differences[runs] = replace(known, also=(*known.also, drawn.key))
    if differences:
        return list(differences.values())
    for method in (one, other):
        if method not in names and method not in components("method"):
            raise unknown("method", method, names, "the drawn exhibits")
    if splits and split not in splits:
        raise unknown("split", split, splits, "the drawn exhibits")
    raise FedreproError(
        f"no drawn exhibit has {metric} {split} of both {one} and {other} at one point: put "
        "both into the methods of an exhibit, and draw it"
    )


def _of_exhibit(
    key: str, table: pd.DataFrame, one: str, other: str
) -> Iterator[tuple[tuple[str, ...], PairedDifference]]:
    """Differences, each with what tells its runs from others."""
    leading = [name for name in leading_columns(table) if name != ROUND]
    points: dict[tuple[str, ...], list[Mapping[Any, Any]]] = {}
    for row in table.to_dict("records"):
        place = tuple("" if pd.isna(row[name]) else str(row[name]) for name in leading)
        points.setdefault(place, []).append(row)
    for place, rows in points.items():
        pairs = itertools.product(_named(rows, one), _named(rows, other))
        for first, second in (pair for pair in pairs if pair[0] is not pair[1]):
            values = [np.array(row["by_trial"].split(), float) for row in (first, second)]
            count = min(map(len, values))
            left, right = (own[:count] for own in values)
            differences = (left - right)[:, None]
            middle = float(mean(differences)[0])
            half = float(half_width(differences, CONFIDENCE)[0])
            runs = tuple(str(row[name]) for row in (first, second) for name in RUNS)
            yield (
                runs,
                PairedDifference(
                    key,
                    dict(zip(leading, place, strict=True)),
                    (first["method"], second["method"]),
                    *(float(left.mean()), float(right.mean())),
                    *(middle, middle - half, middle + half),
                    count,
                ),
            )


def _named(rows: Sequence[Mapping[Any, Any]], name: str) -> list[Mapping[Any, Any]]:
    """Find those of a label; or else all of a component, or of the label whatever its capitals."""
    labelled = [row for row in rows if row["method"] == name]
    return labelled or [
        row
        for row in rows
        if name == method_of(row["setting"]) or name.lower() == row["method"].lower()
    ]


def sides(differences: Sequence[PairedDifference], one: str, other: str) -> tuple[str, str]:
    """Name both sides: by their label, or as asked where a component stands under several."""
    found = [{row.labels[side] for row in differences} for side in (0, 1)]
    first, second = (labels.pop() if len(labels) == 1 else "" for labels in found)
    return first or one, second or other


def paired_verdict(
    differences: Sequence[PairedDifference], metric: str, names: tuple[str, str]
) -> str:
    """Say in a sentence what the differences come to; `names` are those of `sides`."""
    one, other = names
    better = all_metrics()[metric].better or 1
    signs = [row.sign * better for row in differences]
    words = ("better", "worse") if all_metrics()[metric].better else ("larger", "smaller")
    return (
        f"{one} is {words[0]} than {other} at {signs.count(1)} of {len(differences)} points, "
        f"{words[1]} at {signs.count(-1)}, and not told apart at {signs.count(0)} (95 % intervals "
        "of the paired difference, each point by itself)"
    )
