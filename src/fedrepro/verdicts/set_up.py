"""What a table alone cannot know of a printed value: other set-ups, and numbers of sentences.

A printed value may name an exhibit in which such a setting varies (`set_up` in its
published.csv). If that moves the number towards print by more than ours is away from it, ours is of
another set-up; if by less, ours is better or worse; until the exhibit is there, that is open.

A number that is printed in a sentence, such as a mean over tables, is what a check of a claim looks
at; ours is the value of that check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fedrepro.numbers.series import select
from fedrepro.planning.drawing import final
from fedrepro.verdicts.printed import OPEN, ROUNDING, difference, direction, fits
from fedrepro.verdicts.published import cell_of, check_of

if TYPE_CHECKING:
    import pandas as pd

ANOTHER = "another set-up"
Exhibits = Callable[[str], "pd.DataFrame | None"]
Claims = Sequence[Sequence[Mapping[str, str]]]


def settled(row: Mapping[str, str], exhibits: Exhibits, claims: Claims = ()) -> dict[str, str]:
    """A row of a printed.csv as text, with its open verdicts closed where that can be done.

    exhibits: name -> its numbers, None if they are not there. claims: of the paper, each as the
    rows of its checks in a claims.csv.
    """
    fields = dict(row)
    if check_of(row.get("apart", "")):
        return fields | _of_a_sentence(row, claims)
    if not row.get("set_up") or OPEN not in (row["verdict"], row["unbounded"]):
        return fields
    numbers = varied(row["set_up"], row["method"], row["metric"], row["split"], exhibits)
    if not numbers:
        return fields
    away = float(row["difference"])
    nearer = towards(numbers, float(row["mean"]), away) > abs(away)
    word = ANOTHER if nearer else direction(row["metric"], away)
    return fields | {key: word for key in ("verdict", "unbounded") if row[key] == OPEN}


def _of_a_sentence(row: Mapping[str, str], claims: Claims) -> dict[str, str]:
    """What a row says anew by the check that looks at its number; nothing if that was not run."""
    claim, number = check_of(row["apart"]) or ("", 0)
    claim_checks = [check for checks in claims for check in checks if check["claim"] == claim]
    if len(claim_checks) < number or not claim_checks[number - 1]["value"]:
        return {}
    check = claim_checks[number - 1]
    away = difference(float(check["value"]), float(row["printed"]))
    if check["data"]:
        word = "stand-in"
    elif abs(away) <= float(row["tolerance"]) + ROUNDING:
        word = "reproduced"
    else:
        word = direction(row["metric"], away)
    measured = {"mean": check["value"], "trials": check["trials"], "difference": f"{away:.10g}"}
    return measured | {"verdict": word, "unbounded": word}


def towards(numbers: Sequence[float], ours: float, away: float) -> float:
    """How far other settings than ours move a number towards print.

    numbers: one a setting; that with our own number is ours, or else the first, which may have
    other trials or examples than the table. away: ours less printed.
    """
    here = next((number for number in numbers if math.isclose(number, ours)), numbers[0])
    return max(here - number if away > 0 else number - here for number in numbers)


def varied(
    set_up: str, method: str, metric: str, split: str, exhibits: Exhibits
) -> list[float] | None:
    """The number of each setting; None if there are not two of them.

    What was not reached counts as the rounds that were run, which it takes at least.
    """
    named = set_up.partition(": ")[0]
    exhibit, _, cell = named.partition(", ")
    numbers = exhibits(exhibit)
    if numbers is None:
        return None
    numbers = final(numbers)
    for key, text in ({"method": method} | cell_of(cell, f"set_up '{named}'")).items():
        numbers = numbers.loc[[fits(value, text) for value in numbers[key]]]
    known = select(numbers, metric, split)["mean"].to_numpy(float)
    run = select(numbers, "rounds", "")["mean"].to_numpy(float)
    least = run if len(run) == len(known) else known
    values = [
        at_least if math.isinf(value) else value
        for value, at_least in zip(known, least, strict=True)
    ]
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return values
