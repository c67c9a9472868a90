"""Compare the numbers that a paper printed, the rows of its published.csv, with ours.

docs/claims.md has the rules. Our sd widens the tolerance by no more than the printed sd would, and
not at all if none is printed: more scatter must not make a method easier to reproduce. A row may
say why it is counted separately, and which figure varies a parameter that the paper does not give;
until that figure is computed, the number is not judged. A plan has all figures and tables at one
scale: tiny, quick or paper.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.metrics import TIMES, all_metrics
from fedrepro.core.paper_files import OWN_PUBLISHED, claims_file, published_file
from fedrepro.core.params import comparable_text
from fedrepro.core.registry import SCENARIO, TUNE, components
from fedrepro.data.partitions_populations_and_holdouts import SPLITS
from fedrepro.data.user_data import csv_lines
from fedrepro.numbers.run_times import FIRST
from fedrepro.numbers.trial_statistics import CLIENTS_SD
from fedrepro.numbers.verdicts.claim_verdicts import load_claims
from fedrepro.planning.drawing_base import CASE, select_series
from fedrepro.planning.exhibit import Exhibit, Point
from fedrepro.planning.plan import Plan, require_frozen

# a number stands in one row, unless a note says what another one is
ONCE = ("exhibit", "cell", "method", "metric", "split", "note")
MEASURED_ON = ("", "test", *SPLITS)
NUMBERS = ("value", "sd", "trials", "tolerance")
NEEDED = (*ONCE[:-1], *NUMBERS[:-1], "note")
COLUMNS = (*NEEDED, "tolerance", "apart", "set_up", "source")
# the metric of a row on a setting of the paper; its split says which: trials, or a parameter
SETTING = "setting"
# beginnings of the note of a number that was printed before, and of one that another exhibit judges
AGAIN, ELSEWHERE = "printed again", "judged in"
# counted apart from what can fail, each with its reason after a colon: results of others with an
# author's code are not printed values, and a claim judges the number of a sentence
CLAIM = "claim"
APART = ("calibrated", "nearly fixed", "rerun", CLAIM)
SOURCES = ("paper's text", "README or code", "second hand")
Texts = Mapping[str, str]
PAIR = re.compile(r"(?:^|, )([a-z_0-9.]+)=")


@dataclass(frozen=True)
class PrintedValue:
    """One number that a paper printed, a row of its published.csv.

    cell: {column: value} to locate the number. where: file and line, for errors. apart: why it is
    not counted with other values, as "calibrated: reason", or "". set_up: "" or, if the paper
    omits a parameter, "F, column=value: reason": figure F varies it, and our number is the row.
    source: where read, as "paper's text", or "". tolerance: None for the usual one. note: a remark.
    """

    exhibit: str
    cell: Texts
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


def read_published(path: Path) -> list[PrintedValue]:
    """Read numbers that a paper printed, [] without a file; raise FedreproError for a mistake."""
    if not path.exists():
        return []
    names, lines = csv_lines(path)
    lacking = [name for name in NEEDED if name not in names]
    strange = [name for name in names if name not in COLUMNS]
    if lacking or strange:
        problem = f"lacks {', '.join(lacking)}" if lacking else f"has a strange {strange[0]}"
        raise FedreproError(f"{path} {problem}; its columns are {', '.join(COLUMNS)}")
    seen: dict[tuple[str, ...], int] = {}
    values = []
    for line, fields in lines:
        row = dict(zip_longest(names, map(str.strip, fields[: len(names)]), fillvalue=""))
        first = seen.setdefault(tuple(row[name] for name in ONCE), line)
        if first != line:
            raise FedreproError(f"{path}, line {line}, is of the same number as line {first}")
        values.append(_value(row, f"{path}, line {line}"))
    return values


def _value(row: Texts, where: str) -> PrintedValue:
    fields: dict[str, Any] = {**dict.fromkeys(COLUMNS, ""), **row}
    metric, known = fields["metric"], all_metrics()
    splits = [fields["split"]] if metric == SETTING else MEASURED_ON
    words = {"metric": (*known, SETTING), "split": splits, "source": ("", *SOURCES)}
    for key, some in words.items():
        if fields[key] not in some:
            raise unknown(key, fields[key], some, where)
    for key in NUMBERS:
        text = fields[key]
        try:
            fields[key] = float(text) if text else None
        except ValueError:
            raise FedreproError(f"{where}: '{key}' is '{text}', not a number") from None
    value, trials = fields["value"], fields["trials"]
    if value is None:
        raise FedreproError(f"{where}: 'value' is empty; write a number, or inf if never reached")
    for key in (k for k in NUMBERS if metric in known and fields[k] is not None):
        number, whole = fields[key], known[metric].most == 1 and key != "trials"
        fits = known[metric].holds(number) if key == "value" else 0 <= number < math.inf
        if (
            not fits
            or (whole and key != "value" and number >= 1)
            or (key == "trials" and number % 1)
        ):
            what = metric if key == "value" else f"{key} of {metric}"
            unit = f"; it is a {known[metric].unit}, so write 0.8 for 80 %" if whole else ""
            raise FedreproError(f"{where}: {what} cannot be {number:g}{unit}")
    for key, wanted in (("apart", f"one of {', '.join(APART)}"), ("set_up", "an exhibit")):
        text = fields[key]
        word, _, reason = text.partition(": ")
        wish = f"{wanted}, a colon and the reason"
        if word == CLAIM and reason and check_of(text) is None:
            reason, wish = "", f"it as in '{CLAIM}: C1, check 2'"
        if text and (not reason or (key == "apart" and word not in APART)):
            raise FedreproError(f"{where}: '{key}' is '{text}'; write {wish}")
    fields |= {"trials": None if trials is None else int(trials), "where": where}
    return PrintedValue(**fields | {"cell": cell_of(fields["cell"], where)})


def check_of(apart: str) -> tuple[str, int] | None:
    """Return the check of a claim in `apart`, "claim: G2, check 1", as ("G2", 1), or None."""
    match = re.fullmatch(rf"{CLAIM}: (\S+), check ([1-9]\d*)", apart)
    return (match[1], int(match[2])) if match else None


def cell_of(text: str, where: str) -> dict[str, str]:
    """Parse `text`, as "case=mnist, clients=5", into {column: value}; errors name `where`."""
    marks = list(PAIR.finditer(text))
    if text and (not marks or marks[0].start() > 0):
        raise FedreproError(f"{where}: cell '{text}' is not of the form key=value, key=value")
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    return {m[1]: text[m.end() : end].strip() for m, end in zip(marks, ends, strict=True)}


PRINTED = (
    *("method", "metric", "split", "mean", "sd", "trials"),
    *("printed", "printed_sd", "printed_trials", "difference", "tolerance", "noise", "verdict"),
    *("apart", "set_up", "source", "note"),
)
OPEN = "set-up open"  # a setting that the paper does not give may account for the difference
DIFFERENT = ("better", "worse", "differs")
# tolerances by the unit of a metric, fixed before any result: a share of the printed value where
# `relative`; metrics of other units are shown and not judged
ABSOLUTE = {"share of examples": 0.01}
RELATIVE = {"units": 0.05, "numbers": 0.05, "rounds": 0.2}
ERRORS = 2.0  # combined standard errors
PASSES = 0.8  # how probable it has to be that a right implementation is reproduced
SURE = 0.95  # that a right implementation is not as far away
ROUNDING = 1e-12  # a difference of exactly the tolerance is within it
ONE, FEW, UNDECIDED = "one trial", "few trials", "undecided"


def points_of(exhibit: Exhibit, printed: PrintedValue) -> list[Point]:
    """Return the points of a figure or table (values of swept parameters) that `printed` fits."""
    known = [*exhibit.swept, *exhibit.shown]
    for key in printed.cell:
        if key not in known:
            raise unknown("key of a cell", key, known, printed.where)

    def fit(point: Point) -> bool:
        given = ((key, text) for key, text in printed.cell.items() if key in point.values)
        cases = {CASE: point.case}
        return all(same(point.values[key], text) or text == cases.get(key) for key, text in given)

    return [*filter(fit, exhibit.points)]


def same(value: Any, other: Any) -> bool:
    return comparable_text(value) == comparable_text(other)


def fits(value: Any, pattern: str) -> bool:
    """Return whether a value equals `pattern` as text, or matches it, such as "Dirichlet *"."""
    return same(value, pattern) or fnmatchcase(comparable_text(value), pattern)


def printed_rows(
    exhibit: Exhibit, values: Sequence[PrintedValue], numbers: pd.DataFrame, stand_ins: Texts
) -> pd.DataFrame:
    """Return a table with a row per printed value of a figure or table: our number and the verdict.

    `numbers` is our csv. `stand_ins` is {data set as text: why it replaces the paper's, or ""}.
    """
    own = (value for value in values if value.exhibit == exhibit.name)
    rows = [_row(exhibit, value, numbers, stand_ins) for value in own]
    return pd.DataFrame(rows, columns=[*exhibit.swept, *exhibit.shown, *PRINTED])


def _row(
    exhibit: Exhibit, printed: PrintedValue, numbers: pd.DataFrame, stand_ins: Texts
) -> dict[str, Any]:
    points = points_of(exhibit, printed)
    shown = ("method", "metric", "split", "note", "source")
    row = {**printed.cell, **{key: getattr(printed, key) for key in shown}}
    row |= {"printed": printed.value, "verdict": "not run"}
    if printed.metric == SETTING:
        values = {value for point in points for value in _set(exhibit, point, printed)}
        setting = values.pop() if len(values) == 1 else math.nan
        # more trials than the paper's are its trials and others like them
        more = printed.split == "trials" and setting > printed.value
        taken = "taken over" if more or setting == printed.value else "differs"
        row |= {"mean": setting, "difference": difference(setting, printed.value)}
        return row | ({"verdict": taken} if points else {})
    if len(points) > 1:
        said = f"{printed.where}: its cell fits {len(points)} points of {exhibit.key}"
        raise FedreproError(f"{said}; name more keys")
    tolerance = printed.tolerance if printed.tolerance is not None else usual_tolerance(printed)
    row |= {"printed_sd": printed.sd, "printed_trials": printed.trials, "tolerance": tolerance}
    row |= {"apart": printed.apart, "set_up": printed.set_up}
    if not points:
        return row
    (point,) = points
    row |= point.values
    matches = select_series(numbers, printed.metric, printed.split)
    matches = matches[matches["method"] == printed.method]
    settings = {key: text for key, text in printed.cell.items() if key in exhibit.shown}
    for key, value in {**settings, **point.values}.items():
        matches = matches.loc[[same(cell, value) for cell in matches[key]]]
    if matches.empty:
        return row
    ours = matches.iloc[0].to_dict()
    # a printed spread over clients is compared with ours, and says nothing of the error of a mean
    over_clients = not math.isnan(float(ours.get(CLIENTS_SD, math.nan)))
    mean, spread, trials = float(ours["mean"]), float(ours["sd"]), int(ours["trials"])
    if trials > 1 and set(ours.get("by_trial", "").split()) == {"inf"}:  # never reached
        ran = [s.method["rounds"] for _, s in point.runs if s.token == ours["setting"]]
        if math.isinf(printed.value) or min(ran) >= printed.value:
            spread = 0.0
    away = difference(mean, printed.value)
    sd = ours[CLIENTS_SD] if over_clients else ours["sd"]
    row |= {"mean": ours["mean"], "sd": sd, "trials": ours["trials"], "difference": away}
    if printed.metric in TIMES:
        return row | {"verdict": "shown"}
    if point.scenario and stand_ins.get(point.scenario.dataset.token):
        return row | {"verdict": "stand-in"}
    theirs = replace(printed, sd=None) if over_clients else printed
    most = allowed_difference(theirs, spread, trials, tolerance)
    scatter = noise(theirs, spread, trials)
    word = printed_verdict(printed.metric, mean, away, most, scatter, trials)
    if printed.set_up and most is not None and abs(away) > most + ROUNDING:
        word = OPEN
    return row | {"tolerance": most, "noise": scatter, "verdict": word}


def _set(exhibit: Exhibit, point: Point, printed: PrintedValue) -> set[float]:
    """Return our values of the parameter that `printed.split` names, as method.lr, at `point`."""
    kind, _, key = printed.split.partition(".")
    if printed.split == "trials" and exhibit.timed:
        return {run.method["rounds"] - FIRST for run in point.runs.values()}
    if printed.split == "trials":
        return {float(count) for count in point.trials.values()}
    # the scenario's component, the method, or how its model is tuned
    specs = [getattr(point.scenario, kind)] if kind in SCENARIO else []
    if kind in ("method", TUNE):
        specs = [getattr(run, kind) for label, run in point.runs if label == printed.method]
    specs = [spec for spec in specs if spec is not None]
    # another scale may have another component of the kind, with other parameters
    known = components(kind).values() if specs else []
    if not any(key in item.params for item in known):
        said = f"{printed.where}: {exhibit.key} has no setting '{printed.split}'; name trials, or a"
        more = "parameter such as partition.clients, or one of its method, such as method.sigma2 or"
        raise FedreproError(f"{said} {more} tune.examples")
    values = (spec.values.get(key) for spec in specs)
    lone = (v[0] if isinstance(v, tuple) and len(v) == 1 else v for v in values)
    return {math.nan if v is None or isinstance(v, tuple) else float(v) for v in lone}


def usual_tolerance(printed: PrintedValue) -> float | None:
    """Return the tolerance for the unit of a printed value's metric; None if not judged."""
    unit = all_metrics()[printed.metric].unit
    size = abs(printed.value) if math.isfinite(printed.value) else 0.0  # a target never reached
    return RELATIVE[unit] * size if unit in RELATIVE else ABSOLUTE.get(unit)


def allowed_difference(
    printed: PrintedValue, spread: float, trials: int, tolerance: float | None
) -> float | None:
    """Return the larger of the tolerance and two combined standard errors; None if not judged.

    `spread` is the sd of our number over `trials`; a smaller printed sd replaces it.
    """
    if tolerance is None or printed.sd is None:
        return tolerance
    errors = 0.0 if math.isnan(spread) else min(spread, printed.sd) ** 2 / trials
    errors += printed.sd**2 / printed.trials if printed.trials else 0.0
    return max(tolerance, ERRORS * math.sqrt(errors))


def difference(ours: float, printed: float) -> float:
    """Return our value minus the printed one, 0 if both are infinite (a target never reached)."""
    return 0.0 if ours == printed else ours - printed


def noise(printed: PrintedValue, spread: float, trials: int) -> float:
    """Return the sd that our number minus the printed one would have between two correct programs.

    `spread` is the sd of our number over `trials`; NaN gives NaN. The sd of printed trials is taken
    to be at least ours, and their number to be one if the paper does not print it.
    """
    theirs = max(spread, printed.sd or 0.0)
    return math.sqrt(spread**2 / trials + theirs**2 / (printed.trials or 1))


def printed_verdict(
    metric: str, ours: float, away: float, tolerance: float | None, scatter: float, trials: int
) -> str:
    """Return the verdict on a printed value: reproduced, better, worse, differs or undecided.

    Without a tolerance it is "shown", for NaN "failed", with too few `trials` "one trial" or "few
    trials". `ours` is our value, `away` its difference from print, `scatter` the sd of `away` for
    correct programs; "undecided" means that over 5 % of correct programs would be as far away.
    """
    from scipy.stats import norm, t

    if tolerance is None:
        return "shown"
    if math.isnan(ours):
        return "failed"
    if trials < 2:
        return ONE
    known = math.isinf(away) and not math.isnan(scatter)  # one was never reached
    if not (known or scatter * norm.ppf((1 + PASSES) / 2) <= tolerance):
        return FEW
    if abs(away) <= tolerance + ROUNDING:
        return "reproduced"
    far = abs(away) > scatter * t.ppf((1 + SURE) / 2, trials - 1)
    return direction(metric, away) if far else UNDECIDED


def direction(metric: str, away: float) -> str:
    """Return whether `away`, ours minus print, is "better" or "worse" by `metric`, or "differs"."""
    better = all_metrics()[metric].better
    return ("better" if away * better > 0 else "worse") if better else "differs"


def leave_out_mistaken(plan: Plan) -> None:
    """Leave papers with mistaken values, claims or leaderboards out: `plan.mistaken` has why."""
    for paper in plan.files:
        claims = claims_file(paper)
        try:
            require_printed(plan, paper)
            require_frozen(plan, paper)
            if claims.parent == OWN_PUBLISHED and claims.exists():
                load_claims(claims)
        except FedreproError as error:
            plan.mistaken[paper] = error


def require_printed(plan: Plan, paper: str) -> None:
    """Raise FedreproError if a paper's published.csv is malformed, or names what no table has."""
    exhibits = [exhibit for exhibit in plan.exhibits.values() if exhibit.paper == paper]
    values = read_published(published_file(paper))
    if plan.scale == "paper" and exhibits:
        kept = [value for value in values if f"{paper}/{value.exhibit}" not in plan.broken]
        require_cells([exhibit for exhibit in exhibits if exhibit.is_table], kept)


def require_cells(tables: Sequence[Exhibit], values: Sequence[PrintedValue]) -> None:
    """Raise FedreproError if a value has an unknown table, or a method not in it and no note."""
    by_name = {exhibit.name: exhibit for exhibit in tables}
    for value in values:
        if value.exhibit not in by_name:
            raise unknown("table", value.exhibit, by_name, value.where)
        points = points_of(by_name[value.exhibit], value)
        labels = sorted({one.label for point in points for one in point.measures})
        excused = value.note or check_of(value.apart) or value.metric == SETTING
        if not excused and value.method not in labels:
            known = ", ".join(labels) or "none: it fits no point"
            said = f"{value.where}: '{value.method}' is not a method of that cell, which has"
            raise FedreproError(f"{said} {known}; correct it, or say in its note why it is not run")
