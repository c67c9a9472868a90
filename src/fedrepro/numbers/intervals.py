"""Confidence intervals of differences, of best methods, of first rounds and of correlations.

An end of an interval misses the true value with half the probability that the confidence leaves,
so a check that is decided by one end is wrong in 2.5 of 100 cases at 95 %.

**Extremes.** "The best of the rivals", "the largest spread" and "from its best number of clients"
name settings by what was measured. If the settings that measured highest and lowest are then tested
as if they had been named beforehand, noise alone decides: with five settings that do not differ and
ten trials, their spread is found to be above nothing in 24 of 100 cases, with twenty in 73. All
such statements are of one form,

    theta = max over gains g of E[g]  -  max over rivals r of E[r],

and an end of its interval treats its two sides differently (Berger 1982, intersection-union tests):

- From below, theta is at least E[g] - max E[r] for any gain g. For one gain, of all rivals the one
  that gives the lowest end counts: as one of them is the true best, that needs no correction. To
  take the gain with the highest end is to pick, and there are two ways to pay for it. Each of m
  gains is given an m-th of the error (Bonferroni), or one gain is chosen on the first quarter of
  the trials and tested on the others, which had no part in the choice. Which of the two is done
  follows from the numbers of trials and gains alone, never from what was measured: with few gains
  the first is narrower and cannot choose badly, with the thousands of pairs of a heat map it is
  hopeless.
- From above the two sides swap their roles.

A side of one member needs neither, so that a plain difference uses every trial at the full level.
All this is exact whatever the settings have in common and however unequal their variances are: it
needs what Student's t needs, and nothing else.

Alternatives were simulated. Choosing on each part and testing on the others in turn (cross-fitting)
is wrong in 5 to 16 of 100 cases where 2.5 are meant. Two halves, one of them to pass at half the
level, are exact, and with ten trials find less than one quarter against three does. Permuting
settings within trials tests that nothing differs, which is not the claim if a bound is not zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
CHOOSING = 4  # one trial in four chooses; more would leave too few to test with
# Correcting for all gains is preferred up to this many times the width that choosing one gives. By
# simulation the two find equally much there: choosing loses what a bad choice costs.
CORRECTING = 1.6


@dataclass(frozen=True)
class Interval:
    """A measured value and the two ends of its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Contrast:
    """The best mean of some methods minus the best mean of others, max E[g] - max E[r], as data.

    gains, rivals: measured values of the methods before the minus (g) and after it (r), float64
    (trials, methods). least, most: limits that the difference has by definition, such as least 0
    for a spread.
    """

    gains: Array
    rivals: Array
    least: float = -math.inf
    most: float = math.inf

    @property
    def trials(self) -> int:
        return len(self.gains)

    @property
    def swapped(self) -> Contrast:
        return Contrast(self.rivals, self.gains)

    def first(self, trials: int) -> Contrast:
        return replace(self, gains=self.gains[:trials], rivals=self.rivals[:trials])

    def repeated(self, times: int) -> Contrast:
        """Return this contrast as if it had `times` times as many trials, of equal means and sds.

        The interval of the result forecasts the interval after running further trials.
        """
        wider = math.sqrt((times * self.trials - 1) / (times * (self.trials - 1)))
        sides = (mean(side) + wider * (side - mean(side)) for side in (self.gains, self.rivals))
        gains, rivals = (np.tile(side, (times, 1)) for side in sides)
        return replace(self, gains=gains, rivals=rivals)


def mean_of_contrasts(contrasts: Sequence[Contrast], confidence: float) -> Interval:
    """Return the mean of `contrasts` (differences of best means) with its confidence interval.

    Only trials that all contrasts have are used. A claim about several points of a figure has one
    contrast per point. A `confidence` is a probability such as 0.95.
    """
    count = min(contrast.trials for contrast in contrasts)
    shared = [contrast.first(count) for contrast in contrasts]
    value = float(
        np.mean([mean(contrast.gains).max() - mean(contrast.rivals).max() for contrast in shared])
    )
    low = max(_low(shared, confidence), sum(contrast.least for contrast in shared) / len(shared))
    high = -_low([contrast.swapped for contrast in shared], confidence)
    high = min(high, sum(contrast.most for contrast in shared) / len(shared))
    # the ends come from other trials than the value where something was chosen
    return Interval(value, min(low, value), max(high, value))


