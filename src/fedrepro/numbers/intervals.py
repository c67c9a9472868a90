"""Confidence intervals of differences, of best methods, of first rounds and of correlations.

A check that is decided by one end of a 95 % interval is wrong in 2.5 of 100 cases, if the check
names its settings before they are measured. "The best of the rivals" and "the largest spread" do
not: by such an interval of ten trials, the spread of five equal settings is above 0 in 24 of 100
cases. All such statements have one form, theta = max over gains g of E[g] - max over rivals r of
E[r], and an end of its interval treats gains and rivals differently (Berger 1982,
intersection-union tests). For the lower end, theta is at least E[g] - max E[r] for any gain g. The
lowest limit over rivals needs no correction, since one rival is the true best. The best of m gains
does: each has an m-th of the error (Bonferroni), or one is chosen on the first quarter of the
trials and tested on the others; only counts decide which. The upper end swaps gains and rivals.

The error holds for any dependence between settings and unequal variances. In simulations,
cross-fitting is wrong in 5 to 16 of 100 cases, and two halves at half the level have less power.
Arguments `confidence` are shares, such as 0.95.
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
    """The largest mean of some methods, the gains, minus the largest of others, the rivals.

    gains, rivals: values, (trials, methods). least, most: bounds that the difference has by its
    definition, such as least 0 for the largest minus the smallest mean.
    """

    gains: Array
    rivals: Array
    least: float = -math.inf
    most: float = math.inf

    @property
    def trials(self) -> int:
        return len(self.gains)

    def repeated(self, times: int) -> Contrast:
        """Forecast this contrast with `times` as many trials, of equal means and sds."""
        wider = math.sqrt((times * self.trials - 1) / (times * (self.trials - 1)))
        sides = ((exact_means(side), side) for side in (self.gains, self.rivals))
        spread = (means + wider * (side - means) for means, side in sides)
        gains, rivals = (np.tile(side, (times, 1)) for side in spread)
        return replace(self, gains=gains, rivals=rivals)


def mean_of_contrasts(contrasts: Sequence[Contrast], confidence: float) -> Interval:
    """Return the mean of `contrasts` over shared trials, with its interval at `confidence`."""
    count = min(one.trials for one in contrasts)
    shared = [replace(one, gains=one.gains[:count], rivals=one.rivals[:count]) for one in contrasts]
    bests = [exact_means(one.gains).max() - exact_means(one.rivals).max() for one in shared]
    value = float(np.mean(bests))
    low = max(_low(shared, confidence), sum(one.least for one in shared) / len(shared))
    high = -_low([Contrast(one.rivals, one.gains) for one in shared], confidence)
    high = min(high, sum(one.most for one in shared) / len(shared))
    # the ends come from other trials than the value where something was chosen
    return Interval(value, min(low, value), max(high, value))


def _low(contrasts: Sequence[Contrast], confidence: float) -> float:
    """Return the lower end of the interval of the mean of `contrasts`; -inf for a single trial."""
    trials, ways = contrasts[0].trials, max(contrast.gains.shape[1] for contrast in contrasts)
    if trials < 2:
        return -math.inf
    choosing, corrected = max(1, trials // CHOOSING), 1 - (1 - confidence) / ways
    widest = CORRECTING * _factor(trials - choosing, confidence)
    if ways == 1 or (len(contrasts) == 1 and _factor(trials, corrected) <= widest):
        return max(
            _lowest_end([one.gains[:, [gain]] - one.rivals for one in contrasts], corrected)
            for gain in range(ways)
        )
    tested = []
    for one in contrasts:
        chosen = int(exact_means(one.gains[:choosing]).argmax())
        tested.append((one.gains[:, [chosen]] - one.rivals)[choosing:])
    return _lowest_end(tested, confidence)


def _lowest_end(above: Sequence[Array], confidence: float) -> float:
    """Return a lower confidence limit for the mean over points of a gain minus the best rival.

    `above` has an array per point, the gain minus each rival, (trials, rivals). Of two limits, one
    over points by themselves and one around their columns of least mean, the larger is returned.
    """
    lowest = [(exact_means(point) - half_width(point, confidence)).min() for point in above]
    if len(above) == 1:
        return float(lowest[0])
    single = np.mean(lowest)
    best = [point[:, [int(exact_means(point).argmin())]] for point in above]
    pairs_of = zip(above, best, strict=True)
    moved = [(exact_means(p) - half_width(p - own, confidence)).min() for p, own in pairs_of]
    together = half_width(np.mean(best, axis=0), confidence)[0]
    return float(max(single, np.mean(moved) - together))


@np.errstate(invalid="ignore")  # of targets never reached
def exact_means(series: Array) -> Array:
    """Return the mean of each column of `series`, (trials, columns); exact for equal values."""
    means: Array = series[0] + _sum(series - series[0], axis=0) / len(series)
    return means


_sum = np.add.reduce  # faster than NumPy's own sum for ten trials


@np.errstate(invalid="ignore")
def half_width(series: Array, confidence: float) -> Array:
    """Return half widths of Student's intervals of columns' means; `series`: (trials, columns)."""
    count = len(series)
    if count < 2:
        return np.full(series.shape[1], np.inf)
    around = series - series[0]  # so that equal values have no scatter at all
    squares = _sum((around - _sum(around, axis=0) / count) ** 2, axis=0)
    half_widths: Array = _factor(count, confidence) * np.sqrt(squares / (count - 1))
    return half_widths


def interval_of_mean(values: Array, confidence: float) -> Interval:
    """Return the mean of `values`, (trials,), with Student's interval, which may leave [0, 1]."""
    column = values[:, None]
    middle, half = float(exact_means(column)[0]), float(half_width(column, confidence)[0])
    return Interval(middle, middle - half, middle + half)


