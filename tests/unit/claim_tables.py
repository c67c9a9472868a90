"""Tables of numbers made for claims, and checks on them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from fedrepro.numbers.summary import NUMBERS, csv_text, read_csv
from fedrepro.verdicts.cells import Numbers
from fedrepro.verdicts.forms import Check
from fedrepro.verdicts.judging import Judged, Rules, judge

LOOSE = Rules(trials=2, holm=False)
Series = Sequence[float]


def check(**given: Any) -> Check:
    return TypeAdapter(Check).validate_python({"exhibits": ["x"], "of": "A", **given})


def judged(one: Check, numbers: Mapping[str, Numbers], rules: Rules = LOOSE) -> Judged:
    return judge(one, numbers, rules)


def scattered(mean: float, sd: float, trials: int, shape: str) -> list[float]:
    """Values for each trial with that mean and sample sd; two shapes that do not go together."""
    pattern = {"up": [-1, -1, 1, 1], "turn": [-1, 1, -1, 1]}[shape][:trials]
    scale = statistics.stdev(pattern) if trials > 1 else 1.0
    return [mean + sd * (x - statistics.fmean(pattern)) / scale for x in pattern]


def table(
    *entries: Any,
    sd: float = 0.01,
    trials: int = 4,
    metric: str = "accuracy",
    split: str = "test",
    shape: str = "up",
) -> Numbers:
    """Rows of (place, method, mean, shape of the scatter)."""
    return of_series(
        [
            (place, method, scattered(mean, sd, trials, *(own or [shape])))
            for place, method, mean, *own in entries
        ],
        metric,
        split,
    )


def deviation(values: Series) -> float:
    """Of a sample. `numpy.std` takes thirty times as long to be called for ten numbers."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def of_series(
    entries: Sequence[tuple[Mapping[str, Any], str, Series]],
    metric: str = "accuracy",
    split: str = "test",
) -> Numbers:
    """Rows of (place, method, its value in each trial), through the text of a csv."""
    found = [
        {
            **place,
            "method": method,
            "metric": metric,
            "split": split,
            "mean": statistics.fmean(values),
            "sd": deviation(values) if len(values) > 1 else None,
            "trials": len(values),
            "by_trial": " ".join(f"{value:.12g}" for value in values),
            "setting": method,
        }
        for place, method, values in entries
    ]
    frame = pd.DataFrame(found)
    rest = [c for c in frame if c not in NUMBERS]
    return Numbers(read_csv(csv_text(frame[[*rest, *NUMBERS]])))
