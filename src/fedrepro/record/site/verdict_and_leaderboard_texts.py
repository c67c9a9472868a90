"""Prepare verdicts (words, signs, colours, counts, numbers) and leaderboards for web pages.

A verdict says how our results compare with a paper's printed value or claim, as "reproduced". Rows
are of a printed.csv or claims.csv, {column: text}. On a leaderboard one test does not separate the
first group of methods from the best one. Clients have "one start" if they trained from equal
initial weights, else "different starts". Colours (of Okabe and Ito) suit any colour vision.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedrepro.core.metrics import all_metrics
from fedrepro.drawings.tables import TextCell, number_form, number_text
from fedrepro.numbers.leaderboard import ALL
from fedrepro.numbers.recommendation import later_board
from fedrepro.numbers.verdicts import verdict_counts_and_unreported_settings as counting
from fedrepro.numbers.verdicts.claim_verdicts import CONFIDENCE, whole_verdict
from fedrepro.numbers.verdicts.verdict_counts_and_unreported_settings import Row
from fedrepro.numbers.verdicts.verdicts_on_printed_values import AGAIN, APART, ELSEWHERE
from fedrepro.planning.config_files import load_yaml
from fedrepro.record.site.report_data import BoardView


class VerdictStyle(NamedTuple):
    """How pages show a verdict: sign, CSS class of its colour, meaning, glossary entry (`row`)."""

    sign: str
    colour: str
    means: str
    row: str = ""


WORDS = load_yaml(Path(__file__).with_name("words.yaml"))
PRINTED, CLAIMS, BOARD = (
    {word: VerdictStyle(**{"row": word} | style) for word, style in WORDS[kind].items()}
    for kind in ("printed", "claim", "board")
)
KINDS = {"a printed value": PRINTED, "a claim": CLAIMS, "a method on the leaderboard": BOARD}
UNKNOWN = VerdictStyle("·", "grey", "")
DIFFERENCE = re.compile(r"^(change|spread|gain) of | minus ")
SHARES = ("accuracy", "confusion", "error at")  # beginnings of the names of numbers from 0 to 1
UNITS = ("hidden units", "forward passes", "rounds", "seconds", "bytes", "clients", "steps")
LEAST, MOST = -0.25, 1.25  # scores at the ends of a bar


def glossary() -> list[tuple[dict[str, VerdictStyle], list[tuple[str, str]]]]:
    """Return the glossary's entries, pairs ({verdict: style}, [("of a claim", meaning), …])."""
    styles = PRINTED | CLAIMS | BOARD
    rows: dict[str, dict[str, VerdictStyle]] = {}
    for word, style in styles.items():
        rows.setdefault(style.row, {style.row: styles[style.row]})[word] = style
    found = []
    for words in rows.values():
        pairs = [(word, of) for word in words for of in KINDS if word in KINDS[of]]
        told = [f"{word}, of {of}" if len(words) > 1 else f"of {of}" for word, of in pairs]
        means = (KINDS[of][word].means for word, of in pairs)
        found.append((words, [*zip(told, means, strict=True)]))
    return found


def glossary_table() -> str:
    """Write the glossary of verdicts and terms as a markdown table of word and meaning."""
    lines = ["| Word | Meaning |", "| --- | --- |"]
    for words, meanings in glossary():
        told = " ".join(f"*{of[0].upper()}{of[1:]}:* {meaning}" for of, meaning in meanings)
        lines.append(f"| {', '.join(words)} | {told} |")
    lines += [f"| {term} | {meaning} |" for term, meaning in WORDS["terms"].items()]
    return "\n".join(lines) + "\n"


def verdict_counts(verdicts: Iterable[str], known: Mapping[str, VerdictStyle]) -> dict[str, int]:
    """Return {verdict: how often it occurs}, in the order of `known`, without zeros."""
    counts = Counter(verdicts)
    return {word: counts[word] for word in (*known, *sorted({*counts} - {*known})) if counts[word]}


