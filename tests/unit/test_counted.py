"""Verdicts counted and in words, and what settles an open set-up."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from fedrepro.numbers.verdicts.summary_sentences import (
    claim_counts,
    moves_towards_print,
    printed_counts,
    reasons,
    resolve,
    settled_counts,
    word_of,
)
from fedrepro.record.site.verdict_and_leaderboard_texts import verdict_of


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
    assert (word_of(row), reasons(row)) == (word, told)


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
        found = resolve(row, {}.get, [[check, check | {"value": value, "check_verdict": data}]])
        assert (found["mean"], found["trials"], found["verdict"]) == (value, "9", word)
        assert word == word_of(found)
        assert float(found["difference"]) == pytest.approx(float(value) - 0.43)
    for claims in ([], [[check]], [[check, check | {"value": ""}]]):
        assert resolve(row, {}.get, claims) == row


def test_what_waits_is_not_settled_and_what_is_judged_elsewhere_counts_there():
    words = ("reproduced", "stand-in", "set-up open", "not run", "not run")
    rows = [*map(printed, words), printed("worse", note="judged in table-1-iid")]
    claims = [[{"verdict": word}] for word in ("holds", "depends", "undecided", "no verdict")]
    assert settled_counts(rows, claims) == {
        "printed values": 5,
        "judged": 1,
        "shown beside": 1,
        "set-up open": 1,
        "not run": 2,
        "claims that a run can test": 3,
        "decided": 2,
    }


def test_there_are_four_counts_and_a_shown_value_has_the_word_why():
    rows = [
        printed("reproduced", source="second hand"),
        printed("worse", source="second hand"),
        printed("one trial", source="README or code"),
        printed("reproduced", apart="calibrated: by hand"),
        printed("reproduced", note="printed again: table 1"),
        printed("worse", note="judged in table-1-iid-10"),
        printed("not run"),
        printed("set-up open"),
    ]
    assert printed_counts(rows) == [
        "7 printed values of 6 quantities: 2 judged (1 reproduced, 1 worse); 2 shown beside (1 one "
        "trial, 1 calibrated); 1 set-up open; 1 not run.",
        "Read in: second hand (2), README or code (1).",
    ]


@pytest.mark.parametrize("verdict", ["reproduced", "worse", "better"])
def test_pages_show_what_is_not_judged_by_the_word_why(verdict):
    assert verdict_of(printed(verdict, apart="calibrated: by hand")) == "calibrated"
    assert verdict_of(printed(verdict)) == verdict


def test_values_of_a_rerun_are_not_called_printed():
    rerun = printed("reproduced", apart="rerun: of others")
    assert printed_counts([rerun, rerun])[0].startswith("2 rerun values: 2 judged")


def claim(name, verdict, **given):
    return [{"claim": name, "verdict": verdict, "fixed": "before", "label": "", "note": ""} | given]


def test_claims_are_counted_by_when_their_bounds_were_fixed():
    found = [
        claim("X1", "holds"),
        claim("X2", "refuted", fixed="after"),
        claim("X3", "holds", label="identity"),
        claim("X4", "undecided"),
        claim("X5", "no verdict", fixed=""),
    ]
    assert claim_counts(found) == [
        "5 claims: 2 hold, 1 refuted, 1 undecided, 1 no verdict.",
        "Decided are those that hold, are refuted or depend; of 3 the bounds of 2 were fixed "
        "before the numbers.",
        "Nearly true by how the methods are defined: X3.",
        "Of the 3 that trials decide, counts and identities left out, chance alone makes at most "
        "0.1 hold and 0.1 be refuted: as many as if the truth of each lay just on its bound.",
    ]


def numbers(*means, rounds=()):
    rows = [("a", "rounds_to_target", mean) for mean in means] + [
        ("a", "rounds", r) for r in rounds
    ]
    frame = pd.DataFrame(rows, columns=["case", "metric", "mean"])
    return frame.assign(method="FA", split="")[["case", "method", "metric", "split", "mean"]]


CASE_A = "rates, case=a: no rate"


ROW = {"method": "FA", "metric": "rounds_to_target", "split": "", "mean": "40", "difference": "-9"}


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
    ],
)
def test_each_named_setting_moves_a_number_from_ours_towards_print(frame, set_up, given, wanted):
    assert moves_towards_print(set_up, ROW | given, {"rates": frame}.get) == wanted


OPENED = {"set_up": "rates, case=a: no rate", "tolerance": "10", "noise": "1"}


def test_a_setting_that_excuses_one_method_has_to_suit_the_others():
    both = pd.concat([numbers(40.0, 90.0), numbers(80.0, 20.0).assign(method="SOLO")])
    row = printed("set-up open", method="FA", metric="rounds_to_target", split="", **OPENED)
    row |= {"mean": "40", "difference": "-47"}
    solo = row | {"method": "SOLO", "mean": "80", "difference": "2", "verdict": "reproduced"}
    assert resolve(row, {"rates": both}.get)["verdict"] == "another set-up"
    assert resolve(row, {"rates": both}.get, (), [row, solo])["verdict"] == "better"


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
    row = printed("set-up open", method="FA", metric="rounds_to_target", split="")
    row |= {**OPENED, "mean": f"{ours}", "difference": f"{away}"}
    assert resolve(row, {"rates": numbers(*means)}.get)["verdict"] == word
    assert resolve(row, {}.get) == row
