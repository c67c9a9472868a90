"""Numbers of methods with fewer trials, paired with another method's (planning.pairing).

Such a method's mean is of other trials than its rivals' means. It is replaced by the other method's
mean over all its trials, plus the mean difference over the trials that both have: what the two
share in a trial, its partition and local models, then cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedrepro.core.metrics import all_metrics
from fedrepro.numbers.series import mean
from fedrepro.numbers.spread import with_spread
from fedrepro.planning.drawing import ROUND
from fedrepro.planning.pairing import Pair

PAIRED, BESIDE = "paired_mean", "paired_with"
COLUMNS = (PAIRED, BESIDE)
SHARES = "share of examples"  # sizes and costs do not hang on the trial


def with_pairs(
    rows: Sequence[dict[str, Any]], leading: Sequence[str], pairs: Mapping[str, Pair]
) -> list[dict[str, Any]]:
    """Fill COLUMNS of the rows of an exhibit's csv wherever a mean is paired.

    `leading` names the columns of a number's place. A method whose rounds are shown is paired with
    the final value of the other, if that has no rounds.
    """
    places = [name for name in leading if name != ROUND]
    ends = {_key(row, places, row["method"]): row for row in rows if _ended(row)}
    return [row | _paired(row, places, pairs.get(row["method"]), ends) for row in rows]


def _paired(
    row: Mapping[str, Any],
    places: Sequence[str],
    pair: Pair | None,
    ends: Mapping[tuple[str, ...], Mapping[str, Any]],
) -> dict[str, Any]:
    unpaired = {PAIRED: None, BESIDE: ""}
    metric = all_metrics().get(row["metric"])
    if pair is None or metric is None or metric.unit != SHARES:
        return unpaired
    other = ends.get(_key(row, places, pair.beside))
    if other is None or other["trials"] <= row["trials"]:
        return unpaired
    values, other_values = (list(map(float, entry["by_trial"].split())) for entry in (row, other))
    difference = mean([a - b for a, b in zip(values, other_values, strict=False)])
    return {PAIRED: mean(other_values) + difference, BESIDE: pair.beside}


def _ended(row: Mapping[str, Any]) -> bool:
    return ROUND not in row or bool(pd.isna(row[ROUND]))


def _key(row: Mapping[str, Any], places: Sequence[str], method: str) -> tuple[str, ...]:
    where = (str(row[name]) for name in places if name in row and not pd.isna(row[name]))
    return (method, row["metric"], row["split"], *where)


def as_shown(numbers: pd.DataFrame) -> pd.DataFrame:
    """Return numbers as figures show them, with paired means for plain ones, which have no sd.

    Other rows have the spread that is asked for.
    """
    numbers = with_spread(numbers)
    if PAIRED not in numbers:
        return numbers
    paired = numbers[PAIRED].notna()
    kept = numbers.assign(mean=numbers["mean"].where(~paired, numbers[PAIRED]))
    return kept.assign(sd=numbers["sd"].where(~paired))
