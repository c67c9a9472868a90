"""Words on printed values, claims and methods, each with a sign and a colour, and counted.

The colours of Okabe and Ito are distinct for people with any colour vision; the sign needs none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrepro.numbers.verdicts.printed_verdicts import AGAIN, ELSEWHERE
from fedrepro.numbers.verdicts.summary_sentences import standing


@dataclass(frozen=True)
class VerdictStyle:
    """A verdict: its sign, a class of site.css, and its meaning in a sentence."""

    sign: str
    colour: str
    meaning: str


PRINTED = {
    "reproduced": VerdictStyle("✓", "good", "Ours is within the tolerance of what is printed."),
    "calibrated": VerdictStyle(
        "≡", "pale", "Settings were chosen for nearness to print, so it is not judged."
    ),
    "nearly fixed": VerdictStyle(
        "≡", "pale", "It could hardly come out otherwise, so it is not judged."
    ),
    "rerun": VerdictStyle(
        "↻", "pale", "Within the tolerance of what others got from the authors' code."
    ),
    "better": VerdictStyle("▲", "sky", "Ours is better than printed by more than the tolerance."),
    "worse": VerdictStyle("▼", "bad", "Ours is worse than printed by more than the tolerance."),
    "differs": VerdictStyle(
        "≠", "bad", "Ours differs by more than the tolerance; neither is better."
    ),
    "another set-up": VerdictStyle(
        "◇", "violet", "A setting that the paper does not give moves ours that far towards print."
    ),
    "set-up open": VerdictStyle(
        "?", "amber", "A setting that the paper does not give may explain the difference."
    ),
    "undecided": VerdictStyle("?", "amber", "The difference is no more than trials scatter."),
    "one trial": VerdictStyle(
        "·", "grey", "One trial of ours, whose scatter is not known: not judged."
    ),
    "few trials": VerdictStyle(
        "·", "grey", "Trials scatter too much for print to be met: not judged."
    ),
    "failed": VerdictStyle("!", "bad", "Ours is not a number."),
    "stand-in": VerdictStyle(
        "≈", "grey", "Ours is of other data than the paper's, so it is not judged."
    ),
    "reduced": VerdictStyle(
        "≈", "grey", "Ours is of less than the paper's size, so it is not judged."
    ),
    "taken over": VerdictStyle("=", "grey", "A setting of the paper that is the same here."),
    "shown": VerdictStyle("·", "grey", "Shown beside each other and not judged."),
    "not run": VerdictStyle("–", "blank", "Nobody has run it here yet."),
}
CLAIMS = {
    "holds": VerdictStyle("✓", "good", "The interval of every check lies within its bound."),
    "depends": VerdictStyle(
        "◐", "violet", "It holds under one reading of the sentence and not another."
    ),
    "stand-in only": VerdictStyle(
        "≈", "grey", "None of its data are the paper's, so it is not judged."
    ),
    "undecided": VerdictStyle(
        "?", "amber", "An interval reaches over its bound, or trials are too few."
    ),
    "refuted": VerdictStyle("✗", "bad", "The interval of a check lies outside its bound."),
    "incomplete": VerdictStyle("…", "ash", "A part of what it needs has not been run."),
    "not run": VerdictStyle("–", "blank", "Nothing of what it needs has been run."),
    "no verdict": VerdictStyle("·", "grey", "It says nothing that a run could contradict."),
}
BOARD = {
    "better": VerdictStyle(
        "▲", "sky", "One test of all pairs shows it to be above the best client alone."
    ),
    "worse": VerdictStyle("▼", "bad", "The test shows it to be below the best client alone."),
    "not shown": VerdictStyle(
        "·", "grey", "The test shows neither, which does not mean that both are alike."
    ),
}
UNKNOWN = VerdictStyle("·", "grey", "")


def verdict_counts(verdicts: Sequence[str], known: Mapping[str, VerdictStyle]) -> dict[str, int]:
    """Return the count of each verdict, in the order of `known`."""
    counts = Counter(verdicts)
    return {
        word: counts[word] for word in (*known, *sorted(set(counts) - set(known))) if counts[word]
    }


def of_values(rows: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """Count the printed quantities by verdict.

    A value that is printed twice counts once; one that another exhibit judges counts there.
    """
    once = [row for row in rows if not row["note"].startswith((AGAIN, ELSEWHERE))]
    return verdict_counts([verdict_of(row) for row in once], PRINTED)


def verdict_of(row: Mapping[str, str]) -> str:
    """Return the word of a printed value: its verdict, or why it is shown and not judged."""
    apart = row.get("apart", "").partition(": ")[0]
    shown = standing(row)[1] or row["verdict"]
    return apart if apart in PRINTED and row["verdict"] == "reproduced" else shown


def of_claims(claims: Sequence[Sequence[Mapping[str, str]]]) -> dict[str, int]:
    return verdict_counts([checks[0]["verdict"] for checks in claims], CLAIMS)


def slug(name: str) -> str:
    """Return the anchor of a word in the glossary."""
    return name.replace(" ", "-")


def glossary() -> list[tuple[str, VerdictStyle, list[tuple[str, str]]]]:
    """Return every word with its sign and its meaning for numbers, claims and methods."""
    kinds = {"a printed number": PRINTED, "a claim": CLAIMS, "a method on the leaderboard": BOARD}
    words = dict.fromkeys(word for known in kinds.values() for word in known)
    return [
        (word, next(known[word] for known in kinds.values() if word in known),
         [(of, known[word].meaning) for of, known in kinds.items() if word in known])
        for word in words
    ]  # fmt: skip


def ratio_dots(rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Place the ratio of ours to print of every value that has both, for papers without a figure.

    The axis is logarithmic from a quarter to four times; unreached values stand at its end.

    Returns:
        `high`, `ticks` and `rows` of the drawing, a row an exhibit: (name, height, [(x, text,
        colour)]); {} without a value.
    """
    left, reach, step = 142.0, 268.0, 26.0
    by_exhibit: dict[str, list[tuple[float, str, str]]] = {}

    def x(share: float) -> float:
        at = min(max(math.log2(share) if share > 0 else -2.0, -2.0), 2.0)
        return left + reach * (at + 2) / 4

    for row in rows:
        if row["mean"] and float(row["printed"]) > 0 and row["verdict"] != "taken over":
            share, word = float(row["mean"]) / float(row["printed"]), verdict_of(row)
            text = f"{share:.2f} of print" if math.isfinite(share) else "not reached"
            colour = PRINTED.get(word, UNKNOWN).colour
            dot = (x(share), f"{row['exhibit']}: {text}, {word}", colour)
            by_exhibit.setdefault(row["exhibit"], []).append(dot)
    ticks = ((0.25, "¼"), (0.5, "½"), (1.0, "print"), (2.0, "2 ×"), (4.0, "4 ×"))
    lines = [(name, 14 + step * at, dots) for at, (name, dots) in enumerate(by_exhibit.items())]
    drawn = {"ticks": [(x(share), label) for share, label in ticks], "rows": lines}
    return {"high": step * len(lines) + 40, **drawn} if lines else {}
