"""Judge the claims of a paper (claims.yaml) by our numbers, by the rules of docs/claims.md.

A claim is a sentence of a paper. Its checks compare numbers of figures or tables with bounds, one
at each point, a combination of swept parameters. A finding is the verdict on one number.
If every point must keep its bounds, confirming a claim is wrong only if a point that breaks them
passes too, and more points do not make this likelier. Other verdicts pick the best or worst of m
points: that one breaks bounds, or that some or most keep them. There each point is tested at a
confidence of 1 - 0.05/m, the first step of Holm's method. Where one point is enough to refute a
claim, m counts the points of all its checks. Stand-ins, numbers of other data than the paper's or
of less than its size, neither confirm nor refute: a check is judged by its other figures. Verdicts
are holds, refuted, undecided, depends (on a claim's meaning), incomplete, not run, stand-in only.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
from pydantic import Field, model_validator

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.numbers.exhibit_files import open_exhibit
from fedrepro.numbers.intervals import Interval
from fedrepro.numbers.verdicts.claim_check_kinds import BOUNDS, Bounds, Check
from fedrepro.numbers.verdicts.claim_numbers import Exhibits, Numbers, Statement, contrasts
from fedrepro.planning.config_files import load_yaml, validated
from fedrepro.planning.drawing_base import Strict

COLUMNS = (
    *("claim", "verdict", "note", "label", "fixed", "place", "says", "reading", "check"),
    *("check_verdict", "at", "value", "low", "high", "confidence", "bound", "points", "trials"),
    *("trials_needed", "missing", "reason", "data"),
)
NUMERIC = ("value", "low", "high", "confidence", "points", "trials", "trials_needed")
MOST_NAMED = 4  # of what is missing
CONFIDENCE = 0.95
TIMES = (2, 4, 8, 16, 32, 64)  # as many trials as there are; more are not worth naming
AGAIN = 0.25  # the share of the error that a second look has, with more trials
LOWER = ("above", "at_least")
STAND_IN = "stand-in only"  # a verdict, as holds, refuted, undecided, depends, incomplete, not run


class Rules(Strict):
    """The rules for all checks in a claims file.

    trials: a check with fewer is incomplete. raised: names of exhibits that got more trials after
    an undecided verdict. words: {name: bounds}, for checks that give the name as `shows`.
    """

    trials: int = Field(default=5, ge=2)
    raised: list[str] = Field(default=[])
    words: dict[str, Bounds] = Field(default={})


class Claim(Strict):
    """A sentence of a paper (`says`, in our words), and the checks that decide whether it holds.

    place: where it is in the paper. reason: why checks have these bounds. fixed: if they were set
    before or after results. label: "exact" for a count, "identity" for what follows from how the
    method is defined, "ours" for a sentence that names no outcome. readings: {meaning: its checks},
    if it has several. untested: why it has no checks.
    """

    id: str
    place: str
    says: str
    reason: str = ""
    fixed: Literal["before", "after"] = "before"
    label: Literal["", "exact", "identity", "ours"] = ""
    checks: list[Check] = Field(default=[])
    readings: dict[str, list[Check]] = Field(default={})
    untested: str = ""

    @model_validator(mode="after")
    def _either(self) -> Claim:
        if sum(map(bool, (self.checks, self.readings, self.untested))) != 1:
            raise ValueError(f"claim {self.id} needs checks, or says why it is untested")
        if not self.untested and not self.reason:
            raise ValueError(f"claim {self.id} has bounds, so it needs a reason for them")
        if self.readings and (len(self.readings) < 2 or not all(self.readings.values())):
            raise ValueError(f"claim {self.id} needs two readings or more, each with checks")
        return self

    @property
    def groups(self) -> dict[str, list[Check]]:
        """Return the checks by reading (a meaning of the sentence), under "" if it has only one."""
        return self.readings or {"": self.checks}

    @property
    def all_checks(self) -> list[Check]:
        return [check for checks in self.groups.values() for check in checks]


class ClaimFile(Strict):
    """The content of claims.yaml: the claims of a paper, and rules for their checks."""

    paper: str
    rules: Rules = Rules()
    claims: list[Claim]


def load_claims(path: Path) -> ClaimFile:
    """Read and validate a paper's claims; raise FedreproError if the file has a mistake."""
    file = validated(ClaimFile, expand_named_bounds(load_yaml(path), f"{path}"), f"{path}")
    ids = [claim.id for claim in file.claims]
    if len(set(ids)) != len(ids):
        raise FedreproError(f"{path}: two claims have one id; ids are {', '.join(ids)}")
    return file


