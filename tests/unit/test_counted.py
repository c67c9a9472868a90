"""Verdicts counted and in words, and what settles an open set-up."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from fedrepro.site.verdicts import verdict_of
from fedrepro.verdicts.counted import (
    by_chance,
    claim_counts,
    printed_counts,
    reasons,
    settled_counts,
    trials_to_decide,
    word_of,
)
from fedrepro.verdicts.set_up import _moved, settled, varied


def printed(verdict, **given):
    return {"verdict": verdict, "trials": "5", "note": ""} | given


def test_those_counted_apart_look_different():
    assert word_of(printed("worse")) == "worse"
    fitted = printed("reproduced", apart="calibrated: by hand")
    assert word_of(fitted) == "reproduced, calibrated"
    assert word_of(printed("one trial")) == "one trial"
    assert word_of(printed("stand-in", apart="calibrated: by hand")) == "stand-in"


def test_reasons_are_the_note_the_part_and_the_set_up():
    given = {"note": "as printed", "apart": "nearly fixed: so", "set_up": "rates, case=a: no rate"}
    told = "as printed; nearly fixed: so; no rate, "
    assert reasons(printed("worse", **given)) == f"{told}which does not move it that far (rates)"
    assert reasons(printed("set-up open", **given)) == f"{told}and rates shows what it moves"
    assert reasons(printed("reproduced", **given)) == told.removesuffix("; no rate, ")


def one(verdict, needed="", value="0.2", bound="above 0.1", reading=""):
    found = {"check_verdict": verdict, "trials_needed": needed, "value": value, "bound": bound}
    return found | {"reading": reading}


@pytest.mark.parametrize(
    ("checks", "trials"),
    [
        ([one("undecided", "6"), one("undecided", "54")], 54),  # both have to hold
        ([one("undecided", "54"), one("undecided", "6", "0.05")], 6),  # one that is refuted will do
        ([one("undecided", "6"), one("undecided", "54", "-0.5", "at least -0.2 and below 0")], 54),
        ([one("undecided", "6"), one("undecided")], None),
        ([one("undecided", "6", "0.05"), one("undecided")], 6),
        ([one("undecided", "6"), one("holds")], 6),
        ([one("refuted"), one("undecided", "6")], None),  # decided as it is
        ([one("holds", reading="a"), one("undecided", "6", "0.05", reading="b")], 6),  # depends
        ([one("not run"), one("undecided", "6")], None),
    ],
)
def test_a_claim_takes_the_trials_that_decide_all_of_it(checks, trials):
    assert trials_to_decide(checks) == trials


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
        found = settled(row, {}.get, [[check, check | {"value": value, "check_verdict": data}]])
        assert (found["mean"], found["trials"], found["verdict"]) == (value, "9", word)
        assert word == word_of(found)
        assert float(found["difference"]) == pytest.approx(float(value) - 0.43)
    assert reasons(row) == "share of Global; the number that C1 looks at"
    for claims in ([], [[check]], [[check, check | {"value": ""}]]):
        assert settled(row, {}.get, claims) == row


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
        by_chance(3),
    ]


def test_by_chance_half_of_the_error_is_on_each_side():
    assert by_chance(40).startswith("Of the 40 that trials decide")
    assert "at most 1.0 hold and 1.0 be refuted" in by_chance(40)


def numbers(*means, rounds=()):
    rows = [("a", "rounds_to_target", mean) for mean in means] + [
        ("a", "rounds", r) for r in rounds
    ]
    frame = pd.DataFrame(rows, columns=["case", "metric", "mean"])
    return frame.assign(method="FA", split="")[["case", "method", "metric", "split", "mean"]]


def by(frame, set_up="rates, case=a: no rate"):
    return varied(set_up, "FA", "rounds_to_target", "", {"rates": frame}.get)


def test_settings_are_the_rows_that_are_named_if_there_are_two():
    assert by(numbers(40.0, 94.0, 60.0)) == [40.0, 94.0, 60.0]
    assert by(numbers(40.0, 94.0), "rates, case=*: no rate") == [40.0, 94.0]
    assert by(numbers(40.0, 94.0), "rates, case=b: no rate") is None
    assert by(numbers(40.0, 94.0), "rates, method=FA*: no rate") == [40.0, 94.0]
    assert by(numbers(40.0, 94.0), "rates, method=RM: no rate") is None
    assert by(numbers(40.0)) is None
    assert by(None) is None


def test_what_was_not_reached_counts_as_the_rounds_that_were_run():
    assert by(numbers(40.0, math.inf, rounds=(41.0, 130.0))) == [40.0, 130.0]
    assert by(numbers(40.0, math.inf)) is None


def test_a_move_begins_at_our_setting_and_goes_towards_print():
    def most(numbers, ours, away):
        return max(_moved(numbers, {"mean": f"{ours}", "difference": f"{away}"}))

    assert most([60.0, 40.0, 94.0], 40.0, -50.0) == 54.0
    assert most([60.0, 40.0, 94.0], 41.0, -50.0) == 34.0
    assert most([60.0, 40.0, 94.0], 41.0, 20.0) == 20.0
    assert most([60.0, 94.0], 58.0, 20.0) == 0.0


OPENED = {"set_up": "rates, case=a: no rate", "tolerance": "10", "noise": "1"}


def test_a_setting_that_excuses_one_method_has_to_suit_the_others():
    both = pd.concat([numbers(40.0, 90.0), numbers(80.0, 20.0).assign(method="SOLO")])
    row = printed("set-up open", method="FA", metric="rounds_to_target", split="", **OPENED)
    row |= {"mean": "40", "difference": "-47"}
    solo = row | {"method": "SOLO", "mean": "80", "difference": "2", "verdict": "reproduced"}
    assert settled(row, {"rates": both}.get)["verdict"] == "another set-up"
    assert settled(row, {"rates": both}.get, (), [row, solo])["verdict"] == "better"


@pytest.mark.parametrize(
    ("ours", "word"), [(40.0, "another set-up"), (30.0, "better"), (90.0, "another set-up")]
)
def test_a_difference_is_another_set_ups_if_the_setting_moves_the_number_by_more(ours, word):
    row = printed("set-up open", method="FA", metric="rounds_to_target", split="")
    row |= {**OPENED, "mean": f"{ours}", "difference": f"{ours - 87}"}
    found = settled(row, {"rates": numbers(40.0, 90.0)}.get)
    assert found["verdict"] == word
    assert settled(row, {}.get) == row


def test_a_setting_that_moves_the_number_away_from_print_is_not_the_cause():
    row = printed("set-up open", method="FA", metric="rounds_to_target", split="")
    row |= {**OPENED, "mean": "99", "difference": "12"}
    assert settled(row, {"rates": numbers(90.0, 140.0)}.get)["verdict"] == "worse"
