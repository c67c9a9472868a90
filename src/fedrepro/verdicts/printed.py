"""What a paper printed, beside ours: the verdict on each value of its published.csv.

A row names an exhibit, one of its points (`cell`), a method by its label and a metric. A verdict is
`reproduced` if the difference is within the larger of two combined standard errors and the
tolerance. Our own scatter widens that by no more than the printed spread would, and where none is
printed not at all: else a method that scatters more would be reproduced more easily.

A verdict is passed only where a right implementation would be reproduced with probability 0.8, its
trials and the printed ones scattering as ours do: else the value is shown, as of `one trial` or of
`few trials`. `better` and `worse` also ask that such an implementation be as far away in less than
5 of 100 cases; what lies between is `undecided`. Shown are also a `stand-in` (ours was computed on
other data than the paper's), what is `reduced` (of less than its size) and times.

A row may say that it is to be counted apart, and with which exhibit a setting is varied that the
paper does not give: such a number is neither better nor worse before that is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.metrics import TIMES, all_metrics
from fedrepro.core.packs import OWN_PUBLISHED, claims_file, published_file
from fedrepro.core.params import written
from fedrepro.core.registry import SCENARIO, components
from fedrepro.core.spec import Spec
from fedrepro.core.tuning import TUNE
from fedrepro.numbers.series import select
from fedrepro.numbers.spread import CLIENTS_SD
from fedrepro.numbers.times import FIRST
from fedrepro.planning.exhibit import CASE, Exhibit, Point
from fedrepro.planning.plan import Plan, require_frozen
from fedrepro.verdicts.claims import load_claims
from fedrepro.verdicts.published import SETTING, PrintedValue, read_published

if TYPE_CHECKING:
    import pandas as pd

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
ONE, FEW, UNDECIDED = "one trial", "few trials", "undecided"


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


def same(value: Any, other: Any) -> bool:
    """Tell whether two values of tables are one: numbers by their value, all else by its text."""
    return written(value) == written(other)


def fits(value: Any, pattern: str) -> bool:
    """Tell whether a value is what a cell says, or is of its pattern: Dirichlet *."""
    return same(value, pattern) or fnmatchcase(written(value), pattern)


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

    exhibit_values = [value for value in values if value.exhibit == exhibit.name]
    rows = [_row(exhibit, value, numbers, stand_ins) for value in exhibit_values]
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
        **{key: getattr(printed, key) for key in (*TOLD, "apart", "set_up", "source")},
        "printed": printed.value,
        "printed_sd": printed.sd,
        "printed_trials": printed.trials,
        "tolerance": tolerance,
        "verdict": "not run",
    }
    matches = select(numbers, printed.metric, printed.split)
    matches = matches[matches["method"] == printed.method]
    for point in points:
        row |= point.values
        for key, value in point.values.items():
            matches = matches.loc[[same(cell, value) for cell in matches[key]]]
    for key in set(printed.cell) & set(exhibit.shown):
        matches = matches.loc[[same(value, printed.cell[key]) for value in matches[key]]]
    if not points or matches.empty:
        return row
    (ours, *_) = matches.to_dict("records")
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
        row["noise"] = noise(theirs, spread, trials)
        row["verdict"] = verdict(
            printed.metric, mean, row["difference"], row["tolerance"], row["noise"], trials
        )
        far = row["tolerance"] is not None and abs(row["difference"]) > row["tolerance"] + ROUNDING
        if printed.set_up and far:
            row["verdict"] = OPEN
    return row


def _setting_row(
    exhibit: Exhibit, printed: PrintedValue, points: Sequence[Point]
) -> dict[str, Any]:
    """A setting of the paper beside ours: the value that all methods and points have."""
    values = {value for point in points for value in _set(exhibit, point, printed)}
    ours = next(iter(values)) if len(values) == 1 else math.nan
    # more trials than the paper's are its trials and others like them
    taken = ours >= printed.value if printed.split == "trials" else ours == printed.value
    word = "taken over" if taken else "differs"
    return {
        **printed.cell,
        **{key: getattr(printed, key) for key in (*TOLD, "source")},
        "mean": ours,
        "printed": printed.value,
        "difference": difference(ours, printed.value),
        "verdict": word if points else "not run",
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
        specs = [getattr(setting, kind) for named, setting in point.runs if named == label]
    else:
        specs = [getattr(point.scenario, kind)] if kind in SCENARIO else []
    return [spec for spec in specs if spec is not None]


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


def noise(printed: PrintedValue, spread: float, trials: int) -> float:
    """The deviation of the difference of two right implementations, both scattering as ours does.

    What is printed counts as one trial where it does not say of how many it is. Not a number where
    ours has no spread.
    """
    theirs = max(spread, printed.sd or 0.0)
    return math.sqrt(spread**2 / trials + theirs**2 / (printed.trials or 1))


def verdict(
    metric: str, ours: float, away: float, tolerance: float | None, scatter: float, trials: int
) -> str:
    """The word on ours against a printed value from which it is so far away.

    tolerance: what the difference may be; scatter: its `noise`, known from so many trials.
    """
    from scipy.stats import norm, t

    if tolerance is None:
        return "shown"
    if math.isnan(ours):
        return "failed"
    if trials < 2:
        return ONE
    if not scatter * norm.ppf((1 + PASSES) / 2) <= tolerance:
        return FEW
    if abs(away) <= tolerance + ROUNDING:
        return "reproduced"
    far = abs(away) > scatter * t.ppf((1 + SURE) / 2, trials - 1)
    return direction(metric, away) if far else UNDECIDED


def direction(metric: str, away: float) -> str:
    """The word for a difference from what is printed."""
    better = all_metrics()[metric].better
    if not better:
        return "differs"
    return "better" if away * better > 0 else "worse"


ROUNDING = 1e-12  # a difference of exactly the tolerance is within it


def leave_out_mistaken(plan: Plan) -> None:
    """Leave out of a plan each paper that has a mistake in its printed values, in claims of one's
    own, or in the ground of its leaderboards. It says so itself (`Plan.mistakes`)."""
    for paper in plan.files:
        claims = claims_file(paper)
        try:
            require_printed(plan, [paper])
            require_frozen(plan, [paper])
            if claims.parent == OWN_PUBLISHED and claims.exists():
                load_claims(claims)
        except FedreproError as error:
            plan.leave_out(paper, error)


def require_printed(plan: Plan, papers: Iterable[str] | None = None) -> None:
    """Errors: FedreproError for a row that cannot be read, and, at the paper's own scale, for a
    printed value that belongs nowhere.

    papers: whose values are checked, if not those of all.
    """
    for paper in plan.files if papers is None else papers:
        exhibits = [exhibit for exhibit in plan.exhibits.values() if exhibit.paper == paper]
        rows = read_published(published_file(paper))
        if plan.scale != "paper" or not exhibits:
            continue
        tables = [exhibit for exhibit in exhibits if exhibit.is_table]
        lost = {key.partition("/")[2] for key in plan.broken if key.startswith(f"{paper}/")}
        values = [printed for printed in rows if printed.exhibit not in lost]
        require_cells(tables, values)
        names = [*(exhibit.name for exhibit in exhibits), *lost]
        for value in (printed for printed in values if printed.set_up):
            shown = value.set_up.partition(": ")[0].partition(", ")[0]
            if shown not in names:
                raise unknown("exhibit in set_up", shown, names, value.where)
        _require_checks(paper, [printed for printed in values if printed.check])


def _require_checks(paper: str, values: Sequence[PrintedValue]) -> None:
    """Errors: FedreproError for a value that names a check which no claim of the paper has."""
    claims = load_claims(claims_file(paper)).claims if values else []
    known = [
        f"{claim.id}, check {index + 1}"
        for claim in claims
        for index in range(len(claim.all_checks))
    ]
    for value in values:
        named = value.apart.partition(": ")[2]
        if named not in known:
            raise unknown("check of a claim", named, known, value.where)


def require_cells(tables: Sequence[Exhibit], values: Sequence[PrintedValue]) -> None:
    """At the paper's own scale a printed value belongs to a point and a method, or says why not.

    Errors: FedreproError that names the row.
    """
    by_name = {exhibit.name: exhibit for exhibit in tables}
    for value in values:
        if value.exhibit not in by_name:
            raise unknown("table", value.exhibit, by_name, value.where)
        for problem in (
            ()
            if value.note or value.check or value.metric == SETTING
            else _strange(by_name[value.exhibit], value)
        ):
            raise FedreproError(
                f"{value.where}: {problem}; correct it, or say in its note why it is not run"
            )


def _strange(exhibit: Exhibit, value: PrintedValue) -> Iterator[str]:
    points = points_of(exhibit, value)
    labels = {measure.label for point in points for measure in point.measures}
    if not points:
        yield f"its cell fits no point of {exhibit.key}"
    elif value.method not in labels:
        yield f"'{value.method}' is no method of that cell, which has {', '.join(sorted(labels))}"
