"""Intervals for what claims are about: contrasts, extremes of several, first rounds, correlations.

An end of an interval misses the true value with half the probability that the confidence leaves,
so a check that is decided by one end is wrong in 2.5 of 100 cases at 95 %.

**Extremes.** "The best of the rivals", "the largest spread" and "from its best number of clients"
name settings by what was measured. If the settings that measured highest and lowest are then tested
as if they had been named beforehand, noise alone decides: with five settings that do not differ and
ten trials, their spread is found to be above nothing in 24 of 100 cases, with twenty in 73. All
such statements are of one form,

    theta = max over gains g of E[g]  -  max over rivals r of E[r],

and an end of its interval treats its two sides differently (Berger 1982, intersection-union tests):

- From below, theta is at least E[g] - max E[r] for any gain g that is named beforehand. So g is
  chosen on the first quarter of the trials and tested on the others, and of all rivals the one that
  gives the lowest end counts. As one of them is the true best, this needs no correction.
- From above the two swap their roles.

A side of one member needs no choice, so that a plain difference uses every trial. Trials that
choose are not tested and the other way round, so the level is exact whatever the settings have in
common and however unequal their variances are; it needs what Student's t needs, and nothing else.

Alternatives were simulated. Choosing on each part and testing on the others in turn (cross-fitting)
gives every trial a test, but the parts are not independent, since each had a hand in the other's
choice: a t interval over all is wrong in 5 to 6 of 100 cases with halves and in up to 16 with
single trials left out, where 2.5 are meant. Halves of which one must pass at half the level are
exact, and find less than one quarter against three does. Permuting settings within trials tests
that nothing differs at all, which is not the claim where a bound is not zero. Bonferroni over all
pairs of settings needs no choice; it is better with two or three settings, and hopeless with the 48
of a heat map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
CHOOSING = 4  # one trial in so many chooses; more would leave too few to test with


@dataclass(frozen=True)
class Interval:
    """A measured value, and the ends between which the true one lies."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Contrast:
    """max E[gains] - max E[rivals]; both (trials, members), the same trials in the same rows."""

    gains: Array
    rivals: Array

    @property
    def trials(self) -> int:
        return len(self.gains)

    @property
    def swapped(self) -> Contrast:
        return Contrast(self.rivals, self.gains)

    def first(self, trials: int) -> Contrast:
        return Contrast(self.gains[:trials], self.rivals[:trials])


def mean_of_contrasts(contrasts: Sequence[Contrast], confidence: float) -> Interval:
    """The mean of several statements, or one; over the trials that all of them have."""
    count = min(one.trials for one in contrasts)
    shared = [one.first(count) for one in contrasts]
    value = float(np.mean([mean(one.gains).max() - mean(one.rivals).max() for one in shared]))
    low = _low(shared, confidence)
    high = -_low([one.swapped for one in shared], confidence)
    # the ends come from other trials than the value where something was chosen
    return Interval(value, min(low, value), max(high, value))


def _low(contrasts: Sequence[Contrast], confidence: float) -> float:
    """The lower end of the mean of statements of the form above."""
    choosing = max(1, contrasts[0].trials // CHOOSING)
    if all(one.gains.shape[1] == 1 for one in contrasts):
        choosing = 0
    if contrasts[0].trials - choosing < 2:
        return -math.inf
    above = []
    for one in contrasts:
        gain = int(mean(one.gains[:choosing]).argmax()) if choosing else 0
        above.append(one.gains[choosing:, [gain]] - one.rivals[choosing:])
    return _lowest_end(above, confidence)


def _lowest_end(above: Sequence[Array], confidence: float) -> float:
    """At least as low as the lower end of the mean over points, whichever rival each of them takes.

    above: for each point what the gain has above each rival, (trials, rivals). There are too many
    ways to take one at each point to try them all, but since the sd of a sum is at most the sum of
    the sds, two numbers lie below all of them, and the larger is taken: the mean of the points' own
    lowest ends (nothing lost with one point), and the end for the rivals that measured best, less
    what any other could add to its half width (nothing lost where no point has a choice).
    """
    single = np.mean([(mean(one) - half_width(one, confidence)).min() for one in above])
    best = [one[:, [int(mean(one).argmin())]] for one in above]
    moved = [
        (mean(one) - half_width(one - own, confidence)).min()
        for one, own in zip(above, best, strict=True)
    ]
    together = half_width(np.mean(best, axis=0), confidence)[0]
    return float(max(single, np.mean(moved) - together))


def mean(series: Array) -> Array:
    """Means over trials, (trials, members) -> (members,); exact where all trials agree."""
    found: Array = series[0] + (series - series[0]).mean(axis=0)
    return found


def half_width(series: Array, confidence: float) -> Array:
    """From the means over trials to the ends of their intervals, by Student's t.

    Shapes: (trials, members) -> (members,). A single trial could mean anything.
    """
    count = len(series)
    if count < 2:
        return np.full(series.shape[1], np.inf)
    from scipy.special import stdtrit

    around = series - series[0]  # so that equal values have no scatter at all
    squares = ((around - around.mean(axis=0)) ** 2).sum(axis=0)
    width = float(stdtrit(count - 1, (1 + confidence) / 2)) / math.sqrt(count * (count - 1))
    found: Array = width * np.sqrt(squares)
    return found


def pairs(series: Array) -> Array:
    """All ordered differences, whose maximum is the spread: (trials, n) -> (trials, n(n-1))."""
    count = series.shape[1]
    one, other = np.nonzero(~np.eye(count, dtype=bool))
    found: Array = series[:, one] - series[:, other]
    return found


def first_closed(rounds: Sequence[int], behind: Array, confidence: float) -> Interval:
    """The first measured round in which a gap is closed, (trials, rounds) of what it stays behind.

    From below: the first round that may have closed it; the true one would have to be found open to
    be missed. From above, to look for any closed round is to pick the best of many. So rounds are
    tested from the last one backwards while they are found closed, each at the full level; the true
    one is passed only if itself is found closed wrongly (tests in a fixed order).
    """
    middle, half = mean(behind), half_width(behind, confidence)
    count = len(rounds)
    opened = np.nonzero(middle + half > 0)[0]
    surely = int(opened[-1]) + 1 if len(opened) else 0

    def round_of(closed: NDArray[np.bool_]) -> float:
        found = np.nonzero(closed)[0]
        return float(rounds[found[0]]) if len(found) else math.inf

    early = round_of(middle - half <= 0)
    # a goal that is not reached may lie anywhere beyond the last round
    low = float(rounds[-1]) if math.isinf(early) else early
    high = float(rounds[surely]) if surely < count else math.inf
    return Interval(round_of(middle <= 0), low, high)


def correlation(one: Array, other: Array, confidence: float) -> Interval:
    """Pearson's correlation of two rows of numbers, each (points,), with Fisher's interval."""
    count = len(one)
    if count < 4 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return Interval(math.nan, -1.0, 1.0)
    from scipy.special import ndtri

    r = float(np.corrcoef(one, other)[0, 1])
    z = math.atanh(min(max(r, -0.999999), 0.999999))
    width = float(ndtri((1 + confidence) / 2)) / math.sqrt(count - 3)
    return Interval(r, math.tanh(z - width), math.tanh(z + width))
