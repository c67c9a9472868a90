"""What a claim says in numbers: a few named forms, each from the numbers of exhibits to findings.

A claim is checked by forms such as "method A minus method B at every point, at least -0.02". Forms
are data, not code: nothing of a claim's file is executed. A finding is a value with the interval
of two combined standard errors around it, and a bound is kept, broken, or neither.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    import pandas as pd

ERRORS = 2.0  # combined standard errors; also what decides whether a printed value is reproduced
NOT_PLACES = ("method", "metric", "split", "mean", "sd", "trials", "setting", "round")

Verdict = Literal["holds", "refuted", "undecided", "not run"]
Numbers = Mapping[str, "pd.DataFrame"]  # exhibit -> its numbers, as in its csv
Place = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One number of an exhibit: its place, mean and standard error (None for a single trial)."""

    place: Place
    mean: float
    error: float | None


@dataclass(frozen=True)
class Finding:
    """A value that a claim is about; low and high are two combined standard errors away."""

    at: str
    value: float
    low: float
    high: float


class Form(BaseModel):
    """What all forms have: exhibits, the number that is looked at, where, and bounds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    exhibits: list[str] = Field(min_length=1)
    of: str = Field(description="method, by its label")
    metric: str = "accuracy"
    split: str = "test"
    where: dict[str, list[Any] | Literal["first", "last"]] = Field(
        default_factory=dict, description="only these values of a column"
    )
    points: Literal["every", "some", "mean"] = "every"
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Form:
        if all(b is None for b in (self.above, self.at_least, self.below, self.at_most)):
            raise ValueError("a check needs a bound: above, at_least, below or at_most")
        return self

    @abstractmethod
    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        """The values at each point of one exhibit."""

    @property
    def bound(self) -> str:
        """The bounds in words."""
        words = {"above": "above", "at_least": "at least", "below": "below", "at_most": "at most"}
        found = [f"{text} {getattr(self, key):g}" for key, text in words.items() if _has(self, key)]
        return " and ".join(found)

    def cells(self, numbers: pd.DataFrame, method: str) -> list[Cell]:
        """What a method ended with at every place that `where` lets through."""
        return list(_cells(numbers, method, self.metric, self.split, self.where))


def _has(form: Form, key: str) -> bool:
    return getattr(form, key) is not None


class Value(Form):
    """The number itself."""

    form: Literal["value"]

    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        for cell in self.cells(numbers[exhibit], self.of):
            yield _finding(exhibit, cell.place, cell.mean, [cell.error])


class Difference(Form):
    """The number minus that of another method, the best of several if a list is given."""

    form: Literal["difference"]
    minus: list[str] = Field(min_length=1)

    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        frame = numbers[exhibit]
        others = [cell for name in self.minus for cell in self.cells(frame, name)]
        for cell in self.cells(frame, self.of):
            rivals = [other for other in others if _same_place(cell, other)]
            if rivals:
                best = max(rivals, key=lambda other: other.mean)
                yield _finding(exhibit, cell.place, cell.mean - best.mean, [cell.error, best.error])


class Ratio(Form):
    """The number divided by that of another method."""

    form: Literal["ratio"]
    to: str

    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        others = self.cells(numbers[exhibit], self.to)
        for cell in self.cells(numbers[exhibit], self.of):
            for other in others:
                if _same_place(cell, other) and other.mean:
                    ratio = cell.mean / other.mean
                    relative = _scaled(other.error, ratio / other.mean)
                    errors = [_scaled(cell.error, 1 / other.mean), relative]
                    yield _finding(exhibit, cell.place, ratio, errors)


class Change(Form):
    """The number at the end of a column minus that at its start, each or where it is highest."""

    form: Literal["change"]
    along: str
    start: Literal["first", "best"] = "first"
    end: Literal["last", "best"] = "last"

    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        for place, cells in _grouped(self.cells(numbers[exhibit], self.of), [self.along]):
            ordered = sorted(cells, key=lambda cell: _order(cell.place[self.along]))
            if len(ordered) < 2:
                continue
            best = max(ordered, key=lambda cell: cell.mean)
            start = best if self.start == "best" else ordered[0]
            end = best if self.end == "best" else ordered[-1]
            ends = {self.along: f"{start.place[self.along]} to {end.place[self.along]}"}
            errors = [] if start is end else [start.error, end.error]
            yield _finding(exhibit, place | ends, end.mean - start.mean, errors)


class Spread(Form):
    """The largest minus the smallest number as columns vary; less another exhibit's, if named."""

    form: Literal["spread"]
    over: list[str] = Field(min_length=1)
    minus_exhibit: str | None = None

    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        own = list(self._spreads(numbers[exhibit]))
        if self.minus_exhibit is None:
            for place, value, errors in own:
                yield _finding(exhibit, place, value, errors)
        elif self.minus_exhibit in numbers:
            others = list(self._spreads(numbers[self.minus_exhibit]))
            for place, value, errors in own:
                for at, other, more in others:
                    if at == place:
                        yield _finding(exhibit, place, value - other, [*errors, *more])

    def _spreads(self, frame: pd.DataFrame) -> Iterator[tuple[Place, float, list[float | None]]]:
        for place, cells in _grouped(self.cells(frame, self.of), self.over):
            low, high = (pick(cells, key=lambda cell: cell.mean) for pick in (min, max))
            yield place, high.mean - low.mean, [] if low is high else [low.error, high.error]


