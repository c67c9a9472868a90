"""From statements to verdicts: of a point, of a check, of a claim.

A check holds if the whole interval of each of its points keeps the bounds, and is refuted if the
whole interval of one of them breaks one. It is incomplete if anything that it names is not there,
so that less computing can never make a verdict of its own.

**Many points.** That every point keeps its bounds is wrong only if a point that breaks one passes,
which is as rare for forty points as for one. That *some* point breaks one is to look for the worst
of many, and so is that some point, or most of them, keep them all. Under the rule `holm` these use
Holm's method at its first step, which is all that a verdict needs: the surest point of m must pass
at a confidence of 1 - 0.05/m. Where one point is enough to refute a claim, m counts the points of
all its checks.

**Stand-ins.** A point that was computed on other data than the paper's, or at less than its size,
refutes nothing by itself: it counts as undecided, and what it would have changed is said.

**Bounds that a verdict hangs on.** The `slack` of a verdict is how far the intervals that it needs
lie inside their bounds, or outside, as a share of the bound; below HANGS it hangs on the bound.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fedrepro.numbers.intervals import Interval
from fedrepro.verdicts.cells import Exhibits
from fedrepro.verdicts.form import Bounds
from fedrepro.verdicts.forms import Check
from fedrepro.verdicts.statements import (
    Contrasts,
    Statement,
    mean_over_points,
)

CONFIDENCE = 0.95
MOST_TIMES = 64  # more trials than that are not worth naming
HANGS = 0.01  # of its bound: a verdict with less slack hangs on it

Verdict = Literal["holds", "refuted", "undecided", "depends", "incomplete", "not run"]


class Rules(BaseModel):
    """How the claims of a file are decided; the head of the file may say otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trials: int = Field(default=5, ge=2, description="nothing is decided on fewer")
    holm: bool = Field(default=True, description="whether points are corrected for being many")
    words: dict[str, Bounds] = Field(
        default_factory=dict, description="bounds by the word that checks use for them"
    )


@dataclass(frozen=True)
class Finding:
    """What was found at a point, and the confidences at which it is kept and broken."""

    statement: Statement
    interval: Interval
    verdict: Verdict
    kept: float
    broken: float
    stand_in: bool = False

    @property
    def counted(self) -> Verdict:
        """Its verdict as it counts: a stand-in by itself refutes nothing."""
        return "undecided" if self.stand_in and self.verdict == "refuted" else self.verdict

    @property
    def at(self) -> str:
        return self.statement.at

    @property
    def trials(self) -> int:
        return self.statement.trials

    @property
    def confidence(self) -> float:
        """That of the interval."""
        return self.kept if self.verdict == "holds" else self.broken


@dataclass(frozen=True)
class Judged:
    """One check: its verdict, the point that decides it, how many there were, and what lacks.

    with_stand_ins: the verdict if points on stand-in data could refute. slack: of a check that
    holds or is refuted, as a share of its bound; infinite where the bound is zero or nothing
    scatters.
    """

    check: Check
    verdict: Verdict
    deciding: Finding | None = None
    points: int = 0
    missing: Sequence[str] = field(default_factory=list)
    with_stand_ins: Verdict | None = None
    slack: float = math.inf

    @property
    def exhibits(self) -> Sequence[str]:
        """The exhibits that it was judged by."""
        return self.check.exhibits if self.deciding else []

    @property
    def trials_needed(self) -> int | None:
        """About how many trials would decide the point that leaves it undecided."""
        if self.deciding is None or self.deciding.verdict != "undecided":
            return None  # what a stand-in refutes more trials of it would not decide
        return _needed(self.check, self.deciding)


@dataclass(frozen=True)
class _Found:
    """What a check has to say, or what it lacks; `run` is whether any of its exhibits is there."""

    check: Check
    statements: Sequence[Statement]
    missing: Sequence[str]
    run: bool
    stand_ins: Sequence[bool] = ()  # of each statement

    @property
    def ways_to_break(self) -> int:
        """How many points could each refute the check by themselves."""
        return 1 if self.check.points == "some" else len(self.statements)


def judge(check: Check, numbers: Exhibits, rules: Rules | None = None) -> Judged:
    """One check by itself."""
    return judge_all([check], numbers, rules or Rules())[0]


def judge_all(
    checks: Sequence[Check], numbers: Exhibits, rules: Rules, stand_ins: Collection[str] = ()
) -> list[Judged]:
    """The checks of one claim, or of one reading of it.

    stand_ins: the exhibits that are of other data or of less than the paper's size. Errors:
    FedreproError for a column that an exhibit does not have.
    """
    evidence = [_look(check, numbers, rules, stand_ins) for check in checks]
    ways = sum(item.ways_to_break for item in evidence)
    return [_judge(item, ways, rules) for item in evidence]


