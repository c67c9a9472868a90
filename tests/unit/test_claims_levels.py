"""How often a verdict is wrong where there is no effect: forms on numbers that are chance alone.

Every end of an interval is meant to miss in 2.5 of 100 cases, and at most 5 of 100 verdicts may be
wrong. A replicate is a point of one large table, so that a form sees what it sees in a paper. A
count fails if it is so high that a rate of 2.5 % would give it in less than one of ten thousand
runs: of 1000 replicates from 46 on, which is still below 5 %. Seeds are fixed, so that a run of the
tests is not a draw. Printed values of right implementations are judged in the same way.

Trials share an effect of their own, as methods on the same partition do, and settings have unequal
scatter, which is what tempts to pick the wildest.
"""

from __future__ import annotations

import numpy as np
import pytest
from claim_tables import check, table
from scipy.stats import binom, ttest_1samp

from fedrepro.numbers.intervals import Contrast, correlation, mean_of_contrasts
from fedrepro.numbers.verdicts import verdicts_on_printed_values as judging
from fedrepro.numbers.verdicts.claim_check_kinds import Bounds
from fedrepro.numbers.verdicts.claim_numbers import contrasts
from fedrepro.numbers.verdicts.claim_verdicts import AGAIN, CONFIDENCE, Rules, decide, keeps

REPLICATES = 1000
MOST = int(binom.ppf(1 - 1e-4, REPLICATES, 0.025))
TRIALS = 10
TWICE = 0.07  # two looks, or a printed value
STRICT = Rules(trials=2)


def nightly(*case):
    return pytest.param(*case, marks=pytest.mark.nightly)


def chance(means, seed, trials=TRIALS):
    """(replicates, trials, settings) around these means."""
    rng = np.random.default_rng(seed)
    count = len(means)
    own = rng.normal(size=(REPLICATES, trials, count)) * np.linspace(0.5, 2, count)
    return np.asarray(means) + own + rng.normal(size=(REPLICATES, trials, 1))


def exhibit(values, *columns):
    """Each replicate a point, and each column of values at (place, method)."""
    return table(
        *(
            ({"replicate": at} | place, method, list(series))
            for at, one in enumerate(values)
            for (place, method), series in zip(columns, one.T, strict=True)
        )
    )


def methods(values, names):
    return {"x": exhibit(values, *(({}, name) for name in names))}


def settings(values, column="sigma2", name="x"):
    places = [({column: setting}, "A") for setting in range(values.shape[2])]
    return {name: exhibit(values, *places)}


def counted(bounds, intervals):
    """How many whole intervals keep, and break, the bounds."""
    kept = sum(keeps(bounds, one.low, one.high) for one in intervals)
    return kept, sum(not keeps(bounds, one.high, one.low) for one in intervals)


def wrong(one, numbers):
    """In how many replicates a whole interval keeps, and breaks, the bounds."""
    found = [statement.interval(0.95) for statement in one.statements("x", numbers)]
    assert len(found) == REPLICATES
    return counted(one, found)


@pytest.mark.parametrize("trials", [5, 10])
def test_a_value_and_a_difference_at_their_bound(trials):
    values = chance([0.0, 0.0], 1, trials)
    forms = {"value": values[..., 0], "difference": values[..., 0] - values[..., 1]}
    for form, series in forms.items():
        given = {"minus": ["B"]} if form == "difference" else {}
        held, refuted = wrong(check(form=form, **given, above=0), methods(values, "AB"))
        assert max(held, refuted) <= MOST
        test = ttest_1samp(series, 0, axis=1)
        sure, above = test.pvalue < 0.05, test.statistic > 0
        assert (held, refuted) == (sum(sure & above), sum(sure & ~above))


