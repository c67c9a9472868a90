"""How methods stand to each other: scores with intervals, intervals of ranks, groups.

A method has a score in each scenario and trial; a trial is one partition and one set of local
models, the same for all methods. What is drawn again, by the bootstrap, are scenarios, and within
each its trials, for all methods alike: so a difference of two methods is that of pairs.

Most neighbours of a ranking cannot be told apart. So methods stand in groups: the first group is
the best method and all that are not told apart from it, the second the best of the others and all
of these that are not told apart from that one, and so on. Two methods are told apart by `chance`
after Holm's correction for all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import stdtr

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import Rng

DRAWS, TOGETHER = 10_000, 1000
LEVEL = 0.05  # of all pairs together, and of what intervals leave out
DIGITS = 12  # to which scores are equal


@dataclass(frozen=True)
class Standing:
    """A method's place: mean score, ranks and group, 1 the best; low and high are ends of 95 %.

    beside: the methods of its class that it is not told apart from.
    """

    method: str
    score: float
    low: float
    high: float
    rank_low: int
    rank_high: int
    group: int
    beside: tuple[str, ...]


def scores_of(accuracy: np.ndarray, baseline: np.ndarray, ceiling: np.ndarray) -> np.ndarray:
    """(accuracy - baseline) / gap in each trial, float64 (T,), all three (T,).

    The gap is the mean of ceiling - baseline over trials, so that a trial in which both happen to
    be near does not outweigh the others, and the mean score is the quotient of mean differences.
    """
    gap = float(np.mean(ceiling - baseline))
    scores: np.ndarray = (accuracy - baseline) / gap
    return scores


def standings(
    scores: Mapping[str, np.ndarray], scenarios: Sequence[str], rng: Rng
) -> list[Standing]:
    """The methods of a class by group, and within a group the best first.

    scores: float64 (S, T) by method, one row a scenario; scenarios: their names, by which draws are
    ordered. Errors: FedreproError for a score that is not a number, or for unlike shapes.
    """
    if not scores:
        return []
    names, order = sorted(scores), np.argsort(np.array(scenarios, str), kind="stable")
    for name in names:
        if np.shape(scores[name]) != np.shape(scores[names[0]]) or np.ndim(scores[name]) != 2:
            raise FedreproError(f"'{name}' has scores in other scenarios or trials than the others")
        if not np.isfinite(scores[name]).all():
            raise FedreproError(f"'{name}' has a score that is not a number, so it has no rank")
    values = np.stack([np.asarray(scores[name], np.float64)[order] for name in names])
    drawn = np.round(resampled(values, rng), DIGITS)
    means = np.round(values.mean(axis=(1, 2)), DIGITS)
    apart = told_apart(values, drawn)
    best = sorted(range(len(names)), key=lambda one: (-means[one], names[one]))
    groups = grouped(best, apart)
    ends = 100 * np.array([LEVEL / 2, 1 - LEVEL / 2])
    ranks = ranks_of(drawn)
    placed = []
    for one in sorted(best, key=lambda one: groups[one]):
        low, high = np.percentile(drawn[one], ends)
        first, last = np.percentile(ranks[one], ends, method="inverted_cdf")
        beside = [names[other] for other in best if other != one and not apart[one, other]]
        placed.append(
            Standing(
                names[one],
                float(means[one]),
                float(low),
                float(high),
                int(first),
                int(last),
                groups[one],
                tuple(beside),
            )
        )
    return placed


def resampled(values: np.ndarray, rng: Rng) -> np.ndarray:
    """Mean scores of methods (M, S, T) in each draw of scenarios and their trials: (M, DRAWS).

    The draws follow from the seed and the numbers of scenarios and trials alone.
    """
    stream = rng.stream("standings")
    methods, scenarios, trials = values.shape
    scores = np.empty((methods, DRAWS))
    for start in range(0, DRAWS, TOGETHER):
        which = stream.integers(scenarios, size=(TOGETHER, scenarios, 1))
        when = stream.integers(trials, size=(TOGETHER, scenarios, trials))
        scores[:, start : start + TOGETHER] = values[:, which, when].mean(axis=(2, 3))
    return scores


def ranks_of(drawn: np.ndarray) -> np.ndarray:
    """The rank of each method in each draw, 1 the best, equal ones share the lower: (M, draws)."""
    ranks: np.ndarray = 1 + (drawn[None] > drawn[:, None]).sum(axis=1)
    return ranks


def told_apart(values: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Which pairs differ, bool (M, M), after Holm. values: (M, S, T); drawn: (M, draws)."""
    count = len(drawn)
    pairs = list(combinations(range(count), 2))
    chances = [chance(values[a] - values[b], drawn[a] - drawn[b]) for a, b in pairs]
    apart = np.zeros((count, count), bool)
    for (a, b), differs in zip(pairs, holm(chances), strict=True):
        apart[a, b] = apart[b, a] = differs
    return apart


