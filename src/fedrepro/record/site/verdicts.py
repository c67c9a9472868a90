"""Prepare verdicts for pages: words with sign and colour, counts, and the deciding numbers.

The colours of Okabe and Ito are distinct for people with any colour vision; the sign needs none.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple, cast

import yaml

from fedrepro.core.metrics import all_metrics
from fedrepro.drawings.tables import TextCell, number_form
from fedrepro.numbers.verdicts.claims import CONFIDENCE, Verdict, whole_verdict
from fedrepro.numbers.verdicts.printed_verdicts import AGAIN, APART, ELSEWHERE
from fedrepro.numbers.verdicts.summary_sentences import (
    BOUND,
    NO_PLACE,
    by_reading,
    reasons,
    standing,
    word_of,
)

Row = Mapping[str, str]


class VerdictStyle(NamedTuple):
    """How pages show a verdict: its sign, CSS class of the colour, meaning, and glossary `row`."""

    sign: str
    colour: str
    means: str
    row: str = ""


def page_data(name: str) -> dict[str, Any]:
    """Return the contents of the yaml file `name`, which has texts for pages, as a dict."""
    text = (resources.files("fedrepro.record.site") / name).read_text(encoding="utf-8")
    return cast(dict[str, Any], yaml.safe_load(text))


WORDS = page_data("words.yaml")
PRINTED, CLAIMS, BOARD = (
    {word: VerdictStyle(**{"row": word} | style) for word, style in WORDS[kind].items()}
    for kind in ("printed", "claim", "board")
)
KINDS = {"a printed value": PRINTED, "a claim": CLAIMS, "a method on the leaderboard": BOARD}
UNKNOWN = VerdictStyle("·", "grey", "")
LABELS = {
    "exact": "a count, and exact",
    "identity": "follows from how the method is defined",
    "ours": "the sentence names no outcome, so that what is judged is ours",
}
DIFFERENCE = re.compile(r"^(change|spread|gain) of | minus ")
SHARES = ("accuracy", "confusion", "error at")  # beginnings of the names of numbers from 0 to 1
UNITS = ("hidden units", "forward passes", "rounds", "seconds", "bytes", "clients", "steps")


def glossary() -> list[tuple[dict[str, VerdictStyle], list[tuple[str, str]]]]:
    """Return the glossary's rows: ({verdict: its style}, pairs such as ("of a claim", meaning))."""
    styles = PRINTED | CLAIMS | BOARD
    rows: dict[str, dict[str, VerdictStyle]] = {}
    for word, style in styles.items():
        rows.setdefault(style.row, {style.row: styles[style.row]})[word] = style
    return [
        (
            words,
            [
                (f"{word}, of {of}" if len(words) > 1 else f"of {of}", known[word].means)
                for word in words
                for of, known in KINDS.items()
                if word in known
            ],
        )
        for words in rows.values()
    ]


def glossary_table() -> str:
    """Write the glossary of verdicts and terms as a markdown table of word and meaning."""
    lines = ["| Word | Meaning |", "| --- | --- |"]
    for words, meanings in glossary():
        told = " ".join(f"*{of[0].upper()}{of[1:]}:* {meaning}" for of, meaning in meanings)
        lines.append(f"| {', '.join(words)} | {told} |")
    lines += [f"| {term} | {meaning} |" for term, meaning in WORDS["terms"].items()]
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------- printed values


def verdict_counts(verdicts: Iterable[str], known: Mapping[str, VerdictStyle]) -> dict[str, int]:
    """Return {verdict: how often it occurs}, in the order of `known`, without zeros."""
    counts = Counter(verdicts)
    order = dict.fromkeys((*known, *sorted(counts)))
    return {word: counts[word] for word in order if counts[word]}


def of_values(rows: Sequence[Row]) -> dict[str, int]:
    """Return {verdict: how many of a paper's printed values have it}.

    A value that is printed twice, or judged in another figure or table, counts only once.
    """
    once = (row for row in rows if not row["note"].startswith((AGAIN, ELSEWHERE)))
    return verdict_counts(map(verdict_of, once), PRINTED)