def of_values(rows: Sequence[Row]) -> dict[str, int]:
    """Return {verdict: how many of a paper's printed values have it}, each value counted once."""
    once = (row for row in rows if not row["note"].startswith((AGAIN, ELSEWHERE)))
    return verdict_counts(map(verdict_of, once), PRINTED)


def of_claims(claims: Sequence[Sequence[Row]]) -> dict[str, int]:
    return verdict_counts((checks[0]["verdict"] for checks in claims), CLAIMS)


def verdict_of(row: Row) -> str:
    """Return the verdict in a row of printed.csv, or why the value is shown and not judged."""
    apart = row.get("apart", "").partition(": ")[0]
    shown = counting.standing(row)[1] or row["verdict"]
    return apart if apart in PRINTED and row["verdict"] == "reproduced" else shown


def judged(cell: TextCell, notes: Sequence[str], held: str) -> tuple[str, VerdictStyle, str] | None:
    """Return (verdict on a table cell, its style, sentences for a tooltip); None without a verdict.

    `notes` are footnotes of the table; `held` names the parameter values that all cells share.
    """
    word, *more = cell.verdict.split(", ")
    word = next((apart for apart in APART if apart in more), word) if word == "reproduced" else word
    known = PRINTED.get(word, UNKNOWN)
    sentences = [f"Ours: {cell.number}. Printed: {cell.printed}.", f"{cell.verdict}: {known.means}"]
    sentences += filter(None, [held, *(notes[at - 1] for at in cell.notes)])
    return (word, known, " — ".join(sentences)) if word else None


def printed_cells(row: Row) -> list[str]:
    """Return texts of a printed.csv row: parameters, method, metric, the paper's value, ours."""
    places = [(key, text) for key, text in row.items() if key not in counting.NO_PLACE and text]
    metric = all_metrics().get(row["metric"])
    number = metric.title if metric else row["metric"]
    form = number_form(row["metric"]) if metric else "{:,.6g}".format

    def told(value: str, spread: str) -> str:
        if not value or math.isinf(float(value)):
            return value and "not reached"
        return number_text(form, float(value), float(spread or "nan"))

    return [
        ", ".join(text if key == "case" else f"{key} {text}" for key, text in places),
        row["method"],
        f"{row['split']} {number}".strip() if number in ("accuracy", "setting") else number,
        told(row["printed"], row.get("printed_sd", "")),
        told(row["mean"], row.get("sd", "")),
    ]


def remarks(head: Row) -> str:
    """Write why a claim has its verdict; `head` is the claim's first row in claims.csv."""
    late = "its bound was written when first numbers were there" if head["fixed"] == "after" else ""
    notes = "; ".join(filter(None, [WORDS["labels"].get(head["label"], ""), head["note"], late]))
    return " ".join(filter(None, [head["reason"], notes and f"({notes})"]))


def of_readings(checks: Sequence[Row]) -> dict[str, Row]:
    """Return, for each reading (possible meaning) of a claim, a check that shows its verdict.

    Keys are a reading and its verdict, such as "one start: refuted", or only "" if all readings
    have equal verdicts. A check is a row of claims.csv; the first with the verdict is taken.
    """
    readings: dict[str, list[Row]] = {}
    for row in checks:
        readings.setdefault(row["reading"], []).append(row)
    wholes = {k: whole_verdict(one["check_verdict"] for one in v) for k, v in readings.items()}
    if len({*wholes.values()}) < 2:
        readings, wholes = {"": [*checks]}, {"": checks[0]["verdict"]}
    found = {}
    for name, rows in readings.items():
        agreeing = [row for row in rows if row["check_verdict"] == wholes[name]]
        first = (agreeing or [row for row in rows if row["missing"]] or rows)[0]
        found[f"{name}: {wholes[name]}" if name else ""] = first
    return found


