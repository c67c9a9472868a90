"""Words on printed values and claims, each with a sign and a colour, counted and drawn as a bar.

Colours are those of Okabe and Ito, which people of any colour vision tell apart; the sign says the
same without colour.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrepro.drawings.tables import html_text
from fedrepro.verdicts.counted import standing
from fedrepro.verdicts.published import AGAIN, ELSEWHERE


@dataclass(frozen=True)
class Word:
    """A verdict. colour: a class of site.css. told: what it means, in a sentence."""

    sign: str
    colour: str
    told: str


PRINTED = {
    "reproduced": Word("✓", "good", "Ours is within the tolerance of what is printed."),
    "calibrated": Word(
        "≡", "pale", "Settings were chosen for nearness to print, so it is not judged."
    ),
    "nearly fixed": Word("≡", "pale", "It could hardly come out otherwise, so it is not judged."),
    "rerun": Word("↻", "pale", "Within the tolerance of what others got from the authors' code."),
    "better": Word("▲", "sky", "Ours is better than printed by more than the tolerance."),
    "worse": Word("▼", "bad", "Ours is worse than printed by more than the tolerance."),
    "differs": Word("≠", "bad", "Ours differs by more than the tolerance; neither is better."),
    "another set-up": Word(
        "◇", "violet", "A setting that the paper does not give moves ours that far towards print."
    ),
    "set-up open": Word(
        "?", "amber", "A setting that the paper does not give may explain the difference."
    ),
    "undecided": Word("?", "amber", "The difference is no more than trials scatter."),
    "one trial": Word("·", "grey", "One trial of ours, whose scatter is not known: not judged."),
    "few trials": Word("·", "grey", "Trials scatter too much for print to be met: not judged."),
    "failed": Word("!", "bad", "Ours is not a number."),
    "stand-in": Word("≈", "grey", "Ours is of other data than the paper's, so it is not judged."),
    "reduced": Word("≈", "grey", "Ours is of less than the paper's size, so it is not judged."),
    "taken over": Word("=", "grey", "A setting of the paper that is the same here."),
    "shown": Word("·", "grey", "Shown beside each other and not judged."),
    "not run": Word("–", "blank", "Nobody has run it here yet."),
}
CLAIMS = {
    "holds": Word("✓", "good", "The interval of every check lies within its bound."),
    "depends": Word("◐", "violet", "It holds under one reading of the sentence and not another."),
    "stand-in only": Word("≈", "grey", "None of its data are the paper's, so it is not judged."),
    "undecided": Word("?", "amber", "An interval reaches over its bound, or trials are too few."),
    "refuted": Word("✗", "bad", "The interval of a check lies outside its bound."),
    "incomplete": Word("…", "ash", "A part of what it needs has not been run."),
    "not run": Word("–", "blank", "Nothing of what it needs has been run."),
    "no verdict": Word("·", "grey", "It says nothing that a run could contradict."),
}
# of a bar and of a number on it
FILLS = {
    "good": ("#0072b2", "#fff"),
    "sky": ("#56b4e9", "#14161a"),
    "bad": ("#b04e00", "#fff"),
    "violet": ("#85517a", "#fff"),
    "amber": ("#e69f00", "#14161a"),
    "grey": ("#656b75", "#fff"),
    "ash": ("#9aa1ab", "#14161a"),
    "blank": ("#d0d3d8", "#14161a"),
    "pale": ("#9fcdea", "#14161a"),
}
UNKNOWN = Word("·", "grey", "")


def word_of_claim(verdict: str) -> Word:
    return CLAIMS.get(verdict, UNKNOWN)


def word_of_value(verdict: str) -> Word:
    return PRINTED.get(verdict, UNKNOWN)


def counted(verdicts: Sequence[str], known: Mapping[str, Word]) -> dict[str, int]:
    """Verdict -> how many, in the order of `known`."""
    counts = Counter(verdicts)
    return {
        word: counts[word] for word in (*known, *sorted(set(counts) - set(known))) if counts[word]
    }


def of_values(rows: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """How many printed quantities have each verdict.

    What is printed again counts once, and what is judged in another exhibit there.
    """
    once = [row for row in rows if not row["note"].startswith((AGAIN, ELSEWHERE))]
    return counted([verdict_of(row) for row in once], PRINTED)


def verdict_of(row: Mapping[str, str]) -> str:
    """Give the word of a printed value: why it is shown and not judged, or its verdict."""
    apart = row.get("apart", "").partition(": ")[0]
    shown = standing(row)[1] or row["verdict"]
    return apart if apart in PRINTED and row["verdict"] == "reproduced" else shown


def of_claims(claims: Sequence[Sequence[Mapping[str, str]]]) -> dict[str, int]:
    return counted([checks[0]["verdict"] for checks in claims], CLAIMS)


def bar(counts: Mapping[str, int], known: Mapping[str, Word], title: str) -> str:
    """A stacked bar, and under it the same as a list of words and numbers."""
    whole = sum(counts.values())
    if not whole:
        return ""
    parts, items = [], []
    for name, count in counts.items():
        word = known.get(name, UNKNOWN)
        share = 100 * count / whole
        text = f"{count} {name}"
        inside = f"{word.sign}&nbsp;{count}" if share >= 7 else ""
        small = " small" if share < 14 else ""  # no room for its number on a phone
        parts.append(
            f'<span class="part {word.colour}{small}" style="width:{share:.2f}%" '
            f'title="{html_text(f"{text}. {word.told}")}">{inside}</span>'
        )
        items.append(
            f'<li><span class="sign {word.colour}">{word.sign}</span> {html_text(text)}</li>'
        )
    return (
        f'<div class="bar-row"><p class="bar-title">{html_text(title)}</p>'
        f'<div class="bar" aria-hidden="true">{"".join(parts)}</div>'
        f'<ul class="bar-words">{"".join(items)}</ul></div>'
    )


def picture(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Claims by verdict as an svg of its own, a bar a paper: for pages that have no styles."""
    wide, left, step = 760.0, 100.0, 44.0
    used = {word for verdicts in counts.values() for word in verdicts}
    parts, words = [], [name for name in CLAIMS if name in used]
    high = step * len(counts) + 22 + 22 * -(-len(words) // 4)
    for at, (name, by_verdict) in enumerate(counts.items()):
        x, y = left, 10 + step * at
        parts.append(f'<text x="0" y="{y + 21:g}" font-weight="600">{html_text(name)}</text>')
        for word, count in by_verdict.items():
            known = word_of_claim(word)
            width = (wide - left) * count / sum(by_verdict.values())
            parts.append(
                f'<rect x="{x:.1f}" y="{y:g}" width="{width - 1:.1f}" height="32" '
                f'fill="{FILLS[known.colour][0]}"><title>{count} {word}</title></rect>'
                f'<text x="{x + width / 2:.1f}" y="{y + 21:g}" text-anchor="middle" '
                f'fill="{FILLS[known.colour][1]}">{count}</text>'
            )
            x += width
    for at, word in enumerate(words):
        x, y, known = 10 + 190 * (at % 4), step * len(counts) + 18 + 22 * (at // 4), CLAIMS[word]
        parts.append(
            f'<rect x="{x}" y="{y:g}" width="12" height="12" '
            f'fill="{FILLS[known.colour][0]}"/><text x="{x + 17}" y="{y + 11:g}">{word}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" '
        'font-family="sans-serif" font-size="14" role="img">'
        f"<title>Claims by verdict, a bar a paper</title>"
        f'<rect width="{wide:g}" height="{high:g}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def beside(rows: Sequence[Mapping[str, str]]) -> str:
    """Ours over print of every value that has both, a row an exhibit: for papers without a figure.

    The axis is a logarithm from a quarter to four times; what was not reached stands at its end.
    """
    wide, left, step = 420.0, 132.0, 26.0
    by_exhibit: dict[str, list[tuple[float, str]]] = {}
    for row in rows:
        if row["mean"] and float(row["printed"]) > 0 and row["verdict"] not in ("taken over",):
            share = float(row["mean"]) / float(row["printed"])
            by_exhibit.setdefault(row["exhibit"], []).append((share, verdict_of(row)))
    if not by_exhibit:
        return ""

    def x(share: float) -> float:
        at = min(max(math.log2(share) if share > 0 else -2.0, -2.0), 2.0)
        return left + 10 + (wide - left - 20) * (at + 2) / 4

    high = step * len(by_exhibit) + 40
    parts = [
        f'<line class="{"same" if share == 1 else "tick"}" x1="{x(share):.1f}" x2="{x(share):.1f}" '
        f'y1="4" y2="{high - 34:g}"/><text x="{x(share):.1f}" y="{high - 20:g}" '
        f'text-anchor="middle">{label}</text>'
        for share, label in ((0.25, "¼"), (0.5, "½"), (1.0, "print"), (2.0, "2 ×"), (4.0, "4 ×"))
    ]
    for at, (name, values) in enumerate(by_exhibit.items()):
        y = 14 + step * at
        parts.append(f'<text x="0" y="{y + 4:g}">{html_text(name)}</text>')
        for share, word in values:
            text = f"{share:.2f} of print" if math.isfinite(share) else "not reached"
            colour = word_of_value(word).colour
            parts.append(
                f'<circle class="{colour}" cx="{x(share):.1f}" cy="{y:g}" r="5">'
                f"<title>{html_text(name)}: {text}, {word}</title></circle>"
            )
    parts.append(
        f'<text x="{x(1.0):.1f}" y="{high - 4:g}" text-anchor="middle">ours over print, a dot a '
        "printed number</text>"
    )
    whole = sum(map(len, by_exhibit.values()))
    return (
        f'<svg class="beside" viewBox="0 0 {wide:g} {high:g}" role="img" aria-label="{whole} '
        f'printed numbers of {len(by_exhibit)} exhibits, ours over print">{"".join(parts)}</svg>'
    )


def legend(known: Mapping[str, Word]) -> str:
    """What each word means."""
    items = "".join(
        f'<li><span class="sign {word.colour}">{word.sign}</span> <b>{name}</b>: {word.told}</li>'
        for name, word in known.items()
    )
    return f'<ul class="legend">{items}</ul>'
