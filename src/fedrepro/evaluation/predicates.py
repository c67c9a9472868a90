"""What a claim says in numbers: a few named forms, each from the numbers of exhibits to findings.

A claim is checked by forms such as "method A minus method B at every point, at least -0.02". Forms
are data, not code: nothing of a claim's file is executed.

What a form looks at is computed in each trial by itself, from the trials that all its numbers have:
methods share a trial's partition and local models, so their difference scatters less than either.
A finding is the mean over trials with its 95 % interval (Student's t, as trials are few), and a
bound is kept, broken, or neither.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCE = 0.95
NORMAL = 1.959964  # standard errors to each side at that confidence, where the error is known
NOT_PLACES = ("method", "metric", "split", "mean", "sd", "trials", "by_trial", "setting", "round")

Verdict = Literal["holds", "refuted", "undecided", "not run"]
Numbers = Mapping[str, "pd.DataFrame"]  # exhibit -> its numbers, as in its csv
Place = dict[str, Any]
Trials = tuple[float, ...]  # a value for each trial 0, 1, …


@dataclass(frozen=True)
class Cell:
    """One number of an exhibit: its place, and its value in each trial."""

    place: Place
    trials: Trials

    @property
    def mean(self) -> float:
        return _mean(self.trials)


@dataclass(frozen=True)
class Finding:
    """A value that a claim is about, its 95 % interval, and what it was in each trial."""

    at: str
    value: float
    low: float
    high: float
    trials: Trials = ()


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
            yield _finding(exhibit, cell.place, cell.trials)


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
                yield _finding(exhibit, cell.place, _minus(cell.trials, best.trials))


class Ratio(Form):
    """The number divided by that of another method."""

    form: Literal["ratio"]
    to: str

    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        others = self.cells(numbers[exhibit], self.to)
        for cell in self.cells(numbers[exhibit], self.of):
            for other in others:
                if _same_place(cell, other) and other.mean:
                    own, its = _shared(cell.trials, other.trials)
                    size, ratio = _mean(its), _mean(own) / _mean(its)
                    # the ratio of means, and how each trial moves it, to first order
                    moved = (ratio + (a - ratio * b) / size for a, b in zip(own, its, strict=True))
                    yield _finding(exhibit, cell.place, tuple(moved))


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
            yield _finding(exhibit, place | ends, _minus(end.trials, start.trials))


class Spread(Form):
    """The largest minus the smallest number as columns vary; less another exhibit's, if named."""

    form: Literal["spread"]
    over: list[str] = Field(min_length=1)
    minus_exhibit: str | None = None

    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        own = list(self._spreads(numbers[exhibit]))
        if self.minus_exhibit is None:
            for place, spread in own:
                yield _finding(exhibit, place, spread)
        elif self.minus_exhibit in numbers:
            others = list(self._spreads(numbers[self.minus_exhibit]))
            for place, spread in own:
                for at, other in others:
                    if at == place:
                        yield _finding(exhibit, place, _minus(spread, other))

    def _spreads(self, frame: pd.DataFrame) -> Iterator[tuple[Place, Trials]]:
        for place, cells in _grouped(self.cells(frame, self.of), self.over):
            low, high = (pick(cells, key=lambda cell: cell.mean) for pick in (min, max))
            yield place, _minus(high.trials, low.trials)


class Effect(Form):
    """How far the means over all else lie apart for one column, less the most for any other."""

    form: Literal["effect"]
    over: str
    than: list[str] = Field(min_length=1)

    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        cells = self.cells(numbers[exhibit], self.of)
        if not cells:
            return
        rival = max((_marginal_spread(cells, key) for key in self.than), key=_mean)
        yield _finding(exhibit, {}, _minus(_marginal_spread(cells, self.over), rival))