def _unit_of(row: Row) -> tuple[float, str]:
    """Return (factor, unit) to show the numbers of a row of claims.csv, as (100.0, " points")."""
    looked = row["check"].removesuffix(row["bound"])
    if " divided by " in looked:
        return 1.0, " ×"
    number = DIFFERENCE.sub("", looked) if DIFFERENCE.match(looked) else looked
    if number.startswith(SHARES):
        return 100.0, " points" if DIFFERENCE.search(looked) else " %"
    of = "" if looked.startswith("correlation") else number.partition(" of ")[0]
    return 1.0, next((f" {unit}" for unit in UNITS if unit in of), "")


def interval(row: Row) -> str:
    """Write the value and interval of a claims.csv row, such as "2.5 points (2.4 to 2.6)"."""
    usual = row["confidence"] in ("", f"{CONFIDENCE:g}")
    level = "" if usual else f", at {100 * float(row['confidence']):.4g} %"
    factor, unit = _unit_of(row)
    value, low, high = (factor * float(row[end] or "nan") for end in ("value", "low", "high"))
    half = (high - low) / 2
    digits = 2 if math.isnan(half) or half <= 0 else max(1 - math.floor(math.log10(half)), 0)
    # two decimals say enough, unless they hide a scatter or are fewer than those of a bound
    given = max((len(number.partition(".")[2]) for number in _bounds(row)), default=0)
    digits = min(digits, max(2, given) if abs(value) > half or half >= 0.005 else 6)

    def text(number: float) -> str:
        return f"{number:z,.{0 if half <= 0 and number % 1 == 0 else digits}f}".replace("-", "−")

    if math.isnan(value):
        return "" if math.isnan(low) else f"more than {low:,.6g}{unit}{level}"
    told = _with_unit(text(value), unit)
    if math.isnan(low) and math.isnan(high):
        return f"{told}, error unknown"
    ends = " to ".join("?" if math.isnan(end) else text(end) for end in (low, high))
    return told if half <= 0 else f"{told} ({ends}{level})"


def _with_unit(text: str, unit: str) -> str:
    return text + (re.sub(r"(?<=ss)es$|s$", "", unit) if text.split()[-1] == "1" else unit)


def _bounds(row: Row) -> list[str]:
    factor, _ = _unit_of(row)
    numbers = (float(number) for _, number in counting.BOUND.findall(row["bound"]))
    return [f"{factor * number:,.6g}".replace("-", "−") for number in numbers]


def bound_text(row: Row) -> str:
    """Write the bound of a claims.csv row with its unit, such as "above 0.5 points"."""
    numbers = iter(_bounds(row))
    text, count = counting.BOUND.subn(lambda match: f"{match[1]} {next(numbers)}", row["bound"])
    return _with_unit(text, _unit_of(row)[1]) if count else text


def superseded_by(shown: BoardView, others: Sequence[BoardView]) -> str:
    """Return the key of the complete leaderboard in `others` that supersedes `shown`, or ""."""
    return later_board(shown.key, {board.key: board.about for board in others})


def along(score: Any) -> float:
    """Return where a score is on a bar from -0.25 to 1.25, in percent; 0 for a missing score."""
    inside = LEAST if is_none(score) else min(max(score, LEAST), MOST)
    return round(100 * (inside - LEAST) / (MOST - LEAST), 1)


def score_of(method: str, rows: Any) -> float | None:
    """Return the score of a method in a leaderboard's table `rows`; None if the table lacks it."""
    scores = rows[rows["method"] == method]["score"]
    return float(scores.iloc[0]) if len(scores) else None


