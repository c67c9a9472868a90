"""How often a verdict is wrong where there is no effect: forms on numbers that are chance alone.

Every end of an interval is meant to miss in 2.5 of 100 cases, and at most 5 of 100 verdicts may be
wrong. A replicate is a point of one large table, so that a form sees what it sees in a paper. A
count fails if it is so high that a rate of 2.5 % would give it in less than one of ten thousand
runs: of 1000 replicates from 46 on, which is still below 5 %. Seeds are fixed, so that a run of the
tests is not a draw.

Trials share an effect of their own, as methods on the same partition do, and settings have unequal
scatter, which is what tempts to pick the wildest.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from claim_tables import LOOSE, check, of_series
from scipy.stats import binom, ttest_1samp

from fedrepro.numbers.intervals import Contrast, correlation, mean_of_contrasts
from fedrepro.verdicts.cells import Numbers
from fedrepro.verdicts.form import Bounds
from fedrepro.verdicts.judging import Rules, breaks, decide, keeps
from fedrepro.verdicts.statements import mean_over_points

REPLICATES = 1000
MOST = int(binom.ppf(1 - 1e-4, REPLICATES, 0.025))
TRIALS = 10
STRICT = Rules(trials=2, holm=True)


def chance(means, seed, trials=TRIALS, replicates=REPLICATES):
    """(replicates, trials, settings) around these means."""
    rng = np.random.default_rng(seed)
    count = len(means)
    own = rng.normal(size=(replicates, trials, count)) * np.linspace(0.5, 2, count)
    return np.asarray(means) + own + rng.normal(size=(replicates, trials, 1))


def settings(values, name="sigma2", method="A"):
    """Each replicate a point, with a row for each setting."""
    return [
        ({"replicate": at, name: setting}, method, list(series))
        for at, one in enumerate(values)
        for setting, series in enumerate(one.T)
    ]


def methods(values, names):
    return [
        ({"replicate": at}, name, list(series))
        for at, one in enumerate(values)
        for name, series in zip(names, one.T, strict=True)
    ]


def wrong(one, numbers):
    """In how many replicates a whole interval keeps, and breaks, the bounds."""
    found = [statement.interval(0.95) for statement in one.statements("x", numbers)]
    assert len(found) == REPLICATES
    return sum(keeps(one, i) for i in found), sum(breaks(one, i) for i in found)


def test_the_allowance_is_below_five_in_a_hundred():
    assert MOST < 0.05 * REPLICATES


@pytest.mark.parametrize("trials", [5, 10])
def test_a_value_and_a_difference_at_their_bound(trials):
    values = chance([0.0, 0.0], 1, trials)
    numbers = {"x": of_series(methods(values, "AB"))}
    forms = {"value": values[..., 0], "difference": values[..., 0] - values[..., 1]}
    for form, series in forms.items():
        given = {"minus": ["B"]} if form == "difference" else {}
        held, refuted = wrong(check(form=form, **given, above=0), numbers)
        assert max(held, refuted) <= MOST
        test = ttest_1samp(series, 0, axis=1)
        sure = test.pvalue < 0.05
        assert (held, refuted) == (
            sum(sure & (test.statistic > 0)),
            sum(sure & (test.statistic < 0)),
        )


def test_a_ratio_at_its_bound():
    numbers = {"x": of_series(methods(chance([20.0, 40.0], 2), "AB"))}
    held, refuted = wrong(check(form="ratio", to="B", at_most=0.5), numbers)
    assert max(held, refuted) <= MOST


@pytest.mark.parametrize(("trials", "others"), [(5, 2), (10, 6)])
def test_the_best_of_rivals_that_are_all_as_good(trials, others):
    names = "ABCDEFG"[: 1 + others]
    numbers = {"x": of_series(methods(chance([0.0] * (1 + others), 3, trials), names))}
    held, refuted = wrong(check(form="difference", minus=list(names[1:]), above=0), numbers)
    assert held <= MOST
    assert refuted <= MOST


def test_a_gain_that_is_no_larger_than_those_of_others():
    names = ["A", "plain A", "B", "plain B", "C", "plain C"]
    numbers = {"x": of_series(methods(chance([1.0, 0.0, 1.0, 0.0, 1.0, 0.0], 19), names))}
    one = check(form="gain", over="plain A", than={"B": "plain B", "C": "plain C"}, above=0)
    held, refuted = wrong(one, numbers)
    assert held <= MOST
    assert refuted <= MOST


def test_the_best_of_rivals_of_which_one_is_as_good():
    numbers = {"x": of_series(methods(chance([0.0, 0.0, -9.0], 4), "ABC"))}
    held, refuted = wrong(check(form="difference", minus=["B", "C"], above=0), numbers)
    assert held <= MOST
    assert refuted <= MOST


@pytest.mark.parametrize(("trials", "count"), [(3, 5), (5, 8), (10, 20)])
def test_a_spread_of_settings_that_do_not_differ(trials, count):
    numbers = {"x": of_series(settings(chance([0.0] * count, 5, trials)))}
    held, _ = wrong(check(form="spread", over=["sigma2"], above=0), numbers)
    assert held <= MOST


def test_a_spread_named_by_what_was_measured_would_be_chance():
    """What the choosing trials are for: without them a spread is found where there is none."""
    values = chance([0.0] * 5, 5)
    means = values.mean(axis=1)
    named = [
        one[:, at.argmax()] - one[:, at.argmin()] for one, at in zip(values, means, strict=True)
    ]
    assert (ttest_1samp(np.array(named), 0, axis=1).pvalue < 0.05).mean() > 0.1


@pytest.mark.parametrize("means", [[0, 0, 0, 0, 3], [0, 1.5, 3], [0, 3, 0, 3]])
def test_a_spread_at_its_bound(means):
    numbers = {"x": of_series(settings(chance(means, 6)))}
    held, refuted = wrong(check(form="spread", over=["sigma2"], at_most=3), numbers)
    assert held <= MOST
    assert refuted <= MOST


@pytest.mark.parametrize("means", [[0, 0, 0, 0, 0], [0, 1, 2]])
def test_a_spread_that_is_no_larger_than_that_of_another_exhibit(means):
    numbers = {
        "x": of_series(settings(chance(means, 7))),
        "y": of_series(settings(chance(means, 8))),
    }
    one = check(form="spread", over=["sigma2"], minus_exhibit="y", above=0)
    held, refuted = wrong(one, numbers)
    assert held <= MOST
    assert refuted <= MOST


def along(values):
    return settings(values, "clients")


@pytest.mark.parametrize("ends", [{}, {"end": "best"}, {"start": "best"}])
def test_a_change_where_nothing_changes(ends):
    numbers = {"x": of_series(along(chance([0.0] * 6, 9)))}
    held, refuted = wrong(check(form="change", along="clients", **ends, above=0), numbers)
    assert held <= MOST
    # the best is never below the first, nor the last above the best, so that is no error
    assert refuted <= MOST or ends == {"start": "best"}


@pytest.mark.parametrize(
    ("means", "ends", "bound"),
    [
        ([0, 3, 0, 0, 0, 0], {"end": "best"}, {"at_least": 3}),
        ([0, 3, 0, 3, 0, 0], {"end": "best"}, {"at_most": 3}),
        ([0, 3, 3, 3, 0, 0], {"start": "best"}, {"at_most": -3}),
    ],
)
def test_a_change_from_or_to_the_best_at_its_bound(means, ends, bound):
    numbers = {"x": of_series(along(chance(means, 10)))}
    held, refuted = wrong(check(form="change", along="clients", **ends, **bound), numbers)
    assert held <= MOST
    assert refuted <= MOST


def test_a_change_of_a_difference_that_does_not_change():
    values = chance([0.0] * 8, 11)
    numbers = {"x": of_series(along(values[:, :, :4]) + settings(values[:, :, 4:], "clients", "B"))}
    held, refuted = wrong(check(form="change", along="clients", minus="B", above=0), numbers)
    assert max(held, refuted) <= MOST


@pytest.mark.parametrize("by", [0.0, 1.0])
def test_an_effect_that_is_no_larger_than_another(by):
    """Nothing has an effect, or two columns have the same one."""
    levels = [(a, b) for a in range(3) for b in range(3)]
    values = chance([by * (a + b) for a, b in levels], 12)
    numbers = {
        "x": of_series(
            [
                ({"replicate": at, "a": a, "b": b}, "A", list(series))
                for at, one in enumerate(values)
                for (a, b), series in zip(levels, one.T, strict=True)
            ]
        )
    }
    held, refuted = wrong(check(form="effect", over="a", than=["b"], above=0), numbers)
    assert held <= MOST
    assert refuted <= MOST


def with_rounds(values):
    """Each replicate a point at which A has rounds 10, 20, …, and B has the first column."""
    rows = []
    for at, one in enumerate(values):
        place = {"replicate": at}
        rows += [
            (place | {"round": 10 * done}, "A", list(one[:, done]))
            for done in range(1, one.shape[1])
        ]
        rows += [(place | {"round": None}, name, list(one[:, 0])) for name in "AB"]
    return {"x": of_series(rows)}


def test_rounds_to_a_goal_that_is_just_reached_or_just_missed():
    reached = with_rounds(chance([0.0, -9, -9, 0.0, -9, -9], 13))
    held, _ = wrong(check(form="rounds_to", reach="B", above=30), reached)
    assert held <= MOST
    missed = with_rounds(chance([0.0, -9, *[-1e-9] * 6], 14))
    _, refuted = wrong(check(form="rounds_to", reach="B", above=1000), missed)
    assert refuted <= MOST


@pytest.mark.parametrize("count", [4, 6, 12])
@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_a_correlation_at_its_bound(rho, count):
    """Fisher's interval is close, not exact: up to 3.1 of 100 where 2.5 are meant."""
    rng = np.random.default_rng(15)
    one = rng.normal(size=(REPLICATES, count))
    other = rho * one + np.sqrt(1 - rho**2) * rng.normal(size=one.shape)
    bound = Bounds(at_least=rho)
    found = [correlation(a, b, 0.95) for a, b in zip(one, other, strict=True)]
    assert sum(keeps(bound, i) for i in found) <= MOST
    assert sum(breaks(bound, i) for i in found) <= MOST


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_a_correlation_across_the_trials_of_six_points_at_its_bound(rho):
    rng = np.random.default_rng(16)
    one = rng.normal(size=(REPLICATES, 6, TRIALS))
    other = rho * one + np.sqrt(1 - rho**2) * rng.normal(size=one.shape)
    taken = [(x - x.mean(axis=2, keepdims=True)).reshape(REPLICATES, -1) for x in (one, other)]
    found = [correlation(a, b, 0.95, means=6) for a, b in zip(*taken, strict=True)]
    bound = Bounds(at_least=rho)
    assert sum(keeps(bound, i) for i in found) <= MOST
    assert sum(breaks(bound, i) for i in found) <= MOST


