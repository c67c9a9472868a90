"""A paper's published.csv: its printed numbers, a row each, read and held to their form."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.metrics import all_metrics
from fedrepro.data.partition_table import SPLITS

# a number stands in one row, unless a note says what another one is
ONCE = ("exhibit", "cell", "method", "metric", "split", "note")
MEASURED_ON = ("", "test", *SPLITS)
NEEDED = ("exhibit", "cell", "method", "metric", "split", "value", "sd", "trials", "note")
COLUMNS = (*NEEDED, "tolerance", "apart", "set_up", "source")
# a row of this metric is a setting of the paper, not a result; its split says which: trials, or a
# parameter as in a sweep
SETTING = "setting"
# how the note of a number begins that the paper has printed before: quantities are counted once
AGAIN = "printed again"
# how the note of a number begins that this exhibit shows and another one judges
ELSEWHERE = "judged in"
# counted apart from what can fail, each with its reason after a colon: results of others with an
# author's code are not printed values, and a claim judges the number of a sentence
CLAIM = "claim"
APART = ("calibrated", "nearly fixed", "rerun", CLAIM)
# where a number was read
SOURCES = ("paper's text", "README or code", "second hand")
PAIR = re.compile(r"(?:^|, )([a-z_0-9.]+)=")


@dataclass(frozen=True)
class PrintedValue:
    """One printed number. cell: the point, as `key=value`; where: file and line, for errors.

    apart: one of APART and the reason, after a colon, or nothing. set_up: the exhibit, and values
    of its columns, in which a setting varies that the paper does not give, and the reason. source:
    where it was read, one of SOURCES or nothing.
    """

    exhibit: str
    cell: Mapping[str, str]
    method: str
    metric: str
    split: str
    value: float
    sd: float | None
    trials: int | None
    note: str
    tolerance: float | None
    where: str
    apart: str = ""
    set_up: str = ""
    source: str = ""

    @property
    def again(self) -> bool:
        """Whether the paper has printed it before."""
        return self.note.startswith(AGAIN)

    @property
    def check(self) -> tuple[str, int] | None:
        """The claim that looks at it, and the number of the check, from one."""
        return check_of(self.apart)


def read_published(path: Path) -> list[PrintedValue]:
    """Read the printed values of a paper; none if it has no file.

    Raises:
        FedreproError: for a row that cannot be read.
    """
    if not path.exists():
        return []
    try:
        reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig")))
        names, rows = reader.fieldnames or [], list(reader)
    except (OSError, ValueError, csv.Error) as error:
        message = " ".join(str(error).split())
        raise FedreproError(f"{path} cannot be read ({message}): save it as CSV in UTF-8") from None
    lacking = [name for name in NEEDED if name not in names]
    strange = [name for name in names if name not in COLUMNS]
    if lacking or strange:
        problem = f"lacks {', '.join(lacking)}" if lacking else f"has a strange {strange[0]}"
        raise FedreproError(f"{path} {problem}; its columns are {', '.join(COLUMNS)}")
    seen: dict[tuple[str, ...], int] = {}
    for line, row in enumerate(rows, 2):
        first = seen.setdefault(tuple(str(row[name]) for name in ONCE), line)
        if first != line:
            raise FedreproError(f"{path}, line {line}, is of the same number as line {first}")
    return [_value(row, f"{path}, line {number}") for number, row in enumerate(rows, 2)]


def _value(row: Mapping[str, str | None], where: str) -> PrintedValue:
    fields = {key: (text or "").strip() for key, text in row.items() if key is not None}
    metric, split, known = fields["metric"], fields["split"], all_metrics()
    if metric not in (SETTING, *known):
        raise unknown("metric", metric, known, where)
    if metric != SETTING and split not in MEASURED_ON:
        raise unknown("split", split, MEASURED_ON, where)
    value = _number(fields, "value", where)
    trials = _number(fields, "trials", where)
    if value is None:
        raise FedreproError(f"{where}: 'value' is empty; write a number, or inf if never reached")
    if (source := fields.get("source", "")) not in ("", *SOURCES):
        raise unknown("source", source, SOURCES, where)
    if metric in known and not known[metric].holds(value):
        share = f"; it is a {known[metric].unit}, so write 0.8 for 80 %"
        raise FedreproError(
            f"{where}: {metric} cannot be {value:g}{share if known[metric].most == 1 else ''}"
        )
    text = fields.get("tolerance", "")
    number = _number({"tolerance": text.removesuffix("%")}, "tolerance", where)
    relative = number is not None and text.endswith("%")
    return PrintedValue(
        **{key: fields[key] for key in ("exhibit", "method", "metric", "split", "note")},
        cell=cell_of(fields["cell"], where),
        value=value,
        sd=_number(fields, "sd", where),
        trials=None if trials is None else int(trials),
        tolerance=abs(value) * (number or 0) / 100 if relative else number,
        where=where,
        apart=_reasoned(fields, "apart", APART, where),
        set_up=_reasoned(fields, "set_up", (), where),
        source=source,
    )


def _reasoned(row: Mapping[str, str], key: str, known_words: Sequence[str], where: str) -> str:
    """Read a word, one of these if there are any, and after a colon the reason."""
    text = row.get(key, "")
    word, _, reason = text.partition(": ")
    wanted = f"one of {', '.join(known_words)}" if known_words else "an exhibit"
    wanted += ", a colon and the reason"
    if word == CLAIM and reason and check_of(text) is None:
        reason, wanted = "", f"it as in '{CLAIM}: C1, check 2'"
    if text and (not reason or (known_words and word not in known_words)):
        raise FedreproError(f"{where}: '{key}' is '{text}'; write {wanted}")
    return text


def check_of(apart: str) -> tuple[str, int] | None:
    """Of `claim: G2, check 1` the claim and the number of its check, None of anything else."""
    match = re.fullmatch(rf"{CLAIM}: (\S+), check ([1-9]\d*)", apart)
    return (match[1], int(match[2])) if match else None


def _number(row: Mapping[str, str], key: str, where: str) -> float | None:
    if not row[key]:
        return None
    try:
        return float(row[key])
    except ValueError:
        raise FedreproError(f"{where}: '{key}' is '{row[key]}', not a number") from None


def cell_of(text: str, where: str) -> dict[str, str]:
    """`case=mnist, clients=5` as a mapping; a value may hold commas."""
    marks = list(PAIR.finditer(text))
    if text and (not marks or marks[0].start() > 0):
        raise FedreproError(f"{where}: cell '{text}' is not of the form key=value, key=value")
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    return {m[1]: text[m.end() : end].strip() for m, end in zip(marks, ends, strict=True)}
