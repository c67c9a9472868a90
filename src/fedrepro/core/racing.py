"""A race: settings run side by side, and at each rung the worse half of those left stops.

At 1/8, 1/4 and 1/2 of a declared number of rounds, by accuracy on examples at the server. Test
examples decide nothing: a setting that reaches its target while others are in the race goes on, in
the race alone, to the rungs that are left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fedrepro.core.errors import FedreproError

SHARES = (8, 4, 2)  # of the declared rounds, one over these
SPLIT = "server_validation"  # whose accuracy decides
TIE_DIGITS = 12  # shares of equal counts may differ by rounding; beyond this they are a tie


def rungs(rounds: int) -> tuple[int, ...]:
    """The rounds after which the worse half stops, rounded up; none without a race.

    In a race of few rounds two rungs may be at one round, where the field is then halved twice.
    """
    return tuple(-(-rounds // share) for share in SHARES) if rounds else ()


def better_half(scores: Sequence[float]) -> list[int]:
    """Which settings go on: the better half by score, rounded up, ascending.

    Ties go to those listed first; what is not a number is worst.
    """
    keys = [-math.inf if math.isnan(score) else round(score, TIE_DIGITS) for score in scores]
    best = sorted(range(len(keys)), key=lambda at: -keys[at])
    return sorted(best[: -(-len(keys) // 2)])


def race(settings: int, rounds: int, score: Callable[[int, int], float]) -> dict[int, int]:
    """Setting -> the round after which it stops, for those that do; a lone one never does.

    score(setting, rung) runs a setting up to a rung, and says how well it does there.
    """
    left = list(range(settings))
    stopped: dict[int, int] = {}
    for rung in rungs(rounds):
        if len(left) == 1:
            break
        scores = [score(setting, rung) for setting in left]
        better = [left[at] for at in better_half(scores)]
        stopped |= {setting: rung for setting in left if setting not in better}
        left = better
    return stopped


def whole_runs(settings: int) -> float:
    """What a race of so many settings costs, in runs of one setting over its declared rounds."""
    cost, before, left = 0.0, 0.0, settings
    for share in SHARES:
        if left == 1:
            break
        cost, before, left = cost + left * (1 / share - before), 1 / share, -(-left // 2)
    return cost + left * (1 - before)


def require_fits(race: int, rounds: int, where: str) -> None:
    """Errors: FedreproError for a race over more rounds than a setting runs for."""
    if race > rounds:
        raise FedreproError(
            f"{where}: a race over {race} rounds, but a run ends after {rounds}; let it race over "
            "so many at most"
        )
