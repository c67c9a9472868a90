"""Claims: every form finds its value, and every verdict is reached, on tables made for it."""

from __future__ import annotations

import math
import statistics

import pandas as pd
import pytest
from claim_tables import LOOSE, check, judged, of_series, table
from pydantic import ValidationError

from fedrepro.core.errors import FedreproError
from fedrepro.verdicts.cells import Numbers
from fedrepro.verdicts.judging import Rules, judge_all, verdict, verdict_of_readings
from fedrepro.verdicts.table import _named


def intervals(one, numbers):
    return [found.interval(0.95) for found in one.statements("x", numbers)]


def values(one, numbers):
    return [found.value for found in intervals(one, numbers)]


def pair(difference, **given):
    """A and B at one point; what their trials have in common does not go together."""
    at = {"clients": 5}
    rows = ((at, "A", 0.9 + difference, "up"), (at, "B", 0.9, "turn"))
    return {"x": table(*rows, **given)}


BEATS = {"form": "difference", "minus": ["B"]}
# the difference has an sd of sqrt(2) * 0.01 over four trials; t of 3 degrees of freedom is 3.182
WIDTH = 3.182446 * math.sqrt(2) * 0.01 / 2


@pytest.mark.parametrize(
    ("difference", "bound", "wanted"),
    [
        (0.03, {"above": 0}, "holds"),
        (0.02, {"above": 0}, "undecided"),
        (-0.02, {"above": 0}, "undecided"),
        (-0.03, {"above": 0}, "refuted"),
        (0.0, {"at_least": -0.03}, "holds"),
        (-0.06, {"at_least": -0.03}, "refuted"),
        (-0.04, {"at_least": -0.03}, "undecided"),
        (-0.03, {"below": 0}, "holds"),
        (0.0, {"below": 0}, "undecided"),
        (0.03, {"below": 0}, "refuted"),
        (0.0, {"at_most": 0.03}, "holds"),
        (0.06, {"at_most": 0.03}, "refuted"),
    ],
)
def test_a_bound_is_kept_or_broken_by_a_95_percent_interval(difference, bound, wanted):
    found = judged(check(**BEATS, **bound), pair(difference))
    assert found.verdict == wanted
    assert found.deciding is not None
    assert found.deciding.interval.high - found.deciding.interval.value == pytest.approx(WIDTH)


@pytest.mark.parametrize(
    ("difference", "margin", "wanted"),
    [
        (0.0, 0.03, "holds"),  # both one-sided tests pass
        (0.01, 0.03, "undecided"),  # one does not
        (0.0, 0.02, "undecided"),  # neither does: not to differ is not to be level
        (0.06, 0.03, "refuted"),
        (-0.06, 0.03, "refuted"),
    ],
)
def test_level_is_two_one_sided_tests(difference, margin, wanted):
    level = check(**BEATS, at_least=-margin, at_most=margin)
    assert judged(level, pair(difference)).verdict == wanted


GAIN = {"form": "gain", "over": "plain A", "than": {"B": "plain B", "C": "plain C"}}


def test_a_gain_is_what_a_method_adds_less_the_most_that_others_add():
    at = {"clients": 5}
    given = {"A": 0.9, "plain A": 0.5, "B": 0.7, "plain B": 0.6, "C": 0.8, "plain C": 0.5}
    numbers = {"x": table(*((at, name, value) for name, value in given.items()), sd=0.0)}
    one = check(**GAIN, above=0)
    assert values(one, numbers) == [pytest.approx(0.4 - 0.3)]
    assert judged(one, numbers).verdict == "holds"
    assert one.words == (
        "gain of accuracy (test) of A over plain A, less the larger of B over plain B and C over "
        "plain C"
    )


def test_a_gain_is_taken_trial_by_trial():
    at = {"clients": 5}
    shapes = (("A", "up"), ("plain A", "up"), ("B", "turn"), ("plain B", "turn"))
    numbers = {"x": table(*((at, name, 0.5, shape) for name, shape in shapes), sd=0.1)}
    (found,) = intervals(check(**GAIN | {"than": {"B": "plain B"}}, above=0), numbers)
    assert (found.low, found.high) == pytest.approx((0, 0), abs=1e-9)


