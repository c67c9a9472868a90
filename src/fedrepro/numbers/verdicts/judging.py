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

**Stand-ins.** Numbers of other data than the paper's, or of less than its size, neither confirm nor
refute: a check is judged by its other exhibits, and one that has none is `stand-in only`.

**More trials.** Where an exhibit was given more trials after a verdict had been undecided, the
second look has a quarter of the error: two looks at 5 % each are wrong in 9 of 100 cases.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fedrepro.numbers.intervals import Interval
from fedrepro.numbers.verdicts.cells import Exhibits, Statement, contrasts
from fedrepro.numbers.verdicts.check_forms import Bounds, Check

CONFIDENCE = 0.95
TIMES = (2, 4, 8, 16, 32, 64)  # as many trials as there are; more are not worth naming
AGAIN = 0.25  # the share of the error that a second look has, with more trials
LOWER = ("above", "at_least")
KEEPS = {
    "above": operator.gt,
    "at_least": operator.ge,
    "below": operator.lt,
    "at_most": operator.le,
}

Verdict = Literal[
    "holds", "refuted", "undecided", "depends", "stand-in only", "incomplete", "not run"
]
STAND_IN: Verdict = "stand-in only"


class Rules(BaseModel):
    """How the claims of a file are decided; the head of the file may say otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trials: int = Field(default=5, ge=2, description="nothing is decided on fewer")
    holm: bool = Field(default=True, description="whether points are corrected for being many")
    raised: list[str] = Field(
        default_factory=list,
        description="exhibits that were given more trials after a verdict had been undecided",
    )
    words: dict[str, Bounds] = Field(
        default_factory=dict, description="bounds by the word that checks use for them"
    )


@dataclass(frozen=True)
class Finding:
    """A number of a check at one point, and the confidences at which it is kept and broken."""

    statement: Statement
    interval: Interval
    verdict: Verdict
    kept: float
    broken: float

    @property
    def confidence(self) -> float:
        """Return the confidence of the interval."""
        return self.kept if self.verdict == "holds" else self.broken


@dataclass(frozen=True)
class Judged:
    """One check: its verdict, the point that decides it, how many there were, and what lacks."""

    check: Check
    verdict: Verdict
    deciding: Finding | None = None
    points: int = 0
    missing: Sequence[str] = field(default_factory=list)

    @property
    def trials_needed(self) -> int | None:
        """Estimate how many trials decide the open point if its values and scatter stay.

        It repeats the trials there are. None for what is decided or not a mean over trials, and
        beyond TIMES as many.
        """
        if (
            self.deciding is None
            or self.verdict != "undecided"
            or not self.deciding.statement.parts
        ):
            return None
        check, deciding = self.check, self.deciding

        def decides(times: int) -> bool:
            more = contrasts("", *(part.repeated(times) for part in deciding.statement.parts))
            inside, outside = more.interval(deciding.kept), more.interval(deciding.broken)
            return keeps(check, inside) or breaks(check, outside)

        enough = next(filter(decides, TIMES), None)
        if enough is None:
            return None
        times = range(enough // 2 + 1, enough + 1)
        return deciding.statement.trials * times[bisect_left(times, True, key=decides)]


@dataclass(frozen=True)
class _Found:
    """Statements of a check, or what it lacks; `run` is whether any of its exhibits is there."""

    check: Check
    statements: Sequence[Statement]
    missing: Sequence[str]
    run: bool
    stand_in: bool

    @property
    def ways_to_break(self) -> int:
        """How many points could each refute the check by themselves."""
        return 1 if self.check.points == "some" else len(self.statements)


def judge_all(
    checks: Sequence[Check], numbers: Exhibits, rules: Rules, stand_ins: Collection[str] = ()
) -> list[Judged]:
    """Judge the checks of one claim, or of one reading of it.

    `stand_ins` names exhibits on other data or of less than the paper's size.

    Raises:
        FedreproError: for a column that an exhibit does not have.
    """
    evidence = [_look(check, numbers, rules, stand_ins) for check in checks]
    ways = sum(item.ways_to_break for item in evidence if not item.stand_in)
    return [_judge(item, item.ways_to_break if item.stand_in else ways, rules) for item in evidence]


def _look(check: Check, numbers: Exhibits, rules: Rules, stand_ins: Collection[str]) -> _Found:
    present = [name for name in check.named if name in numbers]
    for name in (name for name in present if name in check.alike):
        numbers[name].need(check.columns, name)
    real = [
        name
        for name in check.exhibits
        if name not in stand_ins
        and not (check.points == "mean" and name in numbers and numbers[name].stand_ins)
    ]
    compared = set(check.named) - set(check.exhibits)
    stand_in = not real or not compared.isdisjoint(stand_ins)
    if not stand_in:
        check = check.model_copy(update={"exhibits": real})
        numbers = {name: table.real for name, table in numbers.items()}
    missing = [name for name in check.named if name not in numbers]
    if not missing:
        missing = [item for name in check.exhibits for item in check.missing(name, numbers)]
    if missing:
        return _Found(check, [], list(dict.fromkeys(missing)), bool(present), stand_in)
    statements: list[Statement] = []
    for name in check.exhibits:
        points = list(check.statements(name, numbers))
        if not points and not check.ragged:
            missing.append(f"a point to judge by in {name}")
        statements += (
            [mean_over_points(points, name)] if points and check.points == "mean" else points
        )
    if not statements and not missing:
        missing = [f"a point to judge by in {name}" for name in check.exhibits]
    for few in (one for one in statements if one.trials < rules.trials):
        count = rules.trials - few.trials
        missing.append(f"{count} more trial{'s' if count > 1 else ''} at {few.at}")
    return _Found(check, [] if missing else statements, missing, True, stand_in)


def mean_over_points(statements: Sequence[Statement], exhibit: str) -> Statement:
    """Average the points of one exhibit, in each trial that all of them have."""
    parts = [part for point in statements for part in point.parts]
    return contrasts(f"{exhibit}, mean of {len(parts)} points", *parts)


def _judge(found: _Found, ways: int, rules: Rules) -> Judged:
    if found.missing:
        word: Verdict = "incomplete" if found.run else "not run"
        return Judged(found.check, word, missing=found.missing)
    judged = decide(found.check, found.statements, ways, rules)
    return replace(judged, verdict=STAND_IN) if found.stand_in else judged


def decide(check: Check, statements: Sequence[Statement], ways: int, rules: Rules) -> Judged:
    """Decide a check by its statements; in `ways` ways its claim could be refuted."""
    keeping = len(statements) if check.points in ("some", "most") else 1
    # a second look, with more trials, has a part of the error
    share = 1.0 if set(rules.raised).isdisjoint(check.named) else AGAIN
    error = share * (1 - CONFIDENCE)
    kept, broken = (1 - error / (count if rules.holm else 1) for count in (keeping, ways))
    points = [_point(check, statement, kept, broken) for statement in statements]
    whole = WHOLE[check.points]([p.verdict for p in points])
    # of the points that decide it, the one furthest out of bounds, or, for `some`, furthest in
    alike = [p for p in points if p.verdict == whole] or points
    pick = max if check.points == "some" else min
    deciding = pick(alike, key=lambda point: margin(check, point.interval.value))
    return Judged(check, whole, deciding, len(points))


def _point(check: Bounds, statement: Statement, kept: float, broken: float) -> Finding:
    """Measure a point, with the interval that its verdict rests on."""
    inside = statement.interval(kept)
    if keeps(check, inside):
        return Finding(statement, inside, "holds", kept, broken)
    outside = inside if broken == kept else statement.interval(broken)
    word: Verdict = "refuted" if breaks(check, outside) else "undecided"
    return Finding(statement, outside, word, kept, broken)


def keeps(check: Bounds, interval: Interval) -> bool:
    """Whether a whole interval keeps the bounds."""
    return _within(check, interval.low, interval.high)


def breaks(check: Bounds, interval: Interval) -> bool:
    """Whether a whole interval breaks one of the bounds."""
    return not _within(check, interval.high, interval.low)


def _within(check: Bounds, least: float, most: float) -> bool:
    return all(KEEPS[key](least if key in LOWER else most, b) for key, b in check.bounds.items())


def margin(check: Bounds, value: float) -> float:
    """How far inside its nearest bound a value lies; negative outside."""
    return min(value - b if key in LOWER else b - value for key, b in check.bounds.items())


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
    """All have to hold, and one refuted is enough; what is on stand-ins only says nothing."""
    distinct = set(verdicts)
    if distinct == {STAND_IN}:
        return STAND_IN
    distinct -= {STAND_IN}
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


def claim_verdict(judged: Sequence[Judged]) -> Verdict:
    """Combine checks: a claim holds if all its checks do, and is refuted if one is."""
    return _all_of([result.verdict for result in judged])


def verdict_of_readings(verdicts: Sequence[Verdict]) -> Verdict:
    """Combine the readings of a claim: the verdict that all share.

    It depends as soon as one reading holds and another is refuted, which no other reading could
    change, and is open where none is refuted or none holds, but not all agree.
    """
    distinct = set(verdicts)
    if len(distinct) > 1:
        distinct -= {STAND_IN}
    if len(distinct) == 1:
        return distinct.pop()
    if {"holds", "refuted"} <= distinct:
        return "depends"
    return "incomplete" if distinct & {"incomplete", "not run"} else "undecided"
