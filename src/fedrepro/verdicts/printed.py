"""What a paper printed, beside ours: its published.csv and the verdict on each value.

A row names an exhibit, one of its points (`cell`), a method by its label and a metric. A verdict is
`reproduced` if the difference is within the larger of two combined standard errors and the
tolerance, else `better` or `worse`; `stand-in` where ours was computed on other data than the
paper's, `reduced` where it is of less than the paper's size, `shown` for metrics that are not
judged, `failed` where ours is not a number, `not run` where there is none of ours.

Our own scatter counts for no more than the printed spread, and where none is printed it does not
widen the tolerance at all: else a method that scatters more would be reproduced more easily. The
word without that bound stands beside the verdict.

A row may say that it is to be counted apart, and with which exhibit a setting is varied that the
paper does not give: such a number is neither better nor worse before that is known.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.metrics import TIMES, all_metrics
from fedrepro.core.packs import published_file
from fedrepro.core.registry import SCENARIO, components
from fedrepro.core.spec import Spec
from fedrepro.core.tuning import TUNE
from fedrepro.data.membership import SPLITS
from fedrepro.numbers.series import select
from fedrepro.numbers.spread import CLIENTS_SD
from fedrepro.numbers.times import FIRST
from fedrepro.planning.exhibit import CASE, Exhibit, Point
from fedrepro.planning.plan import Plan

if TYPE_CHECKING:
    import pandas as pd

# a number stands in one row, unless a note says what another one is
ONCE = ("exhibit", "cell", "method", "metric", "split", "note")
MEASURED_ON = ("", "test", *SPLITS)
NEEDED = ("exhibit", "cell", "method", "metric", "split", "value", "sd", "trials", "note")
COLUMNS = (*NEEDED, "tolerance", "apart", "set_up")
# a row of this metric is no result but what the paper set; its split says what: trials, or a
# parameter as in a sweep
SETTING = "setting"
# how the note of a number begins that the paper has printed before: quantities are counted once
AGAIN = "printed again"
PRINTED = (
    *("method", "metric", "split", "mean", "sd", "trials"),
    *("printed", "printed_sd", "printed_trials", "difference", "tolerance", "verdict"),
    *("unbounded", "apart", "set_up", "note"),
)
# what is counted apart from what can fail, each with its reason after a colon; what others got from
# an author's code is no printed value
APART = ("calibrated", "nearly fixed", "rerun")
OPEN = "set-up open"  # a setting that the paper does not give may account for the difference
DIFFERENT = ("better", "worse", "differs")
# tolerances by the unit of a metric, fixed before any result: a share of the printed value where
# `relative`; metrics of other units are shown and not judged
ABSOLUTE = {"share of examples": 0.01}
RELATIVE = {"units": 0.05, "numbers": 0.05, "rounds": 0.2}
ERRORS = 2.0  # combined standard errors
PAIR = re.compile(r"(?:^|, )([a-z_0-9.]+)=")


@dataclass(frozen=True)
class PrintedValue:
    """One printed number. cell: the point, as `key=value`; where: file and line, for errors.

    apart: one of APART and the reason, after a colon, or nothing. set_up: the exhibit, and values
    of its columns, in which a setting varies that the paper does not give, and the reason.
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

    @property
    def again(self) -> bool:
        """Whether the paper has printed it before."""
        return self.note.startswith(AGAIN)


def read_published(path: Path) -> list[PrintedValue]:
    """The printed values of a paper; none if it has no file.

    Errors: FedreproError for a row that cannot be read.
    """
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        names = reader.fieldnames or []
        lacking = [name for name in NEEDED if name not in names]
        strange = [name for name in names if name not in COLUMNS]
        if lacking or strange:
            what = f"lacks {', '.join(lacking)}" if lacking else f"has a strange {strange[0]}"
            raise FedreproError(f"{path} {what}; its columns are {', '.join(COLUMNS)}")
        rows = list(reader)
    found: dict[tuple[str, ...], int] = {}
    for at, row in enumerate(rows, 2):
        first = found.setdefault(tuple(str(row[name]) for name in ONCE), at)
        if first != at:
            raise FedreproError(f"{path}, line {at}, is of the same number as line {first}")
    return [_value(row, f"{path}, line {at}") for at, row in enumerate(rows, 2)]


