"""Printed values that a table alone cannot judge: other set-ups, and numbers of sentences.

A printed value may name an exhibit in which such a setting varies (`set_up` in its published.csv).
If one setting moves the number towards print by more than ours is away from it, and suits the other
methods of its table as well, ours is of another set-up; if none does, it is judged; until the
exhibit is there, that is open.

A number that is printed in a sentence, such as a mean over tables, has a check of a claim; ours is
the value of that check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fedrepro.numbers.series import select
from fedrepro.planning.drawing import final
from fedrepro.verdicts.judging import STAND_IN
from fedrepro.verdicts.printed import (
    OPEN,
    PRINTED,
    ROUNDING,
    difference,
    direction,
    fits,
    verdict,
)
from fedrepro.verdicts.published import SETTING, cell_of, check_of

if TYPE_CHECKING:
    import pandas as pd

ANOTHER = "another set-up"
NO_PLACE = ("exhibit", *PRINTED)  # the columns of a row that do not tell its place
Row = Mapping[str, str]
Exhibits = Callable[[str], "pd.DataFrame | None"]
Claims = Sequence[Sequence[Row]]


def settled(
    row: Row, exhibits: Exhibits, claims: Claims = (), rows: Sequence[Row] = ()
) -> dict[str, str]:
    """Return a row of a printed.csv as text, its open verdict closed where that is possible.

    Args:
        row: the printed value.
        exhibits: name -> its numbers, None if they are not there.
        claims: of the paper, each as the rows of its checks in a claims.csv.
        rows: all rows of its table.
    """
    fields = dict(row)
    if check_of(row.get("apart", "")):
        return fields | _of_a_sentence(row, claims)
    if not row.get("set_up") or row["verdict"] != OPEN:
        return fields
    numbers = varied(row["set_up"], row["method"], row["metric"], row["split"], exhibits)
    if not numbers:
        return fields
    others = [other for other in rows if other is not row and _stands_beside(other, row)]
    nearer = any(
        moved > abs(float(row["difference"]))
        and all(_suits(setting, row["set_up"], other, exhibits) for other in others)
        for setting, moved in enumerate(_moved(numbers, row))
    )
    return fields | {"verdict": ANOTHER if nearer else judged(row)}


def judged(row: Row) -> str:
    """Judge a row by its own numbers, whatever settings are open."""
    mean, away, tolerance, noise = (
        float(row.get(key) or "nan") for key in ("mean", "difference", "tolerance", "noise")
    )
    return verdict(row["metric"], mean, away, tolerance, noise, int(float(row["trials"])))


def _stands_beside(other: Row, row: Row) -> bool:
    """Whether two printed values are of one place, by different methods."""
    places = [
        {key: text for key, text in one.items() if key not in NO_PLACE} for one in (other, row)
    ]
    measured = other["mean"] and other["metric"] == row["metric"] != SETTING
    return bool(measured) and other["split"] == row["split"] and places[0] == places[1]


def _moved(numbers: Sequence[float], row: Row) -> list[float]:
    """How far each setting moves a number towards print, from our own setting on.

    That with our own number is ours, or else the first, which may have other trials or examples
    than the table.
    """
    ours = float(row["mean"])
    here = next((number for number in numbers if math.isclose(number, ours)), numbers[0])
    sign = 1 if float(row["difference"]) > 0 else -1
    return [sign * (here - number) for number in numbers]


def _suits(setting: int, set_up: str, other: Row, exhibits: Exhibits) -> bool:
    """Whether a setting moves the number of a neighbour no further from print than it may be."""
    numbers = varied(set_up, other["method"], other["metric"], other["split"], exhibits)
    if not numbers or len(numbers) <= setting:
        return True
    away = float(other["difference"])
    after = abs(away) - _moved(numbers, other)[setting]
    return abs(after) <= max(abs(away), float(other["tolerance"] or "inf"))


def _of_a_sentence(row: Row, claims: Claims) -> dict[str, str]:
    """Return a row with the verdict of the check of its number; nothing if that was not run."""
    claim, number = check_of(row["apart"]) or ("", 0)
    claim_checks = [check for checks in claims for check in checks if check["claim"] == claim]
    if len(claim_checks) < number or not claim_checks[number - 1]["value"]:
        return {}
    check = claim_checks[number - 1]
    away = difference(float(check["value"]), float(row["printed"]))
    if check["check_verdict"] == STAND_IN:
        word = "stand-in"
    elif abs(away) <= float(row["tolerance"]) + ROUNDING:
        word = "reproduced"
    else:
        word = direction(row["metric"], away)
    measured = {"mean": check["value"], "trials": check["trials"], "difference": f"{away:.10g}"}
    return measured | {"verdict": word}


def varied(
    set_up: str, method: str, metric: str, split: str, exhibits: Exhibits
) -> list[float] | None:
    """Return the number of each setting; None if there are not two of them.

    A target that was not reached counts as the rounds that were run, which it takes at least.
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
