"""Files of claims: their content, refusals with a sentence, and their table."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from claim_tables import LOOSE, table
from synthetic import plan

from fedrepro.core.errors import FedreproError
from fedrepro.core.params import comparable_text as text
from fedrepro.numbers.verdicts.claim_verdicts import COLUMNS, Claim, Rules, load_claims, rows
from fedrepro.planning.config import SCALES, load_exhibits

ROOT = Path(__file__).parents[2]
# a paper's claims are committed before its exhibits
FILES = [
    path
    for path in sorted(ROOT.glob("src/fedrepro/papers/*/claims.yaml"))
    if path.parent.name in load_exhibits()
]
VALUE = {"form": "value", "exhibits": ["x"], "of": "A"}
HALF = VALUE | {"above": 0.5}
BEATS = {"form": "difference", "exhibits": ["x"], "of": "A", "minus": ["B"], "above": 0}
WORDS = {"better": {"above": 0.005}, "level": {"at_least": -0.005, "at_most": 0.005}}


def claim(**given):
    return {"id": "X1", "place": "p", "says": "s", "reason": "r"} | given


def loaded(folder, *claims, **head):
    path = folder / "x.yaml"
    path.write_text(yaml.safe_dump({"paper": "x", **head, "claims": list(claims)}))
    return load_claims(path)


def test_a_file_has_the_strict_rules_unless_it_says_otherwise(tmp_path):
    one = claim(checks=[HALF])
    assert loaded(tmp_path, one).rules == Rules(trials=5, holm=True)
    rules = {"trials": 10, "holm": False}
    assert loaded(tmp_path, one, rules=rules).rules == Rules(**rules)


def test_a_word_has_one_bound_for_all_checks_that_use_it(tmp_path):
    checks = [VALUE | {"shows": word} for word in ("better", "level")]
    readings = {"one": [HALF], "two": checks}
    claims = [claim(checks=checks), claim(id="X2", readings=readings)]
    first, second = loaded(tmp_path, *claims, rules={"words": WORDS}).claims
    assert [one.bounds for one in first.checks] == list(WORDS.values())
    assert first.checks[1].sentence.endswith(
        "at every point: level, at least -0.005 and at most 0.005"
    )
    assert [list(second.groups), len(second.all_checks)] == [["one", "two"], 3]
    assert second.readings["two"][0].bounds == {"above": 0.005}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "claim x1 needs checks, or says why it is untested"),
        ({"checks": [HALF], "untested": "u"}, "claim x1 needs checks, or says why it is untested"),
        ({"checks": [HALF], "reason": ""}, "claim x1 has bounds, so it needs a reason for them"),
        ({"readings": {"one": [HALF]}}, "claim x1 needs two readings or more, each with checks"),
        ({"checks": [VALUE]}, "a check needs a bound"),
        ({"checks": [VALUE | {"shows": "betetr"}]}, "did you mean 'better'"),
        ({"checks": [HALF | {"shows": "better"}]}, "shows 'better' and has a bound of its own"),
        ({"checks": [HALF | {"metric": "acuracy"}]}, "did you mean 'accuracy'"),
        ({"checks": [HALF | {"where": {"clients": {"form": 1}}}]}, "clients"),
        ({"checks": "none"}, "checks"),
        ({"checks": [HALF], "fixed": "later"}, "fixed"),
    ],
)
def test_a_mistake_in_the_file_is_a_sentence(tmp_path, given, told):
    with pytest.raises(FedreproError) as error:
        loaded(tmp_path, claim(**given), rules={"words": WORDS})
    assert told in str(error.value)
    assert str(tmp_path / "x.yaml") in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "- 1", "paper: x\nclaims: 3", "claims: [1]", "a: [", "\x00"])
def test_a_file_of_another_form_is_a_sentence(tmp_path, text):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(FedreproError, match=r"x\.yaml"):
        load_claims(path)


def test_two_claims_with_one_id_are_refused(tmp_path):
    one = claim(untested="u")
    with pytest.raises(FedreproError, match="two claims have one id"):
        loaded(tmp_path, one, one)


# --------------------------------------------------------------------------------- its table

NUMBERS = {"x": table(({"clients": 5}, "A", 0.9), ({"clients": 5}, "B", 0.5))}
READINGS = {"one": [HALF], "two": [VALUE | {"below": 0.5}]}
MANY = HALF | {"exhibits": list("xabcdef")}


@pytest.mark.parametrize(
    ("given", "note", "wanted"),
    [
        ({"checks": [BEATS], "label": "exact", "fixed": "after"}, "Note.",
         [{"verdict": "stand-in only", "check_verdict": "stand-in only", "label": "exact",
           "fixed": "after", "value": pytest.approx(0.4), "at": "x, J = 5", "trials": 4,
           "confidence": 0.95, "data": "Note.", "missing": ""}]),
        ({"untested": "u"}, "", [{"verdict": "no verdict", "reason": "u", "fixed": ""}]),
        ({"readings": READINGS}, "",
         [{"verdict": "depends", "reading": "one", "check_verdict": "holds"},
          {"verdict": "depends", "reading": "two", "check_verdict": "refuted"}]),
        ({"checks": [HALF, HALF | {"exhibits": ["y"]}]}, "",
         [{"verdict": "incomplete", "check_verdict": "holds", "missing": ""},
          {"verdict": "incomplete", "check_verdict": "not run", "missing": "y"}]),
        # a long list is cut
        ({"checks": [MANY]}, "",
         [{"check_verdict": "incomplete", "missing": "a; b; c; d; 2 more", "data": ""}]),
    ],
)  # fmt: skip
def test_a_row_for_each_check_says_what_was_checked_and_on_what(given, note, wanted):
    found = list(rows([Claim.model_validate(claim(**given))], NUMBERS, {"x": note}, LOOSE))
    assert {tuple(row) for row in found} == {COLUMNS}
    assert [
        {key: row[key] for key in one} for row, one in zip(found, wanted, strict=True)
    ] == wanted


def test_a_mistyped_column_names_the_claim():
    one = Claim.model_validate(claim(checks=[HALF | {"where": {"clinets": [5]}}]))
    with pytest.raises(FedreproError, match="claim X1: unknown column 'clinets' in x"):
        list(rows([one], NUMBERS, {}, LOOSE))


# ------------------------------------------------------------------------- the papers' own files


def test_every_claim_of_pfnm_is_there_with_a_bound_or_a_reason_for_none():
    claims = load_claims(ROOT / "src/fedrepro/papers/pfnm/claims.yaml").claims
    papers = [claim.id for claim in claims if claim.place != "ours"]
    numbered = [("P2a", "P2b") if n == 2 else (f"P{n}",) for n in range(1, 25)]
    assert papers == [one for own in numbered for one in own]
    assert {claim.id for claim in claims if claim.untested} == {"P5", "P14"}


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
