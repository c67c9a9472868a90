"""Files of claims: what they may say, what is refused with a sentence, and their table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml
from claim_tables import LOOSE, table
from synthetic import plan

from fedrepro.core.errors import FedreproError
from fedrepro.core.params import written as text
from fedrepro.planning.config import SCALES, load_exhibits
from fedrepro.verdicts.claims import Claim, load_claims
from fedrepro.verdicts.judging import Rules
from fedrepro.verdicts.table import COLUMNS, rows, sentence

ROOT = Path(__file__).parents[2]
# a paper's claims are committed before its exhibits
FILES = [
    path
    for path in sorted(ROOT.glob("src/fedrepro/papers/*/claims.yaml"))
    if path.parent.name in load_exhibits()
]
PFNM = ROOT / "src/fedrepro/papers/pfnm/claims.yaml"

VALUE = {"form": "value", "exhibits": ["x"], "of": "A"}
BEATS = {"form": "difference", "exhibits": ["x"], "of": "A", "minus": ["B"]}
WORDS = {"better": {"above": 0.005}, "level": {"at_least": -0.005, "at_most": 0.005}}


def claim(**given):
    return {"id": "X1", "place": "p", "says": "s", "reason": "r"} | given


def written(path, *claims, **head):
    path.write_text(yaml.safe_dump({"paper": "x", **head, "claims": list(claims)}))
    return path


def test_a_file_has_the_strict_rules_unless_it_says_otherwise(tmp_path):
    path = written(tmp_path / "x.yaml", claim(checks=[VALUE | {"above": 0}]))
    assert load_claims(path).rules == Rules(trials=5, holm=True)
    path = written(path, rules={"trials": 10, "holm": False})
    assert load_claims(path).rules == Rules(trials=10, holm=False)


def test_a_word_has_one_bound_for_all_checks_that_use_it(tmp_path):
    checks = [BEATS | {"shows": word} for word in ("better", "level")]
    path = written(tmp_path / "x.yaml", claim(checks=checks), rules={"words": WORDS})
    better, level = load_claims(path).claims[0].checks
    assert better.bounds == {"above": 0.005}
    assert level.bounds == {"at_least": -0.005, "at_most": 0.005}
    assert sentence(level).endswith("at every point: level, at least -0.005 and at most 0.005")


def test_readings_hold_checks_of_their_own(tmp_path):
    readings = {"one": [VALUE | {"above": 0.5}], "two": [VALUE | {"shows": "better"}]}
    path = written(tmp_path / "x.yaml", claim(readings=readings), rules={"words": WORDS})
    found = load_claims(path).claims[0]
    assert [list(found.groups), len(found.all_checks)] == [["one", "two"], 2]
    assert found.readings["two"][0].bounds == {"above": 0.005}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "claim x1 needs checks, or says why it is untested"),
        (
            {"checks": [VALUE | {"above": 0}], "untested": "u"},
            "claim x1 needs checks, or says why it is untested",
        ),
        (
            {"checks": [VALUE | {"above": 0}], "reason": ""},
            "claim x1 has bounds, so it needs a reason for them",
        ),
        (
            {"readings": {"one": [VALUE | {"above": 0}]}},
            "claim x1 needs two readings or more, each with checks",
        ),
        ({"checks": [VALUE]}, "a check needs a bound"),
        ({"checks": [VALUE | {"shows": "betetr"}]}, "did you mean 'better'"),
        (
            {"checks": [VALUE | {"shows": "better", "above": 0}]},
            "shows 'better' and has a bound of its own",
        ),
        ({"checks": [VALUE | {"above": 0, "metric": "acuracy"}]}, "did you mean 'accuracy'"),
        ({"checks": [VALUE | {"above": 0, "where": {"clients": {"form": 1}}}]}, "clients"),
        ({"checks": "none"}, "checks"),
        ({"checks": [VALUE | {"above": 0}], "fixed": "later"}, "fixed"),
    ],
)
def test_a_mistake_in_the_file_is_a_sentence(tmp_path, given, told):
    path = written(tmp_path / "x.yaml", claim(**given), rules={"words": WORDS})
    with pytest.raises(FedreproError) as error:
        load_claims(path)
    assert told in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "- 1", "paper: x\nclaims: 3", "claims: [1]", "a: [", "\x00"])
def test_what_is_no_file_of_claims_is_a_sentence(tmp_path, text):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(FedreproError, match=r"x\.yaml"):
        load_claims(path)


def test_two_claims_with_one_id_are_refused(tmp_path):
    one = claim(untested="u")
    with pytest.raises(FedreproError, match="two claims have one id"):
        load_claims(written(tmp_path / "x.yaml", one, one))


# --------------------------------------------------------------------------------- its table


NUMBERS = {"x": table(({"clients": 5}, "A", 0.9), ({"clients": 5}, "B", 0.5))}


def rows_of(*claims, numbers=NUMBERS, rules=LOOSE, note="Note."):
    return list(rows([Claim.model_validate(one) for one in claims], numbers, {"x": note}, rules))


def test_every_row_of_every_paper_has_the_same_columns():
    claims = [
        claim(untested="u"),
        claim(checks=[VALUE | {"above": 0}]),
        claim(checks=[VALUE | {"above": 0, "exhibits": ["y"]}]),
        claim(readings={"one": [VALUE | {"above": 0.5}], "two": [VALUE | {"below": 0.5}]}),
    ]
    for row in rows_of(*claims):
        assert tuple(row) == COLUMNS
    for one in claims:
        frame = pd.DataFrame(rows_of(one), columns=list(COLUMNS))
        assert tuple(frame.columns) == COLUMNS


def test_a_row_for_each_check_says_what_was_checked_and_on_what():
    (row,) = rows_of(claim(checks=[BEATS | {"above": 0}], label="exact", fixed="after"))
    assert (row["verdict"], row["check_verdict"]) == ("stand-in only", "stand-in only")
    assert (row["label"], row["fixed"]) == ("exact", "after")
    assert row["value"] == pytest.approx(0.4)
    assert (row["at"], row["trials"], row["confidence"]) == ("x, J = 5", 4, 0.95)
    assert (row["data"], row["missing"]) == ("Note.", "")
    (judgement,) = rows_of(claim(untested="u"))
    assert (judgement["verdict"], judgement["reason"], judgement["fixed"]) == (
        "no verdict",
        "u",
        "",
    )


def test_a_claim_that_hangs_on_a_reading_depends():
    one, two = rows_of(
        claim(readings={"one": [VALUE | {"above": 0.5}], "two": [VALUE | {"below": 0.5}]}), note=""
    )
    assert {one["verdict"], two["verdict"]} == {"depends"}
    assert [(r["reading"], r["check_verdict"]) for r in (one, two)] == [
        ("one", "holds"),
        ("two", "refuted"),
    ]


def test_what_is_missing_stands_in_the_row_and_a_long_list_is_cut():
    checks = [VALUE | {"above": 0}, VALUE | {"above": 0, "exhibits": ["y"]}]
    found = rows_of(claim(checks=checks), note="")
    assert {row["verdict"] for row in found} == {"incomplete"}
    assert [row["check_verdict"] for row in found] == ["holds", "not run"]
    assert [row["missing"] for row in found] == ["", "y"]
    many = VALUE | {"above": 0, "exhibits": list("xabcdef")}
    (row,) = rows_of(claim(checks=[many]), note="")
    assert row["missing"] == "a; b; c; d; 2 more"
    assert (row["check_verdict"], row["data"]) == ("incomplete", "")


def test_a_mistyped_column_names_the_claim():
    with pytest.raises(FedreproError, match="claim X1: unknown column 'clinets' in x"):
        rows_of(claim(checks=[VALUE | {"above": 0, "where": {"clinets": [5]}}]))


# ------------------------------------------------------------------------- the papers' own files


def test_every_claim_of_pfnm_is_there_with_a_bound_or_a_reason_for_none():
    claims = load_claims(PFNM).claims
    papers = [claim.id for claim in claims if claim.place != "ours"]
    numbered = [("P2a", "P2b") if n == 2 else (f"P{n}",) for n in range(1, 25)]
    assert papers == [one for own in numbered for one in own]
    assert {claim.id for claim in claims if claim.untested} == {"P5", "P14"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_claims_speak_of_what_their_exhibits_have_at_every_scale(path):
    """Exhibits, methods and columns, so that a mistyped one is found before anything is run."""
    file = load_claims(path)
    for scale in SCALES:
        exhibits = {
            key.partition("/")[2]: exhibit
            for key, exhibit in plan(scale).exhibits.items()
            if key.startswith(f"{file.paper}/")
        }
        for claim in file.claims:
            for one in claim.all_checks:
                assert sentence(one)
                for name in one.named:
                    exhibit = exhibits[name]
                    where = (claim.id, name, scale)
                    labels = {m.label for m in exhibit.measures}
                    if name in one.alike:
                        assert set(one.methods) <= labels, where
                        assert set(one.columns) <= {*exhibit.swept, *exhibit.shown}, where
                    else:
                        assert one.to in labels, where


@pytest.mark.parametrize("scale", ["quick", "paper"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_values_that_claims_list_are_among_those_of_their_exhibits(path, scale):
    """So that a claim whose exhibits are all drawn is never incomplete for a value."""
    made = plan(scale)
    file = load_claims(path)
    checks = [one for claim in file.claims for one in claim.all_checks]
    for one, name in ((check, name) for check in checks for name in check.alike):
        exhibit = made.exhibits[f"{file.paper}/{name}"]
        shown = [m for m in exhibit.measures if m.label == one.of]
        for key, wanted in one.where.items():
            values = {text(point.values[key]) for point in exhibit.points if key in point.values}
            for measure in shown:
                groups = measure.groups if key in measure.show else ()
                values |= {text(group[measure.show.index(key)]) for group in groups}
            if isinstance(wanted, list):
                assert set(map(text, wanted)) <= values, (one, name)