def test_a_gain_without_one_of_its_methods_is_incomplete():
    at = {"clients": 5}
    numbers = {"x": table((at, "A", 0.9), (at, "plain A", 0.5), (at, "B", 0.7))}
    found = judged(check(**GAIN | {"than": {"B": "plain B"}}, above=0), numbers)
    assert found.verdict == "incomplete"
    assert "plain B" in found.missing[0]


def test_the_interval_is_that_of_a_t_test_on_pairs():
    from scipy.stats import ttest_1samp

    numbers = pair(0.02)
    frame = numbers["x"].frame.set_index("method")
    one, other = ([float(value) for value in frame.loc[name, "by_trial"].split()] for name in "AB")
    test = ttest_1samp([a - b for a, b in zip(one, other, strict=True)], 0.0)
    (found,) = intervals(check(**BEATS, above=0), numbers)
    low, high = test.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_what_methods_share_in_a_trial_does_not_widen_their_difference():
    at = {"clients": 5}
    together = {"x": table((at, "A", 0.91), (at, "B", 0.9), sd=0.1)}
    assert judged(check(**BEATS, above=0), together).verdict == "holds"
    (found,) = intervals(check(**BEATS, above=0), together)
    assert found.high - found.low == pytest.approx(0, abs=1e-9)


def test_numbers_of_fewer_trials_are_compared_over_those():
    at = {"clients": 5}
    few = table((at, "A", 0.8, "turn"), trials=2)
    frame = pd.concat([few.frame, table((at, "B", 0.9)).frame])  # B rises: its first two are lower
    (found,) = check(**BEATS, above=0).statements("x", {"x": Numbers(frame)})
    first = [float(value) for value in frame["by_trial"].iloc[1].split()[:2]]
    assert statistics.fmean(first) < 0.9
    assert found.interval(0.95).value == pytest.approx(0.8 - statistics.fmean(first))
    assert found.trials == 2


def test_without_noise_a_bound_is_sharp():
    equal = pair(0.0, sd=0.0)
    assert judged(check(**BEATS, above=0), equal).verdict == "refuted"
    assert judged(check(**BEATS, at_least=0), equal).verdict == "holds"


def test_a_best_rival_is_taken_at_each_point():
    numbers = {
        "x": table(
            ({"clients": 5}, "A", 0.9),
            ({"clients": 5}, "B", 0.8),
            ({"clients": 5}, "C", 0.95),
            ({"clients": 9}, "A", 0.9),
            ({"clients": 9}, "B", 0.7),
            ({"clients": 9}, "C", 0.2),
        )
    }
    found = check(form="difference", minus=["B", "C"], above=0)
    assert values(found, numbers) == pytest.approx([-0.05, 0.2])


def three(a, b, c, **given):
    at = zip((2, 5, 10), (a, b, c), strict=True)
    return {"x": table(*(({"clients": j}, "A", mean) for j, mean in at), **given)}


def test_every_point_or_some_point_or_the_mean():
    numbers = three(0.9, 0.5, 0.9)
    for points, wanted in (("every", "refuted"), ("some", "holds"), ("mean", "holds")):
        found = judged(check(form="value", points=points, above=0.6), numbers)
        assert (points, found.verdict) == (points, wanted)
    low = judged(check(form="value", points="every", above=0.6), numbers)
    assert low.deciding is not None
    assert low.deciding.at == "x, J = 5"
    assert low.points == 3


@pytest.mark.parametrize(
    ("ends", "wanted"),
    [
        ({}, -0.1),
        ({"end": "best"}, 0.2),
        ({"start": "best"}, -0.3),
        ({"start": "best", "end": "best"}, 0.0),
    ],
)
def test_a_change_is_from_the_first_or_best_to_the_last_or_best(ends, wanted):
    found = check(form="change", along="clients", above=0, **ends)
    assert values(found, three(0.7, 0.9, 0.6)) == pytest.approx([wanted])


def test_a_change_may_be_that_of_what_one_method_has_above_another():
    places = [({"clients": j}, "A", a) for j, a in ((2, 0.9), (10, 0.7))]
    places += [({"clients": j}, "B", b) for j, b in ((2, 0.8), (10, 0.65))]
    found = check(form="change", along="clients", minus="B", below=0)
    assert " minus B along clients, " in found.words
    assert "minus" not in check(form="change", along="clients", below=0).words
    assert values(found, {"x": table(*places)}) == pytest.approx([0.05 - 0.1])


