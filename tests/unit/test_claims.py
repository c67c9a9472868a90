"""Claims: every form finds its value, and every verdict is reached, on tables made for it."""

from __future__ import annotations

import math
from functools import partial

import pandas as pd
import pytest
from claim_tables import LOOSE, by, check, judged, table
from pydantic import ValidationError

from fedrepro.core.errors import FedreproError
from fedrepro.numbers.verdicts.claim_numbers import Numbers
from fedrepro.numbers.verdicts.claim_verdicts import Claim, Rules, judge_all, rows, whole_verdict

BEATS = {"form": "difference", "minus": ["B"]}
VALUE = {"form": "value"}
GAIN = {"form": "gain", "over": "a", "than": {"B": "b", "C": "c"}}
CORRELATION = {"form": "correlation", "with_method": "B"}
# the difference has an sd of sqrt(2) * 0.01 over four trials; t of 3 degrees of freedom is 3.182
WIDTH = 3.182446 * math.sqrt(2) * 0.01 / 2


def intervals(one, numbers):
    return [found.interval(0.95) for found in one.statements("x", numbers)]


def pair(difference, sd=0.01):
    """A and B at one point; what their trials have in common does not go together."""
    at = {"clients": 5}
    return {"x": table((at, "A", 0.9 + difference, "up"), (at, "B", 0.9, "turn"), sd=sd)}


clients = partial(by, "clients")

THREE = clients(A={2: 0.7, 5: 0.9, 10: 0.6})
GRID = {(s, g): 0.9 + 0.1 * s + 0.001 * g for s in (0.1, 1.0) for g in (1.0, 50.0)}
FLAT = {(s, g): 0.9 + 0.01 * s for s, g in GRID}
TWO = by("sigma2", "gamma0", A=GRID) | {"y": by("sigma2", "gamma0", A=FLAT)["x"]}
DEPTHS = [("50", "50@50", "50@50@50"), ("50", "100", "400")]
# both fall from point to point, and within a point they go against each other
AGAINST = clients(
    A={5 * at: [at + 0.01 * trial for trial in (1, 2, 3, 4)] for at in range(1, 7)},
    B={5 * at: [at + 0.01 * trial for trial in (4, 3, 2, 1)] for at in range(1, 7)},
)
# a rate that falls from 0.4 to 0 over 100 rounds: 0 at the end, 0.2 on average
FALLING = by("round", A={done: 0.4 - done / 250 for done in range(0, 101, 10)})


@pytest.mark.parametrize(
    ("given", "numbers", "wanted"),
    [
        (BEATS | {"minus": ["B", "C"]},
         clients(A={5: 0.9, 9: 0.9}, B={5: 0.8, 9: 0.7}, C={5: 0.95, 9: 0.2}), [-0.05, 0.2]),
        (GAIN, clients(A={5: 0.9}, a={5: 0.5}, B={5: 0.7}, b={5: 0.6}, C={5: 0.8}, c={5: 0.5}),
         [0.1]),
        ({"form": "change", "along": "clients"}, THREE, [-0.1]),
        ({"form": "change", "along": "clients", "end": "best"}, THREE, [0.2]),
        ({"form": "change", "along": "clients", "start": "best"}, THREE, [-0.3]),
        ({"form": "change", "along": "clients", "start": "best", "end": "best"}, THREE, [0.0]),
        ({"form": "change", "along": "clients", "minus": "B"},
         clients(A={2: 0.9, 10: 0.7}, B={2: 0.8, 10: 0.65}), [-0.05]),
        # depths are ordered by their number, and widths by size
        *(({"form": "change", "along": "hidden"},
           by("hidden", A={text: 0.1 * at for at, text in enumerate(reversed(texts))}), [-0.2])
          for texts in DEPTHS),
        # and other texts as in the csv
        ({"form": "change", "along": "case"},
         by("case", A={"J = 5": 0.9, "J = 25": 0.8, "J = 10": 0.7}), [-0.2]),
        ({"form": "spread", "over": ["sigma2", "gamma0"]}, TWO, [0.139]),
        ({"form": "spread", "over": ["gamma0"]}, TWO, [0.049, 0.049]),
        ({"form": "spread", "over": ["gamma0"], "where": {"sigma2": "last"}}, TWO, [0.049]),
        ({"form": "spread", "over": ["sigma2"], "minus_exhibit": "y"}, TWO, [0.081, 0.081]),
        ({"form": "effect", "over": "sigma2", "than": ["gamma0"]}, TWO, [0.09 - 0.049]),
        (CORRELATION, AGAINST, [1]),
        ({"form": "over_rounds", "take": "end"}, FALLING, [0.0]),
        ({"form": "over_rounds", "take": "mean"}, FALLING, [0.2]),
        (VALUE | {"where": {"clients": {"from": 5}}}, THREE, [0.9, 0.6]),
        # a method without the column is not held to it
        (BEATS | {"where": {"sigma2": [1.0]}},
         {"x": table(*(({"clients": 5, "sigma2": s}, "A", 0.8 + s / 10) for s in (0.1, 1.0)),
                     ({"clients": 5, "sigma2": None}, "B", 0.7))}, [0.2]),
    ],
)  # fmt: skip
def test_a_form_finds_its_values(given, numbers, wanted):
    found = [interval.value for interval in intervals(check(**given, above=0), numbers)]
    assert found == pytest.approx(wanted, abs=1e-12)