def of_claims(claims: Sequence[Sequence[Row]]) -> dict[str, int]:
    return verdict_counts((checks[0]["verdict"] for checks in claims), CLAIMS)


def verdict_of(row: Row) -> str:
    """Return the verdict of a printed value, or why the value is shown and not judged.

    `row` is the row of a printed.csv, which has our number next to the paper's.
    """
    apart = row.get("apart", "").partition(": ")[0]
    shown = standing(row)[1] or row["verdict"]
    return apart if apart in PRINTED and row["verdict"] == "reproduced" else shown


def judged(cell: TextCell, notes: Sequence[str], held: str) -> tuple[str, VerdictStyle, str] | None:
    """Return (verdict on the paper's value in a table cell, its style, sentences for a tooltip).

    The result is None for a cell without a printed value. `notes` are footnotes of the table, and
    `held` is a sentence on what all cells share: data sets and trials.
    """
    parts = cell.verdict.split(", ")
    apart = next((word for word in APART if word in parts), parts[0])
    word = apart if parts[0] == "reproduced" else parts[0]
    known = PRINTED.get(word, UNKNOWN)
    sentences = [
        f"Ours: {cell.number}. Printed: {cell.printed}.",
        f"{cell.verdict}: {known.means}",
        held,
        *(notes[at - 1] for at in cell.notes),
    ]
    return (word, known, " — ".join(filter(None, sentences))) if word else None


def printed_cells(row: Row) -> dict[str, Any]:
    """Return what pages show of a printed value: parameters, method, numbers, verdict, reasons.

    `row` is a row of a printed.csv. The dict has texts by name; "verdict" is a triple (verdict with
    its remarks, style, verdict alone).
    """
    places = [(key, text) for key, text in row.items() if key not in NO_PLACE and text]
    metric, form = all_metrics().get(row["metric"]), number_form(row["metric"])
    number = metric.title if metric else row["metric"]

    def told(value: str, spread: str) -> str:
        if not value or math.isinf(float(value)):
            return value and "not reached"
        around = f" ± {form(float(spread))}" if spread not in ("", "nan") else ""
        return form(float(value)) + around

    return {
        "cell": ", ".join(text if key == "case" else f"{key} {text}" for key, text in places),
        "method": row["method"],
        "number": f"{row['split']} {number}".strip() if number == "accuracy" else number,
        "printed": told(row["printed"], row.get("printed_sd", "")),
        "ours": told(row["mean"], row.get("sd", "")),
        "verdict": (word_of(row), PRINTED.get(verdict_of(row), UNKNOWN), verdict_of(row)),
        "reasons": reasons(row),
    }


def ratio_dots(rows: Sequence[Row]) -> dict[str, list[tuple[float, str, str]]]:
    """Return {figure or table: dots of a chart of our numbers against the paper's}.

    A dot is (log2 of our number over the paper's, cut to -2 to 2; text; colour of the verdict). A
    value that was not reached is at 2.
    """
    by_exhibit: dict[str, list[tuple[float, str, str]]] = {}
    for row in rows:
        if row["mean"] and float(row["printed"]) > 0 and row["verdict"] != "taken over":
            share, word = float(row["mean"]) / float(row["printed"]), verdict_of(row)
            place = min(max(math.log2(share) if share > 0 else -2.0, -2.0), 2.0)
            text = f"{share:.2f} of print" if math.isfinite(share) else "not reached"
            dot = (place, f"{text}, {word}", PRINTED.get(word, UNKNOWN).colour)
            by_exhibit.setdefault(row["exhibit"], []).append(dot)
    return by_exhibit


# ---------------------------------------------------------------------------------------- claims


def remarks(head: Row) -> str:
    """Write why a claim has its verdict; `head` is the claim's first row in claims.csv."""
    late = "its bound was written when first numbers were there" if head["fixed"] == "after" else ""
    notes = "; ".join(filter(None, [LABELS.get(head["label"], ""), head["note"], late]))
    return " ".join(filter(None, [head["reason"], notes and f"({notes})"]))