def test_depths_are_ordered_by_their_number_and_widths_by_size():
    for texts in (("50", "50@50", "50@50@50"), ("50", "100", "400")):
        numbers = {
            "x": table(*(({"hidden": t}, "A", 0.1 * at) for at, t in enumerate(reversed(texts))))
        }
        found = check(form="change", along="hidden", below=0)
        assert values(found, numbers) == pytest.approx([-0.2])


def test_a_ratio_carries_the_errors_of_both():
    numbers = pair(0.0)
    (found,) = intervals(check(form="ratio", to="B", at_most=2), numbers)
    assert found.value == pytest.approx(1)
    assert found.high - 1 == pytest.approx(WIDTH / 0.9)
    (certain,) = intervals(check(form="ratio", to="A", at_most=2), numbers)
    assert (certain.low, certain.high) == pytest.approx((1, 1))


SMALLEST = {"form": "smallest", "over": "sigma2", "within": 0.0025, "to": "B", "at_most": 0.5}


def rows_of(places, method, series, metric="hidden_units", split=""):
    entries = [(place, method, one) for place, one in zip(places, series, strict=True)]
    return of_series(entries, metric, split)


def sized(accuracies, sizes, wholes):
    """Training accuracy and size of A for each sigma2, and the size of B, a list for each."""
    at = {"clients": 5}
    own = [{**at, "sigma2": 10.0**i} for i in range(len(accuracies))]
    good = rows_of(own, "A", accuracies, "accuracy", "train").frame
    both = pd.concat([good, rows_of(own, "A", sizes).frame]).reset_index(drop=True)
    return Numbers(both), rows_of([at], "B", [wholes])


def test_the_smallest_of_nearly_the_best_is_divided_by_all():
    accuracies = [[0.90, 0.92], [0.899, 0.919], [0.89, 0.91]]  # means 0.91, 0.909, 0.9
    one, other = sized(accuracies, [[90.0, 92.0], [40.0, 44.0], [10.0, 10.0]], [100.0, 100.0])
    numbers = {"x": one, "y": other}
    found = check(**SMALLEST, to_exhibit="y")
    (statement,) = found.statements("x", numbers)
    assert statement.interval(0.95).value == pytest.approx(0.42)  # the least of all is too far off
    assert statement.at == "x, J = 5, sigma2 = 10"
    assert judged(found, {"x": one}).verdict == "incomplete"
    strict = check(**SMALLEST | {"within": 0.0005}, to_exhibit="y")
    assert values(strict, numbers) == pytest.approx([0.91])


def test_a_smallest_needs_several_settings_their_accuracy_and_a_whole():
    one, other = sized([[0.9, 0.92]] * 2, [[90.0, 92.0], [40.0, 44.0]], [100.0, 100.0])
    found = check(**SMALLEST, to_exhibit="y")
    kept = one.frame[(one.frame["metric"] != "accuracy") | (one.frame["sigma2"] == 1)]
    lacking = judged(found, {"x": Numbers(kept.reset_index(drop=True)), "y": other})
    assert lacking.missing == ["accuracy (train) of A at x, J = 5, sigma2 = 10"]
    none = of_series([({"clients": 5}, "B", [0.0, 0.0])], "hidden_units", "")
    assert judged(found, {"x": one, "y": none}).verdict == "incomplete"
    lone = Numbers(one.frame[one.frame["sigma2"] == 1].reset_index(drop=True))
    assert judged(found, {"x": lone, "y": other}).missing == ["a second value of sigma2 in x"]


def grid(value):
    places = [{"sigma2": s, "gamma0": g} for s in (0.1, 1.0) for g in (1.0, 50.0)]
    return table(*((p, "A", value(p["sigma2"], p["gamma0"])) for p in places), sd=0.001)


