"""Verdicts in words, and what settles an open set-up; counts of them are those of real pages."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from fedrepro.numbers.verdicts.summary_sentences import (
    moves_towards_print,
    reasons,
    resolve,
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


def numbers(*means, rounds=()):
    rows = [("a", "FA", "rounds_to_target", "", mean) for mean in means]
    rows += [("a", "FA", "rounds", "", done) for done in rounds]
    return pd.DataFrame(rows, columns=["case", "method", "metric", "split", "mean"])


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


def opened(ours, away, **given):
    row = printed("set-up open", method="FA", metric="rounds_to_target", split="", **OPENED)
    return row | {"mean": f"{ours}", "difference": f"{away}"} | given


def test_an_excusing_setting_suits_the_others_and_pages_show_why_nothing_is_judged():
    both = pd.concat([numbers(40.0, 90.0), numbers(80.0, 20.0).assign(method="SOLO")])
    row, solo = opened(40, -47), opened(80, 2, method="SOLO", verdict="reproduced")
    assert resolve(row, {"rates": both}.get)["verdict"] == "another set-up"
    assert resolve(row, {"rates": both}.get, (), [row, solo])["verdict"] == "better"
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
    assert resolve(row, {"rates": numbers(*means)}.get)["verdict"] == word
    assert resolve(row, {}.get) == row