def of_readings(checks: Sequence[Row]) -> dict[str, Row]:
    """Return the check that decides each meaning of a claim's sentence, by a text with the verdict.

    Such a text is "one start: refuted"; a check is a row of claims.csv. If all meanings have equal
    verdicts, the only key is "", with the check that decides the claim.
    """

    def deciding(whole: str, rows: Sequence[Row]) -> Row:
        agreeing = [row for row in rows if row["check_verdict"] == whole]
        return (agreeing or [row for row in rows if row["missing"]] or rows)[0]

    found = {}
    for name, rows in by_reading(checks).items():
        whole = whole_verdict(cast(Verdict, row["check_verdict"]) for row in rows)
        found[f"{name}: {whole}"] = whole, deciding(whole, rows)
    if len({whole for whole, _ in found.values()}) < 2:
        return {"": deciding(checks[0]["verdict"], checks)}
    return {name: row for name, (_, row) in found.items()}


def unit_of(row: Row) -> tuple[float, str]:
    """Return (factor, unit) to show the numbers of a row of claims.csv, as (100.0, " points")."""
    looked = row["check"].removesuffix(row["bound"])
    if " divided by " in looked:
        return 1.0, " ×"
    if looked.startswith("correlation"):
        return 1.0, ""
    number = DIFFERENCE.sub("", looked) if DIFFERENCE.match(looked) else looked
    if number.startswith(SHARES):
        return 100.0, " points" if DIFFERENCE.search(looked) else " %"
    unit = next((unit for unit in UNITS if unit in number.partition(" of ")[0]), "")
    return 1.0, f" {unit}" if unit else ""


def interval(row: Row) -> str:
    """Write the value and interval of a claims.csv row, such as "2.5 points (2.4 to 2.6)"."""
    level = ""
    if row["confidence"] not in ("", f"{CONFIDENCE:g}"):
        level = f", at {100 * float(row['confidence']):.4g} %"
    factor, unit = unit_of(row)
    value, low, high = (factor * float(row[end] or "nan") for end in ("value", "low", "high"))
    half = (high - low) / 2
    digits = 2 if math.isnan(half) or half <= 0 else max(1 - math.floor(math.log10(half)), 0)
    # two decimals say enough, unless they hide a scatter or are fewer than those of a bound
    given = max((len(number.partition(".")[2]) for _, number in _bounds(row)), default=0)
    digits = min(digits, max(2, given) if abs(value) > half or half >= 0.005 else 6)

    def text(number: float) -> str:
        return f"{number:z,.{0 if half <= 0 and number % 1 == 0 else digits}f}".replace("-", "−")

    if math.isnan(value):
        return "" if math.isnan(low) else f"more than {low:,.6g}{unit}{level}"
    told = f"{text(value)}{_one(unit) if text(value) == '1' else unit}"
    if math.isnan(low) and math.isnan(high):
        return f"{told}, error unknown"
    ends = " to ".join("?" if math.isnan(end) else text(end) for end in (low, high))
    return told if half <= 0 else f"{told} ({ends}{level})"


def _one(unit: str) -> str:
    return re.sub(r"(?<=ss)es$|s$", "", unit)


def _bounds(row: Row) -> list[tuple[str, str]]:
    """Return the bounds of a claim's check as pairs of texts, such as ("above", "0.5")."""
    factor, _ = unit_of(row)
    return [
        (word, f"{factor * float(number):,.6g}".replace("-", "−"))
        for word, number in BOUND.findall(row["bound"])
    ]


def bound_text(row: Row) -> str:
    """Write the bound of a claims.csv row with its unit, such as "above 0.5 points"."""
    numbers = iter(_bounds(row))
    text, count = BOUND.subn(lambda match: " ".join(next(numbers)), row["bound"])
    unit = unit_of(row)[1]
    return text + (_one(unit) if text.endswith(" 1") else unit) * bool(count)
