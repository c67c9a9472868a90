"""Files of claims: their content, refusals with a sentence, and their table."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from synthetic import plan

from fedrepro.core.errors import FedreproError
from fedrepro.core.params import comparable_text as text
from fedrepro.numbers.verdicts.claim_verdicts import Rules, load_claims
from fedrepro.planning.config import SCALES, load_exhibits
from fedrepro.record.record_results import drawn_keys
from fedrepro.stages.figures_and_pages import judge_claims

ROOT = Path(__file__).parents[2]
# a paper's claims are committed before its exhibits
FILES = [
    path
    for path in sorted(ROOT.glob("src/fedrepro/papers/*/claims.yaml"))
    if path.parent.name in load_exhibits()
]
VALUE = {"form": "value", "exhibits": ["x"], "of": "A"}
HALF = VALUE | {"above": 0.5}
WORDS = {"better": {"above": 0.005}, "level": {"at_least": -0.005, "at_most": 0.005}}


def claim(**given):
    return {"id": "X1", "place": "p", "says": "s", "reason": "r"} | given


def loaded(folder, *claims, **head):
    path = folder / "x.yaml"
    path.write_text(yaml.safe_dump({"paper": "x", **head, "claims": list(claims)}))
    return load_claims(path)


@pytest.mark.parametrize("rules", [{}, {"trials": 10, "holm": False}])
def test_a_file_has_the_strict_rules_unless_it_says_otherwise(tmp_path, rules):
    found = loaded(tmp_path, claim(checks=[HALF]), rules=rules).rules
    assert found == Rules(**{"trials": 5, "holm": True} | rules)


def test_a_word_has_one_bound_for_all_checks_that_use_it(tmp_path):
    checks = [VALUE | {"shows": word} for word in WORDS]
    claims = [claim(checks=checks), claim(id="X2", readings={"one": [HALF], "two": checks})]
    first, second = loaded(tmp_path, *claims, rules={"words": WORDS}).claims
    assert [one.bounds for one in first.checks] == list(WORDS.values())
    told = "at every point: level, at least -0.005 and at most 0.005"
    assert first.checks[1].sentence.endswith(told)
    assert [list(second.groups), len(second.all_checks)] == [["one", "two"], 3]
    assert second.readings["two"][0].bounds == {"above": 0.005}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([{}], "claim x1 needs checks, or says why it is untested"),
        ([{"checks": [HALF], "untested": "u"}], "x1 needs checks, or says why it is untested"),
        ([{"checks": [HALF], "reason": ""}], "claim x1 has bounds, so it needs a reason for them"),
        ([{"readings": {"one": [HALF]}}], "x1 needs two readings or more, each with checks"),
        ([{"checks": [VALUE | {"shows": "betetr"}]}], "did you mean 'better'"),
        ([{"checks": [HALF | {"shows": "better"}]}], "shows 'better' and has a bound of its own"),
        ([{"checks": [HALF | {"metric": "acuracy"}]}], "did you mean 'accuracy'"),
        ([{"checks": [HALF], "fixed": "later"}], "fixed"),
        ([{"untested": "u"}] * 2, "two claims have one id"),
    ],
)
def test_a_mistake_in_the_file_is_a_sentence(tmp_path, given, told):
    with pytest.raises(FedreproError) as error:
        loaded(tmp_path, *(claim(**one) for one in given), rules={"words": WORDS})
    assert told in str(error.value)
    assert str(tmp_path / "x.yaml") in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "- 1", "paper: x\nclaims: 3", "claims: [1]", "a: [", "\x00"])
def test_a_file_of_another_form_is_a_sentence(tmp_path, text):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(FedreproError, match=r"x\.yaml"):
        load_claims(path)


RECORD = ROOT / "reports/record"
RECORDED = [p for p in FILES if (RECORD / f"paper/{p.parent.name}/claims.csv").exists()]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_the_verdicts_of_the_record_come_out_again(path, tmp_path):
    """With every row's sentence, place, interval, note and what it lacks."""
    paper, out = path.parent.name, tmp_path / "claims.csv"
    keys = [key for key in drawn_keys(RECORD, "paper") if key.startswith(f"{paper}/")]
    judge_claims(path, keys, RECORD / "paper", out)
    assert out.read_text() == (RECORD / f"paper/{paper}/claims.csv").read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_claims_speak_of_what_their_exhibits_have_at_every_scale(path):
    """A mistyped exhibit, method, column or value is found before anything is run."""
    file = load_claims(path)
    checks = [(c.id, one, name) for c in file.claims for one in c.all_checks for name in one.named]
    for scale in SCALES:
        exhibits = plan(scale).exhibits
        for where, one, name in checks:
            exhibit, told = exhibits[f"{file.paper}/{name}"], (where, name, scale)
            labels = {m.label for m in exhibit.measures}
            if name not in one.exhibits:
                assert getattr(one, "to", one.of) in labels, told
                continue
            assert {one.of, *one.others} <= labels, told
            assert set(one.columns) <= {*exhibit.swept, *exhibit.shown}, told
            # so that a claim whose exhibits are all drawn is never incomplete for a value
            for key, wanted in one.where.items() if scale in ("quick", "paper") else ():
                values = {text(p.values[key]) for p in exhibit.points if key in p.values}
                for measure in (m for m in exhibit.measures if m.label == one.of):
                    groups = measure.groups if key in measure.show else ()
                    values |= {text(group[measure.show.index(key)]) for group in groups}
                if isinstance(wanted, list):
                    assert set(map(text, wanted)) <= values, told