def test_a_spread_is_over_the_named_columns_only():
    numbers = {"x": grid(lambda s, g: 0.9 + 0.1 * s + 0.001 * g)}
    over_both = check(form="spread", over=["sigma2", "gamma0"], at_most=0.1)
    assert values(over_both, numbers) == pytest.approx([0.139])
    over_one = check(form="spread", over=["gamma0"], at_most=0.1)
    assert values(over_one, numbers) == pytest.approx([0.049, 0.049])
    kept = check(form="spread", over=["gamma0"], at_most=0.1, where={"sigma2": "last"})
    assert len(values(kept, numbers)) == 1


def test_a_spread_may_be_set_against_that_of_another_exhibit():
    numbers = {"x": grid(lambda s, g: 0.9 + 0.1 * s), "y": grid(lambda s, g: 0.9 + 0.01 * s)}
    found = check(form="spread", over=["sigma2"], minus_exhibit="y", above=0)
    assert values(found, numbers) == pytest.approx([0.081, 0.081])
    assert judged(found, numbers).verdict == "holds"


def test_what_cannot_be_negative_has_no_negative_end():
    places = ((2, 0.902, "up"), (5, 0.9, "turn"))
    numbers = {"x": table(*(({"clients": j}, "A", *rest) for j, *rest in places))}
    (spread,) = intervals(check(form="spread", over=["clients"], above=0), numbers)
    (gain,) = intervals(check(form="change", along="clients", end="best", above=0), numbers)
    (loss,) = intervals(check(form="change", along="clients", start="best", above=0), numbers)
    assert loss.value == pytest.approx(-0.002)
    assert (spread.low, gain.low, loss.high) == (0, 0, 0)


def test_an_effect_compares_columns():
    numbers = {"x": grid(lambda s, g: 0.5 + 0.1 * s + 0.001 * g)}
    found = check(form="effect", over="sigma2", than=["gamma0"], above=0)
    assert values(found, numbers) == pytest.approx([0.09 - 0.049])


def test_a_correlation_across_trials_does_not_see_what_points_differ_by():
    """Both methods fall from point to point, and within a point they go against each other."""
    up, down = [0.01, 0.02, 0.03, 0.04], [0.04, 0.03, 0.02, 0.01]
    rows = [
        ({"clients": 5 * at}, method, [at + one for one in shape])
        for at in range(1, 7)
        for method, shape in (("A", up), ("B", down))
    ]
    numbers = {"x": of_series(rows)}
    (points,) = intervals(check(form="correlation", with_method="B", at_least=0.5), numbers)
    across = check(form="correlation", with_method="B", across="trials", at_least=0.5)
    (trials,) = intervals(across, numbers)
    assert points.value == pytest.approx(1)
    assert trials.value == pytest.approx(-1)
    assert across.words.endswith("with B across the trials of a point")
    assert judged(across, numbers).verdict == "refuted"


def test_a_correlation_needs_four_points():
    at = (2, 5, 10, 20)
    falling = [({"clients": j}, "A", 1 - 0.02 * j) for j in at]
    same = [({"clients": j}, "B", 0.9 - 0.01 * j) for j in at]
    found = check(form="correlation", with_method="B", at_least=0.5)
    assert judged(found, {"x": table(*falling, *same)}).verdict == "holds"
    fewer = judged(found, {"x": table(*falling[:3], *same[:3])})
    assert fewer.verdict == "incomplete"
    assert fewer.missing == ["four points for a correlation in x, which has 3"]


def test_what_does_not_vary_goes_with_nothing():
    at = (2, 5, 10, 20)
    places = [({"clients": j}, name, 0.9) for j in at for name in "AB"]
    found = check(form="correlation", with_method="B", at_least=0.5)
    assert judged(found, {"x": table(*places)}).verdict == "undecided"


def rising(rounds, goal=0.9):
    """Accuracy that rises to 0.9 in so many rounds, measured every ten, up to 100."""
    places = [({"round": r}, "A", min(0.9, 0.9 * r / rounds)) for r in range(10, 101, 10)]
    end = {"round": None}
    return {"x": table(*places, (end, "A", 0.9), (end, "B", goal), sd=0.001)}


@pytest.mark.parametrize(
    ("rounds", "bound", "wanted"),
    [(50, 40, "holds"), (50, 70, "refuted"), (500, 90, "holds"), (500, 400, "undecided")],
)
def test_rounds_to_a_goal_that_may_lie_beyond_the_last_round(rounds, bound, wanted):
    found = check(form="rounds_to", reach="B", within=0.01, above=bound)
    assert judged(found, rising(rounds)).verdict == wanted


