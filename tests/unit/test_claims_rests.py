"""What a verdict rests on: the paper's own data alone, and one look at the trials or two."""

from __future__ import annotations

import pytest
from claim_tables import LOOSE, check, table

from fedrepro.verdicts.cells import Numbers
from fedrepro.verdicts.claims import Claim
from fedrepro.verdicts.judging import judge_all
from fedrepro.verdicts.table import rows

VALUE = {"form": "value", "above": 0.5}


def one(*means, sd=0.001):
    """A at so many points."""
    return table(*(({"clients": at}, "A", mean) for at, mean in enumerate(means)), sd=sd)


def of(check_, numbers, stand_ins=()):
    (found,) = judge_all([check_], numbers, LOOSE, stand_ins)
    return found


def test_stand_ins_neither_confirm_nor_refute():
    both = check(**VALUE, exhibits=["x", "y"])
    low, high = one(0.4), one(0.6)
    assert of(both, {"x": high, "y": low}).verdict == "refuted"
    assert of(both, {"x": high, "y": low}, ["y"]).verdict == "holds"
    assert of(both, {"x": low, "y": high}, ["y"]).verdict == "refuted"
    for numbers in (low, high):
        found = of(both, {"x": numbers, "y": numbers}, ["x", "y"])
        assert (found.verdict, found.trials_needed) == ("stand-in only", None)


def test_a_case_of_other_data_is_left_out_and_a_mean_over_one_is_not_judged():
    numbers = table(({"case": "MNIST"}, "A", 0.6), ({"case": "Digits"}, "A", 0.4), sd=0.001)
    mixed = Numbers(numbers.frame, stand_ins=("Digits",))
    assert of(check(**VALUE), {"x": numbers}).verdict == "refuted"
    assert of(check(**VALUE), {"x": mixed}).verdict == "holds"
    assert of(check(**VALUE, points="mean"), {"x": mixed}).verdict == "stand-in only"


def test_an_exhibit_that_numbers_are_set_beside_may_be_the_stand_in():
    less = check(form="spread", over=["clients"], minus_exhibit="y", above=0.2)
    numbers = {"x": one(0.5, 0.6), "y": one(0.5, 0.7)}
    assert of(less, numbers).verdict == "refuted"
    assert of(less, numbers, ["y"]).verdict == "stand-in only"


@pytest.mark.parametrize(
    ("stand_ins", "told", "note"),
    [
        ({}, "refuted", ""),
        ({"y": "Digits."}, "holds", "judged on the paper's data alone; 1 of 2 checks have none"),
        ({"x": "Digits.", "y": "Digits."}, "stand-in only", ""),
    ],
)
def test_a_claim_says_what_it_was_judged_on(stand_ins, told, note):
    checks = [check(**VALUE), check(**VALUE, exhibits=["y"])]
    claim = Claim(id="X1", place="p", says="s", reason="r", checks=checks)
    first, _ = rows([claim], {"x": one(0.6), "y": one(0.4)}, stand_ins, LOOSE)
    assert (first["verdict"], first["note"]) == (told, note)


def test_a_claim_whose_trials_were_raised_says_so():
    claim = Claim(id="X1", place="p", says="s", reason="r", checks=[check(**VALUE)])
    for raised, note in (["y"], ""), (["x"], "trials were raised after an undecided verdict"):
        rules = LOOSE.model_copy(update={"raised": raised})
        (row,) = rows([claim], {"x": one(0.6)}, {}, rules)
        assert row["note"] == note


def test_a_reading_on_stand_ins_only_leaves_the_verdict_to_the_others():
    readings = {"a": [check(**VALUE)], "b": [check(**VALUE, exhibits=["y"])]}
    claim = Claim(id="X1", place="p", says="s", reason="r", readings=readings)
    numbers = {"x": one(0.6), "y": one(0.4)}
    assert next(iter(rows([claim], numbers, {}, LOOSE)))["verdict"] == "depends"
    assert next(iter(rows([claim], numbers, {"y": "Digits."}, LOOSE)))["verdict"] == "holds"
