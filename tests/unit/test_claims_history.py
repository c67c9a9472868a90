"""Claims say truly whether their bounds came before their numbers: by the repository's history.

A claim was fixed in the commit since which its checks are what they are now, with the bounds that
the head of the file has for their words; its sentences may be mended freely. Its numbers began with
any revision that the record, in any state that was ever committed, names as the code that computed
an exhibit of the claim, and with the commits that recorded it. It came before them if all of these
have its commit among their ancestors.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import yaml
from findings import ROOT

from fedrepro.numbers.verdicts.claim_verdicts import ClaimFile, expand_named_bounds, load_claims

PARTS = ("checks", "readings")


def ask(*words: str) -> str | None:
    """What git says of this repository; None if it fails."""
    command = ["git", "-C", str(ROOT), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def text_at(commit: str, path: str) -> str | None:
    return ask("show", f"{commit}:{path}")


def commits_of(path: str, *options: str) -> list[tuple[str, str]]:
    """Commits that touch a file and what it was called in them, the newest first."""
    told = ask("log", *options, "--topo-order", "--format=%x00%H", "--name-only", "--", path)
    entries = (entry.split() for entry in (told or "").split("\0")[1:])
    return [(commit, names[0] if names else path) for commit, *names in entries]


def checks_of(text: str | None) -> dict[str, Any]:
    """Claim -> what decides it, from the text of a claim file; nothing that cannot be read."""
    given = yaml.load(text or "", yaml.CSafeLoader)
    full = expand_named_bounds(given, "history") if isinstance(given, dict) else {}
    return {
        claim["id"]: {part: claim[part] for part in PARTS if part in claim}
        for claim in full.get("claims", [])
    }


def fixed_in(path: str) -> dict[str, str | None]:
    """Claim -> the commit since which its checks are what they are on disk; None if in none."""
    left = checks_of((ROOT / path).read_text())
    found: dict[str, str | None] = dict.fromkeys(left)
    for commit, name in commits_of(path, "--follow"):
        state = checks_of(text_at(commit, name))
        left = {claim: checks for claim, checks in left.items() if state.get(claim) == checks}
        found |= dict.fromkeys(left, commit)
    return found


def _revisions(found: Any) -> Iterator[str]:
    """Every value of a key `revision`, at any depth."""
    if isinstance(found, Mapping):
        if isinstance(found.get("revision"), str):
            yield found["revision"].removesuffix("-dirty")
        found = [value for key, value in found.items() if key != "revision"]
    if isinstance(found, list):
        for value in found:
            yield from _revisions(value)


@cache
def computed_at(path: str) -> frozenset[str]:
    """Every commit at which an exhibit's numbers were computed or recorded, by its json's path."""
    found = set()  # following renames would take a similar exhibit for an older state of it
    for commit, name in commits_of(path):
        if (text := text_at(commit, name)) is not None:
            revisions = {*_revisions(json.loads(text).get("computed", [])), f"{commit}^"}
            found |= {ask("rev-parse", "--verify", "-q", f"{one}^{{commit}}") for one in revisions}
    return frozenset(found - {None})


@cache
def is_ancestor(commit: str, other: str) -> bool:
    return ask("merge-base", "--is-ancestor", commit, other) is not None


def came_before(commit: str | None, exhibits: list[str]) -> bool:
    """Whether a commit lies before all numbers of exhibits, given by the paths of their jsons."""
    revisions = {one for path in exhibits for one in computed_at(path)}
    return all(commit is not None and is_ancestor(commit, one) for one in revisions)


def _rows(commit: str, path: str) -> list[dict[str, str]]:
    return list(csv.DictReader((text_at(commit, path) or "").splitlines()))


def raised_in(file: ClaimFile, folder: str) -> set[str]:
    """The exhibits recorded in a folder that got more trials when a claim on them was undecided."""
    named: dict[str, set[str]] = {}
    for claim in file.claims:
        for name in (name for check in claim.all_checks for name in check.named):
            named.setdefault(name, set()).add(claim.id)
    found = set()
    for exhibit, claims in named.items():
        path, most = f"{folder}/{exhibit}.csv", 0
        for commit, _ in reversed(commits_of(path)):
            before, trials = most, [row["trials"] for row in _rows(commit, path)]
            most = max((int(count) for count in trials if count), default=most)
            if 0 < before < most:
                judged = _rows(f"{commit}^", f"{folder}/claims.csv")
                if any(r["claim"] in claims and r["verdict"] == "undecided" for r in judged):
                    found.add(exhibit)
    return found


FILES = sorted(ROOT.glob("src/fedrepro/papers/*/claims.yaml"))

# Papers of which some claims came after their numbers. Another paper's claims come before them: one
# that has to be mended later says `fixed: after`, and its paper is named here with the reason.
DECLARED = {
    "pfnm",  # its claims were written when figures 2a and 2b had been recorded
    "fedavg",  # F1 lost a reading that the sentence does not bear, F2 got one of every share
    "p2p",  # Q12 and Q13 have a second reading, which came after both were recorded
    "niidbench",  # N7 looked at one of its four methods, and looks at each
}
# claims that say so although what they name was recorded later, since the numbers stood elsewhere
SEEN_ELSEWHERE = {"pfnm": {"P23", "P24"}}


def jsons(paper, claim):
    exhibits = dict.fromkeys(name for check in claim.all_checks for name in check.named)
    return [f"reports/record/paper/{paper}/{name}.json" for name in exhibits]


WHOLE = shutil.which("git") and ask("rev-parse", "--is-shallow-repository") == "false"
needs_history = pytest.mark.skipif(not WHOLE, reason="a git repository with its whole history")
of_every_paper = pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)


@needs_history
@of_every_paper
def test_every_claim_says_whether_its_bounds_came_before_its_numbers(path):
    file = load_claims(path)
    fixed = fixed_in(str(path.relative_to(ROOT)))
    tested = [claim for claim in file.claims if not claim.untested]
    late = {
        claim.id for claim in tested if not came_before(fixed[claim.id], jsons(file.paper, claim))
    }
    late |= SEEN_ELSEWHERE.get(file.paper, set())
    assert {claim.id for claim in tested if claim.fixed == "after"} == late
    assert not late or file.paper in DECLARED


@needs_history
@of_every_paper
def test_the_head_of_a_file_names_what_got_more_trials_after_an_undecided_verdict(path):
    file = load_claims(path)
    assert set(file.rules.raised) == raised_in(file, f"reports/record/paper/{file.paper}")