def test_fewer_trials_ratios_and_what_cannot_be_negative_have_their_intervals():
    numbers = clients(A={5: [0.7, 0.9]}, B={5: [0.8, 0.82, 0.97, 0.99]})
    (found,) = check(**BEATS, above=0).statements("x", numbers)
    assert (found.interval(0.95).value, found.trials) == (pytest.approx(0.8 - 0.81), 2)
    (found,) = intervals(check(form="ratio", to="B", at_most=2), pair(0.0))
    assert found.value == pytest.approx(1)
    assert found.high - 1 == pytest.approx(WIDTH / 0.9)
    (certain,) = intervals(check(form="ratio", to="A", at_most=2), pair(0.0))
    assert (certain.low, certain.high) == pytest.approx((1, 1))
    numbers = {"x": table(({"clients": 2}, "A", 0.902, "up"), ({"clients": 5}, "A", 0.9, "turn"))}
    (spread,) = intervals(check(form="spread", over=["clients"], above=0), numbers)
    change = {"form": "change", "along": "clients", "above": 0}
    (gain,) = intervals(check(**change, end="best"), numbers)
    (loss,) = intervals(check(**change, start="best"), numbers)
    assert loss.value == pytest.approx(-0.002)
    assert (spread.low, gain.low, loss.high) == (0, 0, 0)


def test_the_smallest_of_nearly_the_best_is_divided_by_all():
    """Training accuracy and size of A for each sigma2, and the size of B."""
    places = [{"clients": 5, "sigma2": 10.0**at} for at in range(3)]
    good = [[0.90, 0.92], [0.899, 0.919], [0.89, 0.91]]  # means 0.91, 0.909, 0.9
    sizes = [[90.0, 92.0], [40.0, 44.0], [10.0, 10.0]]

    def own(series, **of):
        return table(*((p, "A", one) for p, one in zip(places, series, strict=True)), **of).frame

    frame = pd.concat([own(good, split="train"), own(sizes, metric="hidden_units", split="")])
    whole = table(({"clients": 5}, "B", [100.0, 100.0]), metric="hidden_units", split="")
    numbers = {"x": Numbers(frame), "y": whole}
    smallest = {"form": "smallest", "over": "sigma2", "to": "B", "at_most": 0.5, "to_exhibit": "y"}
    one = check(**smallest, within=0.0025)
    (found,) = one.statements("x", numbers)
    assert found.interval(0.95).value == pytest.approx(0.42)  # the least of all is too far off
    assert found.at == "x, J = 5, sigma2 = 10"
    (strict,) = intervals(check(**smallest, within=0.0005), numbers)
    assert strict.value == pytest.approx(0.91)
    diverged = pd.concat([own([good[0], [math.nan] * 2, good[2]], split="train"), frame[3:]])
    lost = list(one.missing("x", numbers | {"x": Numbers(diverged)}))
    assert lost == ["a finite number of A at x, J = 5, sigma2 = 10"]


def rising(rounds):
    """Accuracy that rises to 0.9 in that many rounds, measured every ten, up to 100."""
    single = {done: min(0.9, 0.9 * done / rounds) for done in range(10, 101, 10)}
    return by("round", A={**single, None: 0.9}, B={None: 0.9})


ROUNDS = {"form": "rounds_to", "reach": "B", "within": 0.01}
ALIKE = clients(**{name: dict.fromkeys((2, 5, 10, 20), 0.9) for name in "AB"})