# ----------------------------------------------------------------------------------- many points


def decided(one, numbers, points, rules=STRICT):
    """In how many replicates the check holds, and is refuted, over so many points each."""
    found = list(one.statements("x", numbers))
    assert len(found) == points * REPLICATES
    verdicts = []
    for at in range(0, len(found), points):
        own = found[at : at + points]
        own = [mean_over_points(own, "x")] if one.points == "mean" else own
        ways = 1 if one.points == "some" else len(own)
        verdicts.append(decide(one, own, ways, rules).verdict)
    assert set(verdicts) <= {"holds", "refuted", "undecided"}
    return verdicts.count("holds"), verdicts.count("refuted")


@pytest.mark.parametrize(
    ("points", "bound"),
    [
        ("every", {"at_least": 0}),  # refuted by any of six
        ("some", {"above": 0}),  # holds by any of six
        ("most", {"above": 0}),
        ("mean", {"above": 0}),
    ],
)
def test_six_points_at_their_bound(points, bound):
    numbers = {"x": of_series(settings(chance([0.0] * 6, 16), "clients"))}
    held, refuted = decided(check(form="value", points=points, **bound), numbers, 6)
    assert held <= MOST
    assert refuted <= MOST


def test_six_points_are_too_many_without_a_correction():
    numbers = {"x": of_series(settings(chance([0.0] * 6, 16), "clients"))}
    some = check(form="value", points="some", above=0)
    assert decided(some, numbers, 6, LOOSE)[0] > 0.05 * REPLICATES