class RoundsTo(Form):
    """The first measured round in which a method is within reach of what another ended with."""

    form: Literal["rounds_to"]
    points: Literal["every", "some"] = "every"
    reach: str
    within: float = Field(0.0, ge=0)

    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        frame = numbers[exhibit]
        goals = self.cells(frame, self.reach)
        rounds = _by_round(frame, self.of, self.metric, self.split)
        if not goals or not rounds:
            return
        # how far each measured round stays behind
        behind = {
            done: _finding("", {}, tuple(g - self.within for g in _minus(goals[0].trials, trials)))
            for done, trials in sorted(rounds.items())
        }

        def first(end: Literal["low", "value", "high"]) -> float:
            """The first round that has closed the gap, by the mean or an end of its interval."""
            closed = (done for done, gap in behind.items() if getattr(gap, end) <= 0)
            return float(next(closed, math.inf))

        early = first("low")
        # a goal that is not reached may lie anywhere beyond the last round
        low = float(max(rounds)) if math.isinf(early) else early
        yield Finding(f"{exhibit}, {self.of}", first("value"), low, first("high"))


class Correlation(Form):
    """Pearson's correlation of two methods' means over an exhibit's points (Fisher's interval)."""

    form: Literal["correlation"]
    points: Literal["every", "some"] = "every"
    with_method: str

    def findings(self, exhibit: str, numbers: Numbers) -> Iterator[Finding]:
        import numpy as np

        others = self.cells(numbers[exhibit], self.with_method)
        own = self.cells(numbers[exhibit], self.of)
        pairs = [(c.mean, o.mean) for c in own for o in others if _same_place(c, o)]
        if len(pairs) < 4:
            return
        r = float(np.corrcoef(np.array(pairs).T)[0, 1])
        z, width = math.atanh(min(max(r, -0.999999), 0.999999)), NORMAL / math.sqrt(len(pairs) - 3)
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
    """The mean over points, in each trial that all of them have."""
    trials = zip(*_shared(*(finding.trials for finding in findings)), strict=True)
    found = _finding("", {}, tuple(_mean(values) for values in trials))
    return dataclasses.replace(found, at=f"{exhibit}, mean of {len(findings)} points")


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
        yield Cell(place, _trials(row))


def _by_round(frame: pd.DataFrame, method: str, metric: str, split: str) -> dict[int, Trials]:
    if "round" not in frame:
        return {}
    own = frame[(frame["method"] == method) & (frame["metric"] == metric)]
    own = own[(own["split"] == split) & own["round"].notna()]
    rows = own.to_dict("records")
    return {int(row["round"]): _trials(row) for row in rows}


def _given(value: Any) -> bool:
    missing = isinstance(value, float) and math.isnan(value)
    return value != "" and not missing


def _trials(row: Mapping[Any, Any]) -> Trials:
    return tuple(float(value) for value in row["by_trial"].split())


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


def _marginal_spread(cells: Sequence[Cell], key: str) -> Trials:
    """Largest minus smallest mean over all else, in each trial."""
    groups: dict[Any, list[Trials]] = {}
    for cell in cells:
        groups.setdefault(cell.place[key], []).append(cell.trials)
    means = [tuple(map(_mean, zip(*_shared(*group), strict=True))) for group in groups.values()]
    return _minus(max(means, key=_mean), min(means, key=_mean))


def _order(value: Any) -> tuple[float, str]:
    """Numbers by size; widths of layers, as 50@50, by their number and then their sum."""
    if isinstance(value, str):
        parts = value.split("@")
        if all(part.replace(".", "", 1).isdigit() for part in parts):
            return len(parts) + sum(map(float, parts)) * 1e-6, value
        return 0.0, value
    return float(value), ""


def _shared(*numbers: Trials) -> list[Trials]:
    """Numbers in the trials that all of them have: the first ones, since trials count from 0."""
    count = min(map(len, numbers))
    return [trials[:count] for trials in numbers]


def _minus(one: Trials, other: Trials) -> Trials:
    return tuple(a - b for a, b in zip(*_shared(one, other), strict=True))


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def _finding(exhibit: str, place: Place, trials: Trials) -> Finding:
    """The mean over trials with its 95 % interval; a single trial could mean anything."""
    names = {"clients": "J"}
    words = [str(v) if k == "case" else f"{names.get(k, k)} = {_text(v)}" for k, v in place.items()]
    value, half = _mean(trials), _half_width(trials)
    return Finding(", ".join([exhibit, *words]), value, value - half, value + half, trials)


def _half_width(trials: Trials) -> float:
    """From the mean to an end of its interval, by Student's t over independent trials."""
    count = len(trials)
    if count < 2:
        return math.inf
    from scipy.special import stdtrit

    width = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    return width * statistics.stdev(trials) / math.sqrt(count)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
