"""Claims of a paper, and what our numbers say of each: holds, refuted, undecided, or not run.

config/published/<paper>.yaml has a claim's number, our own sentence for it, where it stands, and
what it comes to in numbers; bounds are fixed there before anything is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedrepro.errors import FedreproError
from fedrepro.evaluation.predicates import (
    Check,
    Finding,
    Form,
    Numbers,
    Verdict,
    margin,
    mean_of,
    verdict_of,
)

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "claim",
    "verdict",
    "place",
    "says",
    "check",
    "check_verdict",
    "at",
    "value",
    "low",
    "high",
    "bound",
    "points",
    "reason",
    "data",
)


class Claim(BaseModel):
    """One sentence of a paper. It has checks, or a reason why no run can test it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    place: str
    says: str = Field(description="the claim in our words")
    reason: str = Field("", description="why the bounds are what they are")
    checks: list[Check] = Field(default_factory=list)
    untested: str = Field("", description="why there is no verdict")

    @model_validator(mode="after")
    def _either(self) -> Claim:
        if bool(self.checks) == bool(self.untested):
            raise ValueError(f"claim {self.id} needs checks, or says why it is untested")
        if self.checks and not self.reason:
            raise ValueError(f"claim {self.id} has bounds, so it needs a reason for them")
        return self


class ClaimFile(BaseModel):
    """config/published/<paper>.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    claims: list[Claim]


@dataclass(frozen=True)
class Judged:
    """One check: its verdict, the point that decides it, and how many points there were."""

    check: Form
    verdict: Verdict
    deciding: Finding | None = None
    points: int = 0
    exhibits: Sequence[str] = field(default_factory=list)


def load_claims(path: Path) -> ClaimFile:
    """The claims of a paper. Errors: FedreproError with a sentence for a mistake in the file."""
    try:
        found = ClaimFile.model_validate(yaml.safe_load(path.read_text()))
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        raise FedreproError(f"{path}: '{at}': {first['msg'].lower()}") from None
    except (OSError, yaml.YAMLError) as error:
        raise FedreproError(f"{path} cannot be read: {error}") from None
    ids = [claim.id for claim in found.claims]
    if len(set(ids)) != len(ids):
        raise FedreproError(f"{path}: two claims have one id; ids are {', '.join(ids)}")
    return found


def judge(check: Form, numbers: Numbers) -> Judged:
    """One check on the exhibits that are there."""
    there = [name for name in check.exhibits if name in numbers]
    found: list[Finding] = []
    for name in there:
        own = list(check.findings(name, numbers))
        found += [mean_of(own, name)] if own and check.points == "mean" else own
    if not found:
        return Judged(check, "not run")
    verdicts = [verdict_of(check, finding) for finding in found]
    whole = _over_points(verdicts, check.points)
    # of the points with that verdict, the one furthest out of bounds, or, for `some`, furthest in
    alike = [finding for finding, own in zip(found, verdicts, strict=True) if own == whole]
    pick = max if check.points == "some" else min
    deciding = pick(alike, key=lambda finding: margin(check, finding))
    return Judged(check, whole, deciding, len(found), there)


def _over_points(verdicts: Sequence[Verdict], points: str) -> Verdict:
    if points == "some":
        if "holds" in verdicts:
            return "holds"
        return "refuted" if set(verdicts) == {"refuted"} else "undecided"
    return _all_of(verdicts)


def _all_of(verdicts: Sequence[Verdict]) -> Verdict:
    if "refuted" in verdicts:
        return "refuted"
    return "holds" if set(verdicts) == {"holds"} else "undecided"


def verdict(judged: Sequence[Judged]) -> Verdict:
    """A claim holds if all its checks do, and is refuted if one is."""
    if all(one.verdict == "not run" for one in judged):
        return "not run"
    return _all_of([one.verdict for one in judged])


def rows(
    claims: Sequence[Claim], numbers: Numbers, stand_ins: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """A row per check, or one for a claim without: the columns of claims.csv.

    stand_ins: exhibit -> empty, or what its data stand in for.
    """
    for claim in claims:
        head = {"place": claim.place, "says": claim.says}
        if claim.untested:
            yield {"claim": claim.id, "verdict": "no verdict", **head, "reason": claim.untested}
            continue
        judged = [judge(check, numbers) for check in claim.checks]
        whole = verdict(judged)
        for one in judged:
            notes = dict.fromkeys(stand_ins.get(name, "") for name in one.exhibits)
            yield {
                "claim": claim.id,
                "verdict": whole,
                **head,
                "check": sentence(one.check),
                "check_verdict": one.verdict,
                **_numbers(one.deciding),
                "bound": one.check.bound,
                "points": one.points or None,
                "reason": claim.reason,
                "data": " ".join(filter(None, notes)),
            }


def verdicts(published: Path, exhibits: Sequence[str], reports: Path) -> pd.DataFrame:
    """The verdicts of a paper's claims (COLUMNS) from exhibits in `reports`, named paper/name."""
    import pandas as pd

    from fedrepro.exhibits.files import open_exhibit

    file = load_claims(published)
    found = {Path(key).name: open_exhibit(reports, key, reports.name) for key in exhibits}
    numbers = {name: files.table(".csv") for name, files in found.items()}
    for name, frame in numbers.items():
        if "by_trial" not in frame:
            raise FedreproError(
                f"{found[name].base}.csv has no column by_trial, so it is of an older version; "
                "delete it, and make the figure again from the results that are there"
            )
    stand_ins = {
        name: " ".join(filter(None, dict.fromkeys(d["stand_in"] for d in files.about["data"])))
        for name, files in found.items()
    }
    return pd.DataFrame(list(rows(file.claims, numbers, stand_ins)), columns=list(COLUMNS))


