"""The table of a paper's claims, claims.csv: a row for each check, with the same columns always."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.core.artifacts import damaged
from fedrepro.core.errors import FedreproError
from fedrepro.verdicts.cells import Exhibits, Numbers
from fedrepro.verdicts.claims import Claim, load_claims
from fedrepro.verdicts.form import Form, where_words
from fedrepro.verdicts.judging import (
    STAND_IN,
    Finding,
    Judged,
    Rules,
    judge_all,
    verdict,
    verdict_of_readings,
)

if TYPE_CHECKING:
    import pandas as pd

    from fedrepro.numbers.files import ExhibitFiles

COLUMNS = (
    "claim",
    "verdict",
    "note",
    "label",
    "fixed",
    "place",
    "says",
    "reading",
    "check",
    "check_verdict",
    "at",
    "value",
    "low",
    "high",
    "confidence",
    "bound",
    "points",
    "trials",
    "trials_needed",
    "missing",
    "reason",
    "data",
)
NUMERIC = ("value", "low", "high", "confidence", "points", "trials", "trials_needed")
MOST_NAMED = 4  # of what is missing
COUNTED = {
    "every": "at every point",
    "some": "at some point",
    "most": "at more than half of the points",
    "mean": "on average",
}


def verdicts(published: Path, exhibits: Sequence[str], reports: Path) -> pd.DataFrame:
    """Return the verdicts of a paper's claims (COLUMNS) from exhibits paper/name in `reports`."""
    import pandas as pd

    from fedrepro.numbers.files import open_exhibit

    file = load_claims(published)
    opened = {Path(key).name: open_exhibit(reports, key, reports.name) for key in exhibits}
    numbers = {name: _numbers(files) for name, files in opened.items()}
    other = {
        name: "" if numbers[name].stand_ins else _other_than_printed(files.about)
        for name, files in opened.items()
    }
    records = list(rows(file.claims, numbers, other, file.rules))
    # numbers as numbers in every file, also where a column is empty
    return pd.DataFrame(records, columns=list(COLUMNS)).astype(dict.fromkeys(NUMERIC, float))


def _other_than_printed(about: Mapping[str, Any]) -> str:
    """Say where an exhibit differs from the paper's: data that stand in, or a smaller size."""
    reduced = about["settings"].get("reduced")
    notes = [*(data["stand_in"] for data in about["data"]), reduced and f"Reduced: {reduced}."]
    return " ".join(filter(None, dict.fromkeys(notes)))


def _numbers(files: ExhibitFiles) -> Numbers:
    path = f"{files.base}.csv"
    frame = files.numbers
    try:
        if "by_trial" not in frame:
            raise FedreproError(
                f"{path} has no column by_trial, so it is of an older version; delete it, and make "
                "the figure again from the results that are there"
            )
        for index, (values, trials) in enumerate(
            zip(frame["by_trial"], frame["trials"], strict=True)
        ):
            if len([float(value) for value in values.split()]) != trials:
                raise ValueError(f"row {index + 1} has not a value for each of its trials")
        return Numbers.described(frame, files.about)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, error) from error


def rows(
    claims: Sequence[Claim],
    numbers: Exhibits,
    stand_ins: Mapping[str, str],
    rules: Rules,
) -> Iterator[dict[str, Any]]:
    """Return a row per check, or one for a claim without, each with all COLUMNS.

    `stand_ins` maps an exhibit to what its data stand in for, or to an empty text.

    Raises:
        FedreproError: for a column that an exhibit does not have.
    """
    for claim in claims:
        for row in _rows_of(claim, numbers, stand_ins, rules):
            yield dict.fromkeys(COLUMNS, "") | dict.fromkeys(NUMERIC) | row


def _rows_of(
    claim: Claim, numbers: Exhibits, stand_ins: Mapping[str, str], rules: Rules
) -> Iterator[dict[str, Any]]:
    head = {"claim": claim.id, "place": claim.place, "says": claim.says, "label": claim.label}
    if claim.untested:
        yield {"verdict": "no verdict", **head, "reason": claim.untested}
        return
    head |= {"fixed": claim.fixed, "reason": claim.reason}
    try:
        judged = {
            reading: judge_all(
                checks, numbers, rules, [name for name in stand_ins if stand_ins[name]]
            )
            for reading, checks in claim.groups.items()
        }
    except FedreproError as error:
        raise FedreproError(f"claim {claim.id}: {error}") from None
    whole = verdict_of_readings([verdict(group) for group in judged.values()])
    results = [result for group in judged.values() for result in group]
    head["note"] = "; ".join(filter(None, [_note(claim, results), _raised(results, rules)]))
    for reading, results in judged.items():
        for result in results:
            notes = dict.fromkeys(stand_ins.get(name, "") for name in result.exhibits)
            data = " ".join(filter(None, notes))
            yield {"verdict": whole, **head, "reading": reading, **_row(result), "data": data}


def _note(claim: Claim, results: Sequence[Judged]) -> str:
    """Return the note that a reader needs on the verdict of a claim, if any."""
    absent = sum(result.verdict == STAND_IN for result in results)
    named = sum(len(check.exhibits) for check in claim.all_checks)
    looked_at = sum(len(result.check.exhibits) for result in results)
    if absent == len(results) or (not absent and named == looked_at):
        return ""
    none = f"; {absent} of {len(results)} checks have none" if absent else ""
    return f"judged on the paper's data alone{none}"


def _raised(results: Sequence[Judged], rules: Rules) -> str:
    """Whether a check was looked at again, with more trials."""
    named = {name for result in results if result.deciding for name in result.check.named}
    return "" if named.isdisjoint(rules.raised) else "trials were raised after an undecided verdict"


def _row(judged: Judged) -> dict[str, Any]:
    return {
        "check": sentence(judged.check),
        "check_verdict": judged.verdict,
        "bound": judged.check.bound,
        "points": judged.points or None,
        "missing": _named(judged.missing),
        **(_found(judged.deciding) if judged.deciding else {}),
        "trials_needed": judged.trials_needed,
    }


def _found(finding: Finding) -> dict[str, Any]:
    """Return the cells of the point that decides a check; an unknown end stays empty."""
    interval = finding.interval
    ends = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {
        "at": finding.at,
        **{key: end if math.isfinite(end) else None for key, end in ends.items()},
        "confidence": finding.confidence,
        "trials": finding.trials,
    }


def _named(missing: Sequence[str]) -> str:
    more = f"; {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    return "; ".join(missing[:MOST_NAMED]) + more


def sentence(check: Form) -> str:
    """Write a check in words: the number, how points count, and the bounds."""
    where = f", {where_words(check.where)}" if check.where else ""
    return f"{check.words}{where}, {COUNTED[check.points]}: {check.bound}"
