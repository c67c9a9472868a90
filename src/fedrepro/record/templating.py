"""Numbers in sentences, read from the record, so that a changed metric changes the sentence.

In a page such a number is a link to its file, and the link's title says which number it is:

    [94.9](../reports/record/paper/pfnm/figure-2b.csv "PFNM at clients=25")

The title is a question: `[METRIC of ]METHOD[ in EXHIBIT][ at KEY=VALUE, …]`, or two of these with
`minus`, `over` (the quotient) or `beyond` (the quotient less one) between them; a part that one
leaves out is that of the other. A metric is one such as `accuracy (train)`, by default test
accuracy, or a column of a file without metrics. A method without a value in a column fits any value
of it. In a printed.csv the number is the paper's; `minus print` and the like compare ours with it.
Before the whole question, `percent` multiplies the number by a hundred (shares are always in
percent), `giga` divides it by a billion, and `minus` changes its sign. `then` stands between two
questions.

Where several rows fit, a word chooses among them: `least`, `most`, `mean`, `range` (both ends) or
`each`, in the file's order. `interval` is the mean over trials with its 95 % interval (in a
claims.csv the recorded one, and its level), `sd` the standard deviation over trials, `trials` one
after another. The link's text has as many numbers as the answer, in its order, or an interval's two
ends, or fewer; their digits are kept.

`rows[ at KEY=VALUE, …]` counts the rows that fit. For a leaderboard the question may be `group 1 of
one model on MNIST`: the methods of this group and class, best first, of clients that start as in
the first row, on this data set or on all together. For a claims.csv it may be `claims`, or `claims
that` and a verdict.

The heads of a table may be questions. There `{2}` stands for the text of the row's second cell. A
row may have a link of its own, to the file of its numbers; the text after `row` in its title is
`{0}`. A cell without a number stays as it is.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd

from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import all_metrics
from fedrepro.numbers.exhibit_tables import ROUND, read_csv
from fedrepro.numbers.intervals import half_width
from fedrepro.numbers.verdicts.printed_verdicts import cell_of, fits

LINK = re.compile(
    r"\[(?P<text>[^\[\]]+)\]\((?P<path>(?P<up>(?:\.\./)*)reports/record/"
    r"(?P<file>[a-z]+/[a-z0-9]+/[a-z0-9.-]+\.(?:csv|parquet)))\s+\"(?P<question>[^\"]+)\"\)"
)
# a page may name its links at its end: [94.1][pfnm], and in a line of its own
# [pfnm]: reports/record/paper/pfnm/figure-2b.csv "PFNM at clients=25"
USE = re.compile(r"\[(?P<text>[^\[\]]+)\]\[(?P<label>[^\[\]]+)\]")
DEFINITION = re.compile(
    r"^\[(?P<label>[^\[\]]+)\]: reports/record/"
    r"(?P<file>[a-z]+/[a-z0-9]+/[a-z0-9.-]+\.(?:csv|parquet))\s+\"(?P<question>[^\"]+)\"$",
    re.MULTILINE,
)
NUMBER = re.compile(r"(?<![\w.-])[-−+]?\d+(?:,\d{3})*(?:\.\d+)?")
SCALES = {None: 1.0, "percent": 100.0, "giga": 1e-9}
ONE_OF: dict[str, Callable[[list[float]], float]] = {
    "least": min,
    "most": max,
    "mean": fmean,
}
OF_TRIALS = ("interval", "sd", "trials")
QUESTION = re.compile(
    r"(?P<less>minus )?(?:(?P<scale>percent|giga) )?"
    rf"(?:(?P<end>{'|'.join(ONE_OF)}|range|each|{'|'.join(OF_TRIALS)}) )?"
    r"(?P<first>.+?)(?: (?P<sign>minus|over|beyond) (?P<second>.+))?"
)
SIDE = re.compile(
    r"(?:(?P<metric>[a-z0-9_]+)(?: \((?P<split>[^()]+)\))? of )?(?P<method>.+?)"
    r"(?: in (?P<exhibit>[a-z0-9.-]+))?(?: at (?P<cell>[a-z_0-9.]+=.*))?"
)
GROUP = re.compile(r"group (?P<number>\d+) of (?P<kind>.+?)(?: on (?P<data>.+))?")
COUNT = re.compile(r"rows(?: at (?P<cell>.+))?")
PRINT = "print"
Cells = Mapping[str, object]  # a row of a file by its columns; None where it has nothing
VERDICTS = {"hold": "holds", "are refuted": "refuted", "are undecided": "undecided"}


@dataclass(frozen=True)
class RecordQuery:
    """A link in a page whose numbers are read from the recorded results.

    text: the numbers as the page has them; file: csv below reports/record; question: which numbers.
    """

    text: str
    file: str
    question: str


Show = Callable[
    [RecordQuery, str], str
]  # what was asked, and the answer -> what stands in the page


def filled(text: str, record: Path, show: Show | None = None) -> str:
    """Return a page's text in which each number that links to a recorded result is read from it.

    `record` is the folder of recorded results. Links stay, or are replaced by what `show` returns.
    """
    named = {match["label"]: match for match in DEFINITION.finditer(text)}

    def answer(match: re.Match[str]) -> str:
        link = match if match.re is LINK else named.get(match["label"])
        if link is None:
            return match[0]
        query = RecordQuery(match["text"], link["file"], " ".join(link["question"].split()))
        of_table = "{" in query.question or query.question.startswith("row ")
        reply = query.text if of_table else _told(query, record)
        return show(query, reply) if show else match[0].replace(match["text"], reply, 1)

    lines, heads = text.split("\n"), None
    for number, line in enumerate(lines):
        if not line.lstrip().startswith("|"):
            heads = None
        elif heads is None:
            heads = [LINK.search(cell) for cell in line.split("|")]
        elif any(heads):
            lines[number] = _row(line, heads, record)
    return USE.sub(answer, LINK.sub(answer, "\n".join(lines)))


def without_links(text: str) -> str:
    """Return `text` with each link to a recorded result replaced by the link's number."""
    return LINK.sub(lambda match: match["text"], text)


