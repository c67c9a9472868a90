"""Rank methods by one test: scores with intervals, ranks and groups.

A method has a score in each scenario and trial. A trial is one partition and one set of local
models for all methods, and shares its random numbers with trials of other scenarios. So `estimate`
adds the squared errors of scenarios (or data sets) and of trials. Two methods differ by Student's t
of their paired difference, Holm-corrected for all pairs among a class and the best client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from fedrepro.numbers.intervals import Interval

LEVEL = 0.05  # of all pairs of a class together, and of what intervals leave out
DIGITS = 12  # to which scores are equal
FEWEST = 3  # scenarios, or data sets, that say something of others
NOT_SHOWN = "not shown"
USUAL = ("Wilcoxon", "Nemenyi")  # other tests that give groups


@dataclass(frozen=True)
class Estimate(Interval):
    """A mean, the ends of its 95 % confidence interval, and its p value against 0 (`chance`)."""

    chance: float


@dataclass(frozen=True)
class Standing:
    """A method's score, rank and group among the methods of its class on a leaderboard.

    above: its score minus the best client's; above_trials: this difference with an interval over
    trials alone; chance: the difference's p value after Holm's correction; verdict: "better",
    "worse" or "not shown". group: from 1, the best. rank_low, rank_high: the ranks that the tests
    allow. usual: {another test: the method's group by it}.
    """

    method: str
    score: Estimate
    above: Estimate | None = None
    above_trials: Estimate | None = None
    chance: float | None = None
    verdict: str = ""
    group: int | None = None
    rank_low: int | None = None
    rank_high: int | None = None
    not_significantly_different: tuple[str, ...] = ()
    usual: Mapping[str, int] = field(default_factory=dict)


def scores_of(accuracy: np.ndarray, baseline: np.ndarray, ceiling: np.ndarray) -> np.ndarray:
    """Scale accuracies, (T,), to scores: (accuracy - baseline) / mean of (ceiling - baseline).

    Arguments are accuracies by trial; a method as good as `baseline` scores 0, as `ceiling` 1. The
    mean is over trials, so that a trial with ceiling near baseline does not outweigh others.
    """
    return np.asarray((accuracy - baseline) / float(np.mean(ceiling - baseline)))


def estimate(scores: np.ndarray, *, units: bool = True) -> Estimate:
    """Estimate the mean of `scores` or differences, (U, T), with a 95 % interval and p value.

    error² = var(means over trials) / U + var(means over units) / T

    U is the number of units (scenarios or data sets), T of trials. With units=False units count as
    fixed, and only the second term is used. For one trial only the first is. Both contain the
    interaction of units and trials, so the error is not too small. Degrees of freedom are
    Satterthwaite's, at most U - 1: else Holm-corrected tests of 3 units err 5 times too often.
    """
    scores = np.round(scores, DIGITS)
    value = float(np.round(scores.mean(), DIGITS))
    means = [scores.mean(axis=axis) for axis in ((1, 0) if units else (0,))]
    samples = [sample for sample in means if len(sample) > 1]
    if not samples:
        return Estimate(value, -math.inf, math.inf, 1.0)
    squares = [float(sample.var(ddof=1)) / len(sample) for sample in samples]
    error = math.sqrt(sum(squares))
    if error <= 10**-DIGITS:
        return Estimate(value, value, value, 0.0 if value else 1.0)
    terms = zip(squares, samples, strict=True)
    freedom = error**4 / sum(square**2 / (len(sample) - 1) for square, sample in terms)
    freedom = min(freedom, len(samples[0]) - 1)
    half = float(stdtrit(freedom, 1 - LEVEL / 2)) * error
    chance = 2 * float(stdtr(freedom, -abs(value) / error))
    return Estimate(value, value - half, value + half, chance)


def standings(
    scores: Mapping[str, np.ndarray],
    line: np.ndarray | None = None,
    *,
    units: bool = True,
    ranked: bool = True,
    usual: Mapping[str, np.ndarray] | None = None,
) -> list[Standing]:
    """Test all methods of a class against each other; return their scores, ranks and groups.

    Results are ordered by group, and within a group from the best.

    Args:
        scores: by method, float64 (U, T): a row per scenario or data set, a column per trial.
        line: scores of the method to beat, float64 (U, T).
        units: whether intervals allow for other scenarios (data sets) too, not for trials alone.
        ranked: whether pairs of methods are tested, for ranks and groups; else scores alone.
        usual: {another test: which pairs differ by it, bool (M, M), with methods sorted by name}.
    """
    names = sorted(scores)
    own = {name: estimate(scores[name], units=units) for name in names}
    best = sorted(range(len(names)), key=lambda one: (-own[names[one]].value, names[one]))
    lines = [] if line is None else [line]

    def known(name: str, **more: Any) -> Standing:
        gaps = [estimate(scores[name] - gap, units=of) for gap in lines for of in (units, False)]
        above, above_trials = gaps or (None, None)
        return Standing(name, own[name], above, above_trials, **more)

    if not ranked:
        return [known(names[one]) for one in best]
    chances = chances_of([*(scores[name] for name in names), *lines], units=units)
    apart = chances <= LEVEL
    groups = grouped(best, apart)
    others = {test: grouped(best, table) for test, table in (usual or {}).items()}
    placed = []
    for one in sorted(best, key=lambda one: groups[one]):
        value, differs = own[names[one]].value, [other for other in best if apart[one, other]]
        ahead = sum(own[names[other]].value > value for other in differs)
        beside: dict[str, Any] = {}
        for gap in lines:
            chance, side = float(chances[one, -1]), "better" if value > gap.mean() else "worse"
            beside = {"chance": chance, "verdict": side if chance <= LEVEL else NOT_SHOWN}
        alike = tuple(names[other] for other in best if other not in (one, *differs))
        standing = known(
            names[one],
            **beside,
            group=groups[one],
            rank_low=1 + ahead,
            rank_high=len(names) - (len(differs) - ahead),
            not_significantly_different=alike,
            usual={test: by_method[one] for test, by_method in others.items()},
        )
        placed.append(standing)
    return placed


def chances_of(tables: Sequence[np.ndarray], *, units: bool = True) -> np.ndarray:
    """Return p values of all pairs of M methods by Student's t, after Holm's correction, (M, M).

    `tables` has each method's scores, (scenarios, trials); with units=False only trials are random.
    """
    pairs = combinations(range(len(tables)), 2)
    chances = [estimate(tables[a] - tables[b], units=units).chance for a, b in pairs]
    return _matrix(len(tables), holm(chances))


def usual_tests(means: np.ndarray) -> dict[str, np.ndarray]:
    """Test all pairs of M methods by Wilcoxon, with Holm, and Nemenyi; return {test: bool (M, M)}.

    `means` has means over trials, (M, S), in S scenarios, taken as independent. True: they differ.
    Source: J. Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 2006.
    """
    from scipy.stats import rankdata, studentized_range, wilcoxon

    count, scenarios = means.shape
    means = np.round(means, DIGITS)
    pairs = [*combinations(range(count), 2)]
    signed = [means[a] - means[b] for a, b in pairs]
    chances = [float(wilcoxon(one).pvalue) if one.any() else 1.0 for one in signed]
    ranks = rankdata(-means, axis=0).mean(axis=1)
    error = math.sqrt(count * (count + 1) / (12 * scenarios))
    least = studentized_range.ppf(1 - LEVEL, count, math.inf) * error if pairs else 0.0
    near = [float(abs(ranks[a] - ranks[b]) <= least) for a, b in pairs]
    found = (_matrix(count, values) <= LEVEL for values in (holm(chances), near))
    return dict(zip(USUAL, found, strict=True))


def _matrix(count: int, chances: Sequence[float]) -> np.ndarray:
    matrix = np.eye(count)
    above = np.triu_indices(count, 1)
    matrix[above] = matrix.T[above] = chances
    return matrix


def holm(chances: Sequence[float]) -> list[float]:
    """Correct p values for multiple tests by Holm's method; return them in the order given.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    order = np.argsort(chances, kind="stable")
    steps = np.arange(len(chances), 0, -1) * np.asarray(chances)[order]
    corrected = np.empty(len(chances))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return corrected.tolist()


def grouped(best: Sequence[int], apart: np.ndarray) -> dict[int, int]:
    """Sort methods into groups of equals, and return {method: number of its group, from 1}.

    Of methods in no group yet, the best and all that do not differ from it form the next group.
    `best` lists methods from the best, as indices into `apart`, bool (M, M): which pairs differ.
    """
    groups: dict[int, int] = {}
    for first in best:
        if first not in groups:
            number = 1 + max(groups.values(), default=0)
            own = [m for m in best if m not in groups and (m == first or not apart[first, m])]
            groups |= dict.fromkeys(own, number)
    return groups