def test_the_mean_over_points_of_the_best_rival():
    """Four points, at each of which three methods are as good."""
    values = chance([0.0] * 12, 17)
    rows = [
        ({"replicate": at, "clients": point}, name, list(one[:, 3 * point + own]))
        for at, one in enumerate(values)
        for point in range(4)
        for own, name in enumerate("ABC")
    ]
    one = check(form="difference", minus=["B", "C"], points="mean", above=0)
    held, refuted = decided(one, {"x": of_series(rows)}, 4)
    assert held <= MOST
    assert refuted <= MOST


@pytest.mark.parametrize("means", [[0, 0, 0], [0, 1, 2]])
def test_the_mean_over_points_of_a_spread_against_another(means):
    """As P24 of PFNM: four points, three settings, and another exhibit that spreads as much.

    The first scatters four times as widely, as accuracies do on heterogeneous clients, so that what
    is measured spreads further there.
    """

    def rows(seed, wild):
        centre = np.asarray(means, dtype=float)
        values = [centre + wild * (chance(means, seed + point) - centre) for point in range(4)]
        return of_series(
            [
                ({"replicate": at, "clients": point, "sigma2": own}, "A", values[point][at][:, own])
                for at in range(REPLICATES)
                for point in range(4)
                for own in range(3)
            ]
        )

    numbers = {"x": rows(20, 4), "y": rows(30, 1)}
    one = check(form="spread", over=["sigma2"], minus_exhibit="y", points="mean", above=0)
    held, refuted = decided(one, numbers, 4)
    assert held <= MOST
    assert refuted <= MOST