def _value(row: Mapping[str, str | None], where: str) -> PrintedValue:
    given = {key: (text or "").strip() for key, text in row.items() if key is not None}
    known = all_metrics()
    if given["metric"] not in (SETTING, *known):
        raise unknown("metric", given["metric"], known, where)
    if given["metric"] != SETTING and given["split"] not in MEASURED_ON:
        raise unknown("split", given["split"], MEASURED_ON, where)
    value = _number(given, "value", where)
    trials = _number(given, "trials", where)
    if value is None:
        raise FedreproError(f"{where}: 'value' is empty; write a number, or inf if never reached")
    if given["metric"] in known and not known[given["metric"]].holds(value):
        raise FedreproError(
            f"{where}: {given['metric']} cannot be {value:g}; it is a "
            f"{known[given['metric']].unit}, so write 0.8 for 80 %"
            if known[given["metric"]].most == 1
            else f"{where}: {given['metric']} cannot be {value:g}"
        )
    return PrintedValue(
        exhibit=given["exhibit"],
        cell=cell_of(given["cell"], where),
        method=given["method"],
        metric=given["metric"],
        split=given["split"],
        value=value,
        sd=_number(given, "sd", where),
        trials=None if trials is None else int(trials),
        note=given["note"],
        tolerance=_tolerance(given.get("tolerance", ""), value, where),
        where=where,
        apart=_reasoned(given, "apart", APART, where),
        set_up=_reasoned(given, "set_up", (), where),
    )


def _reasoned(row: Mapping[str, str], key: str, words: Sequence[str], where: str) -> str:
    """A word, one of these if there are any, and after a colon the reason."""
    text = row.get(key, "")
    word, _, reason = text.partition(": ")
    if text and (not reason or (words and word not in words)):
        known = f"one of {', '.join(words)}" if words else "an exhibit"
        raise FedreproError(f"{where}: '{key}' is '{text}'; write {known}, a colon and the reason")
    return text


def _number(row: Mapping[str, str], key: str, where: str) -> float | None:
    if not row[key]:
        return None
    try:
        return float(row[key])
    except ValueError:
        raise FedreproError(f"{where}: '{key}' is '{row[key]}', which is no number") from None


def _tolerance(text: str, value: float, where: str) -> float | None:
    """A number in the metric's unit, or a share of the printed value such as 20%."""
    if not text:
        return None
    number = _number({"tolerance": text.removesuffix("%")}, "tolerance", where)
    assert number is not None
    return abs(value) * number / 100 if text.endswith("%") else number


def cell_of(text: str, where: str) -> dict[str, str]:
    """`case=mnist, clients=5` as a mapping; a value may hold commas."""
    marks = list(PAIR.finditer(text))
    if text and (not marks or marks[0].start() > 0):
        raise FedreproError(f"{where}: cell '{text}' is not of the form key=value, key=value")
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    return {m[1]: text[m.end() : end].strip() for m, end in zip(marks, ends, strict=True)}


def points_of(exhibit: Exhibit, printed: PrintedValue) -> list[Point]:
    """The points that a cell fits: a case by its key or its label, numbers by their value."""
    known = [*exhibit.swept, *exhibit.shown]
    for key in printed.cell:
        if key not in known:
            raise unknown("key of a cell", key, known, printed.where)
    return [point for point in exhibit.points if _fits(point, printed.cell)]


def _fits(point: Point, cell: Mapping[str, str]) -> bool:
    """Whether a point has the values of a cell; shown parameters are no part of a point."""
    return all(
        text in (point.case, point.values[key]) if key == CASE else same(point.values[key], text)
        for key, text in cell.items()
        if key in point.values
    )