class Effect(Form):
    """How far the means over all else lie apart for one column, less the most for any other."""

    form: Literal["effect"]
    over: str
    than: list[str] = Field(min_length=1)

    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        cells = self.cells(numbers[exhibit], self.of)
        if not cells:
            return
        own, errors = _marginal_spread(cells, self.over)
        rival, more = max((_marginal_spread(cells, key) for key in self.than), key=lambda x: x[0])
        yield _finding(exhibit, {}, own - rival, [*errors, *more])


class RoundsTo(Form):
    """The first measured round in which a method is within reach of what another ended with."""

    form: Literal["rounds_to"]
    reach: str
    within: float = Field(0.0, ge=0)

    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        frame = numbers[exhibit]
        goals = self.cells(frame, self.reach)
        rounds = _by_round(frame, self.of, self.metric, self.split)
        if not goals or not rounds:
            return
        goal, last = goals[0], max(rounds)

        def first(errors: float) -> float:
            """The first round whose gap closes, given a benefit of so many standard errors."""
            for done in sorted(rounds):
                gap = goal.mean - self.within - rounds[done].mean
                if gap <= errors * (_combined([goal.error, rounds[done].error]) or 0.0):
                    return float(done)
            return math.inf

        early = first(ERRORS)
        # a goal that is not reached may lie anywhere beyond the last round
        low = float(last) if math.isinf(early) else early
        yield Finding(f"{exhibit}, {self.of}", first(0.0), low, first(-ERRORS))


class Correlation(Form):
    """Pearson's correlation of two methods' numbers over the points of an exhibit."""

    form: Literal["correlation"]
    with_method: str

    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        import numpy as np

        others = self.cells(numbers[exhibit], self.with_method)
        own = self.cells(numbers[exhibit], self.of)
        pairs = [(c.mean, o.mean) for c in own for o in others if _same_place(c, o)]
        if len(pairs) < 4:
            return
        r = float(np.corrcoef(np.array(pairs).T)[0, 1])
        z, width = math.atanh(min(max(r, -0.999999), 0.999999)), ERRORS / math.sqrt(len(pairs) - 3)
        yield Finding(f"{exhibit}, all points", r, math.tanh(z - width), math.tanh(z + width))


Check = Annotated[
    Value | Difference | Ratio | Change | Spread | Effect | RoundsTo | Correlation,
    Field(discriminator="form"),
]


# ------------------------------------------------------------------------------------- judging


def verdict_of(form: Form, finding: Finding) -> Verdict:
    """Whether a value keeps the bounds, breaks one, or is too near one to tell."""
    kept, broken = [], []
    if form.at_least is not None:
        kept.append(finding.low >= form.at_least)
        broken.append(finding.high < form.at_least)
    if form.above is not None:
        kept.append(finding.low > form.above)
        broken.append(finding.high <= form.above)
    if form.at_most is not None:
        kept.append(finding.high <= form.at_most)
        broken.append(finding.low > form.at_most)
    if form.below is not None:
        kept.append(finding.high < form.below)
        broken.append(finding.low >= form.below)
    if any(broken):
        return "refuted"
    return "holds" if all(kept) else "undecided"


def margin(form: Form, finding: Finding) -> float:
    """How far inside its nearest bound a value lies; negative outside."""
    lower = [b for b in (form.at_least, form.above) if b is not None]
    upper = [b for b in (form.at_most, form.below) if b is not None]
    return min([finding.value - b for b in lower] + [b - finding.value for b in upper])