def _row(line: str, heads: Sequence[re.Match[str] | None], record: Path) -> str:
    """Fill in a line of a markdown table from recorded results, as the links in `heads` ask."""
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
    answer = _answer(asked, record)
    if isinstance(answer, str):
        return answer
    likes = NUMBER.findall(asked.text)
    if len(likes) != len(answer):
        raise _wrong(asked, f"has {len(answer)} numbers, and the text has {len(likes)}")
    texts = iter([format_like(*both) for both in zip(answer, likes, strict=True)])
    return NUMBER.sub(lambda _: next(texts), asked.text)


def _answer(asked: RecordQuery, record: Path) -> list[float] | str:
    path = _file(asked, record)
    count, group = COUNT.fullmatch(asked.question), GROUP.fullmatch(asked.question)
    if group:
        return _group(asked, read_csv(path.read_text(encoding="utf-8")), group)
    claims = path.name == "claims.csv" and asked.question.startswith("claims")
    if count or claims:
        rows = [row for some in _parsed(path.read_bytes(), path.suffix).values() for row in some]
        if count:
            return [float(len(_fitting(asked, rows, count["cell"], empty=False)))]
        verdicts = [*{row["claim"]: row["verdict"] for row in rows}.values()]
        verdict = asked.question.partition(" that ")[2]
        return [float(verdicts.count(VERDICTS.get(verdict, verdict)) if verdict else len(verdicts))]
    return [
        number
        for question in re.split(r"(?<!,) then ", asked.question)  # labels have ", then "
        for number in _numbers(replace(asked, question=question), record)
    ]


