"""Claims say truly whether their bounds came before their numbers: by the repository's history."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from claim_history import History, came_before, fixed_in, raised_in

from fedrepro.numbers.verdicts.claims import load_claims

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


def test_a_renamed_file_keeps_its_history(repository, tmp_path):
    first = repository(old=claims())
    (tmp_path / "old.txt").rename(tmp_path / "claims.txt")
    repository(e=numbers(first))
    assert before(tmp_path)


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