@pytest.mark.parametrize(
    ("given", "numbers", "wanted"),
    [
        (BEATS | {"above": 0}, pair(0.03), "holds"),
        (BEATS | {"above": 0}, pair(0.02), "undecided"),
        (BEATS | {"above": 0}, pair(-0.02), "undecided"),
        (BEATS | {"above": 0}, pair(-0.03), "refuted"),
        *((BEATS | {"above": 0, "points": points}, pair(lost), word)
          for lost in (math.nan, math.inf)
          for points, word in (("every", "incomplete"), ("some", "undecided"))),
        (BEATS | {"at_least": -0.03}, pair(0.0), "holds"),
        (BEATS | {"at_least": -0.03}, pair(-0.06), "refuted"),
        (BEATS | {"at_least": -0.03}, pair(-0.04), "undecided"),
        (BEATS | {"below": 0}, pair(-0.03), "holds"),
        (BEATS | {"below": 0}, pair(0.0), "undecided"),
        (BEATS | {"below": 0}, pair(0.03), "refuted"),
        (BEATS | {"at_most": 0.03}, pair(0.0), "holds"),
        (BEATS | {"at_most": 0.03}, pair(0.06), "refuted"),
        # without noise a bound is sharp
        (BEATS | {"above": 0}, pair(0.0, 0.0), "refuted"),
        (BEATS | {"at_least": 0}, pair(0.0, 0.0), "holds"),
        # level is two one-sided tests
        (BEATS | {"at_least": -0.03, "at_most": 0.03}, pair(0.0), "holds"),
        (BEATS | {"at_least": -0.03, "at_most": 0.03}, pair(0.01), "undecided"),
        (BEATS | {"at_least": -0.02, "at_most": 0.02}, pair(0.0), "undecided"),
        (BEATS | {"at_least": -0.03, "at_most": 0.03}, pair(-0.06), "refuted"),
        # some point, every point, or the mean
        (VALUE | {"points": "every", "above": 0.65}, THREE, "refuted"),
        (VALUE | {"points": "some", "above": 0.65}, THREE, "holds"),
        (VALUE | {"points": "mean", "above": 0.65}, THREE, "holds"),
        (CORRELATION | {"at_least": 0.5}, ALIKE, "undecided"),  # what does not vary
        # a goal may lie beyond the last round
        (ROUNDS | {"above": 40}, rising(50), "holds"),
        (ROUNDS | {"above": 70}, rising(50), "refuted"),
        (ROUNDS | {"above": 90}, rising(500), "holds"),
        (ROUNDS | {"above": 400}, rising(500), "undecided"),
        (ROUNDS | {"at_most": 50}, rising(500), "refuted"),
        # most points are more than half of those that hold, are refuted, or neither
        *((VALUE | {"points": "most", "above": 0.5},
           clients(A=dict(enumerate([0.9] * held + [0.1] * broken + [0.5] * open_))), word)
          for held, broken, open_, word in (
              (4, 3, 0, "holds"), (3, 3, 1, "undecided"), (3, 4, 0, "refuted"),
              (3, 3, 0, "refuted"), (3, 2, 1, "undecided"), (4, 2, 0, "holds"))),
    ],
)  # fmt: skip
def test_a_check_has_its_verdict(given, numbers, wanted):
    assert judged(check(**given), numbers).verdict == wanted


def test_the_point_furthest_out_decides_and_a_goal_that_is_lost_again_was_not_surely_reached():
    found = judged(check(**VALUE, above=0.65), THREE)
    assert (found.deciding.statement.at, len(found.statements)) == ("x, J = 10", 3)
    single = dict.fromkeys(range(10, 101, 10), 0.2) | {20: 0.9, None: 0.2}
    (found,) = intervals(check(**ROUNDS, above=5), by("round", A=single, B={None: 0.9}))
    assert (found.value, found.low, found.high) == (20, 20, math.inf)


@pytest.mark.parametrize(
    ("least", "trials", "wanted"),
    [(2, 1, "incomplete"), (2, 2, "holds"), (4, 3, "incomplete"), (4, 4, "holds")],
)
def test_nothing_is_decided_on_fewer_trials_than_the_rules_say(least, trials, wanted):
    numbers = clients(A={5: [0.9 + 0.001 * trial for trial in range(trials)]})
    found = judged(check(**VALUE, above=0.1), numbers, Rules(trials=least))
    assert found.verdict == wanted
    assert found.missing == (["1 more trial at x, J = 5"] if trials < least else [])


def noisy(worst):
    """Nine points without an effect, and one that is below."""
    return clients(A={j: 0.9 - (worst if j == 9 else 0) for j in range(1, 11)}, sd=0.01)


@pytest.mark.parametrize(
    ("points", "bound", "below", "times", "wanted"),
    [  # of one point t = 3.6, where 3.2 refute one point and 7.1 one of ten
        ("every", {"at_least": 0.9}, 0.018, 1, "undecided"),
        ("every", {"at_least": 0.9}, 0.04, 1, "refuted"),
        ("every", {"at_least": 0.9}, 0.026, 2, "undecided"),  # points of all checks count
        ("every", {"at_least": 0.88}, 0.0, 1, "holds"),
        ("some", {"at_most": 0.9}, 0.018, 1, "undecided"),
    ],
)
def test_one_point_of_many_that_decides_has_to_be_surer(points, bound, below, times, wanted):
    found = judge_all([check(**VALUE, points=points, **bound)] * times, noisy(below), LOOSE)[0]
    assert found.verdict == wanted
    level = 0.95 if wanted == "holds" or points == "some" else 1 - 0.05 / 10 / times
    assert found.deciding.confidence == pytest.approx(level)