def mean_of(findings: Sequence[Finding], exhibit: str) -> Finding:
    """The mean over points. They may share trials, so their mean is no surer than they are."""
    count = len(findings)
    value = sum(f.value for f in findings) / count
    half = sum((f.high - f.low) / 2 for f in findings) / count
    return Finding(f"{exhibit}, mean of {count} points", value, value - half, value + half)


# ------------------------------------------------------------------------------------- numbers


def _cells(
    frame: pd.DataFrame, method: str, metric: str, split: str, where: Mapping[str, Any]
) -> Iterator[Cell]:
    own = frame[(frame["method"] == method) & (frame["metric"] == metric)]
    own = own[own["split"] == split]
    if "round" in own:
        own = own[own["round"].isna()]
    for key, wanted in where.items():
        if key not in own:
            return
        if isinstance(wanted, str):
            ends = sorted(own[key].unique(), key=_order)
            own = own[own[key].isin(ends[-1:] if wanted == "last" else ends[:1])]
        else:
            own = own[own[key].isin(wanted)]
    places = [name for name in own.columns if name not in NOT_PLACES]
    for row in own.to_dict("records"):
        place = {str(key): row[key] for key in places if _given(row[key])}
        yield Cell(place, float(row["mean"]), _error(row))


def _by_round(frame: pd.DataFrame, method: str, metric: str, split: str) -> dict[int, Cell]:
    if "round" not in frame:
        return {}
    own = frame[(frame["method"] == method) & (frame["metric"] == metric)]
    own = own[(own["split"] == split) & own["round"].notna()]
    rows = own.to_dict("records")
    return {int(row["round"]): Cell({}, float(row["mean"]), _error(row)) for row in rows}


def _given(value: Any) -> bool:
    missing = isinstance(value, float) and math.isnan(value)
    return value != "" and not missing


def _error(row: Mapping[Any, Any]) -> float | None:
    """Standard error of a mean; None where a single trial tells nothing of it."""
    return row["sd"] / math.sqrt(row["trials"]) if row["trials"] > 1 else None


def _same_place(one: Cell, other: Cell) -> bool:
    """Whether two cells stand at one point; a method may lack a parameter that another shows."""
    common = set(one.place) & set(other.place)
    return all(one.place[key] == other.place[key] for key in common)


def _grouped(cells: Sequence[Cell], over: Sequence[str]) -> Iterator[tuple[Place, list[Cell]]]:
    """Cells that differ in the columns `over` only."""
    found: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        rest = tuple((k, v) for k, v in cell.place.items() if k not in over)
        found.setdefault(rest, []).append(cell)
    for place, group in found.items():
        if all(key in cell.place for cell in group for key in over):
            yield dict(place), group


def _marginal_spread(cells: Sequence[Cell], key: str) -> tuple[float, list[float | None]]:
    """Largest minus smallest mean over all else; errors within a mean count as one trial set's."""
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.place[key], []).append(cell)
    means = {value: sum(c.mean for c in group) / len(group) for value, group in groups.items()}
    low, high = (pick(means, key=lambda value: means[value]) for pick in (min, max))
    # settings of one trial share its data, so averaging over them does not lessen the error
    errors = [_largest(groups[low]), _largest(groups[high])] if low != high else []
    return means[high] - means[low], errors


def _largest(cells: Sequence[Cell]) -> float | None:
    errors = [cell.error for cell in cells]
    return None if None in errors else max(error for error in errors if error is not None)


def _order(value: Any) -> tuple[float, str]:
    """Numbers by size; widths of layers, as 50@50, by their number and then their sum."""
    if isinstance(value, str):
        parts = value.split("@")
        if all(part.replace(".", "", 1).isdigit() for part in parts):
            return len(parts) + sum(map(float, parts)) * 1e-6, value
        return 0.0, value
    return float(value), ""


def _scaled(error: float | None, factor: float) -> float | None:
    return None if error is None else abs(error * factor)


def _combined(errors: Sequence[float | None]) -> float | None:
    """The error of a sum of independent means; None if one is unknown."""
    if any(error is None for error in errors):
        return None
    return math.sqrt(sum(error**2 for error in errors if error is not None))


def _finding(exhibit: str, place: Place, value: float, errors: Sequence[float | None]) -> Finding:
    """A value with its interval; without an error it could be anything."""
    names = {"clients": "J"}
    words = [str(v) if k == "case" else f"{names.get(k, k)} = {_text(v)}" for k, v in place.items()]
    error = _combined(errors)
    half = math.inf if error is None else ERRORS * error
    return Finding(", ".join([exhibit, *words]), value, value - half, value + half)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