def test_a_goal_that_is_lost_again_was_not_surely_reached():
    places = [({"round": r}, "A", 0.9 if r == 20 else 0.2) for r in range(10, 101, 10)]
    end = {"round": None}
    numbers = {"x": table(*places, (end, "A", 0.2), (end, "B", 0.9, "turn"), sd=0.001)}
    (found,) = intervals(check(form="rounds_to", reach="B", within=0.01, above=5), numbers)
    assert (found.value, found.low, found.high) == (20, 20, math.inf)


def test_single_rounds_are_judged_by_the_last_one_or_by_their_mean():
    """A rate that falls from 0.4 to 0 over 100 rounds: 0 at the end, 0.2 on average."""
    falling = [({"round": r}, "A", 0.4 - r / 250) for r in range(0, 101, 10)]
    numbers = {"x": table(*falling, sd=0.001, split="")}
    for take, wanted in (("end", 0.0), ("mean", 0.2)):
        one = check(form="over_rounds", take=take, split="", below=wanted + 0.05)
        (found,) = intervals(one, numbers)
        assert found.value == pytest.approx(wanted, abs=1e-12)
        assert judged(one, numbers).verdict == "holds"
    missing = judged(check(form="over_rounds", take="end", above=0), numbers).missing
    assert missing == ["accuracy of A in x"]


@pytest.mark.parametrize(
    ("held", "broken", "points", "wanted"),
    [
        (4, 3, 7, "holds"), (3, 3, 7, "undecided"), (3, 4, 7, "refuted"),
        (3, 3, 6, "refuted"), (3, 2, 6, "undecided"), (4, 2, 6, "holds"),
    ],
)  # fmt: skip
def test_most_points_are_more_than_half(held, broken, points, wanted):
    means = [0.9] * held + [0.1] * broken + [0.5] * (points - held - broken)
    numbers = {"x": table(*(({"clients": at}, "A", mean) for at, mean in enumerate(means)))}
    assert judged(check(form="value", points="most", above=0.5), numbers).verdict == wanted


# ---------------------------------------------------------------------------- where and columns


def test_a_range_of_a_column_is_what_lies_between_its_ends():
    numbers = three(0.9, 0.5, 0.7)
    for ends, wanted in (({"from": 5}, [0.5, 0.7]), ({"to": 5}, [0.9, 0.5])):
        assert values(check(form="value", above=0, where={"clients": ends}), numbers) == (
            pytest.approx(wanted)
        )
    with pytest.raises(ValidationError, match="a range needs an end"):
        check(form="value", above=0, where={"clients": {}})


@pytest.mark.parametrize(
    "given",
    [
        {"form": "value", "where": {"clinets": [5]}},
        {"form": "change", "along": "clinets"},
        {"form": "spread", "over": ["clinets"]},
        {"form": "effect", "over": "clients", "than": ["clinets"]},
    ],
)
def test_a_mistyped_column_is_a_sentence_that_names_the_nearest(given):
    wrong = check(**given, above=0)
    with pytest.raises(FedreproError) as error:
        judged(wrong, three(0.9, 0.5, 0.9))
    assert "unknown column 'clinets' in x: did you mean 'clients'? known are clients" in str(
        error.value
    )


def test_where_holds_those_methods_that_have_the_column():
    numbers = {
        "x": table(
            *(({"clients": 5, "sigma2": s}, "A", 0.8 + s / 10) for s in (0.1, 1.0)),
            ({"clients": 5, "sigma2": None}, "B", 0.7),
        )
    }
    found = check(**BEATS, above=0, where={"sigma2": [1.0]})
    assert values(found, numbers) == pytest.approx([0.2])


# ------------------------------------------------------------------------------------- verdicts


def test_nothing_is_decided_on_fewer_trials_than_the_rules_say():
    strong = check(form="value", above=0.1)
    for rules, trials, wanted in (
        (Rules(trials=2), 1, "incomplete"),
        (Rules(trials=2), 2, "holds"),
        (Rules(trials=4), 3, "incomplete"),
        (Rules(trials=4), 4, "holds"),
        (Rules(), 4, "incomplete"),
    ):
        series = [0.9 + 0.001 * trial for trial in range(trials)]
        found = judged(strong, {"x": of_series([({"clients": 5}, "A", series)])}, rules)
        assert (trials, found.verdict) == (trials, wanted)
    assert found.missing == ["1 more trial at x, J = 5"]


