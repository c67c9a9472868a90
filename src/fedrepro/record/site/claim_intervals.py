"""The claims of a paper: the number that decides each, and where its drawing has its parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fedrepro.numbers.verdicts.claims import CONFIDENCE, Verdict, whole_verdict
from fedrepro.numbers.verdicts.summary_sentences import BOUND, by_reading

Check = Mapping[str, str]
LABELS = {
    "exact": "a count, and exact",
    "identity": "follows from how the method is defined",
    "ours": "the sentence names no outcome, so that what is judged is ours",
}
WIDTH, MARGIN = 260.0, 14.0


def remarks(head: Check) -> str:
    """Say why a claim is judged so, with a note on its bound."""
    notes = [LABELS.get(head["label"], ""), head["note"]]
    if head["fixed"] == "after":
        notes.append("its bound was written when first numbers were there")
    remark = f"({'; '.join(filter(None, notes))})" if any(notes) else ""
    return " ".join(filter(None, [head["reason"], remark]))


def deciding(checks: Sequence[Check], verdict: str = "") -> Check:
    """Return the check that decides a claim, or a reading of this `verdict`."""
    whole = verdict or checks[0]["verdict"]
    agreeing = [row for row in checks if row["check_verdict"] == whole]
    return (agreeing or [row for row in checks if row["missing"]] or checks)[0]


def of_readings(checks: Sequence[Check]) -> dict[str, Check]:
    """Map each reading with its verdict, such as "one start: refuted", to its deciding check.

    With one reading, or equal verdicts, the check that decides the claim is under "".
    """
    readings = by_reading(checks)
    verdicts = {
        name: whole_verdict(cast(Verdict, row["check_verdict"]) for row in rows)
        for name, rows in readings.items()
    }
    if len(set(verdicts.values())) < 2:
        return {"": deciding(checks)}
    return {f"{name}: {v}": deciding(readings[name], v) for name, v in verdicts.items()}


def interval(row: Check) -> str:
    """Write the value and interval of a check, with its confidence if that is not 95 %."""
    level = ""
    if row["confidence"] not in ("", f"{CONFIDENCE:g}"):
        level = f" at {100 * float(row['confidence']):.4g} %"
    if not row["value"]:
        return f"more than {float(row['low']):.4g}{level}" if row["low"] else ""
    value = f"{float(row['value']):.4g}"
    if not row["low"] or not row["high"]:
        return f"{value}, error unknown"
    low, high = (float(row[end]) + 0.0 for end in ("low", "high"))  # no minus before zero
    ends = f"{low:.4g} to {high:.4g}{level}"
    return value if row["low"] == row["high"] else f"{value} ({ends})"


def interval_drawing(row: Check) -> dict[str, Any]:
    """Place the interval of a check against its bound; {} if it lacks either.

    In units of the view box, allowed: ends of what the bound allows. bounds: each with its number.
    range: ends of the interval. at: of the value, None where it is not known.
    """
    bounds = [(word, float(number)) for word, number in BOUND.findall(row["bound"])]
    known = [float(row[key]) for key in ("low", "value", "high") if row[key]]
    known = [value for value in known if math.isfinite(value)]
    if not bounds or not known:
        return {}
    ends = [*known, *(number for _, number in bounds)]
    least, most = min(ends), max(ends)
    reach = (most - least) or abs(most) or 1.0
    least, most = least - 0.15 * reach, most + 0.15 * reach

    def x(value: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * (value - least) / (most - least)

    lows = [number for word, number in bounds if word in ("above", "at least")]
    highs = [number for word, number in bounds if word in ("below", "at most")]
    value = float(row["value"] or "nan")
    return {
        "allowed": sorted((x(max(lows, default=least)), x(min(highs, default=most)))),
        "bounds": [(x(number), f"{number:.4g}") for _, number in bounds],
        "range": (x(known[0]), x(known[-1])),
        "at": x(value) if math.isfinite(value) else None,
    }
