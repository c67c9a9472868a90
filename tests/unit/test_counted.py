"""Verdicts counted and in words, and what settles an open set-up."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pandas as pd
import pytest

from fedrepro.numbers.summary import read_csv
from fedrepro.verdicts.counted import (
    by_chance,
    claim_counts,
    printed_counts,
    reasons,
    settled_counts,
    trials_to_decide,
    word_of,
)
from fedrepro.verdicts.set_up import settled, towards, varied

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "reports/record/paper"


def printed(verdict, **given):
    return {"verdict": verdict, "unbounded": verdict, "trials": "5", "note": ""} | given


def test_verdicts_of_one_trial_and_those_counted_apart_look_different():
    assert word_of(printed("worse")) == "worse"
    assert word_of(printed("worse", trials="1")) == "worse, one trial"
    fitted = printed("reproduced", trials="1", apart="calibrated: by hand")
    assert word_of(fitted) == "reproduced, one trial, calibrated"
    assert word_of(printed("set-up open", trials="1")) == "set-up open, one trial"
    assert word_of(printed("stand-in", trials="1", apart="calibrated: by hand")) == "stand-in"


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
    row = printed("not run", unbounded="", apart="claim: C1, check 2", metric="accuracy")
    row |= {"printed": "0.43", "tolerance": "0.01", "set_up": "", "note": "share of Global"}
    check = {"claim": "C1", "value": "0.2", "trials": "9", "data": ""}
    for value, data, word in (
        ("0.436", "", "reproduced"),
        ("0.45", "", "better"),
        ("0.41", "", "worse"),
        ("0.41", "other pictures", "stand-in"),
    ):
        found = settled(row, {}.get, [[check, check | {"value": value, "data": data}]])
        assert (found["mean"], found["trials"], found["verdict"]) == (value, "9", word)
        assert found["unbounded"] == word == word_of(found)
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
        "settled": 2,
        "set-up open": 1,
        "not run": 2,
        "claims that a run can test": 3,
        "decided": 2,
    }


def test_what_is_apart_is_not_among_the_judged_and_scatter_is_counted_both_ways():
    rows = [
        printed("reproduced"),
        printed("worse", unbounded="reproduced"),
        printed("worse", trials="1"),
        printed("reproduced", apart="calibrated: by hand"),
        printed("reproduced", note="printed again: table 1"),
        printed("worse", note="judged in table-1-iid-10"),
        printed("not run", unbounded=""),
        printed("set-up open", trials="1"),
    ]
    assert printed_counts(rows) == [
        "7 printed values of 6 quantities.",
        "Judged: 1 reproduced, 1 worse, 1 worse in one trial.",
        "Counted apart: 1 calibrated (1 reproduced).",
        "Not judged: 1 not run, 1 set-up open.",
        "If our own scatter counted in full, 2 would be reproduced.",
    ]


def test_values_of_which_all_are_of_a_rerun_are_not_called_printed():
    rerun = printed("reproduced", apart="rerun: of others")
    assert printed_counts([rerun, rerun])[0] == "2 rerun values."
    assert printed_counts([rerun, printed("worse")])[0] == "2 printed values."


def claim(name, verdict, **given):
    return [{"claim": name, "verdict": verdict, "fixed": "before", "label": "", "note": ""} | given]


def test_claims_are_counted_by_when_their_bounds_were_fixed():
    found = [
        claim("X1", "holds", note="hangs on its bound, which it keeps by 0.1 % of it"),
        claim("X2", "refuted", fixed="after"),
        claim("X3", "holds", label="identity"),
        claim("X4", "undecided", note="refuted by stand-ins alone"),
        claim("X5", "no verdict", fixed=""),
    ]
    assert claim_counts(found) == [
        "5 claims: 2 hold, 1 refuted, 1 undecided, 1 no verdict.",
        "Decided are those that hold, are refuted or depend; of 3 the bounds of 2 were fixed "
        "before the numbers.",
        "Nearly true by how the methods are defined: X3.",
        "Decided by a hair, less than a hundredth of the bound: X1.",
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
    assert towards([60.0, 40.0, 94.0], 40.0, -50.0) == 54.0
    assert towards([60.0, 40.0, 94.0], 41.0, -50.0) == 34.0
    assert towards([60.0, 40.0, 94.0], 41.0, 20.0) == 20.0
    assert towards([60.0, 94.0], 58.0, 20.0) == 0.0


@pytest.mark.parametrize(
    ("ours", "word"), [(40.0, "another set-up"), (30.0, "better"), (90.0, "another set-up")]
)
def test_a_difference_is_another_set_ups_if_the_setting_moves_the_number_by_more(ours, word):
    row = printed("set-up open", method="FA", metric="rounds_to_target", split="")
    row |= {"set_up": "rates, case=a: no rate", "mean": f"{ours}", "difference": f"{ours - 87}"}
    found = settled(row, {"rates": numbers(40.0, 90.0)}.get)
    assert (found["verdict"], found["unbounded"]) == (word, word)
    assert settled(row, {}.get) == row


def test_a_setting_that_moves_the_number_away_from_print_is_not_the_cause():
    row = printed("set-up open", method="FA", metric="rounds_to_target", split="")
    row |= {"set_up": "rates, case=a: no rate", "mean": "92", "difference": "5"}
    assert settled(row, {"rates": numbers(90.0, 140.0)}.get)["verdict"] == "worse"


def test_verdicts_that_are_said_to_have_changed_are_those_of_the_record():
    part = (ROOT / "docs/claims.md").read_text().partition("## Verdicts that these rules")[2]
    heads = pd.concat([pd.read_csv(path, dtype=str) for path in RECORD.glob("*/claims.csv")])
    heads = heads.fillna("").drop_duplicates("claim").set_index("claim")
    changed = {
        name: now
        for names, now in re.findall(r"^\| ((?:[A-Z]\d+(?:, )?)+) \| \w+ \| ([^|]+) \|", part, re.M)
        for name in names.split(", ")
    }
    assert {name for name in heads.index if heads["note"][name]} == {
        name for name, now in changed.items() if re.search("hangs|undecided", now)
    }
    for name, now in changed.items():
        assert now.split(",")[0].removesuffix(" (identity)") == heads["verdict"][name]
        assert ("identity" in now) == (heads["label"][name] == "identity")
        assert ("hangs" in now) == heads["note"][name].startswith("hangs")


def test_how_far_settings_are_said_to_move_numbers_is_in_the_record():
    text = (ROOT / "docs/claims.md").read_text()

    def exhibits(paper):
        return lambda name: read_csv((RECORD / paper / f"{name}.csv").read_text())

    for paper, name, case, method, told in (
        ("gems", "table-5-mnist", "J = 5", "GEMS", "moves them by {} points"),
        ("gems", "table-5-mnist", "J = 5", "Averaged", "moves them by {} points"),
        ("gems", "table-5-mnist", "J = 2", "GEMS", "moves it by {} points"),
        ("p2p", "table-accuracy", "case (a)", "node 2", "and prior move it by {} points"),
        ("p2p", "table-accuracy", "unbalanced", "node 2", "epochs moves it by {} points"),
    ):
        rows = pd.read_csv(RECORD / paper / f"{name}.printed.csv")
        row = rows[(rows["case"] == case) & (rows["method"] == method)].iloc[0]
        known = varied(row["set_up"], method, "accuracy", "test", exhibits(paper))
        by_ = towards(known, row["mean"], row["difference"])
        assert told.format(f"{100 * by_:.1f}") in text