def noisy(worst):
    """Nine points without an effect and one that is below by so much."""
    at = [({"clients": j}, "A", 0.9 - (worst if j == 9 else 0)) for j in range(1, 11)]
    return {"x": table(*at, sd=0.01)}


def test_one_point_of_many_that_refutes_has_to_be_surer():
    every = check(form="value", points="every", at_least=0.9)
    below = 0.018  # of one point: t = 3.6, where 3.2 refute one point and 7.1 one of ten
    assert judged(every, noisy(below), Rules(trials=2, holm=False)).verdict == "refuted"
    corrected = judged(every, noisy(below), Rules(trials=2, holm=True))
    assert corrected.verdict == "undecided"
    assert corrected.deciding.confidence == pytest.approx(1 - 0.05 / 10)
    assert judged(every, noisy(0.04), Rules(trials=2, holm=True)).verdict == "refuted"


def test_one_point_of_many_that_is_enough_to_hold_has_to_be_surer():
    some = check(form="value", points="some", at_most=0.9)
    below = 0.018
    assert judged(some, noisy(below), Rules(trials=2, holm=False)).verdict == "holds"
    assert judged(some, noisy(below), Rules(trials=2, holm=True)).verdict == "undecided"


def test_points_of_all_checks_of_a_claim_count_as_many():
    one = check(form="value", points="every", at_least=0.9)
    alone = judge_all([one], noisy(0.026), Rules(trials=2))
    both = judge_all([one, one], noisy(0.026), Rules(trials=2))
    assert [found.verdict for found in alone] == ["undecided"]
    assert alone[0].deciding.confidence == pytest.approx(1 - 0.05 / 10)
    assert both[0].deciding.confidence == pytest.approx(1 - 0.05 / 20)


def test_that_every_point_holds_needs_no_correction():
    every = check(form="value", points="every", at_least=0.88)
    found = judged(every, noisy(0.0), Rules(trials=2, holm=True))
    assert (found.verdict, found.deciding.confidence) == ("holds", 0.95)


def test_an_undecided_point_says_how_many_trials_would_decide_it():
    def needed(difference):
        return judged(check(**BEATS, above=0), pair(difference)).trials_needed

    assert needed(0.02) == 8  # sd sqrt(2)/100: t of 7 degrees of freedom is 2.36
    assert needed(0.004) == 4 * 13  # (1.96 sqrt(2) / 0.4)² is 48, and t is a little wider
    assert needed(0.03) is None  # it is decided
    assert needed(0.0001) is None  # too many to name


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
    assert verdict_of_readings(readings) == wanted


def test_a_claim_of_several_checks_is_refuted_by_one():
    holds = check(**BEATS, above=0)
    fails = check(**BEATS, below=0)
    assert verdict(judge_all([holds, fails], pair(0.1), LOOSE)) == "refuted"
    assert verdict(judge_all([holds, holds], pair(0.1), LOOSE)) == "holds"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"form": "value"}, "needs a bound"),
        ({"form": "eval", "above": 0}, "eval"),
        ({"form": "value", "above": 0, "code": "1"}, "code"),
        ({"form": "value", "above": 0, "metric": "acuracy"}, "did you mean 'accuracy'"),
    ],
)
def test_a_check_is_one_of_the_forms_with_a_bound_and_nothing_else(given, sentence):
    with pytest.raises(ValidationError, match=sentence):
        check(**given)


def test_a_series_is_read_back_as_it_was_written():
    numbers = {"x": of_series([({"clients": 5}, "A", [0.1, 0.25, 0.5])])}
    (found,) = check(form="value", above=0).statements("x", numbers)
    assert found.trials == 3
    assert found.interval(0.95).value == pytest.approx(0.85 / 3)


def test_four_missing_numbers_are_named_and_more_are_counted():
    assert _named("abcd") == "a; b; c; d"
    assert _named("abcdef") == "a; b; c; d; 2 more"
