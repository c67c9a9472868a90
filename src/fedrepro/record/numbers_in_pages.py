"""Numbers in sentences, read from the record, so that a changed metric changes the sentence.

In a page such a number is a link to its file, and the link's title says which number it is:

    [94.9](../reports/record/paper/pfnm/figure-2b.csv "PFNM at clients=25")

The title is a question: `[METRIC of ]METHOD[ in EXHIBIT][ at KEY=VALUE, …]`. Two questions with
`minus` or `over` between them ask for a difference or quotient: the second may leave out METRIC
and the first `at …`, if both have equal ones. METRIC is by default test accuracy; others are as
`accuracy (train)`, or columns of a file without metrics. A row with an empty cell fits any value of
that column. In a printed.csv the number is the paper's. `percent` before the question multiplies
the number by 100; shares are always in percent. `then` separates questions of one link.

Where several rows fit, a word before the question chooses: `least`, `most`, `range` (both ends) or
`each`, in the file's order. `interval` asks for the mean over trials and its 95 % interval (in a
claims.csv for the recorded interval and its level), `trials` for the number of each trial. The
link's text has as many numbers as the answer, in equal order. For `trials` and `interval` it may
have only the first ones, or the two ends of an interval. Each number keeps its count of decimals.

The heads of a table may be links with questions for the cells below. In them `{2}` stands for the
text of the row's second cell. A row may have a link of its own, to the file of its numbers; the
text after `row` in the link's title is `{0}`. A cell without a number stays as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import all_metrics
from fedrepro.numbers.intervals import half_width
from fedrepro.numbers.tables_and_selection import read_csv
from fedrepro.numbers.verdicts.verdicts_on_printed_values import cell_of, fits
from fedrepro.planning.drawing_base import ROUND

LINK = re.compile(
    r"\[(?P<text>[^\[\]]+)\]\((?:\.\./)*reports/record/"
    r"(?P<file>[a-z]+/[a-z0-9]+/[a-z0-9.-]+\.csv)\s+\"(?P<question>[^\"]+)\"\)"
)
NUMBER = re.compile(r"(?<![\w.-])[-−+]?\d+(?:,\d{3})*(?:\.\d+)?")
QUESTION = re.compile(
    r"(?:(?P<scale>percent) )?(?:(?P<end>least|most|range|each|interval|trials) )?"
    r"(?P<first>.+?)(?: (?P<sign>minus|over) (?P<second>.+))?"
)
SIDE = re.compile(
    r"(?:(?P<metric>[a-z0-9_]+)(?: \((?P<split>[^()]+)\))? of )?(?P<method>.+?)"
    r"(?: in (?P<exhibit>[a-z0-9.-]+))?(?: at (?P<cell>[a-z_0-9.]+=.*))?"
)
Cells = Mapping[str, object]  # a row of a file by its columns; None where it has nothing
Table = Mapping[str, Sequence[Cells]]  # by metric, "" in a file without metrics


@dataclass(frozen=True)
class RecordQuery:
    """A link in a page: text with numbers, csv below reports/record, question ("A at n=5")."""

    text: str
    file: str
    question: str


Show = Callable[[RecordQuery, str], str]  # question, answer -> what stands in the page


def filled(text: str, record: Path, show: Show | None = None) -> str:
    """Return a page's text in which each number that links to a recorded result is read from it.

    `record` is the folder of results. Links stay, or `show(link, its numbers as text)` replaces
    them. FedreproError is raised if a link's question cannot be answered.
    """

    def answer(link: re.Match[str]) -> str:
        query = RecordQuery(link["text"], link["file"], " ".join(link["question"].split()))
        of_table = "{" in query.question or query.question.startswith("row ")
        reply = query.text if of_table else _told(query, record)
        return show(query, reply) if show else link[0].replace(query.text, reply, 1)

    lines, heads = text.split("\n"), None
    for number, line in enumerate(lines):
        if not line.lstrip().startswith("|"):
            heads = None
        elif heads is None:
            heads = [LINK.search(cell) for cell in line.split("|")]
        elif any(heads):
            lines[number] = _row(line, heads, record)
    return LINK.sub(answer, "\n".join(lines))


def without_links(text: str) -> str:
    return LINK.sub(lambda match: match["text"], text)


def _row(line: str, heads: Sequence[re.Match[str] | None], record: Path) -> str:
    """Fill numbers into a table's `line`; `heads` has the link in each column's head, or None."""
    cells, row_link = line.split("|"), LINK.search(line)
    texts = [without_links(cell).strip() for cell in cells]
    if row_link:
        texts[0] = row_link["question"].removeprefix("row ")
    for index, (cell, head) in enumerate(zip(cells, heads, strict=True)):
        if head and NUMBER.search(cell):
            question = re.sub(r"\{(\d+)\}", lambda match: texts[int(match[1])], head["question"])
            cells[index] = _told(RecordQuery(cell, (row_link or head)["file"], question), record)
    return "|".join(cells)


def _told(asked: RecordQuery, record: Path) -> str:
    questions = re.split(r"(?<!,) then ", asked.question)  # labels have ", then "
    answer = [n for one in questions for n in _numbers(replace(asked, question=one), record)]
    likes = NUMBER.findall(asked.text)
    if len(likes) != len(answer):
        raise _wrong(asked, f"has {len(answer)} numbers, and the text has {len(likes)}")
    texts = map(format_like, answer, likes)
    return NUMBER.sub(lambda _: next(texts), asked.text)


@lru_cache(maxsize=64)
def _table(text: str) -> Table:
    by_metric: dict[str, list[Cells]] = {}
    for row in read_csv(text).to_dict("records"):
        cells = {str(k): None if v in ("", None) or v != v else v for k, v in row.items()}
        by_metric.setdefault(str(cells.get("metric", "")), []).append(cells)
    return by_metric


def format_like(value: float, like: str) -> str:
    """Write a number like the text `like`: with its decimals, plus sign, long minus and commas."""
    whole, point, digits = like.partition(".")
    sign = "+" if like.startswith("+") else ""
    comma = "," if "," in like or len(whole) < 4 else ""
    formatted = f"{value:{sign}z{comma}.{len(digits) if point else 0}f}"
    return formatted.replace("-", "−") if like.startswith("−") else formatted


class Measurement(NamedTuple):
    """The mean `value` of a row of results; its values in `trials`, float64 (n,), n = 0 if unknown.

    ends: low end, high end and confidence of a recorded interval, or ().
    """

    value: float
    trials: np.ndarray
    ends: tuple[float, ...] = ()


def _apart(one: Measurement, other: Measurement, sign: str) -> Measurement:
    """Return `one` minus `other` by trial, or for the `sign` "over" their quotient."""
    if sign == "over":
        return Measurement(one.value / other.value, np.empty(0))
    count = min(len(one.trials), len(other.trials))
    apart = one.trials[:count] - other.trials[:count]
    return Measurement(float(apart.mean()) if count else one.value - other.value, apart)


def _numbers(asked: RecordQuery, record: Path) -> list[float]:
    match = QUESTION.fullmatch(asked.question)
    first, second = (SIDE.fullmatch((match and match[of]) or "") for of in ("first", "second"))
    if not match or not first:
        raise _wrong(asked, "is not a question; record/numbers_in_pages.py says how to ask")
    side, end, sign = first.groupdict(), match["end"] or "each", match["sign"]
    other = second.groupdict() if second else side
    side["cell"] = side["cell"] or other["cell"]
    rows = _rows(asked, record, side)
    if second:
        other |= {} if other["metric"] else {key: side[key] for key in ("metric", "split")}
        others = _rows(asked, record, other)
        if len(rows) != len(others):
            raise _wrong(asked, "compares methods that are not at the same places")
        rows = [_apart(*both, sign) for both in zip(rows, others, strict=True)]
    if len(rows) > 1 and not match["end"]:
        raise _wrong(asked, f"fits {len(rows)} numbers in {asked.file}, not one")
    unit = all_metrics().get(side["metric"] or "accuracy")
    share = unit is not None and unit.unit.startswith("share") and sign != "over"
    factor = 100.0 if share or match["scale"] else 1.0
    values = [factor * row.value for row in rows]
    if end not in ("interval", "trials"):
        least, most = min(values), max(values)
        return {"least": [least], "most": [most], "range": [least, most]}.get(end, values)
    if not all(row.ends or len(row.trials) for row in rows):
        raise _wrong(asked, "asks for trials where there are none")
    if rows[0].ends:
        low, high, level = rows[0].ends
        values = [values[0], factor * low, factor * high, 100 * level]
    else:
        trials = factor * np.mean([row.trials for row in rows], axis=0)
        half = half_width(trials[:, None], 0.95)[0] if end == "interval" else 0.0
        values = [float(trials.mean() + offset) for offset in (0.0, -half, half)]
        values = trials.tolist() if end == "trials" else values
    many = len(NUMBER.findall(asked.text))  # two are the ends of an interval
    return values[1:3] if many == 2 and end == "interval" else values[:many]


def _rows(asked: RecordQuery, record: Path, side: Mapping[str, str | None]) -> list[Measurement]:
    """Return results that fit `side`, {part of a question, as "metric" or "method": its text}."""
    path = record / asked.file
    path = path.with_name(f"{side['exhibit']}.csv") if side["exhibit"] else path
    if not path.exists():
        said = f"the sentence with '{asked.question}' asks for {path}"
        raise FedreproError(f"{said}, which is missing")
    table, name = _table(path.read_text(encoding="utf-8")), path.stem
    metric, split, method = side["metric"] or "accuracy", side["split"], side["method"] or ""
    column, claims = "printed" if ".printed" in name else "mean", name == "claims"
    if "" in table:
        rows, column = table[""], metric
    else:
        rows, split = table.get(metric, ()), split or ("test" if metric == "accuracy" else None)
    if rows and column not in rows[0]:
        raise _wrong(asked, f"names {column}, which {asked.file} lacks")
    rows = [row for row in rows if split in (None, row.get("split"))]
    rows = [row for row in rows if fnmatchcase(str(row["claim" if claims else "method"]), method)]
    rows = _fitting(asked, rows, side["cell"])
    ends = ("low", "high", "confidence") if claims else ()
    if claims:  # a check that several readings share has several rows
        valued = [row for row in rows if row[column] is not None]
        rows = [*{tuple(row[one] for one in (column, *ends)): row for row in valued}.values()]
    if not rows:
        raise _wrong(asked, f"fits 0 numbers of {method} in {asked.file}, not one")

    found = []
    for row in rows:
        own = row if column == "mean" else {}
        paired, texts = own.get("paired_mean"), own.get("by_trial")
        numbers = [row[column] if paired is None else paired, *(row[end] for end in ends)]
        value, *limits = (math.nan if one is None else float(str(one)) for one in numbers)
        trials = np.array([] if texts is None else str(texts).split(), float)
        found.append(Measurement(value, trials, tuple(limits)))
    return found


def _fitting(asked: RecordQuery, rows: Sequence[Cells], text: str | None) -> Sequence[Cells]:
    """Return those rows whose columns have the values in `text`, as "clients=25, alpha=0.5"."""
    cell = cell_of(text or "", f"'{asked.question}'")
    if ROUND not in cell:
        rows = [row for row in rows if row.get(ROUND) is None]
    for key, value in cell.items():
        if rows and key not in rows[0]:
            raise _wrong(asked, f"names {key}, which {asked.file} lacks")
        rows = [r for r in rows if (key != ROUND if r[key] is None else fits(r[key], value))]
    return rows


def _wrong(asked: RecordQuery, what: str) -> FedreproError:
    return FedreproError(f"the number '{asked.text}' in a page: '{asked.question}' {what}")