@cache
def _factor(trials: int, confidence: float) -> float:
    if trials < 2:
        return math.inf
    from scipy.special import stdtrit

    return float(stdtrit(trials - 1, (1 + confidence) / 2)) / math.sqrt(trials)


def pairs(series: Array) -> Array:
    """Return differences of all ordered pairs of n columns of `series`, (trials, n * (n - 1))."""
    first, second = np.nonzero(~np.eye(series.shape[1], dtype=bool))
    return series[:, first] - series[:, second]


def first_closed(rounds: Sequence[int], behind: Array, confidence: float) -> Interval:
    """Return the first of `rounds` after which one method reaches another, with its interval.

    `behind`, (trials, rounds), is how far the one is behind. The value is the first round where its
    mean is at most 0. The lower end is the first where it is not significantly above 0, else the
    last. From the upper end on it stays significantly below 0; tests begin at the last round,
    which needs no correction. Value and upper end may be infinite.
    """
    middle, half = exact_means(behind), half_width(behind, confidence)

    def first(closed: NDArray[np.bool_], otherwise: float = math.inf) -> float:
        return float(rounds[int(closed.argmax())]) if closed.any() else otherwise

    # a goal that is not reached may lie anywhere beyond the last round
    low = first(middle - half <= 0, float(rounds[-1]))
    high = first(np.logical_and.accumulate((middle + half <= 0)[::-1])[::-1])
    return Interval(first(middle <= 0), low, high)


def correlation(one: Array, other: Array, confidence: float) -> Interval:
    """Return Pearson's correlation of arrays (n,), NaN if n < 4 or constant; interval by Fisher."""
    if len(one) < 4 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return Interval(math.nan, -1.0, 1.0)
    from scipy.special import ndtri

    r = float(np.corrcoef(one, other)[0, 1])
    z = math.atanh(min(max(r, -0.999999), 0.999999))
    width = float(ndtri((1 + confidence) / 2)) / math.sqrt(len(one) - 3)
    return Interval(r, math.tanh(z - width), math.tanh(z + width))