def _low(contrasts: Sequence[Contrast], confidence: float) -> float:
    """Return the lower end of an interval for the mean of `contrasts`, differences of best means.

    With several gains (methods), the best is not known. Either each gain is tested, with
    Bonferroni's correction, or the first quarter of the trials selects one gain, which the other
    trials test; `_correct` decides which.
    """
    trials, ways = contrasts[0].trials, max(contrast.gains.shape[1] for contrast in contrasts)
    if trials < 2:
        return -math.inf
    if ways == 1 or (len(contrasts) == 1 and _correct(trials, ways, confidence)):
        corrected = 1 - (1 - confidence) / ways
        gains = range(ways)
        return max(
            _lowest_end([_above(contrast, g) for contrast in contrasts], corrected) for g in gains
        )
    choosing = max(1, trials // CHOOSING)
    chosen = [int(mean(contrast.gains[:choosing]).argmax()) for contrast in contrasts]
    tested = [_above(contrast, g)[choosing:] for contrast, g in zip(contrasts, chosen, strict=True)]
    return _lowest_end(tested, confidence)


def _above(contrast: Contrast, gain: int) -> Array:
    """Return values of method number `gain` minus those of each rival, (trials, rivals)."""
    differences: Array = contrast.gains[:, [gain]] - contrast.rivals
    return differences


def _correct(trials: int, ways: int, confidence: float) -> bool:
    """Return True to test all `ways` methods with Bonferroni's correction, False to test one alone.

    The one is selected on the first quarter of the trials. The narrower interval decides, which
    depends on the numbers of trials and methods, never on measured values.
    """
    tested = trials - max(1, trials // CHOOSING)
    corrected = _factor(trials, 1 - (1 - confidence) / ways)
    return corrected <= CORRECTING * _factor(tested, confidence)


def _lowest_end(above: Sequence[Array], confidence: float) -> float:
    """Return a lower confidence limit for the mean over points of a gain minus the best rival.

    `above` has for each point the gain minus each rival, float64 (trials, rivals). The limit holds
    whichever rivals are best. As there are too many combinations of rivals to try, the larger of
    two limits is returned: the mean of the points' lowest limits (exact for one point), and the
    limit for the rivals that measured best, less the most that other rivals could add to its half
    width (exact where points have one rival). The sd of a sum is at most the sum of the sds.
    """
    lowest = [(mean(point) - half_width(point, confidence)).min() for point in above]
    if len(above) == 1:
        return float(lowest[0])
    single = np.mean(lowest)
    best = [point[:, [int(mean(point).argmin())]] for point in above]
    moved = [
        (mean(point) - half_width(point - point_best, confidence)).min()
        for point, point_best in zip(above, best, strict=True)
    ]
    together = half_width(np.mean(best, axis=0), confidence)[0]
    return float(max(single, np.mean(moved) - together))


def mean(series: Array) -> Array:
    """Return means (members,) over trials of (trials, members); exact for equal values."""
    means: Array = series[0] + _sum(series - series[0]) / len(series)
    return means


def _sum(series: Array) -> Array:
    """Sum `series` over its first axis (trials), faster than NumPy's own sum for ten trials."""
    total: Array = np.add.reduce(series, axis=0)
    return total


def half_width(series: Array, confidence: float) -> Array:
    """Return half the width of the confidence interval of each mean over trials, by Student's t.

    `series` is float64 (trials, members), the result (members,). Infinite for a single trial.
    """
    count = len(series)
    if count < 2:
        return np.full(series.shape[1], np.inf)
    around = series - series[0]  # so that equal values have no scatter at all
    squares = _sum((around - _sum(around) / count) ** 2)
    half_widths: Array = _factor(count, confidence) * np.sqrt(squares / (count - 1))
    return half_widths


@cache
def _factor(trials: int, confidence: float) -> float:
    """Return half the width of Student's t interval for a mean, in multiples of one trial's sd."""
    if trials < 2:
        return math.inf
    from scipy.special import stdtrit

    return float(stdtrit(trials - 1, (1 + confidence) / 2)) / math.sqrt(trials)


def pairs(series: Array) -> Array:
    """Return the difference of each ordered pair of the n columns of `series`: (trials, n (n-1)).

    The largest mean difference is the spread of the columns, which a claim bounds.
    """
    count = series.shape[1]
    first, second = np.nonzero(~np.eye(count, dtype=bool))
    differences: Array = series[:, first] - series[:, second]
    return differences


def first_closed(rounds: Sequence[int], behind: Array, confidence: float) -> Interval:
    """Return the first measured round in which one method reaches another, with its interval.

    `rounds` are the measured rounds. `behind`, float64 (trials, rounds), is the gap between the
    methods, closed where its mean is at most 0. The lower end is the first round whose interval
    reaches 0. For the upper end, rounds are tested from the last one backwards as long as the gap
    is closed; this fixed order needs no correction for multiple tests. Infinite if the gap never
    closes.
    """
    middle, half = mean(behind), half_width(behind, confidence)
    count = len(rounds)
    opened = np.nonzero(middle + half > 0)[0]
    surely = int(opened[-1]) + 1 if len(opened) else 0

    def round_of(closed: NDArray[np.bool_]) -> float:
        indices = np.nonzero(closed)[0]
        return float(rounds[indices[0]]) if len(indices) else math.inf

    early = round_of(middle - half <= 0)
    # a goal that is not reached may lie anywhere beyond the last round
    low = float(rounds[-1]) if math.isinf(early) else early
    high = float(rounds[surely]) if surely < count else math.inf
    return Interval(round_of(middle <= 0), low, high)


def correlation(one: Array, other: Array, confidence: float, means: int = 1) -> Interval:
    """Return Pearson's correlation of series `one` and `other`, (numbers,), with Fisher's interval.

    `means` is how many means (such as group means) were subtracted from either series; each beyond
    the first costs one degree of freedom.
    """
    count = len(one) - (means - 1)
    if count < 4 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return Interval(math.nan, -1.0, 1.0)
    from scipy.special import ndtri

    r = float(np.corrcoef(one, other)[0, 1])
    z = math.atanh(min(max(r, -0.999999), 0.999999))
    width = float(ndtri((1 + confidence) / 2)) / math.sqrt(count - 3)
    return Interval(r, math.tanh(z - width), math.tanh(z + width))