def test_an_effect_that_is_there_is_found():
    """The level is not kept by deciding nothing: a spread of four times the scatter is seen."""
    values = chance([0.0, 0.0, 0.0, 0.0, 8.0], 18)
    numbers = {"x": of_series(settings(values))}
    held, refuted = wrong(check(form="spread", over=["sigma2"], above=1), numbers)
    assert held > 0.95 * REPLICATES
    assert refuted == 0
    held, refuted = wrong(check(form="spread", over=["sigma2"], at_most=12), numbers)
    assert held > 0.95 * REPLICATES
    assert refuted == 0


def test_contrasts_that_are_repeated_keep_their_means_and_sds():
    """Once over they are as they were; four times over, as many trials and equal moments."""
    rng = np.random.default_rng(17)
    contrast = Contrast(rng.normal(2, 1, (5, 1)), rng.normal(1, 3, (5, 2)))
    once = contrast.repeated(1)
    assert np.allclose(once.gains, contrast.gains)
    assert np.allclose(once.rivals, contrast.rivals)
    many = contrast.repeated(4)
    assert many.trials == 20
    for new, old in ((many.gains, contrast.gains), (many.rivals, contrast.rivals)):
        assert np.allclose(new.mean(0), old.mean(0))
        assert np.allclose(new.std(0, ddof=1), old.std(0, ddof=1))
        # trials go in the same order, wider about their mean
        assert np.allclose(np.corrcoef(new[:5, 0], old[:, 0])[0, 1], 1)


def test_rounds_that_should_have_been_measured_are_named():
    """The first and the last one always, and every third between."""
    numbers = Numbers(pd.DataFrame(), every={"A": 3})
    assert numbers.due("A", [1, 3, 6, 8]) == []
    assert numbers.due("A", [3, 8]) == [1, 6]
    assert numbers.due("A", [8]) == [1, 3, 6]
    assert numbers.due("A", []) == numbers.due("B", [8]) == []


def test_a_mean_of_statements_reaches_no_further_than_the_mean_of_what_they_can_be():
    """As the spreads of two points: the numbers say little, but neither is below 0 nor above 4."""
    gains = np.array([[-9.0], [9.0], [7.5]])
    both = [Contrast(gains, gains * 0, least, most) for least, most in ((-1.0, 2.0), (3.0, 6.0))]
    found = mean_of_contrasts(both, 0.95)
    assert (found.low, found.high) == (1.0, 4.0)