def _file(asked: RecordQuery, record: Path, exhibit: str | None = None) -> Path:
    path = record / asked.file
    path = path.with_name(f"{exhibit}.csv") if exhibit else path
    if not path.exists():
        raise FedreproError(
            f"the sentence with '{asked.question}' asks for {path}, which is missing"
        )
    return path


@lru_cache(maxsize=64)
def _parsed(content: bytes, suffix: str) -> Mapping[str, Sequence[Cells]]:
    """Return {metric, or "" without metrics: rows} of a csv or parquet file; results are cached."""
    if suffix == ".parquet":
        frame = pd.read_parquet(io.BytesIO(content)).rename(columns={"value": "mean"})
    else:
        frame = read_csv(content.decode())
    by_metric: dict[str, list[Cells]] = {}
    for row in frame.to_dict("records"):
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


def _group(asked: RecordQuery, board: pd.DataFrame, group: re.Match[str]) -> str:
    board = board[board["starts"] == board["starts"].iloc[0]]
    data = group["data"] or board["data"].iloc[-1]
    rows = board[(board["data"] == data) & (board["class"] == group["kind"])]
    names = rows[rows["group"] == float(group["number"])]["method"].tolist()
    if not names:
        raise _wrong(asked, f"finds no method in {asked.file}")
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


@dataclass(frozen=True)
class Measurement:
    """The numbers of one row of a results table: the mean `value`, its trials and its interval.

    trials: values by trial, float64 (trials,), empty if not kept. ends: low end, high end and
    confidence of a recorded interval, or ().
    """

    value: float
    trials: np.ndarray
    ends: tuple[float, ...] = ()

    def apart(self, other: Measurement, sign: str) -> Measurement:
        """Return the difference or quotient of this and another measurement.

        `sign` is the operator in a link's question: "minus" subtracts trial by trial, as far as
        both have trials; "over" is the quotient of the means, and "beyond" the quotient less one.
        """
        if sign != "minus":
            return Measurement(self.value / other.value - (sign == "beyond"), np.empty(0))
        count = min(len(self.trials), len(other.trials))
        differences = self.trials[:count] - other.trials[:count]
        mean = float(np.mean(differences)) if count else self.value - other.value
        return Measurement(mean, differences)


def _numbers(asked: RecordQuery, record: Path) -> list[float]:
    match = QUESTION.fullmatch(asked.question)
    first, second = (SIDE.fullmatch((match and match[of]) or "") for of in ("first", "second"))
    if not match or not first:
        raise _wrong(asked, "cannot be read as a question; record/templating.py says how to ask")
    side, end, sign = first.groupdict(), match["end"] or "each", match["sign"]
    if second is None:
        rows = _rows(asked, record, side)
    else:
        other = second.groupdict()
        side["cell"] = side["cell"] or other["cell"]
        if not other["metric"]:
            other |= {key: side[key] for key in ("metric", "split")}
        ours = other["method"] == PRINT
        rows = _rows(asked, record, side, ours=ours)
        others = _rows(asked, record, side if ours else other)
        if len(rows) != len(others):
            raise _wrong(asked, "compares methods that are not at the same places")
        rows = [a.apart(b, sign) for a, b in zip(rows, others, strict=True)]
    if len(rows) > 1 and not match["end"]:
        raise _wrong(asked, f"fits {len(rows)} numbers in {asked.file}, not one")
    if end in OF_TRIALS and not all(row.ends or len(row.trials) for row in rows):
        raise _wrong(asked, "asks for trials where there are none")
    unit = all_metrics().get(side["metric"] or "accuracy")
    share = unit is not None and unit.unit.startswith("share") and sign in (None, "minus")
    factor = (-1 if match["less"] else 1) * (100.0 if share else SCALES[match["scale"]])
    return _reduced(rows, end, len(NUMBER.findall(asked.text)), factor)