def _numbers(finding: Finding | None) -> dict[str, Any]:
    """A finding's numbers; an end that nothing is known of stays empty."""
    if finding is None:
        return {"at": "", "value": None, "low": None, "high": None}
    ends = {"value": finding.value, "low": finding.low, "high": finding.high}
    return {"at": finding.at, **{k: v if math.isfinite(v) else None for k, v in ends.items()}}


def sentence(check: Form) -> str:
    """A check in words: what is looked at, how points count, and the bounds."""
    given = check.model_dump(exclude_defaults=True)
    split = f" ({check.split})" if check.split else ""
    what = f"{check.metric.replace('_', ' ')}{split} of {check.of}"
    details = {
        "difference": lambda: f"{what} minus {_best(given['minus'])}",
        "ratio": lambda: f"{what} divided by {given['to']}",
        "change": lambda: f"change of {what} along {given['along']}, {_ends(given)}",
        "spread": lambda: f"spread of {what} over {', '.join(given['over'])}{_less(given)}",
        "effect": lambda: f"spread of {what} over {given['over']}, less {_best(given['than'])}",
        "rounds_to": lambda: f"rounds until {what} is within {check.within:g} of {given['reach']}",  # type: ignore[attr-defined]
        "correlation": lambda: f"correlation of {what} with {given['with_method']}",
        "value": lambda: what,
    }
    at = "".join(f", {k} {v if isinstance(v, str) else _list(v)}" for k, v in check.where.items())
    counted = {"every": "at every point", "some": "at some point", "mean": "on average"}
    return f"{details[given['form']]()}{at}, {counted[check.points]}: {check.bound}"


def _list(values: Sequence[Any]) -> str:
    return "/".join(f"{v:g}" if isinstance(v, int | float) else str(v) for v in values)


def _best(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"the larger of {' and '.join(names)}"


def _ends(given: Mapping[str, Any]) -> str:
    return f"{given.get('start', 'first')} to {given.get('end', 'last')}"


def _less(given: Mapping[str, Any]) -> str:
    return f", less that of {given['minus_exhibit']}" if "minus_exhibit" in given else ""
