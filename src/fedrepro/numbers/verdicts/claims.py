"""The claims.yaml of a paper, and the table of their verdicts: claims.csv.

A claim has its number, our own sentence for it, where it stands, and what it comes to in numbers.
Its table has a row for each check, always with the same columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedrepro.core.artifacts import corrupt_file_error
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.yaml_text import parse_yaml
from fedrepro.numbers.verdicts.cells import Exhibits, Numbers
from fedrepro.numbers.verdicts.check_forms import Check
from fedrepro.numbers.verdicts.judging import (
    STAND_IN,
    Judged,
    Rules,
    claim_verdict,
    judge_all,
    verdict_of_readings,
)

if TYPE_CHECKING:
    import pandas as pd

    from fedrepro.numbers.exhibit_files import ExhibitFiles

COLUMNS = (
    *("claim", "verdict", "note", "label", "fixed", "place", "says", "reading", "check"),
    *("check_verdict", "at", "value", "low", "high", "confidence", "bound", "points", "trials"),
    *("trials_needed", "missing", "reason", "data"),
)
NUMERIC = ("value", "low", "high", "confidence", "points", "trials", "trials_needed")
MOST_NAMED = 4  # of what is missing
SHOWS = "shows"


class Claim(BaseModel):
    """One sentence of a paper: checks, readings of it with checks each, or why none can test it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    place: str
    says: str = Field(description="the claim in our words")
    reason: str = Field("", description="why the bounds are what they are")
    fixed: Literal["before", "after"] = Field(
        "before", description="whether the checks were written before the first numbers for them"
    )
    label: Literal["", "exact", "identity", "ours"] = Field(
        "",
        description="exact: a count; identity: it follows from how the method is defined; ours: "
        "the sentence names no outcome, so that what is judged is ours",
    )
    checks: list[Check] = Field(default_factory=list)
    readings: dict[str, list[Check]] = Field(
        default_factory=dict, description="what the sentence may mean, and the checks of each"
    )
    untested: str = Field("", description="why there is no verdict")

    @model_validator(mode="after")
    def _either(self) -> Claim:
        present = [bool(self.checks), bool(self.readings), bool(self.untested)]
        if sum(present) != 1:
            raise ValueError(f"claim {self.id} needs checks, or says why it is untested")
        if not self.untested and not self.reason:
            raise ValueError(f"claim {self.id} has bounds, so it needs a reason for them")
        if self.readings and (len(self.readings) < 2 or not all(self.readings.values())):
            raise ValueError(f"claim {self.id} needs two readings or more, each with checks")
        return self

    @property
    def groups(self) -> dict[str, list[Check]]:
        """Checks by reading; without readings there is one, which has no name."""
        return self.readings or {"": self.checks}

    @property
    def all_checks(self) -> list[Check]:
        return [check for checks in self.groups.values() for check in checks]


class ClaimFile(BaseModel):
    """The claims of a paper: claims.yaml in its folder, or config/published/<paper>.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    rules: Rules = Field(default=Rules())
    claims: list[Claim]


def load_claims(path: Path) -> ClaimFile:
    """Read the claims of a paper.

    Raises:
        FedreproError: with a sentence for a mistake in the file.
    """
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = " ".join(str(error).split())
        raise FedreproError(f"{path} cannot be read: {message}") from None
    try:
        file = ClaimFile.model_validate(expand_named_bounds(content, f"{path}"))
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(str(part) for part in first["loc"])
        raise FedreproError(f"{path}: '{location}': {first['msg'].lower()}") from None
    ids = [claim.id for claim in file.claims]
    if len(set(ids)) != len(ids):
        raise FedreproError(f"{path}: two claims have one id; ids are {', '.join(ids)}")
    return file


def expand_named_bounds(content: Any, where: str) -> Any:
    """Replace named bounds in every check of a claim file by the numbers that its head gives them.

    Content without the form of a claim file stays as it is, for the types to refuse.
    """
    rules = content.get("rules") if isinstance(content, dict) else None
    words = rules.get("words") if isinstance(rules, dict) else None
    bounds = words if isinstance(words, dict) else {}

    def full(node: Any, place: str) -> Any:
        if isinstance(node, list):
            return [full(one, place) for one in node]
        if not isinstance(node, dict):
            return node
        place = f"{where}, {node['id']}" if "id" in node else place
        node = {key: full(value, place) for key, value in node.items()}
        if SHOWS not in node:
            return node
        word = node[SHOWS]
        if word not in bounds:
            hint = f"{place}; the head of the file has them in `words`"
            raise unknown("word", str(word), bounds, hint)
        if not isinstance(bounds[word], dict):
            return node
        if doubled := set(bounds[word]) & set(node):
            raise FedreproError(
                f"{place}: a check shows '{word}' and has a bound of its own "
                f"({', '.join(doubled)}); leave out one of them"
            )
        return node | bounds[word]

    if not isinstance(content, dict) or not isinstance(content.get("claims"), list):
        return content
    return content | {"claims": full(content["claims"], where)}


def verdicts(published: Path, exhibits: Sequence[str], reports: Path) -> pd.DataFrame:
    """Return the verdicts of a paper's claims (COLUMNS) from exhibits paper/name in `reports`."""
    import pandas as pd

    from fedrepro.numbers.exhibit_files import open_exhibit

    file = load_claims(published)
    opened = {Path(key).name: open_exhibit(reports, key, reports.name) for key in exhibits}
    numbers = {name: _numbers(files) for name, files in opened.items()}
    other = {
        name: "" if numbers[name].stand_ins else _other_than_printed(files.about)
        for name, files in opened.items()
    }
    records = list(rows(file.claims, numbers, other, file.rules))
    # numbers as numbers in every file, also where a column is empty
    return pd.DataFrame(records, columns=list(COLUMNS)).astype(dict.fromkeys(NUMERIC, float))


