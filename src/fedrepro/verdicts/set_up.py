"""Whether a setting that a paper does not give accounts for a difference from what it printed.

A printed value may name an exhibit in which such a setting varies (`set_up` in its
published.csv). If that moves the number by more than ours is away from print, ours is of another
set-up; if it moves it by less, ours is better or worse; until the exhibit is there, that is open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from fedrepro.numbers.series import select
from fedrepro.numbers.summary import ROUND, leading_columns
from fedrepro.verdicts.printed import OPEN, direction, same
from fedrepro.verdicts.published import cell_of

if TYPE_CHECKING:
    import pandas as pd

ANOTHER = "another set-up"
Exhibits = Callable[[str], "pd.DataFrame | None"]


def settled(row: Mapping[str, str], exhibits: Exhibits) -> dict[str, str]:
    """A row of a printed.csv as text, with its open verdicts closed where that can be done.

    exhibits: name -> its numbers, None if they are not there.
    """
    found = dict(row)
    if not row.get("set_up") or OPEN not in (row["verdict"], row["unbounded"]):
        return found
    by = moved(row["set_up"], row["method"], row["metric"], row["split"], exhibits)
    if by is None:
        return found
    away = float(row["difference"])
    word = ANOTHER if by > abs(away) else direction(row["metric"], away)
    return found | {key: word for key in ("verdict", "unbounded") if row[key] == OPEN}


def moved(set_up: str, method: str, metric: str, split: str, exhibits: Exhibits) -> float | None:
    """The largest less the smallest number of the settings; None if there are not two of them.

    What was not reached counts as the rounds that were run, which it takes at least.
    """
    named = set_up.partition(": ")[0]
    exhibit, _, cell = named.partition(", ")
    numbers = exhibits(exhibit)
    if numbers is None:
        return None
    places = leading_columns(numbers)
    if ROUND in places:
        numbers = numbers[numbers[ROUND].isna()]
    numbers = numbers[numbers["method"] == method]
    for key, text in cell_of(cell, f"set_up '{named}'").items():
        fits = [same(one, text) or fnmatchcase(str(one), text) for one in numbers[key]]
        numbers = numbers.loc[fits]
    known = select(numbers, metric, split)["mean"].to_numpy(float)
    run = select(numbers, "rounds", "")["mean"].to_numpy(float)
    least = run if len(run) == len(known) else known
    values = [
        at_least if math.isinf(one) else one for one, at_least in zip(known, least, strict=True)
    ]
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return float(max(values) - min(values))