def _look(check: Check, numbers: Exhibits, rules: Rules, stand_ins: Collection[str]) -> _Found:
    present = [name for name in check.named if name in numbers]
    for name in (name for name in present if name in check.alike):
        numbers[name].need(check.columns, name)
    missing = [name for name in check.named if name not in numbers]
    if not missing:
        missing = [item for name in check.exhibits for item in check.missing(name, numbers)]
    if missing:
        return _Found(check, [], list(dict.fromkeys(missing)), bool(present))
    statements: list[Statement] = []
    substitutes: list[bool] = []
    beside = set(check.named) - set(check.exhibits)
    for name in check.exhibits:
        points = list(check.statements(name, numbers))
        if not points and not check.ragged:
            missing.append(f"a point to judge by in {name}")
        statements += (
            [mean_over_points(points, name)] if points and check.points == "mean" else points
        )
        stand_in = not beside.union([name]).isdisjoint(stand_ins)
        substitutes += [stand_in] * (len(statements) - len(substitutes))
    if not statements and not missing:
        missing = [f"a point to judge by in {name}" for name in check.exhibits]
    few = [statement for statement in statements if statement.trials < rules.trials]
    missing += [f"{_more(rules.trials - statement.trials)} at {statement.at}" for statement in few]
    return _Found(check, [] if missing else statements, missing, True, substitutes)


def _more(count: int) -> str:
    return f"{count} more trial{'s' if count > 1 else ''}"


def _judge(outcome: _Found, ways: int, rules: Rules) -> Judged:
    if outcome.missing:
        verdict: Verdict = "incomplete" if outcome.run else "not run"
        return Judged(outcome.check, verdict, missing=outcome.missing)
    return decide(outcome.check, outcome.statements, ways, rules, outcome.stand_ins)


def decide(
    check: Check,
    statements: Sequence[Statement],
    ways: int,
    rules: Rules,
    stand_ins: Sequence[bool] = (),
) -> Judged:
    """A check by what it has to say; `ways` is in how many its claim could be refuted.

    stand_ins: whether each statement is on stand-in data; none is if nothing is said.
    """
    keeping = len(statements) if check.points in ("some", "most") else 1
    kept, broken = (_confidence(count if rules.holm else 1) for count in (keeping, ways))
    substitutes = stand_ins or [False] * len(statements)
    points = [
        replace(_point(check, statement, kept, broken), stand_in=substitute)
        for statement, substitute in zip(statements, substitutes, strict=True)
    ]
    whole = WHOLE[check.points]([p.counted for p in points])
    with_stand_ins = WHOLE[check.points]([p.verdict for p in points])
    # of the points that decide it, the one furthest out of bounds, or, for `some`, furthest in
    alike = [p for p in points if p.verdict == with_stand_ins]
    if whole == with_stand_ins:
        alike = [p for p in alike if p.counted == whole]
    pick = max if check.points == "some" else min
    deciding = pick(alike, key=lambda point: margin(check, point.interval.value))
    slack = _slack(check, whole, points)
    return Judged(check, whole, deciding, len(points), [], with_stand_ins, slack)