def chance(difference: np.ndarray, drawn: np.ndarray) -> float:
    """Give the chance of a difference as far from 0 as this one, (S, T), if there were none.

    It is twice the smaller share of draws on either side of 0, with one draw added. Where all draws
    are on one side they cannot say how small it is, so that many methods could never be told apart:
    there it is Student's, if that is smaller.
    """
    sides = int((drawn <= 0).sum()), int((drawn >= 0).sum())
    share = min(1.0, 2 * (1 + min(sides)) / (1 + len(drawn)))
    return share if min(sides) else min(share, student(difference))


def student(difference: np.ndarray) -> float:
    """Give the two-sided chance of a mean, by Student's t over scenarios, (S, T).

    One or two scenarios say too little of others: there it is of their trials.
    """
    sample = difference.mean(axis=1) if len(difference) > 2 else difference.ravel()
    if len(sample) < 2:
        return 1.0
    error = float(sample.std(ddof=1)) / math.sqrt(len(sample))
    if error == 0:
        return 0.0 if sample.any() else 1.0
    return 2 * float(stdtr(len(sample) - 1, -abs(float(sample.mean())) / error))


def holm(chances: Sequence[float]) -> list[bool]:
    """Which hypotheses are rejected, with at most LEVEL for one wrong rejection among all.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    order = sorted(range(len(chances)), key=lambda index: chances[index])
    rejected = [False] * len(chances)
    for place, hypothesis in enumerate(order):
        if chances[hypothesis] > LEVEL / (len(chances) - place):
            break
        rejected[hypothesis] = True
    return rejected


def grouped(best: Sequence[int], apart: np.ndarray) -> dict[int, int]:
    """Method -> its group; best: methods in their order, apart: bool (M, M)."""
    return {
        method: number for number, group in enumerate(_groups(best, apart), 1) for method in group
    }


def _groups(best: Sequence[int], apart: np.ndarray) -> Iterator[list[int]]:
    left = list(best)
    while left:
        members = [method for method in left if method == left[0] or not apart[left[0], method]]
        yield members
        left = [method for method in left if method not in members]


@dataclass(frozen=True)
class BesideLine:
    """A method beside one to beat: mean difference of scores, its interval, what it comes to."""

    difference: float
    low: float
    high: float
    verdict: str


def against(
    scores: Mapping[str, np.ndarray], line: np.ndarray, scenarios: Sequence[str], rng: Rng
) -> dict[str, BesideLine]:
    """Each method beside `line`, (S, T), as in `standings`: what it comes to after Holm."""
    order, names = np.argsort(np.array(scenarios, str), kind="stable"), sorted(scores)
    if not names:
        return {}
    values = np.stack([(scores[name] - line)[order] for name in names])
    drawn = np.round(resampled(values, rng), DIGITS)
    ends = np.percentile(drawn, 100 * np.array([LEVEL / 2, 1 - LEVEL / 2]), axis=1)
    means, by_method = values.mean(axis=(1, 2)), {}
    chances = [chance(*pair) for pair in zip(values, drawn, strict=True)]
    for index, differs in enumerate(holm(chances)):
        verdict = ("better" if means[index] > 0 else "worse") if differs else "not told apart"
        low, high = map(float, ends[:, index])
        by_method[names[index]] = BesideLine(float(means[index]), low, high, verdict)
    return by_method
