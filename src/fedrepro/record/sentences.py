"""Numbers in sentences, asked of the record, so that a changed metric changes the sentence.

In a page such a number is a link to the file that it is from, and the link's title says which
number it is:

    [94.9](../reports/record/paper/pfnm/figure-2b.csv "PFNM at clients=25")

The title is a question: `[METRIC of ]METHOD[ minus METHOD| over METHOD][ at KEY=VALUE, …]`, with a
metric such as `accuracy (train)`; test accuracy where none is said. `least` or `most` before it
takes that end of all cells that fit; a method that has nothing in a column fits any value of it.
Of a printed.csv it is what the paper printed; `minus print` and `over print` are ours against that.
Of a leaderboard the question may be `group 1 of one model`: the methods of this group and class,
best first, of clients that start as in the first row. Of a claims.csv it is `claims`, or
`claims that` and a verdict. Shares are told in percent; digits are as many as the text had, and a
difference without a sign is told without one.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import all_metrics
from fedrepro.numbers.printed import cell_of, same
from fedrepro.numbers.summary import ROUND, read_csv

LINK = re.compile(
    r"\[(?P<text>[^\[\]]+)\]\((?P<path>(?P<up>(?:\.\./)*)reports/record/"
    r"(?P<file>[a-z]+/[a-z0-9]+/[a-z0-9.-]+\.csv))\s+\"(?P<question>[^\"]+)\"\)"
)
QUESTION = re.compile(
    r"(?:(?P<end>least|most) )?(?:(?P<metric>[a-z0-9_]+)(?: \((?P<split>[a-z]+)\))? of )?"
    r"(?P<method>.+?)(?:(?P<sign> minus | over )(?P<other>.+?))?(?: at (?P<cell>[a-z_0-9.]+=.*))?"
)
GROUP = re.compile(r"group (?P<number>\d+) of (?P<kind>.+)")
PRINT = "print"
VERDICTS = {"hold": "holds", "are refuted": "refuted", "are undecided": "undecided"}


@dataclass(frozen=True)
class Query:
    """A number of a sentence. text: as it stands there; file: below reports/record."""

    text: str
    file: str
    question: str


Show = Callable[[Query, str], str]  # what was asked, and the answer -> what stands in the page


def filled(text: str, record: Path, show: Show | None = None) -> str:
    """A page with all its numbers asked anew of a record; links stay, or are what `show` makes."""

    def answer(found: re.Match[str]) -> str:
        asked = Query(found["text"], found["file"], " ".join(found["question"].split()))
        told = _answer(asked, record)
        if show:
            return show(asked, told)
        whole, begin = found[0], found.start()
        return whole[: found.start("text") - begin] + told + whole[found.end("text") - begin :]

    return LINK.sub(answer, text)


def without_links(text: str) -> str:
    """The text with its numbers as plain text."""
    return LINK.sub(lambda found: found["text"], text)


def _answer(asked: Query, record: Path) -> str:
    path = record / asked.file
    if not path.exists():
        raise FedreproError(
            f"the sentence with '{asked.question}' asks for {path}, which is missing"
        )
    if path.name == "claims.csv":
        return _claims(asked, path)
    frame = _table(path.read_text(encoding="utf-8"))
    group = GROUP.fullmatch(asked.question)
    if group:
        return _group(asked, frame, float(group["number"]), group["kind"])
    value = _value(asked, frame, printed=path.name.endswith(".printed.csv"))
    return in_words(value, asked.text)


@lru_cache(maxsize=4)
def _table(text: str) -> pd.DataFrame:
    """For looking at only: numbers of a page that follow each other are mostly of one file."""
    return read_csv(text)


def in_words(value: float, like: str) -> str:
    """A number with as many digits as another has, and a sign only where that has one."""
    digits = len(like.rpartition(".")[2]) if "." in like else 0
    if not like.startswith(("-", "−", "+")):
        value = abs(value)
    return f"{value:{'+' if like.startswith('+') else ''},.{digits}f}".replace("-", "−")


def _claims(asked: Query, path: Path) -> str:
    frame = pd.read_csv(io.StringIO(path.read_text(encoding="utf-8")), dtype=str)
    heads = frame.drop_duplicates("claim")["verdict"]
    _, _, said = asked.question.partition(" that ")
    verdict = VERDICTS.get(said, said)
    return str(len(heads) if not said else int((heads == verdict).sum()))


def _group(asked: Query, board: pd.DataFrame, number: float, kind: str) -> str:
    own = board[(board["starts"] == board["starts"].iloc[0]) & (board["class"] == kind)]
    names = own[own["group"] == number]["method"].tolist()
    if not names:
        raise _wrong(asked, f"finds no method in {asked.file}")
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _value(asked: Query, frame: pd.DataFrame, *, printed: bool) -> float:
    found = QUESTION.fullmatch(asked.question)
    if not found:
        raise _wrong(asked, "is no question; see record/sentences.py")
    metric, split = found["metric"] or "accuracy", found["split"]
    unit = all_metrics()[metric].unit if metric in all_metrics() else ""
    split = split if split is not None else ("test" if metric == "accuracy" else None)
    cell = cell_of(found["cell"] or "", f"'{asked.question}'")
    factor = 100.0 if unit.startswith("share") else 1.0
    rows = frame[frame["metric"] == metric]
    rows = rows if split is None else rows[rows["split"] == split]
    if ROUND in rows and ROUND not in cell:
        rows = rows[rows[ROUND].isna()]
    for key, text in cell.items():
        if key not in rows:
            raise _wrong(asked, f"names {key}, which is no column of {asked.file}")
        fits = np.array([same(v, text) or fnmatchcase(str(v), text) for v in rows[key]], bool)
        rows = rows.loc[rows[key].isna() | fits]
    one = _of_method(asked, rows, found["method"], found["end"])
    column = "printed" if printed else "mean"
    if found["sign"] is None:
        return factor * _one([_shown(row, column) for row in one], found["end"])
    if found["other"] == PRINT and printed:
        pairs = [(float(str(row["mean"])), float(str(row["printed"]))) for row in one]
        minus = found["sign"] == " minus "
        against = [factor * (a - b) if minus else a / b for a, b in pairs]
        return _one(against, found["end"])
    two = _of_method(asked, rows, found["other"], found["end"])
    if len(one) != len(two):
        raise _wrong(asked, "compares methods that are not at the same places")
    values = [_apart(a, b, column, found["sign"].strip()) for a, b in zip(one, two, strict=True)]
    return (1.0 if found["sign"] == " over " else factor) * _one(values, found["end"])


def _of_method(
    asked: Query, rows: pd.DataFrame, method: str, end: str | None
) -> list[Mapping[str, object]]:
    own = rows[rows["method"] == method]
    if own.empty or (len(own) > 1 and not end):
        raise _wrong(asked, f"fits {len(own)} numbers of {method} in {asked.file}, not one")
    return [{str(k): v for k, v in row.items()} for row in own.to_dict("records")]


def _one(values: list[float], end: str | None) -> float:
    return min(values) if end == "least" else max(values)


def _shown(row: Mapping[str, object], column: str) -> float:
    """What figures show: the paired mean where there is one."""
    paired = float(str(row.get("paired_mean") or "nan")) if column == "mean" else math.nan
    return float(str(row[column])) if math.isnan(paired) else paired


def _apart(one: Mapping[str, object], other: Mapping[str, object], column: str, sign: str) -> float:
    """The difference in the trials that both have, or the quotient of means."""
    if sign == "minus" and column == "mean":
        a, b = (np.array(str(row["by_trial"]).split(), float) for row in (one, other))
        many = min(len(a), len(b))
        return float(np.mean(a[:many] - b[:many]))
    a_mean, b_mean = _shown(one, column), _shown(other, column)
    return a_mean - b_mean if sign == "minus" else a_mean / b_mean


def _wrong(asked: Query, what: str) -> FedreproError:
    return FedreproError(f"the number '{asked.text}' in a page: '{asked.question}' {what}")
