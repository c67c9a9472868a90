"""Tables of numbers made for claims, and checks on them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from fedrepro.numbers.tables_and_selection import NUMBERS, csv_text, read_csv
from fedrepro.numbers.verdicts.claim_check_kinds import Check
from fedrepro.numbers.verdicts.claim_numbers import Numbers
from fedrepro.numbers.verdicts.claim_verdicts import Judged, Rules, judge_all

LOOSE = Rules(trials=2)


def check(**given: Any) -> Check:
    return TypeAdapter(Check).validate_python({"exhibits": ["x"], "of": "A", **given})


def judged(one: Check, numbers: Mapping[str, Numbers], rules: Rules = LOOSE, *other: str) -> Judged:
    """Judge a check by itself; the other exhibits stand in for the paper's."""
    return judge_all([one], numbers, rules, other)[0]


def deviation(values: Sequence[float]) -> float:
    """Of a sample. `numpy.std` takes thirty times as long to be called for ten numbers."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def scattered(mean: float, sd: float, shape: str) -> list[float]:
    """Four trials with that mean and sample sd; two shapes that do not go together."""
    pattern = {"up": [-1, -1, 1, 1], "turn": [-1, 1, -1, 1]}[shape]
    return [mean + sd * x / deviation(pattern) for x in pattern]


def table(*rows: Any, sd: float = 0.01, metric: str = "accuracy", split: str = "test") -> Numbers:
    """Rows of (place, method, a value for each trial or their mean, shape), through a csv."""
    entries = []
    for place, method, given, *shape in rows:
        values = given if isinstance(given, list) else scattered(given, sd, *(shape or ["up"]))
        own = {"method": method, "metric": metric, "split": split, "setting": method}
        own |= {"mean": statistics.fmean(values), "trials": len(values)}
        own["sd"] = deviation(values) if len(values) > 1 else None
        entries.append({**place, **own, "by_trial": " ".join(f"{v:.12g}" for v in values)})
    frame = pd.DataFrame(entries)
    rest = [column for column in frame if column not in NUMBERS]
    return Numbers(read_csv(csv_text(frame[[*rest, *NUMBERS]])))


def by(*columns: str, sd: float = 0.001, **methods: Mapping[Any, Any]) -> dict[str, Numbers]:
    """Exhibit x: of each method means, or a value for each trial, by the values of columns."""
    return {
        "x": table(
            *(
                (dict(zip(columns, at if len(columns) > 1 else (at,), strict=True)), name, value)
                for name, values in methods.items()
                for at, value in values.items()
            ),
            sd=sd,
        )
    }
