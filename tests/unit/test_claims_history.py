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
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedrepro.numbers.verdicts.claim_verdicts import ClaimFile, expand_named_bounds, load_claims

PARTS = ("checks", "readings")


@dataclass(frozen=True, eq=False)
class History:
    """The history of the repository at a folder, as it is when it is first asked."""

    folder: Path

    def lacking(self) -> str:
        """Why there is no history to read, or nothing."""
        if shutil.which("git") is None:
            return "git is not installed"
        if self._ask("rev-parse", "--show-toplevel") != str(self.folder.resolve()):
            return f"{self.folder} is not a git repository"
        if self._ask("rev-parse", "--is-shallow-repository") != "false":
            return "the clone is shallow; get its history with: git fetch --unshallow"
        return ""

    def _ask(self, *words: str) -> str | None:
        command = ["git", "-C", str(self.folder), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    def file(self, commit: str, path: str) -> str | None:
        return self._ask("show", f"{commit}:{path}")

    def commits(self, path: str, *options: str) -> list[tuple[str, str]]:
        """Commits that touch a file and what it was called in them, the newest first."""
        shown = ("--topo-order", "--format=%x00%H", "--name-only")
        told = self._ask("log", *options, *shown, "--", path)
        found = []
        for entry in (told or "").split("\0")[1:]:
            commit, *names = entry.split()
            found.append((commit, names[0] if names else path))
        return found

    def contains(self, revision: str, commit: str) -> bool:
        """Whether a revision has a commit among its ancestors, or is it."""
        return _contains(self, revision, commit)


@cache
def _contains(history: History, revision: str, commit: str) -> bool:
    return history._ask("merge-base", "--is-ancestor", commit, revision) is not None


def checks_of(text: str | None) -> dict[str, Any]:
    """Claim -> what decides it, from the text of a claim file; nothing that cannot be read."""
    given = yaml.safe_load(text or "")
    full = expand_named_bounds(given, "history") if isinstance(given, dict) else {}
    return {
        claim["id"]: {part: claim[part] for part in PARTS if part in claim}
        for claim in full.get("claims", [])
    }


def fixed_in(history: History, path: str) -> dict[str, str | None]:
    """Claim -> the commit since which its checks are what they are on disk; None if in none."""
    now = checks_of((history.folder / path).read_text())
    commits = history.commits(path, "--follow")
    states = [(commit, checks_of(history.file(commit, name))) for commit, name in commits]
    found: dict[str, str | None] = {}
    for claim, checks in now.items():
        found[claim] = None
        for commit, state in states:
            if state.get(claim) != checks:
                break
            found[claim] = commit
    return found


def _revisions(found: Any) -> Iterator[str]:
    """Every value of a key `revision`, at any depth."""
    if isinstance(found, Mapping):
        for key, value in found.items():
            if key == "revision" and isinstance(value, str):
                yield value.removesuffix("-dirty")
            else:
                yield from _revisions(value)
    elif isinstance(found, list):
        for value in found:
            yield from _revisions(value)


@cache
def computed_at(history: History, path: str) -> frozenset[str]:
    """Every revision that an exhibit's numbers were computed or recorded at, in any state of it.

    path: the exhibit's json, under that name (following renames would take a similar exhibit for an
    older state of it). A revision that is not in this history (of another clone, or unknown) says
    nothing, but the commit that recorded it does.
    """
    found = set()
    for commit, name in history.commits(path):
        text = history.file(commit, name)
        if text is None:
            continue
        found.add(f"{commit}^")
        for revision in _revisions(json.loads(text).get("computed", [])):
            if history._ask("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"):
                found.add(revision)
    return frozenset(found)


def came_before(history: History, commit: str | None, exhibits: list[str]) -> bool:
    """Whether a commit lies before all numbers of exhibits, given by the paths of their jsons."""
    revisions = {one for path in exhibits for one in computed_at(history, path)}
    return not revisions or (
        commit is not None and all(history.contains(one, commit) for one in revisions)
    )


def _rows(history: History, commit: str, path: str) -> list[dict[str, str]]:
    return list(csv.DictReader((history.file(commit, path) or "").splitlines()))


def raised_in(history: History, file: ClaimFile, folder: str) -> set[str]:
    """The exhibits of a paper that got more trials when a claim that names them was undecided.

    folder: where the paper's exhibits and its claims.csv are recorded.
    """
    named = {
        claim.id: {name for check in claim.all_checks for name in check.named}
        for claim in file.claims
    }
    found = set()
    for exhibit in {name for names in named.values() for name in names}:
        path = f"{folder}/{exhibit}.csv"
        most = 0
        for commit, _ in reversed(history.commits(path)):
            before, trials = most, [row["trials"] for row in _rows(history, commit, path)]
            most = max((int(count) for count in trials if count), default=most)
            if not 0 < before < most:
                continue
            verdicts = {
                row["claim"]: row["verdict"]
                for row in _rows(history, f"{commit}^", f"{folder}/claims.csv")
            }
            if any(verdicts.get(c) == "undecided" for c in named if exhibit in named[c]):
                found.add(exhibit)
    return found


ROOT = Path(__file__).parents[2]
HERE = History(ROOT)
FILES = sorted(ROOT.glob("src/fedrepro/papers/*/claims.yaml"))

# Papers of which some claims came after their numbers. Another paper's claims come before them: one
# that has to be mended later says `fixed: after`, and its paper is named here with the reason.
DECLARED = {
    "pfnm",  # its claims were written when figures 2a and 2b had been recorded
    "fedavg",  # F1 lost a reading that the sentence does not bear, F2 got one of every share
    "p2p",  # Q12 and Q13 have a second reading, which came after both were recorded
}
# claims that say so although what they name was recorded later, since the numbers stood elsewhere
SEEN_ELSEWHERE = {"pfnm": {"P23", "P24"}}


def jsons(paper, claim):
    exhibits = dict.fromkeys(name for check in claim.all_checks for name in check.named)
    return [f"reports/record/paper/{paper}/{name}.json" for name in exhibits]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_every_claim_says_whether_its_bounds_came_before_its_numbers(path):
    if HERE.lacking():
        pytest.skip(HERE.lacking())
    file = load_claims(path)
    fixed = fixed_in(HERE, str(path.relative_to(ROOT)))
    tested = [claim for claim in file.claims if not claim.untested]
    late = {
        claim.id
        for claim in tested
        if not came_before(HERE, fixed[claim.id], jsons(file.paper, claim))
    }
    late |= SEEN_ELSEWHERE.get(file.paper, set())
    assert {claim.id for claim in tested if claim.fixed == "after"} == late
    assert not late or file.paper in DECLARED


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_the_head_of_a_file_names_what_got_more_trials_after_an_undecided_verdict(path):
    if HERE.lacking():
        pytest.skip(HERE.lacking())
    file = load_claims(path)
    assert set(file.rules.raised) == raised_in(HERE, file, f"reports/record/paper/{file.paper}")


# ------------------------------------------------------------------------ on histories made for it


@pytest.fixture
def repository(tmp_path):
    """Commits files, and gives the commit."""
    if "git is not installed" in HERE.lacking():
        pytest.skip(HERE.lacking())

    def git(*words):
        own = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
        done = subprocess.run([*own, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.txt").write_text(text)
        git("add", "-A")
        git("commit", "-q", "--allow-empty", "-m", "m")
        return git("rev-parse", "HEAD")

    git("init", "-q")
    return commit


def claims(bound="above: 0", says="s", words="better: {above: 0}"):
    check = f"{{form: value, exhibits: [e], of: A, {bound}}}"
    return (
        f"paper: x\nrules: {{words: {{{words}}}}}\n"
        f"claims: [{{id: X1, says: {says}, place: p, reason: r, checks: [{check}]}}]\n"
    )


def numbers(*revisions):
    return json.dumps({"revision": "drawn", "computed": [{"revision": one} for one in revisions]})


def before(folder):
    history = History(folder)
    return came_before(history, fixed_in(history, "claims.txt")["X1"], ["e.txt"])


SHOWS = {"bound": "shows: better"}
OTHER_WORDS = SHOWS | {"words": "better: {above: 0.1}"}


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [  # commits: claims as they are then, and numbers by the commit that they were computed at
        ([{"claims": {}}, {"e": "{0}"}], True),
        ([{}, {"e": "{0}"}, {"claims": {}}], False),
        ([{}, {"claims": {}}, {"e": "{0}"}], False),  # computed before the claims
        ([{}, {"claims": {}, "e": "unknown"}], False),
        ([{}, {"e": "{0}"}, {"claims": {}}, {"e": "{2}-dirty"}], False),  # computed again
        ([{"claims": {}}, {"e": "{0}"}, {"claims": {"says": "other words"}}], True),
        ([{"claims": {}}, {"e": "{0}"}, {"claims": {"bound": "above: 0.1"}}], False),
        ([{"claims": {}}, {"e": "{0}"}, {"claims": OTHER_WORDS}], False),
        ([{"claims": {}}, {"e": "{0}"}, {"claims": {"bound": "above: 0, where: {a: [5]}"}}], False),
        ([{"claims": SHOWS}, {"e": "{0}"}], True),
        ([{"claims": SHOWS}, {"e": "{0}"}, {"claims": OTHER_WORDS}], False),
    ],
)
def test_a_history_says_whether_claims_came_before_numbers(repository, tmp_path, steps, wanted):
    commits = []
    for step in steps:
        files = {"other": f"{len(commits)}"}
        if "claims" in step:
            files["claims"] = claims(**step["claims"])
        if "e" in step:
            files["e"] = numbers(step["e"].format(*commits))
        commits.append(repository(**files))
    assert before(tmp_path) is wanted


def test_what_is_not_committed_came_after_all_numbers(repository, tmp_path):
    first = repository(claims=claims())
    (tmp_path / "claims.txt").write_text(claims(bound="above: 0.1"))
    assert before(tmp_path)  # there are none
    repository(e=numbers(first))
    (tmp_path / "claims.txt").write_text(claims(bound="above: 0.2"))
    assert not before(tmp_path)


def test_a_shallow_clone_and_a_plain_folder_say_why_they_cannot_tell(repository, tmp_path):
    repository(claims=claims())
    repository(e=numbers("unknown"))
    assert History(tmp_path).lacking() == ""
    shallow = tmp_path / "shallow"
    source = f"file://{tmp_path}"
    subprocess.run(["git", "clone", "-q", "--depth", "1", source, str(shallow)], check=True)
    assert "the clone is shallow" in History(shallow).lacking()
    (tmp_path / "plain").mkdir()
    assert "is not a git repository" in History(tmp_path / "plain").lacking()
