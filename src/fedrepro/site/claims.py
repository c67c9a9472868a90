"""The claims of a paper, sorted by verdict, each with the number that decides it as a drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

from fedrepro.drawings.tables import html_text
from fedrepro.site.verdicts import CLAIMS, word_of_claim
from fedrepro.verdicts.counted import BOUND, by_reading
from fedrepro.verdicts.judging import CONFIDENCE, WHOLE, Verdict

Check = Mapping[str, str]
LABELS = {
    "exact": "a count, and exact",
    "identity": "follows from how the method is defined",
    "ours": "the sentence names no outcome, so that what is judged is ours",
}
WIDTH, HEIGHT, MARGIN = 260.0, 34.0, 14.0


def claims_html(claims: Sequence[Sequence[Check]]) -> str:
    """All claims, in groups of one verdict, those that say most first."""
    groups: dict[str, list[Sequence[Check]]] = {}
    for checks in claims:
        groups.setdefault(checks[0]["verdict"], []).append(checks)
    order = [*CLAIMS, *sorted(set(groups) - set(CLAIMS))]
    parts = []
    for verdict in (word for word in order if word in groups):
        word, group = word_of_claim(verdict), groups[verdict]
        parts.append(
            f'<section class="claims {word.colour}"><h3 class="verdict">'
            f'<span class="sign {word.colour}">{word.sign}</span> {html_text(verdict)}'
            f' <span class="soft">{len(group)}</span></h3><p class="soft">{word.told}</p>'
            f"{''.join(map(_claim, group))}</section>"
        )
    return "\n".join(parts)


def deciding(checks: Sequence[Check], verdict: str = "") -> Check:
    """The check that decides a claim. verdict: of one reading, where it is not the claim's."""
    whole = verdict or checks[0]["verdict"]
    agreeing = [row for row in checks if row["check_verdict"] == whole]
    return (agreeing or [row for row in checks if row["missing"]] or checks)[0]


def of_readings(checks: Sequence[Check]) -> dict[str, Check]:
    """Each reading with its verdict, as "one start: refuted", and the check that decides it.

    Where all of them say the same, or there is but one, the one that decides the claim, under "".
    """
    readings = by_reading(checks)
    verdicts = {
        name: WHOLE["every"]([cast(Verdict, row["check_verdict"]) for row in rows])
        for name, rows in readings.items()
    }
    if len(set(verdicts.values())) < 2:
        return {"": deciding(checks)}
    return {
        f"{name}: {verdicts[name]}": deciding(rows, verdicts[name])
        for name, rows in readings.items()
    }


def _claim(checks: Sequence[Check]) -> str:
    head = checks[0]
    notes = [LABELS.get(head["label"], ""), head["note"]]
    if head["fixed"] == "after":
        notes.append("its bound was written when first numbers were there")
    remark = f"({'; '.join(filter(None, notes))})" if any(notes) else ""
    more = "".join(f"<li>{_check(row)}</li>" for row in checks if row["check"])
    shown = of_readings(checks).items() if head["check"] else ()
    number = "".join(_looked_at(row, reading) for reading, row in shown)
    return (
        f'<div class="claim" id="{html_text(head["claim"].lower())}">'
        f"<p><b>{html_text(head['claim'])}</b> {html_text(head['says'])}"
        f' <span class="soft">({html_text(head["place"])})</span></p>'
        f"{number}"
        f"<details><summary>How it is judged</summary>"
        f'<p class="soft">{html_text(" ".join(filter(None, [head["reason"], remark])))}</p>'
        f"{f'<ul>{more}</ul>' if more else ''}</details></div>"
    )


def _looked_at(row: Check, reading: str) -> str:
    told = f"<i>{html_text(reading)}</i><br>" if reading else ""
    quantity = html_text(f"{row['check'].removesuffix(': ' + row['bound']).rpartition(', ')[0]}")
    at = html_text(row["at"] or (f"missing: {row['missing']}" if row["missing"] else "not run"))
    return (
        f'<div class="interval-row">{drawing(row)}<p>{told}{quantity} '
        f'<span class="soft">({at})</span>: '
        f"<b>{html_text(interval(row)) or 'not run'}</b>, asked for: "
        f"{html_text(row['bound'])}</p></div>"
    )


def _check(row: Check) -> str:
    reading = f"<i>{html_text(row['reading'])}:</i> " if row["reading"] else ""
    needed = row["trials_needed"]
    more = f"; about {float(needed):.0f} trials would decide it" if needed else ""
    count = f", {html_text(row['trials'])} trials{more}" if row["trials"] else ""
    missing = f" Missing: {html_text(row['missing'])}." if row["missing"] else ""
    at = f": {html_text(interval(row))} ({html_text(row['at'])}{count})" if row["at"] else ""
    word = html_text(row["check_verdict"])
    return f"{reading}{html_text(row['check'])}. <b>{word}</b>{at}.{missing}"


def interval(row: Check) -> str:
    """The value that decides a check and its interval, with its confidence if it is not 95 %."""
    level = ""
    if row["confidence"] not in ("", f"{CONFIDENCE:g}"):
        level = f" at {100 * float(row['confidence']):.4g} %"
    if not row["value"]:
        return f"more than {float(row['low']):.4g}{level}" if row["low"] else ""
    value = f"{float(row['value']):.4g}"
    if not row["low"] or not row["high"]:
        return f"{value}, error unknown"
    ends = f"{float(row['low']):.4g} to {float(row['high']):.4g}{level}"
    return value if row["low"] == row["high"] else f"{value} ({ends})"


def drawing(row: Check) -> str:
    """The interval of a check against its bound: what is allowed is tinted. Empty without one."""
    bounds = [(word, float(number)) for word, number in BOUND.findall(row["bound"])]
    known = [float(row[key]) for key in ("low", "value", "high") if row[key]]
    known = [value for value in known if math.isfinite(value)]
    if not bounds or not known:
        return ""
    ends = [*known, *(number for _, number in bounds)]
    least, most = min(ends), max(ends)
    reach = (most - least) or abs(most) or 1.0
    least, most = least - 0.15 * reach, most + 0.15 * reach

    def x(value: float) -> float:
        share = (value - least) / (most - least)
        return MARGIN + (WIDTH - 2 * MARGIN) * share

    lows = [number for word, number in bounds if word in ("above", "at least")]
    highs = [number for word, number in bounds if word in ("below", "at most")]
    left, right = x(max(lows, default=least)), x(min(highs, default=most))
    left, right = min(left, right), max(left, right)
    middle, word = HEIGHT / 2 - 4, word_of_claim(row["check_verdict"])
    low, high = x(known[0]), x(known[-1])
    at = x(float(row["value"])) if row["value"] and math.isfinite(float(row["value"])) else None
    marks = "".join(
        f'<line class="bound" x1="{x(number):.1f}" x2="{x(number):.1f}" y1="2" y2="22"/>'
        f'<text x="{x(number):.1f}" y="32" text-anchor="middle">{number:.4g}</text>'
        for _, number in bounds
    )
    dot = f'<circle cx="{at:.1f}" cy="{middle:.1f}" r="4"/>' if at is not None else ""
    label = html_text(f"{interval(row)}; {row['bound']}: {row['check_verdict']}")
    return (
        f'<svg class="interval {word.colour}" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" '
        f'width="{WIDTH:g}" height="{HEIGHT:g}" role="img" aria-label="{label}">'
        f'<rect class="allowed" x="{left:.1f}" y="2" width="{right - left:.1f}" height="20"/>'
        f'{marks}<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="{middle:.1f}" '
        f'y2="{middle:.1f}"/>{dot}</svg>'
    )