def same(value: Any, text: str) -> bool:
    """Whether a value is what a cell says: numbers by their value, all else by its text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    return str(value) == text


def printed_rows(
    exhibit: Exhibit,
    values: Sequence[PrintedValue],
    numbers: pd.DataFrame,
    stand_ins: Mapping[str, str],
) -> pd.DataFrame:
    """A row per printed value of the exhibit: ours beside it, the difference and the verdict.

    A setting that the paper names is `taken over` if all points of its cell have it, its number of
    trials if they have as many or more.

    stand_ins: token of a data set -> a sentence if it stands in for the paper's, else empty.
    """
    import pandas as pd

    own = [value for value in values if value.exhibit == exhibit.name]
    rows = [_row(exhibit, value, numbers, stand_ins) for value in own]
    return pd.DataFrame(rows, columns=[*exhibit.swept, *exhibit.shown, *PRINTED])


TOLD = ("method", "metric", "split", "note")


def _row(
    exhibit: Exhibit,
    printed: PrintedValue,
    numbers: pd.DataFrame,
    stand_ins: Mapping[str, str],
) -> dict[str, Any]:
    points = points_of(exhibit, printed)
    if printed.metric == SETTING:
        return _setting_row(exhibit, printed, points)
    if len(points) > 1:
        raise FedreproError(
            f"{printed.where}: its cell fits {len(points)} points of {exhibit.key}; name more keys"
        )
    tolerance = printed.tolerance if printed.tolerance is not None else usual_tolerance(printed)
    row = {
        **printed.cell,
        **{key: getattr(printed, key) for key in (*TOLD, "apart", "set_up")},
        "printed": printed.value,
        "printed_sd": printed.sd,
        "printed_trials": printed.trials,
        "tolerance": tolerance,
        "verdict": "not run",
    }
    found = select(numbers, printed.metric, printed.split)
    found = found[found["method"] == printed.method]
    for point in points:
        row |= point.values
        for key, value in point.values.items():
            found = found[found[key].astype(str) == str(value)]
    for key in set(printed.cell) & set(exhibit.shown):
        found = found.loc[[same(value, printed.cell[key]) for value in found[key]]]
    if not points or found.empty:
        return row
    (ours, *_) = found.to_dict("records")
    # a spread over clients is shown beside its like, and says nothing of the error of a mean
    over_clients = not math.isnan(float(ours.get(CLIENTS_SD, math.nan)))
    shown = ours | ({"sd": ours[CLIENTS_SD]} if over_clients else {})
    row |= {key: shown[key] for key in ("mean", "sd", "trials")}
    row["difference"] = difference(float(ours["mean"]), printed.value)
    if printed.metric in TIMES:
        row["verdict"] = "shown"
    elif any(stand_ins.get(p.scenario.dataset.token) for p in points if p.scenario):
        row["verdict"] = "stand-in"
    elif exhibit.settings.reduced:
        row["verdict"] = "reduced"
    else:
        theirs = replace(printed, sd=None) if over_clients else printed
        mean, spread, trials = float(ours["mean"]), float(ours["sd"]), int(ours["trials"])
        row["tolerance"] = allowed(theirs, bounded(theirs, spread), trials, tolerance)
        row["verdict"] = _open(printed, verdict(theirs, mean, row["tolerance"]))
        freely = allowed(theirs, spread, trials, tolerance)
        row["unbounded"] = _open(printed, verdict(theirs, mean, freely))
    return row


def _open(printed: PrintedValue, word: str) -> str:
    """The word, unless a setting is open that may account for the difference."""
    return OPEN if printed.set_up and word in DIFFERENT else word


def _setting_row(
    exhibit: Exhibit, printed: PrintedValue, points: Sequence[Point]
) -> dict[str, Any]:
    """A setting of the paper beside ours: the value that all methods and points have."""
    given = {value for point in points for value in _set(exhibit, point, printed)}
    ours = next(iter(given)) if len(given) == 1 else math.nan
    # more trials than the paper's are its trials and others like them
    taken = ours >= printed.value if printed.split == "trials" else ours == printed.value
    told = "taken over" if taken else "differs"
    return {
        **printed.cell,
        **{key: getattr(printed, key) for key in TOLD},
        "mean": ours,
        "printed": printed.value,
        "difference": difference(ours, printed.value),
        "verdict": told if points else "not run",
    }


def _set(exhibit: Exhibit, point: Point, printed: PrintedValue) -> set[float]:
    """What a point has for a setting."""
    if printed.split == "trials" and exhibit.timed:
        return {run.method["rounds"] - FIRST for run in point.runs.values()}
    if printed.split == "trials":
        return {float(count) for count in point.trials.values()}
    kind, _, key = printed.split.partition(".")
    specs = _specs(point, kind, printed.method)
    if not specs or key not in _parameters(kind):
        raise FedreproError(
            f"{printed.where}: {exhibit.key} has no setting '{printed.split}'; name trials, or a "
            "parameter such as partition.clients, or one of its method, such as method.sigma2 "
            "or tune.examples"
        )
    return {_lone(spec.values.get(key)) for spec in specs}


def _parameters(kind: str) -> set[str]:
    """Those that any component of a kind has: at another scale it may be another component."""
    known = [TUNE] if kind == TUNE.kind else components(kind).values()
    return {key for item in known for key in item.params}


def _specs(point: Point, kind: str, label: str) -> list[Spec]:
    """What a setting is of: a component of the scenario, a method, or how its model is tuned."""
    if kind in ("method", TUNE.kind):
        own = [getattr(setting, kind) for named, setting in point.runs if named == label]
    else:
        own = [getattr(point.scenario, kind)] if kind in SCENARIO else []
    return [spec for spec in own if spec is not None]


def _lone(value: Any) -> float:
    """A number, also where it is the only one of a list."""
    if isinstance(value, tuple):
        return float(value[0]) if len(value) == 1 else math.nan
    return math.nan if value is None else float(value)


def usual_tolerance(printed: PrintedValue) -> float | None:
    """What a metric of this unit may differ by; None if it is not judged."""
    unit = all_metrics()[printed.metric].unit
    if unit in ABSOLUTE:
        return ABSOLUTE[unit]
    return RELATIVE[unit] * abs(printed.value) if unit in RELATIVE else None


def bounded(printed: PrintedValue, spread: float) -> float:
    """Our standard deviation as far as it counts: no more than is printed, without that nothing."""
    if printed.sd is None or math.isnan(spread):
        return 0.0
    return min(spread, printed.sd)


def allowed(
    printed: PrintedValue, spread: float, trials: int, tolerance: float | None
) -> float | None:
    """What the difference may be: the tolerance, or two combined standard errors if that is more.

    spread: our standard deviation over so many trials. None if the metric is not judged.
    """
    if tolerance is None:
        return None
    error = _error(spread, trials)
    if printed.sd is not None and printed.trials:
        error += _error(printed.sd, printed.trials)
    return max(tolerance, ERRORS * math.sqrt(error))


def _error(spread: float, trials: int) -> float:
    """Squared standard error of a mean; 0 where its spread is not known."""
    return 0.0 if math.isnan(spread) else spread**2 / trials


def difference(ours: float, printed: float) -> float:
    """Ours less the printed value; 0 for two that were never reached."""
    return 0.0 if ours == printed else ours - printed


def verdict(printed: PrintedValue, ours: float, tolerance: float | None) -> str:
    """The word on ours against the printed value; tolerance: what the difference may be."""
    if tolerance is None:
        return "shown"
    if math.isnan(ours):
        return "failed"
    away = difference(ours, printed.value)
    return "reproduced" if abs(away) <= tolerance + ROUNDING else direction(printed.metric, away)


def direction(metric: str, away: float) -> str:
    """The word for a difference from what is printed."""
    better = all_metrics()[metric].better
    if not better:
        return "differs"
    return "better" if away * better > 0 else "worse"


ROUNDING = 1e-12  # a difference of exactly the tolerance is within it


def require_printed(plan: Plan) -> None:
    """Errors: FedreproError for a printed value that belongs nowhere, at the paper's own scale."""
    papers: dict[str, list[Exhibit]] = {}
    for exhibit in plan.exhibits.values():
        papers.setdefault(exhibit.paper, []).append(exhibit)
    for paper, own in papers.items() if plan.scale == "paper" else ():
        tables = [exhibit for exhibit in own if exhibit.is_table]
        lost = {key.partition("/")[2] for key in plan.broken if key.startswith(f"{paper}/")}
        values = [one for one in read_published(published_file(paper)) if one.exhibit not in lost]
        require_cells(tables, values)
        names = [*(exhibit.name for exhibit in own), *lost]
        for value in (one for one in values if one.set_up):
            shown = value.set_up.partition(": ")[0].partition(", ")[0]
            if shown not in names:
                raise unknown("exhibit in set_up", shown, names, value.where)


def require_cells(tables: Sequence[Exhibit], values: Sequence[PrintedValue]) -> None:
    """At the paper's own scale a printed value belongs to a point and a method, or says why not.

    Errors: FedreproError that names the row.
    """
    by_name = {exhibit.name: exhibit for exhibit in tables}
    for value in values:
        if value.exhibit not in by_name:
            raise unknown("table", value.exhibit, by_name, value.where)
        for what in (
            () if value.note or value.metric == SETTING else _strange(by_name[value.exhibit], value)
        ):
            raise FedreproError(
                f"{value.where}: {what}; correct it, or say in its note why it is not run"
            )


def _strange(exhibit: Exhibit, value: PrintedValue) -> Iterator[str]:
    points = points_of(exhibit, value)
    labels = {measure.label for point in points for measure in point.measures}
    if not points:
        yield f"its cell fits no point of {exhibit.key}"
    elif value.method not in labels:
        yield f"'{value.method}' is no method of that cell, which has {', '.join(sorted(labels))}"