def expand_named_bounds(content: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Add bounds of rules.words to checks that name them by `shows`; errors name `where`."""
    rules = content.get("rules")
    words = rules.get("words") if isinstance(rules, dict) else None
    bounds = words if isinstance(words, dict) else {}

    def full(node: Any) -> Any:
        if isinstance(node, list):
            return [*map(full, node)]
        if not isinstance(node, dict):
            return node
        node = {key: full(value) for key, value in node.items()}
        if (word := node.get("shows")) is None:
            return node
        if word not in bounds:
            hint = f"{where}; the head of the file has them in `words`"
            raise unknown("word", str(word), bounds, hint)
        return node | (bounds[word] if isinstance(bounds[word], dict) else {})

    return {key: full(v) if key == "claims" else v for key, v in content.items()}


class Finding(NamedTuple):
    """The verdict, holds, refuted or undecided, on one number by its interval at `confidence`."""

    statement: Statement
    interval: Interval
    verdict: str
    confidence: float


@dataclass(frozen=True)
class Judged:
    """A check of a claim with its verdict.

    missing: what figures or tables lack, in words. deciding: the number whose interval decides, if
    any. statements: the numbers judged. again: confidences of a second look to confirm and refute.
    """

    check: Check
    verdict: str
    missing: Sequence[str] = ()
    deciding: Finding | None = None
    statements: Sequence[Statement] = ()
    again: tuple[float, float] = (CONFIDENCE, CONFIDENCE)

    @property
    def trials_needed(self) -> int | None:
        """Estimate how many trials would decide an undecided check, if means and scatter stay.

        None for numbers that are not means over trials, and if 64 times as many are too few.
        """
        if self.deciding is None or self.verdict != "undecided":
            return None

        def decides(times: int) -> bool:
            parts = ((part.repeated(times) for part in one.parts) for one in self.statements)
            more = (_point(self.check, contrasts("", *each), *self.again) for each in parts)
            return whole_verdict([one.verdict for one in more], self.check.points) != "undecided"

        known = all(one.parts for one in self.statements)
        if not known or (enough := next(filter(decides, TIMES), None)) is None:
            return None
        least = next(filter(decides, range(enough // 2 + 1, enough + 1)))
        return self.deciding.statement.trials * least


def judge_all(
    checks: Sequence[Check], numbers: Exhibits, rules: Rules, stand_ins: Collection[str] = ()
) -> list[Judged]:
    """Return a verdict for each of `checks`, which together decide one claim or one meaning of it.

    Any number of any check could refute the claim, so the confidence of each interval depends on
    how many there are. `numbers` has those of each figure by its name. `stand_ins` names figures on
    other data, or of less than the paper's size.
    """
    looked = [_look(check, numbers, rules, stand_ins) for check in checks]
    # how many points could each refute a check, and so the claim, by themselves
    ways = [1 if found.check.points == "some" else len(points) for found, points, _ in looked]
    together = sum(n for n, (*_, stand_in) in zip(ways, looked, strict=True) if not stand_in)
    results = []
    for (found, statements, stand_in), count in zip(looked, ways, strict=True):
        if not found.missing:
            found = decide(found.check, statements, count if stand_in else together, rules)
            found = replace(found, verdict=STAND_IN) if stand_in else found
        results.append(found)
    return results


def _look(
    check: Check, numbers: Exhibits, rules: Rules, stand_ins: Collection[str]
) -> tuple[Judged, Sequence[Statement], bool]:
    """Return (check with what it lacks, numbers to judge, if these are of figures `stand_ins`)."""
    present = [name for name in check.named if name in numbers]
    for name, column in product(check.exhibits, check.columns):
        if name in numbers and column not in numbers[name].columns:
            raise unknown("column", column, numbers[name].columns, name)
    mean = check.points == "mean"
    mixed = [name for name in present if mean and numbers[name].stand_ins]
    real = [name for name in check.exhibits if name not in {*stand_ins, *mixed}]
    compared = set(check.named) - set(check.exhibits)
    stand_in = not real or not compared.isdisjoint(stand_ins)
    if not stand_in:
        check = check.model_copy(update={"exhibits": real})
        numbers = {name: table.real for name, table in numbers.items()}
    missing = [name for name in check.named if name not in numbers]
    missing = missing or [m for name in check.exhibits for m in check.missing(name, numbers)]
    statements: list[Statement] = []
    for name in check.exhibits if not missing else ():
        points = list(check.statements(name, numbers))
        if points and mean:  # in each trial that all of them have
            parts = [part for point in points for part in point.parts]
            points = [contrasts(f"{name}, mean of {len(parts)} points", *parts)]
        elif not points and not check.ragged:
            missing.append(f"a point to judge by in {name}")
        statements += points
    if not statements and not missing:
        missing = [f"a point to judge by in {name}" for name in check.exhibits]
    for few in (one for one in statements if one.trials < rules.trials):
        count = rules.trials - few.trials
        missing.append(f"{count} more trial{'s' if count > 1 else ''} at {few.at}")
    found = Judged(check, "incomplete" if present else "not run", list(dict.fromkeys(missing)))
    return found, [] if missing else statements, stand_in


def decide(check: Check, statements: Sequence[Statement], ways: int, rules: Rules) -> Judged:
    """Judge a check by its numbers; `ways` is how many of any check could each refute its claim."""
    keeping = len(statements) if check.points in ("some", "most") else 1
    # a second look, with more trials, has a part of the error
    again = AGAIN * (1 - CONFIDENCE)
    error = 1 - CONFIDENCE if set(rules.raised).isdisjoint(check.named) else again
    kept, broken = 1 - error / keeping, 1 - error / ways
    points = [_point(check, statement, kept, broken) for statement in statements]
    whole = whole_verdict([point.verdict for point in points], check.points)

    def margin(point: Finding) -> float:  # inside the nearest bound
        value = point.interval.value
        return min(value - b if key in LOWER else b - value for key, b in check.bounds.items())

    # of the points that decide it, the one furthest out of bounds, or, for `some`, furthest in
    alike = [point for point in points if point.verdict == whole] or points
    deciding = (max if check.points == "some" else min)(alike, key=margin)
    return Judged(check, whole, [], deciding, statements, (1 - again / keeping, 1 - again / ways))


def _point(check: Bounds, statement: Statement, kept: float, broken: float) -> Finding:
    """Judge `statement`: it holds if its interval at confidence `kept` is within the bounds."""
    inside = statement.interval(kept)
    if keeps(check, inside.low, inside.high):
        return Finding(statement, inside, "holds", kept)
    outside = inside if broken == kept else statement.interval(broken)
    # a contrast of numbers that are not finite; rounds to a goal may be infinite
    open_ = bool(statement.parts) and not math.isfinite(outside.value)
    word = "undecided" if open_ or keeps(check, outside.high, outside.low) else "refuted"
    return Finding(statement, outside, word, broken)


def keeps(check: Bounds, least: float, most: float) -> bool:
    """Return whether `least` keeps the lower bounds of `check`, and `most` the upper ones."""
    bounds = check.bounds.items()
    return all(BOUNDS[key](least if key in LOWER else most, bound) for key, bound in bounds)


def whole_verdict(verdicts: Iterable[str], points: str = "every") -> str:
    """Combine verdicts on a check's numbers, or on a claim's checks, into one verdict.

    `points` is the rule. "some" holds if one holds, and is refuted if all are. "most" holds if more
    than half hold, and is refuted if half are. Other rules return the verdict if all agree, apart
    from "stand-in only". Meanings of a claim, "readings", give "depends" if one holds and one is
    refuted. Otherwise one incomplete or not run gives "incomplete". Otherwise one refuted gives
    "refuted", except in readings. Everything else is "undecided".
    """
    every = list(verdicts)
    if points in ("some", "most"):
        count = len(every)
        holding, refuting = (1, count) if points == "some" else (count // 2 + 1, count / 2)
        if every.count("holds") >= holding:
            return "holds"
        return "refuted" if every.count("refuted") >= refuting else "undecided"
    distinct = set(every)
    if len(distinct) > 1:
        distinct -= {STAND_IN}
    if len(distinct) == 1:
        return distinct.pop()
    if points == "readings" and {"holds", "refuted"} <= distinct:
        return "depends"
    if distinct & {"incomplete", "not run"}:
        return "incomplete"
    return "refuted" if "refuted" in distinct and points != "readings" else "undecided"


def verdicts(published: Path, exhibits: Sequence[str], reports: Path) -> pd.DataFrame:
    """Judge claims in file `published` by figures and tables; return a row per check.

    `exhibits` are their keys (paper/name), and `reports` is their folder, such as reports/quick.
    Columns include `claim` with its `verdict`, and `check` with its `check_verdict`. The number
    that decides a check has `value`, `low` and `high` (its interval), `bound` and `trials`.
    """
    file = load_claims(published)
    numbers: dict[str, Numbers] = {}
    other: dict[str, str] = {}
    for key in exhibits:
        files, name = open_exhibit(reports, key, reports.name), Path(key).name
        about = files.about
        numbers[name] = Numbers.described(files.numbers, about)
        # data that stand in; where some cases do, these are left out by name
        notes = [] if numbers[name].stand_ins else [data["stand_in"] for data in about["data"]]
        other[name] = " ".join(filter(None, dict.fromkeys(notes)))
    table = pd.DataFrame(rows(file.claims, numbers, other, file.rules), columns=list(COLUMNS))
    return table.astype(dict.fromkeys(NUMERIC, float))  # also where a column is empty


def rows(
    claims: Sequence[Claim], numbers: Exhibits, stand_ins: Mapping[str, str], rules: Rules
) -> Iterator[dict[str, Any]]:
    """Yield rows of the table of verdicts: one per check, or one for a claim without checks.

    `stand_ins` maps a figure or table to a note on how its data differ from the paper's, or to "".
    """
    other = [name for name, note in stand_ins.items() if note]
    for claim in claims:
        head: dict[str, Any] = dict.fromkeys(COLUMNS, "") | dict.fromkeys(NUMERIC)
        head |= {"claim": claim.id, "place": claim.place, "says": claim.says, "label": claim.label}
        if claim.untested:
            yield head | {"verdict": "no verdict", "reason": claim.untested}
            continue
        try:
            groups = claim.groups.items()
            judged = {name: judge_all(checks, numbers, rules, other) for name, checks in groups}
        except FedreproError as error:
            raise FedreproError(f"claim {claim.id}: {error}") from None
        words = [whole_verdict(one.verdict for one in group) for group in judged.values()]
        head |= {"verdict": whole_verdict(words, "readings"), "fixed": claim.fixed}
        every = [one for group in judged.values() for one in group]
        head |= {"reason": claim.reason, "note": _note(claim, every, rules)}
        for reading, group in judged.items():
            yield from (head | {"reading": reading, **_cells(one, stand_ins)} for one in group)


def _note(claim: Claim, results: Sequence[Judged], rules: Rules) -> str:
    """Return remarks on a verdict that ignores stand-in data or came after more trials, else ""."""
    notes = []
    absent = sum(result.verdict == STAND_IN for result in results)
    named = sum(len(check.exhibits) for check in claim.all_checks)
    judged = sum(len(result.check.exhibits) for result in results)
    if absent != len(results) and (absent or named != judged):
        none = f"; {absent} of {len(results)} checks have none" if absent else ""
        notes.append(f"judged on the paper's data alone{none}")
    decided = {name for result in results if result.deciding for name in result.check.named}
    if not decided.isdisjoint(rules.raised):
        notes.append("trials were raised after an undecided verdict")
    return "; ".join(notes)


def _cells(judged: Judged, stand_ins: Mapping[str, str]) -> dict[str, Any]:
    """Return {column: cell} of a check in claims.csv; `stand_ins`: {exhibit: note on its data}."""
    check, deciding = judged.check, judged.deciding
    more = len(judged.missing) - MOST_NAMED
    missing = [*judged.missing[:MOST_NAMED], *[f"{more} more"] * (more > 0)]
    cells = {
        "check": check.sentence,
        "check_verdict": judged.verdict,
        "bound": check.bound,
        "points": len(judged.statements) or None,
        "missing": "; ".join(missing),
        "trials_needed": judged.trials_needed,
    }
    if deciding is None:
        return cells
    ends = {key: getattr(deciding.interval, key) for key in ("value", "low", "high")}
    notes = dict.fromkeys(stand_ins.get(name, "") for name in check.exhibits)
    return cells | {
        "at": deciding.statement.at,
        **{key: end if math.isfinite(end) else None for key, end in ends.items()},
        "confidence": deciding.confidence,
        "trials": deciding.statement.trials,
        "data": " ".join(filter(None, notes)),
    }