@pytest.mark.parametrize(
    ("difference", "needed"),
    [
        (0.02, 8),  # sd sqrt(2)/100: t of 7 degrees of freedom at 98.75 % is 3.33
        (0.004, 4 * 21),  # (2.5 sqrt(2) / 0.4)² is 78, and t is a little wider
        (0.03, None),  # it is decided
        (0.0001, None),  # too many to name
    ],
)
def test_an_undecided_point_says_how_many_trials_would_decide_it(difference, needed):
    assert judged(check(**BEATS, above=0), pair(difference)).trials_needed == needed


@pytest.mark.parametrize(
    ("readings", "wanted"),
    [
        (["holds", "holds"], "holds"),
        (["refuted", "refuted"], "refuted"),
        (["holds", "refuted"], "depends"),
        (["holds", "refuted", "undecided"], "depends"),
        (["holds", "undecided"], "undecided"),
        (["refuted", "undecided"], "undecided"),
        (["holds", "refuted", "incomplete"], "depends"),  # whatever the third will say
        (["refuted", "incomplete"], "incomplete"),
        (["holds", "not run"], "incomplete"),
        (["not run", "not run"], "not run"),
    ],
)
def test_a_claim_with_readings_says_what_all_of_them_say(readings, wanted):
    assert whole_verdict(readings, "readings") == wanted


LOW, HIGH = clients(A={0: 0.4})["x"], clients(A={0: 0.6})["x"]
MIXED = Numbers(by("case", A={"MNIST": 0.6, "Digits": 0.4})["x"].frame, stand_ins=("Digits",))
LESS = {"form": "spread", "over": ["clients"], "minus_exhibit": "y", "above": 0.2}
SPREADS = clients(A={0: 0.5, 1: 0.6}) | {"y": clients(A={0: 0.5, 1: 0.7})["x"]}
ABOVE = VALUE | {"above": 0.5}
BOTH = ABOVE | {"exhibits": ["x", "y"]}


@pytest.mark.parametrize(
    ("given", "numbers", "stand_ins", "wanted"),
    [
        (BOTH, {"x": HIGH, "y": LOW}, "", "refuted"),
        (BOTH, {"x": HIGH, "y": LOW}, "y", "holds"),
        (BOTH, {"x": LOW, "y": HIGH}, "y", "refuted"),
        (BOTH, {"x": LOW, "y": LOW}, "xy", "stand-in only"),
        (BOTH, {"x": HIGH, "y": HIGH}, "xy", "stand-in only"),
        # a case of other data is left out, and a mean over one is not judged
        (ABOVE, {"x": Numbers(MIXED.frame)}, "", "refuted"),
        (ABOVE, {"x": MIXED}, "", "holds"),
        (ABOVE | {"points": "mean"}, {"x": MIXED}, "", "stand-in only"),
        (LESS, SPREADS, "", "refuted"),
        (LESS, SPREADS, "y", "stand-in only"),
    ],
)
def test_stand_ins_neither_confirm_nor_refute(given, numbers, stand_ins, wanted):
    assert judged(check(**given), numbers, LOOSE, *stand_ins).verdict == wanted


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (VALUE, "needs a bound"),
        ({"form": "eval", "above": 0}, "eval"),
        (VALUE | {"above": 0, "code": "1"}, "code"),
        (VALUE | {"above": 0, "metric": "acuracy"}, "did you mean 'accuracy'"),
        (VALUE | {"above": 0, "where": {"clients": {}}}, "from: Field required"),
        (VALUE | {"above": 0, "minus": ["B"]}, "a value has none"),
    ],
)
def test_a_check_is_one_of_the_forms_with_a_bound_and_nothing_else(given, sentence):
    with pytest.raises(ValidationError, match=sentence):
        check(**given)


@pytest.mark.parametrize(
    "given",
    [
        VALUE | {"where": {"clinets": [5]}},
        {"form": "change", "along": "clinets"},
        {"form": "spread", "over": ["clinets"]},
        {"form": "effect", "over": "clients", "than": ["clinets"]},
    ],
)
def test_a_mistyped_column_is_a_sentence_that_names_claim_and_nearest(given):
    told = "claim X1: unknown column 'clinets' in x: did you mean 'clients'\\? known are clients"
    claim = Claim(id="X1", place="p", says="s", reason="r", checks=[check(**given, above=0)])
    with pytest.raises(FedreproError, match=told):
        list(rows([claim], THREE, {}, LOOSE))
