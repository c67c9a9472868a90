"""The claims.yaml of a paper: the claims of a paper, and the rules they are decided by.

A claim has its number, our own sentence for it, where it stands, and what it comes to in numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.yaml_text import parse_yaml
from fedrepro.verdicts.forms import Check
from fedrepro.verdicts.judging import Rules

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
        file = ClaimFile.model_validate(in_full(content, f"{path}"))
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(str(part) for part in first["loc"])
        raise FedreproError(f"{path}: '{location}': {first['msg'].lower()}") from None
    ids = [claim.id for claim in file.claims]
    if len(set(ids)) != len(ids):
        raise FedreproError(f"{path}: two claims have one id; ids are {', '.join(ids)}")
    return file


def in_full(content: Any, where: str) -> Any:
    """Replace named bounds in every check of a claim file by the numbers that its head gives them.

    Content without the form of a claim file stays as it is, for the types to refuse.
    """
    if not isinstance(content, dict) or not isinstance(content.get("claims"), list):
        return content
    rules = content.get("rules")
    words = rules.get("words") if isinstance(rules, dict) else None
    known = words if isinstance(words, dict) else {}
    claims = [_claim_in_full(claim, known, where) for claim in content["claims"]]
    return content | {"claims": claims}


def _claim_in_full(claim: Any, bounds_of_words: Mapping[str, Any], where: str) -> Any:
    if not isinstance(claim, dict):
        return claim
    full = dict(claim)
    if isinstance(claim.get("checks"), list):
        full["checks"] = _checks_in_full(
            claim["checks"], bounds_of_words, f"{where}, {claim.get('id')}"
        )
    if isinstance(claim.get("readings"), dict):
        full["readings"] = {
            name: _checks_in_full(checks, bounds_of_words, f"{where}, {claim.get('id')}")
            for name, checks in claim["readings"].items()
        }
    return full


def _checks_in_full(checks: Any, bounds_of_words: Mapping[str, Any], where: str) -> Any:
    if not isinstance(checks, Sequence) or isinstance(checks, str):
        return checks
    return [_check_in_full(check, bounds_of_words, where) for check in checks]


def _check_in_full(check: Any, bounds_of_words: Mapping[str, Any], where: str) -> Any:
    if not isinstance(check, dict) or SHOWS not in check:
        return check
    word = check[SHOWS]
    if word not in bounds_of_words:
        raise unknown(
            "word", str(word), bounds_of_words, f"{where}; the head of the file has them in `words`"
        )
    if not isinstance(bounds_of_words[word], dict):
        return check
    doubled = set(bounds_of_words[word]) & set(check)
    if doubled:
        raise FedreproError(
            f"{where}: a check shows '{word}' and has a bound of its own ({', '.join(doubled)}); "
            "leave out one of them"
        )
    return check | bounds_of_words[word]