def _slack(check: Check, whole: Verdict, points: Sequence[Finding]) -> float:
    """How much of a bound the verdict of a check is away from another one."""
    if whole not in ("holds", "refuted"):
        return math.inf
    shares = sorted((_share(check, p) for p in points if p.counted == whole), reverse=True)
    need = {"every": {"holds": len(points), "refuted": 1}, "some": {"holds": 1}}
    need["mean"] = need["every"]
    need["most"] = {"holds": len(points) // 2 + 1, "refuted": (len(points) + 1) // 2}
    return shares[need[check.points].get(whole, len(points)) - 1]


def _share(check: Bounds, point: Finding) -> float:
    """How far a whole interval lies inside its bounds, or outside one, as a share of the bound."""
    interval, held = point.interval, point.verdict == "holds"
    if interval.low == interval.high:
        return math.inf
    shares = []
    for key, bound in check.bounds.items():
        lower = key in LOWER
        end = interval.low if lower == held else interval.high
        away = (end - bound) * (1 if lower == held else -1)
        shares.append(away / abs(bound) if bound else math.copysign(math.inf, away))
    return min(shares) if held else max(shares)


def _confidence(ways: int) -> float:
    return 1 - (1 - CONFIDENCE) / ways


def _point(check: Bounds, statement: Statement, kept: float, broken: float) -> Finding:
    """A point, with the interval that its verdict rests on."""
    inside = statement.interval(kept)
    if keeps(check, inside):
        return Finding(statement, inside, "holds", kept, broken)
    outside = inside if broken == kept else statement.interval(broken)
    verdict: Verdict = "refuted" if breaks(check, outside) else "undecided"
    return Finding(statement, outside, verdict, kept, broken)


def keeps(check: Bounds, interval: Interval) -> bool:
    """Whether a whole interval keeps the bounds."""
    ends = {
        "above": interval.low,
        "at_least": interval.low,
        "below": interval.high,
        "at_most": interval.high,
    }
    return all(_KEEPS[key](ends[key], bound) for key, bound in check.bounds.items())


def breaks(check: Bounds, interval: Interval) -> bool:
    """Whether a whole interval breaks one of the bounds."""
    ends = {
        "above": interval.high,
        "at_least": interval.high,
        "below": interval.low,
        "at_most": interval.low,
    }
    return any(not _KEEPS[key](ends[key], bound) for key, bound in check.bounds.items())


LOWER = ("above", "at_least")
_KEEPS = {
    "above": lambda end, bound: end > bound,
    "at_least": lambda end, bound: end >= bound,
    "below": lambda end, bound: end < bound,
    "at_most": lambda end, bound: end <= bound,
}


def margin(check: Bounds, value: float) -> float:
    """How far inside its nearest bound a value lies; negative outside."""
    return min(value - b if key in LOWER else b - value for key, b in check.bounds.items())


def _needed(check: Bounds, finding: Finding) -> int | None:
    """About how many trials would decide a point, if its values and scatter stayed as they are.

    Found by repeating the trials there are. None for what is no mean over trials, and beyond
    MOST_TIMES as many.
    """
    statement = finding.statement
    if not isinstance(statement, Contrasts):
        return None

    def decides(times: int) -> bool:
        more = statement.repeated(times)
        inside, outside = more.interval(finding.kept), more.interval(finding.broken)
        return keeps(check, inside) or breaks(check, outside)

    enough = next((times for times in _doubled() if decides(times)), None)
    if enough is None:
        return None
    times = range(enough // 2 + 1, enough + 1)
    return statement.trials * times[bisect_left(times, True, key=decides)]


def _doubled() -> Iterator[int]:
    times = 2
    while times <= MOST_TIMES:
        yield times
        times *= 2


def _some_of(verdicts: Sequence[Verdict]) -> Verdict:
    if "holds" in verdicts:
        return "holds"
    return "refuted" if set(verdicts) == {"refuted"} else "undecided"


def _most_of(verdicts: Sequence[Verdict]) -> Verdict:
    """More than half of the points have to hold; half that are refuted are enough."""
    if 2 * verdicts.count("holds") > len(verdicts):
        return "holds"
    return "refuted" if 2 * verdicts.count("refuted") >= len(verdicts) else "undecided"


def _all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """All have to hold, and one that is refuted is enough."""
    distinct = set(verdicts)
    if distinct == {"not run"}:
        return "not run"
    if distinct & {"incomplete", "not run"}:
        return "incomplete"
    if "refuted" in distinct:
        return "refuted"
    return "holds" if distinct == {"holds"} else "undecided"


WHOLE: dict[str, Callable[[Sequence[Verdict]], Verdict]] = {
    "every": _all_of,
    "mean": _all_of,
    "some": _some_of,
    "most": _most_of,
}


def verdict(judged: Sequence[Judged], stand_ins: bool = False) -> Verdict:
    """A claim holds if all its checks do, and is refuted if one is.

    stand_ins: as if stand-in data could refute.
    """
    overrides = [result.with_stand_ins if stand_ins else None for result in judged]
    return _all_of(
        override or result.verdict for override, result in zip(overrides, judged, strict=True)
    )


def claim_slack(whole: Verdict, readings: Sequence[Sequence[Judged]]) -> float:
    """How much of a bound a claim that holds or is refuted is away from another verdict."""
    if whole not in ("holds", "refuted"):
        return math.inf
    surest = min if whole == "holds" else max
    return min(
        surest(result.slack for result in reading if result.verdict == whole)
        for reading in readings
    )


def verdict_of_readings(verdicts: Sequence[Verdict]) -> Verdict:
    """What can be said if the paper may be read in several ways: what all readings say.

    It depends as soon as one reading holds and another is refuted, which no other reading could
    change, and is open where none is refuted or none holds, but not all agree.
    """
    distinct = set(verdicts)
    if len(distinct) == 1:
        return verdicts[0]
    if {"holds", "refuted"} <= distinct:
        return "depends"
    return "incomplete" if distinct & {"incomplete", "not run"} else "undecided"