def answer(shown: BoardView) -> dict[str, Any]:
    """Return the outcome of a leaderboard for the home page; {} if its methods have no groups.

    paper, data: name, and data sets. line: the method to beat, such as "best client"; at: its score
    over all data sets. picture: rows of ranked methods over all data sets. above: [(data set,
    methods shown to be better than `line`)]. leaders: per class of methods (class, data set, labels
    of the first group, its highest score, score of `line`). The data set is the first where that
    group leaves out a method, else the first.
    """
    line, table = shown.about["board"]["line"], shown.table
    table = table[table["starts"] == table["starts"].iloc[0]]
    by_data = {
        "all data sets" if data == ALL else str(data): rows
        for data, rows in table.groupby("data", sort=False)
    }
    rivals = {data: rows[rows["class"] != "reference"] for data, rows in by_data.items()}
    (*_, last), (*_, picture) = by_data.values(), rivals.values()
    if all(rows["group"].isna().all() for rows in rivals.values()):
        return {}
    better = f"beside_{line.replace(' ', '_')}"
    leaders = []
    for kind in dict.fromkeys(kind for rows in rivals.values() for kind in rows["class"]):
        each = [(data, rows[rows["class"] == kind]) for data, rows in rivals.items()]
        groups = [(data, own, own[own["group"] == 1]) for data, own in each]
        data, _, first = next((g for g in groups if 0 < len(g[2]) < len(g[1])), groups[0])
        if len(first):
            scores = score_text(first["score"].max()), score_text(score_of(line, by_data[data]))
            leaders.append((kind, data, first["method"].tolist(), *scores))
    return {
        "paper": shown.key.partition("/")[0],
        "data": [*by_data],
        "picture": picture,
        "leaders": leaders,
        "above": [(d, r[r[better] == "better"]["method"].tolist()) for d, r in rivals.items()],
        "line": line,
        "at": score_of(line, last),
    }


def made_from(about: Mapping[str, Any]) -> str:
    """Write from a leaderboard's json how many tables it has, and which scenarios lack a score."""
    whole = len(about["parts"]) + len(about["missing"])
    names = "; ".join(about["without_score"])
    lost = f" Without a score, since baseline and ceiling are too near: {names}." if names else ""
    return f"Made from {len(about['parts'])} of {whole} exhibits.{lost}"


def notes_on(rows: Any) -> str:
    """Write what is resampled (trials, scenarios) for the intervals of leaderboard `rows`.

    Other tests, such as Wilcoxon's, are named if their first groups differ from the leaderboard's.
    """
    ranges, others = [], []
    scored, grouped = rows[rows["score"].notna()], rows[rows["group"].notna()]
    for drawn, members in scored.groupby("drawn_again", sort=False):
        kinds = f" ({', '.join(members['class'].unique())})"
        ranges.append(f"{drawn} are drawn again" + kinds * (rows["drawn_again"].nunique() > 1))
    for column, test in WORDS["tests"].items():
        for kind, members in grouped.groupby("class", sort=False):
            first, other = (members[members[name] == 1]["method"] for name in ("group", column))
            if set(first) != set(other):
                others.append(f"{test} gives {joined_names(other.tolist())} ({kind})")
    text = f"In these intervals {'; '.join(ranges)}." if ranges else ""
    text += " Fewer than three scenarios make no groups." if ranges and grouped.empty else ""
    return text + (f" Other first groups: {'; '.join(others)}." if others else "")


def by_scenario(shown: BoardView, starts: str) -> tuple[list[str], list[list[str]]]:
    """Return (scenarios, [[method, "accuracy (score)" in each]]) for `starts` ("one start", …)."""
    rows = shown.scenarios.query("starts == @starts and case != @ALL")
    texts: dict[str, dict[str, str]] = {}
    for key, own in rows.groupby(["data", "case", "clients", "method"], sort=False):
        data, case, clients, method = map(str, key)
        means = own.set_index("metric")["mean"].to_dict()
        if "accuracy" in means:
            score = score_text(means.get("score"))
            text = f"{100 * means['accuracy']:.1f}" + (f" ({score})" if score else "")
            texts.setdefault(f"{data}, {case}, {float(clients):g} clients", {})[method] = text
    order = shown.table[shown.table["starts"] == starts]["method"].unique()
    return [*texts], [[name, *(own.get(name, "–") for own in texts.values())] for name in order]


def joined_names(names: Sequence[str], last: str = "and") -> str:
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def score_text(value: Any) -> str:
    """Write a score with two digits and a long minus; "" where the table has no score."""
    return "" if is_none(value) else f"{value:z.2f}".replace("-", "−")


def is_none(value: Any) -> bool:
    return value is None or value == "" or value != value