def _other_than_printed(about: Mapping[str, Any]) -> str:
    """Say where an exhibit differs from the paper's: data that stand in, or a smaller size."""
    reduced = about["settings"].get("reduced")
    notes = [*(data["stand_in"] for data in about["data"]), reduced and f"Reduced: {reduced}."]
    return " ".join(filter(None, dict.fromkeys(notes)))


def _numbers(files: ExhibitFiles) -> Numbers:
    path = f"{files.base}.csv"
    frame = files.numbers
    try:
        if "by_trial" not in frame:
            raise FedreproError(
                f"{path} has no column by_trial, so it is of an older version; delete it, and make "
                "the figure again from the results that are there"
            )
        for index, (values, trials) in enumerate(
            zip(frame["by_trial"], frame["trials"], strict=True)
        ):
            if len([float(value) for value in values.split()]) != trials:
                raise ValueError(f"row {index + 1} has not a value for each of its trials")
        return Numbers.described(frame, files.about)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise corrupt_file_error(path, error) from error


def rows(
    claims: Sequence[Claim], numbers: Exhibits, stand_ins: Mapping[str, str], rules: Rules
) -> Iterator[dict[str, Any]]:
    """Return a row per check, or one for a claim without, each with all COLUMNS.

    `stand_ins` maps an exhibit to what its data stand in for, or to an empty text.

    Raises:
        FedreproError: for a column that an exhibit does not have.
    """
    other = [name for name, note in stand_ins.items() if note]
    for claim in claims:
        head: dict[str, Any] = dict.fromkeys(COLUMNS, "") | dict.fromkeys(NUMERIC)
        head |= {key: getattr(claim, key) for key in ("place", "says", "label")}
        head["claim"] = claim.id
        if claim.untested:
            yield head | {"verdict": "no verdict", "reason": claim.untested}
            continue
        try:
            judged = {
                reading: judge_all(checks, numbers, rules, other)
                for reading, checks in claim.groups.items()
            }
        except FedreproError as error:
            raise FedreproError(f"claim {claim.id}: {error}") from None
        head["verdict"] = verdict_of_readings([claim_verdict(group) for group in judged.values()])
        head |= {"fixed": claim.fixed, "reason": claim.reason}
        head["note"] = _note(claim, [one for group in judged.values() for one in group], rules)
        for reading, group in judged.items():
            for one in group:
                yield head | {"reading": reading, **_cells(one, stand_ins)}


def _note(claim: Claim, results: Sequence[Judged], rules: Rules) -> str:
    """Say what a reader needs to know of the verdict of a claim, if anything."""
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
    """Return the cells of a check; an end of an interval that is not known stays empty."""
    check, missing = judged.check, list(judged.missing[:MOST_NAMED])
    if len(judged.missing) > MOST_NAMED:
        missing.append(f"{len(judged.missing) - MOST_NAMED} more")
    cells = {
        "check": check.sentence,
        "check_verdict": judged.verdict,
        "bound": check.bound,
        "points": judged.points or None,
        "missing": "; ".join(missing),
        "trials_needed": judged.trials_needed,
    }
    if judged.deciding is None:
        return cells
    statement, interval = judged.deciding.statement, judged.deciding.interval
    ends = {"value": interval.value, "low": interval.low, "high": interval.high}
    notes = dict.fromkeys(stand_ins.get(name, "") for name in check.exhibits)
    return cells | {
        "at": statement.at,
        **{key: end if math.isfinite(end) else None for key, end in ends.items()},
        "confidence": judged.deciding.confidence,
        "trials": statement.trials,
        "data": " ".join(filter(None, notes)),
    }
