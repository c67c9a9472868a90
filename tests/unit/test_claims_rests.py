"""What a verdict rests on: stand-in data, which refute nothing alone, and how near its bound is."""

from __future__ import annotations

import math

import pytest
from claim_tables import LOOSE, check, judged, table

from fedrepro.verdicts.claims import Claim
from fedrepro.verdicts.judging import claim_slack, judge_all, verdict
from fedrepro.verdicts.table import rows

VALUE = {"form": "value", "above": 0.5}


def one(*means, sd=0.001):
    """A at so many points."""
    return table(*(({"clients": at}, "A", mean) for at, mean in enumerate(means)), sd=sd)


def of(check_, numbers, stand_ins=()):
    (found,) = judge_all([check_], numbers, LOOSE, stand_ins)
    return found


def test_a_check_is_not_refuted_by_stand_ins_alone():
    both = check(**VALUE, exhibits=["x", "y"])
    low, high = one(0.4), one(0.6)
    assert of(both, {"x": high, "y": low}).verdict == "refuted"
    found = of(both, {"x": high, "y": low}, ["y"])
    assert (found.verdict, found.with_stand_ins) == ("undecided", "refuted")
    assert found.deciding.at.startswith("y")
    assert found.trials_needed is None
    assert of(both, {"x": low, "y": low}, ["y"]).verdict == "refuted"
    assert of(both, {"x": low, "y": one(0.3)}, ["y"]).deciding.at.startswith("x")
    assert of(both, {"x": high, "y": high}, ["x", "y"]).verdict == "holds"


def test_a_mean_that_has_a_stand_in_is_one_itself():
    mean = check(**VALUE, points="mean")
    assert of(mean, {"x": one(0.4, 0.3)}, ["x"]).verdict == "undecided"


def test_an_exhibit_that_numbers_are_set_beside_may_be_the_stand_in():
    less = check(form="spread", over=["clients"], minus_exhibit="y", above=0.2)
    numbers = {"x": one(0.5, 0.6), "y": one(0.5, 0.7)}
    assert of(less, numbers).verdict == "refuted"
    assert of(less, numbers, ["y"]).verdict == "undecided"


@pytest.mark.parametrize(
    ("stand_in", "told", "note"),
    [("", "refuted", ""), ("Digits.", "undecided", "refuted by stand-ins alone")],
)
def test_a_claim_says_what_stand_ins_alone_refute(stand_in, told, note):
    claim = Claim(id="X1", place="p", says="s", reason="r", checks=[check(**VALUE)])
    (row,) = rows([claim], {"x": one(0.4)}, {"x": stand_in}, LOOSE)
    assert (row["verdict"], row["check_verdict"], row["note"]) == (told, told, note)


def test_a_reading_that_stand_ins_alone_refute_leaves_a_claim_undecided():
    readings = {"a": [check(**VALUE)], "b": [check(form="value", above=0.5, exhibits=["y"])]}
    claim = Claim(id="X1", place="p", says="s", reason="r", readings=readings)
    numbers = {"x": one(0.6), "y": one(0.4)}
    assert next(iter(rows([claim], numbers, {}, LOOSE)))["verdict"] == "depends"
    row = next(iter(rows([claim], numbers, {"y": "Digits."}, LOOSE)))
    assert row["verdict"] == "undecided"
    assert row["note"] == "one reading is refuted by stand-ins alone"


# half the width of the interval of one(...): t of 3 degrees of freedom is 3.182
HALF = 3.182446 * 0.001 / 2


@pytest.mark.parametrize(
    ("bounds", "means", "points", "away"),
    [
        ({"above": 0.5}, (0.6, 0.504), "every", 0.004),  # the point with the least
        ({"above": 0.5}, (0.6, 0.504), "some", 0.1),  # the surest point
        ({"above": 0.5}, (0.6, 0.55, 0.504), "most", 0.05),  # the one that makes more than half
        ({"above": 0.5}, (0.4, 0.496), "every", 0.1),  # the surest one refutes it
        ({"above": 0.5}, (0.4, 0.496), "some", 0.004),  # all have to be refuted
        ({"above": 0.5}, (0.3, 0.4, 0.45, 0.9), "most", 0.1),  # half of them are enough
        ({"below": 0.5}, (0.45, 0.48), "every", 0.02),
        ({"at_least": 0.4, "at_most": 0.5}, (0.41,), "every", 0.01),  # its nearest bound
        ({"at_least": 0.4, "at_most": 0.5}, (0.6,), "every", 0.1),  # the one that it breaks
    ],
)
def test_slack_is_how_far_the_intervals_that_a_verdict_needs_are_from_their_bound(
    bounds, means, points, away
):
    found = judged(check(form="value", points=points, **bounds), {"x": one(*means)})
    assert found.verdict in ("holds", "refuted")
    bound = next(iter(bounds.values())) if away == 0.01 else 0.5
    assert found.slack == pytest.approx((away - HALF) / bound)


def test_what_does_not_scatter_and_a_bound_of_zero_have_no_slack():
    exact = judged(check(form="value", at_least=0.6, at_most=0.6), {"x": one(0.6, sd=0.0)})
    assert (exact.verdict, exact.slack) == ("holds", math.inf)
    assert judged(check(form="value", above=0), {"x": one(0.6)}).slack == math.inf


def test_a_claim_hangs_where_any_check_that_it_needs_does_and_all_that_refute_it():
    near, far = ({"x": one(mean)} for mean in (0.504, 0.6))
    held = [judged(check(**VALUE), numbers) for numbers in (near, far)]
    assert verdict(held) == "holds"
    assert claim_slack("holds", [held]) == held[0].slack < 0.01 < held[1].slack
    below = check(form="value", below=0.5)
    broken = [judged(below, numbers) for numbers in (near, far)]
    assert claim_slack("refuted", [broken]) == broken[1].slack > 0.01
    assert claim_slack("refuted", [broken, broken[:1]]) == broken[0].slack < 0.01
    assert claim_slack("undecided", [held]) == math.inf


@pytest.mark.parametrize(
    ("bounds", "note"),
    [
        ({"above": 0.5}, "hangs on its bound, which it keeps by 0.48 % of it"),
        ({"below": 0.5}, "hangs on its bound, which it breaks by 0.48 % of it"),
        ({"above": 0.4}, ""),
    ],
)
def test_a_claim_that_is_decided_by_less_than_a_hundredth_says_so(bounds, note):
    claim = Claim(id="X1", place="p", says="s", reason="r", checks=[check(form="value", **bounds)])
    (row,) = rows([claim], {"x": one(0.504)}, {}, LOOSE)
    assert row["note"] == note


@pytest.mark.parametrize("sd", [0.001, 0.0])
def test_a_row_has_the_slack_of_its_check_or_none(sd):
    claim = Claim(id="X1", place="p", says="s", reason="r", checks=[check(**VALUE)])
    (row,) = rows([claim], {"x": one(0.6, sd=sd)}, {}, LOOSE)
    assert row["slack"] == (pytest.approx((0.1 - HALF) / 0.5) if sd else None)