SPREAD = {"form": "spread", "over": ["sigma2"]}
CHANGE = {"form": "change", "along": "sigma2"}
LESS = SPREAD | {"minus_exhibit": "y", "above": 0}


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ({"form": "ratio", "to": "B", "at_most": 0.5}, lambda: methods(chance([20, 40], 2), "AB")),
        # the best of rivals that are all as good, or one of them
        *(({"form": "difference", "minus": list(names[1:]), "above": 0},
           lambda names=names, trials=trials: methods(chance([0] * len(names), 3, trials), names))
          for names, trials in (("ABC", 5), ("ABCDEFG", 10))),
        ({"form": "difference", "minus": ["B", "C"], "above": 0},
         lambda: methods(chance([0, 0, -9], 4), "ABC")),
        ({"form": "gain", "over": "a", "than": {"B": "b", "C": "c"}, "above": 0},
         lambda: methods(chance([1, 0, 1, 0, 1, 0], 19), "AaBbCc")),
        # a spread at its bound, and one that is no larger than another exhibit's
        *((SPREAD | {"at_most": 3}, lambda means=means: settings(chance(means, 6)))
          for means in ([0, 0, 0, 0, 3], [0, 1.5, 3], [0, 3, 0, 3])),
        *((LESS, lambda means=means: settings(chance(means, 7))
           | settings(chance(means, 8), name="y"))
          for means in ([0, 0, 0, 0, 0], [0, 1, 2])),
        *((CHANGE | ends | {"above": 0}, lambda: settings(chance([0] * 6, 9)))
          for ends in ({}, {"end": "best"})),
        *((CHANGE | given, lambda means=means: settings(chance(means, 10)))
          for means, given in (
              ([0, 3, 0, 0, 0, 0], {"end": "best", "at_least": 3}),
              ([0, 3, 0, 3, 0, 0], {"end": "best", "at_most": 3}),
              ([0, 3, 3, 3, 0, 0], {"start": "best", "at_most": -3}))),
        (CHANGE | {"minus": "B", "above": 0},
         lambda: {"x": exhibit(chance([0] * 8, 11),
                               *(({"sigma2": s}, name) for name in "AB" for s in range(4)))}),
        # nothing has an effect, or two columns have the same one
        *(({"form": "effect", "over": "a", "than": ["b"], "above": 0},
           lambda by=by: {"x": exhibit(
               chance([by * (a + b) for a in range(3) for b in range(3)], 12),
               *(({"a": a, "b": b}, "A") for a in range(3) for b in range(3)))})
          for by in (0, 1)),
    ],
)  # fmt: skip
def test_a_form_at_its_bound_is_seldom_wrong(given, numbers):
    assert max(wrong(check(**given), numbers())) <= MOST


@pytest.mark.parametrize(
    ("given", "means", "seed", "trials"),
    [
        *((SPREAD, [0.0] * count, 5, trials) for trials, count in ((3, 5), (5, 8), (10, 20))),
        # the best is never below the last, so that this is refuted often and rightly
        (CHANGE | {"start": "best"}, [0.0] * 6, 9, TRIALS),
    ],
)
def test_a_statement_with_an_end_at_zero_seldom_holds(given, means, seed, trials):
    assert wrong(check(**given, above=0), settings(chance(means, seed, trials)))[0] <= MOST


@pytest.mark.parametrize(
    ("means", "seed", "bound", "side"),
    [([0, -9, -9, 0, -9, -9], 13, 30, 0), ([0, -9, *[-1e-9] * 6], 14, 1000, 1)],
)
def test_rounds_to_a_goal_that_is_just_reached_or_just_missed(means, seed, bound, side):
    """Each replicate a point at which A has rounds 10, 20, …, and B has the first column."""
    values = chance(means, seed)
    rounds = [({"round": 10 * done}, "A") for done in range(1, len(means))]
    ends = [({"round": None}, name) for name in "AB"]
    repeated = np.concatenate([values[..., 1:], values[..., :1], values[..., :1]], axis=2)
    numbers = {"x": exhibit(repeated, *rounds, *ends)}
    assert wrong(check(form="rounds_to", reach="B", above=bound), numbers)[side] <= MOST


@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("count", [4, nightly(6), nightly(12)])
def test_a_correlation_at_its_bound(rho, count):
    """Fisher's interval is close, not exact: up to 3.1 of 100 where 2.5 are meant."""
    rng = np.random.default_rng(15)
    one = rng.normal(size=(REPLICATES, count))
    other = rho * one + np.sqrt(1 - rho**2) * rng.normal(size=one.shape)
    found = [correlation(a, b, 0.95) for a, b in zip(one, other, strict=True)]
    assert max(counted(Bounds(at_least=rho), found)) <= MOST


def decided(one, numbers, points, rules=STRICT):
    """In how many replicates the check holds, and is refuted, over several points each."""
    found = list(one.statements("x", numbers))
    assert len(found) == points * REPLICATES
    verdicts = []
    for at in range(0, len(found), points):
        own = found[at : at + points]
        if one.points == "mean":
            own = [contrasts("x", *(part for point in own for part in point.parts))]
        ways = 1 if one.points == "some" else len(own)
        verdicts.append(decide(one, own, ways, rules).verdict)
    assert set(verdicts) <= {"holds", "refuted", "undecided"}
    return verdicts.count("holds"), verdicts.count("refuted")


def spreading(means, seed, wild):
    """As P24 of PFNM: four points with three settings each, which may scatter more widely."""
    values = [means + wild * (chance(means, seed + point) - means) for point in range(4)]
    places = [({"clients": point, "sigma2": own}, "A") for point in range(4) for own in range(3)]
    return exhibit(np.concatenate(values, axis=2), *places)


