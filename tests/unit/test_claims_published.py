"""Files of claims and their verdicts in words.

A claim of whose named exhibits some are absent is incomplete, or not run if all are. Fewer trials
than the rules ask for decide nothing (test_claims.py).
"""

from __future__ import annotations

import math

import pandas as pd
import pytest
import yaml
from claim_tables import by, check, judged, table
from synthetic import ROOT, plan

from fedrepro.core.errors import FedreproError
from fedrepro.core.params import comparable_text as text
from fedrepro.numbers.verdicts import verdict_counts_and_unreported_settings as counts
from fedrepro.numbers.verdicts.claim_numbers import Numbers
from fedrepro.numbers.verdicts.claim_verdicts import load_claims
from fedrepro.planning.config_files import SCALES, load_exhibits
from fedrepro.record.record_entries_and_leaderboards import drawn_keys
from fedrepro.record.site.verdict_and_leaderboard_texts import verdict_of
from fedrepro.stages.figures_claims_and_pages import judge_claims

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
            if scale != "paper" and f"{file.paper}/{name}" not in exhibits:
                continue
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


CELLS = dict.fromkeys([(2, 50), (2, 100), (5, 50), (5, 100)], 0.9)
WHOLE = by("clients", "hidden", A=CELLS)
BEATS = {"form": "difference", "minus": ["B"]}
SPREAD = {"form": "spread", "over": ["hidden"], "minus_exhibit": "y"}
FIRST_TWO = dict(list(CELLS.items())[:2])
PLAIN = by("clients", A={5: 0.9}, a={5: 0.5}, B={5: 0.7})
THREE_POINTS = by("clients", A={2: 0.9, 5: 0.8, 10: 0.7}, B={2: 0.9, 5: 0.8, 10: 0.7})


@pytest.mark.parametrize(
    ("numbers", "given", "missing"),
    [
        (WHOLE, {"form": "value", "metric": "hidden_units"}, ["hidden units of A in x"]),
        (WHOLE, {"form": "value", "where": {"clients": [5, 9]}}, ["clients = 9 of A in x"]),
        (WHOLE, {"form": "value", "where": {"clients": {"from": 6}}},
         ["A in x where clients from 6"]),
        (WHOLE, BEATS, ["accuracy of B in x"]),
        (by("clients", "hidden", A=CELLS, B={(2, 50): 0.8, (5, 50): 0.8}), BEATS,
         ["B at x, J = 2, hidden = 100", "B at x, J = 5, hidden = 100"]),
        (by("clients", "hidden", A=FIRST_TWO), {"form": "change", "along": "clients"},
         ["a second value of clients in x"]),
        (WHOLE, {"form": "rounds_to", "reach": "A"}, ["a point to judge by in x"]),
        (WHOLE, SPREAD, ["y"]),
        (WHOLE | {"y": by("clients", B={5: 0.8})["x"]}, SPREAD, ["accuracy of A in y"]),
        (PLAIN, {"form": "gain", "over": "a", "than": {"B": "b"}}, ["accuracy of b in x"]),
        (THREE_POINTS, {"form": "correlation", "with_method": "B"},
         ["four points for a correlation in x, which has 3"]),
        (by("round", A={10: 0.5}), {"form": "value"}, ["accuracy of A in x"]),
    ],
)  # fmt: skip
def test_missing_numbers_are_named(numbers, given, missing):
    found = judged(check(**given, above=0), numbers)
    assert (found.missing, found.verdict == "incomplete") == (missing, bool(missing))
    assert judged(check(**given, above=0), {}).verdict == "not run"


def test_points_that_are_left_out_by_design_are_not_missing_and_judged_by_the_others():
    numbers = by("clients", "hidden", A=CELLS, B={(2, 50): 0.8})
    found = judged(check(**BEATS, above=0, ragged=True), numbers)
    assert (found.verdict, len(found.statements)) == ("holds", 1)
    for place, missing in (
        ((5, 50), []),
        ((2, 50), ["a finite number of A at x, J = 2, hidden = 50"]),
    ):
        diverged = by("clients", "hidden", A={**CELLS, place: math.nan}, B={(2, 50): 0.8})
        assert judged(check(**BEATS, above=0, ragged=True), diverged).missing == missing
    # An exhibit says what was left out by design, and it is not still to come.
    one = check(**BEATS, exhibits=["x", "y"], above=0, ragged=True, where={"units": [200]})
    whole = by("units", A={200: 0.9}, B={200: 0.8})
    frame = table(({"units": 200}, "B", [0.7] * 5), ({"units": 50}, "A", [0.6] * 5)).frame
    gap = {**frame.iloc[0].to_dict(), "method": "A", "metric": "left_out", "split": ""}
    said = Numbers(pd.concat([frame, pd.DataFrame([gap])], ignore_index=True))
    assert judged(one, whole | {"y": said}).verdict == "holds"
    assert judged(one, whole | {"y": Numbers(frame)}).verdict == "incomplete"
    alone = judged(one.model_copy(update={"exhibits": ["y"]}), {"y": said})
    assert alone.missing == ["a point to judge by in y"]


def printed(verdict, **given):
    return {"verdict": verdict, "trials": "5", "note": ""} | given