def _reduced(rows: Sequence[Measurement], end: str, many: int, factor: float) -> list[float]:
    """Return the numbers that a link asks for, such as the least or the mean of measurements.

    `rows` are the measurements that fit the question. `end` is the word that says which numbers,
    such as least, range, each, sd or interval; `many` is how many numbers the link's text has. All
    are multiplied by `factor`, such as 100 for percent.
    """
    values = [factor * row.value for row in rows]
    if end in ONE_OF:
        return [ONE_OF[end](values)]
    if end in ("range", "each"):
        return values if end == "each" else [min(values), max(values)]
    if rows[0].ends:
        low, high, level = rows[0].ends
        numbers = [values[0], *sorted((factor * low, factor * high)), 100 * level]
    else:
        trials = factor * np.mean([row.trials for row in rows], axis=0)
        if end != "interval":
            return trials[:many].tolist() if end == "trials" else [float(np.std(trials, ddof=1))]
        half = half_width(trials[:, None], 0.95)[0]
        numbers = [float(trials.mean() + offset) for offset in (0.0, -half, half)]
    return numbers[1:3] if many == 2 else numbers[:many]


def _rows(
    asked: RecordQuery, record: Path, side: Mapping[str, str | None], *, ours: bool = False
) -> list[Measurement]:
    """Return the measurements in a results file that the title of a link on a page asks for.

    A title may compare two measurements; `side` has the metric, split, method, figure (or table)
    and parameters of one of them. In a file of printed values, `ours` reads our number in place of
    the paper's.
    """
    path = _file(asked, record, side["exhibit"])
    table, claims = _parsed(path.read_bytes(), path.suffix), path.name == "claims.csv"
    metric, split, method = side["metric"] or "accuracy", side["split"], side["method"] or ""
    column = "printed" if ".printed." in path.name and not ours else "mean"
    if "" in table:
        rows, column = table[""], metric
    else:
        rows, split = table.get(metric, ()), split or ("test" if metric == "accuracy" else None)
    if rows and column not in rows[0]:
        raise _wrong(asked, f"names {column}, which {asked.file} lacks")
    name = "claim" if claims else "method"
    rows = [row for row in rows if split in (None, row.get("split"))]
    rows = [row for row in rows if fnmatchcase(str(row[name]), method)]
    rows = _fitting(asked, rows, side["cell"])
    ends = ("low", "high", "confidence") if claims else ()
    if claims:  # a check that several readings share has several rows
        valued = [row for row in rows if row[column] is not None]
        rows = [*{tuple(row[one] for one in (column, *ends)): row for row in valued}.values()]
    if not rows:
        raise _wrong(asked, f"fits 0 numbers of {method} in {asked.file}, not one")

    def measured(row: Cells) -> Measurement:
        paired = row.get("paired_mean") if column == "mean" else None
        texts = row.get("by_trial") if column == "mean" else None
        numbers = [row[column] if paired is None else paired, *(row[end] for end in ends)]
        value, *limits = (math.nan if one is None else float(str(one)) for one in numbers)
        trials = np.array([] if texts is None else str(texts).split(), float)
        return Measurement(value, trials, tuple(limits))

    return [measured(row) for row in rows]


def _fitting(
    asked: RecordQuery, rows: Sequence[Cells], text: str | None, *, empty: bool = True
) -> Sequence[Cells]:
    """Return those rows whose columns have the values in `text`, as "clients=25, alpha=0.5".

    If `empty`, an empty cell fits any value, and only final values are returned unless `text` names
    a round.
    """
    cell = cell_of(text or "", f"'{asked.question}'")
    if empty and ROUND not in cell:
        rows = [row for row in rows if row.get(ROUND) is None]
    for key, value in cell.items():
        if rows and key not in rows[0]:
            raise _wrong(asked, f"names {key}, which {asked.file} lacks")
        any_fits = empty and key != ROUND
        rows = [row for row in rows if (any_fits if row[key] is None else fits(row[key], value))]
    return rows


def _wrong(asked: RecordQuery, what: str) -> FedreproError:
    return FedreproError(f"the number '{asked.text}' in a page: '{asked.question}' {what}")