@pytest.mark.parametrize(
    ("given", "points", "numbers"),
    [
        # refuted by any of six; holds by any of six
        *(({"form": "value", "points": word} | bound, 6,
           lambda: settings(chance([0.0] * 6, 16), "clients"))
          for word, bound in (("every", {"at_least": 0}), ("some", {"above": 0}),
                              ("most", {"above": 0}), ("mean", {"above": 0}))),
        # the mean over four points, at each of which three methods are as good
        ({"form": "difference", "minus": ["B", "C"], "points": "mean", "above": 0}, 4,
         lambda: {"x": exhibit(chance([0.0] * 12, 17),
                               *(({"clients": at}, name) for at in range(4) for name in "ABC"))}),
        # the mean over points of a spread against another's, which scatters less
        *((LESS | {"points": "mean"}, 4,
           lambda means=means: {"x": spreading(np.array(means), 20, 4),
                                "y": spreading(np.array(means), 30, 1)})
          for means in ([0.0, 0.0, 0.0], [0.0, 1.0, 2.0])),
    ],
)  # fmt: skip
def test_several_points_at_their_bound(given, points, numbers):
    assert max(decided(check(**given), numbers(), points)) <= MOST


@pytest.mark.parametrize("bound", [{"above": 1}, {"at_most": 12}])
def test_an_effect_that_is_there_is_found(bound):
    """The level is not kept by deciding nothing: a spread of four times the scatter is seen."""
    numbers = settings(chance([0.0, 0.0, 0.0, 0.0, 8.0], 18))
    held, refuted = wrong(check(**SPREAD, **bound), numbers)
    assert held > 0.95 * REPLICATES
    assert refuted == 0


def test_means_reach_no_further_than_what_they_can_be():
    """As the spreads of two points: the numbers say little, but neither is below 0 nor above 4."""
    gains = np.array([[-9.0], [9.0], [7.5]])
    both = [Contrast(gains, gains * 0, least, most) for least, most in ((-1.0, 2.0), (3.0, 6.0))]
    found = mean_of_contrasts(both, 0.95)
    assert (found.low, found.high) == (1.0, 4.0)


@pytest.mark.parametrize(("first", "second"), [(5, 10), nightly(3, 9), nightly(5, 20)])
def test_a_claim_on_its_bound_that_is_judged_again_with_more_trials(first, second):
    values = np.random.default_rng(1).normal(size=(2 * REPLICATES, second, 1))
    one = check(form="value", above=0)

    def sure(trials, error):
        found = one.statements("x", methods(values[:, :trials], "A"))
        intervals = [statement.interval(1 - error) for statement in found]
        return np.array([any(counted(one, [interval])) for interval in intervals])

    error = 1 - CONFIDENCE
    looked = sure(first, error)
    assert (looked | sure(second, AGAIN * error)).mean() < TWICE
    assert (looked | sure(second, error)).mean() > TWICE  # what the quarter is for


def words(deviation, ours, theirs, tolerance=0.01):
    """Verdicts on values that are printed by an implementation like ours."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(2 * REPLICATES):
        own, other = rng.normal(0.8, deviation, ours), rng.normal(0.8, deviation, theirs).mean()
        place = "x", {}, "A", "accuracy", "test"
        printed = judging.PrintedValue(*place, other, None, theirs, "", None, "x")
        scatter = judging.noise(printed, own.std(ddof=1) if ours > 1 else float("nan"), ours)
        away = own.mean() - other
        found.append(
            judging.printed_verdict("accuracy", own.mean(), away, tolerance, scatter, ours)
        )
    return found


@pytest.mark.parametrize("deviation", [0.001, nightly(0.004), 0.008, nightly(0.016), 0.04])
@pytest.mark.parametrize(("ours", "theirs"), [(2, 1), (3, 3), (5, 1), (10, 5), (20, 5)])
def test_a_right_implementation_is_seldom_called_better_or_worse(deviation, ours, theirs):
    assert np.isin(words(deviation, ours, theirs), judging.DIFFERENT).mean() < TWICE


@pytest.mark.parametrize(
    ("deviation", "ours", "theirs", "word", "share"),
    [
        (0.001, 1, 3, judging.ONE, 0.999),
        (0.08, 5, 3, judging.FEW, 0.99),
        (0.005, 20, 5, "reproduced", 0.8),
    ],
)
def test_scatter_says_what_is_judged_and_reproduced(deviation, ours, theirs, word, share):
    assert np.mean(np.array(words(deviation, ours, theirs)) == word) > share