@pytest.mark.parametrize(
    ("row", "word", "told"),
    [
        (printed("worse"), "worse", ""),
        (printed("reproduced", apart="calibrated: by hand"), "reproduced, calibrated",
         "calibrated: by hand"),
        (printed("stand-in", apart="calibrated: by hand", note="as printed"), "stand-in",
         "as printed; calibrated: by hand"),
        (printed("worse", set_up="rates, case=a: no rate"), "worse",
         "no rate, which does not move it that far (rates)"),
        (printed("set-up open", set_up="rates, case=a: no rate"), "set-up open",
         "no rate, and rates shows what it moves"),
        (printed("reproduced", set_up="rates, case=a: no rate"), "reproduced", ""),
        (printed("not run", apart="claim: C1, check 2", note="share"), "not run",
         "share; the number that C1 looks at"),
    ],
)  # fmt: skip
def test_a_verdict_has_its_word_and_its_reasons(row, word, told):
    assert (counts.word_of(row), counts.reasons(row)) == (word, told)


def test_a_number_of_a_sentence_is_what_a_check_of_its_claim_looks_at():
    row = printed("not run", apart="claim: C1, check 2", metric="accuracy")
    row |= {"printed": "0.43", "tolerance": "0.01", "set_up": "", "note": "share of Global"}
    check = {"claim": "C1", "value": "0.2", "trials": "9", "check_verdict": "holds"}
    for value, data, word in (
        ("0.436", "holds", "reproduced"),
        ("0.45", "holds", "better"),
        ("0.41", "refuted", "worse"),
        ("0.41", "stand-in only", "stand-in"),
    ):
        found = counts.resolve(
            row, {}.get, [[check, check | {"value": value, "check_verdict": data}]]
        )
        assert (found["mean"], found["trials"], found["verdict"]) == (value, "9", word)
        assert word == counts.word_of(found)
        assert float(found["difference"]) == pytest.approx(float(value) - 0.43)
    for claims in ([], [[check]], [[check, check | {"value": ""}]]):
        assert counts.resolve(row, {}.get, claims) == row


def numbers(*means, rounds=()):
    rows = [("a", "FA", "rounds_to_target", "", mean) for mean in means]
    rows += [("a", "FA", "rounds", "", done) for done in rounds]
    return pd.DataFrame(rows, columns=["case", "method", "metric", "split", "mean"])


CASE_A = "rates, case=a: no rate"
ROW = {"method": "FA", "metric": "rounds_to_target", "split": "", "mean": "40", "difference": "-9"}
MISSED = {"mean": "inf", "difference": "inf", "printed": "100"}


@pytest.mark.parametrize(
    ("frame", "set_up", "given", "wanted"),
    [
        (numbers(40.0, 94.0, 60.0), CASE_A, {}, [0.0, 54.0, 20.0]),
        (numbers(60.0, 40.0, 94.0), CASE_A, {}, [20.0, 0.0, 54.0]),  # from our own setting on
        (numbers(60.0, 40.0, 94.0), CASE_A, {"mean": "41"}, [0.0, -20.0, 34.0]),
        (numbers(60.0, 40.0), CASE_A, {"mean": "41", "difference": "20"}, [0.0, 20.0]),
        (numbers(60.0, 94.0), CASE_A, {"mean": "58", "difference": "20"}, [0.0, -34.0]),
        (numbers(40.0, 94.0), "rates, case=*: no rate", {}, [0.0, 54.0]),
        (numbers(40.0, 94.0), "rates, case=b: no rate", {}, []),
        (numbers(40.0, 94.0), "rates, method=FA*: no rate", {}, [0.0, 54.0]),
        (numbers(40.0, 94.0), "rates, method=RM: no rate", {}, []),
        (numbers(40.0), CASE_A, {}, []),
        (None, CASE_A, {}, []),
        # a target that was not reached counts as the rounds that were run
        (numbers(40.0, math.inf, rounds=(41.0, 130.0)), CASE_A, {}, [0.0, 90.0]),
        (numbers(40.0, math.inf), CASE_A, {}, []),
        (numbers(90.0, math.inf, rounds=(90.0, 500.0)), CASE_A, MISSED, [410.0, 0.0]),
    ],
)
def test_each_named_setting_moves_a_number_from_ours_towards_print(frame, set_up, given, wanted):
    assert counts.moves_towards_print(set_up, ROW | given, {"rates": frame}.get)[1] == wanted


OPENED = {"set_up": "rates, case=a: no rate", "tolerance": "10", "noise": "1"}


def opened(ours, away, **given):
    row = printed("set-up open", method="FA", metric="rounds_to_target", split="", **OPENED)
    return row | {"mean": f"{ours}", "difference": f"{away}"} | given


def test_an_excusing_setting_suits_the_others_and_pages_show_why_nothing_is_judged():
    both = pd.concat([numbers(40.0, 90.0), numbers(80.0, 20.0).assign(method="SOLO")])
    row, solo = opened(40, -47), opened(80, 2, method="SOLO", verdict="reproduced")
    assert counts.resolve(row, {"rates": both}.get)["verdict"] == "another set-up"
    assert counts.resolve(row, {"rates": both}.get, (), [row, solo])["verdict"] == "better"
    for verdict in ("reproduced", "worse", "better"):
        assert verdict_of(printed(verdict, apart="calibrated: by hand")) == "calibrated"
        assert verdict_of(printed(verdict)) == verdict


@pytest.mark.parametrize(
    ("means", "ours", "away", "word"),
    [
        ((40.0, 90.0), 40, -47, "another set-up"),
        ((40.0, 90.0), 30, -57, "better"),
        ((40.0, 90.0), 90, 3, "another set-up"),
        ((90.0, 140.0), 99, 12, "worse"),  # the setting moves it away from print
    ],
)
def test_a_difference_is_another_set_ups_if_the_setting_moves_it_by_more(means, ours, away, word):
    row = opened(ours, away)
    assert counts.resolve(row, {"rates": numbers(*means)}.get)["verdict"] == word
    assert counts.resolve(row, {}.get) == row
