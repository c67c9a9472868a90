"""Rules by which one setting of a sweep is selected; and races, which stop the others early.

In a race settings run side by side, and at each rung the worse half of them stops. Rungs are at
1/8, 1/4 and 1/2 of a declared number of rounds; accuracy on examples at the server decides. Test
examples decide nothing: a setting that reaches its target goes on to the remaining rungs, in the
race alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fedrepro.core.errors import FedreproError

Over = Literal["end", "best", "area", "half", "race"]


@dataclass(frozen=True)
class SelectionRule:
    """A rule by which one setting of a sweep is chosen: the best mean over trials of a number.

    metric, split: of the number. over: its value at the end of a run, the best of all measured
    rounds, the area under its curve divided by the rounds, that area over the second half of the
    rounds that all settings ran, or its value at the last rung of a race. need: a key of DISCLOSED.
    words: a description of the number.
    """

    name: str
    metric: str
    split: str
    over: Over
    need: str
    words: str


def _preset(
    name: str, split: str, words: str, need: str = "", over: Over = "end", clients: bool = False
) -> SelectionRule:
    metric, of = ("accuracy_clients", " and clients") if clients else ("accuracy", "")
    words = f"mean accuracy over all trials{of} on {words}"
    return SelectionRule(name, metric, split, over, need or split, words)


_RACED = (
    "labelled examples at the server, by which at 1/8, 1/4 and 1/2 of the rounds the worse half "
    "stops"
)
_PRESETS = (
    _preset("pooled_train", "train", "the pooled training data", "pooled_train_accuracy"),
    _preset(
        "client_train",
        "train",
        "the clients' own training data",
        "client_train_accuracy",
        clients=True,
    ),
    _preset("server", "server_validation", "labelled examples at the server"),
    _preset("race", "server_validation", _RACED, over="race"),
    _preset(
        "client_validation",
        "client_validation",
        "the clients' own validation examples",
        clients=True,
    ),
    _preset("public", "public", "the labelled public sample"),
)
SELECTION_RULES = {rule.name: rule for rule in _PRESETS}


SHARES = (8, 4, 2)  # of the declared rounds, one over these
SPLIT = "server_validation"  # whose accuracy decides
TIE_DIGITS = 12  # shares of equal counts may differ by rounding; beyond this they are a tie


def rungs(rounds: int) -> tuple[int, ...]:
    """Return the rounds after which the worse half stops, rounded up; none without a race.

    In a race of few rounds two rungs may be at one round, where the field is halved twice.
    """
    return tuple(-(-rounds // share) for share in SHARES) if rounds else ()


def better_half(scores: Sequence[float]) -> list[int]:
    """Return the settings that go on: the better half by score, rounded up, ascending.

    Ties go to those listed first; NaN is worst.
    """
    keys = [-math.inf if math.isnan(score) else round(score, TIE_DIGITS) for score in scores]
    best = sorted(range(len(keys)), key=lambda at: -keys[at])
    return sorted(best[: -(-len(keys) // 2)])


def successive_halving(
    settings: int, rounds: int, score: Callable[[int, int], float]
) -> dict[int, int]:
    """Return the round after which each setting stops, for those that stop; a lone one never does.

    `rounds` is the declared number; `score` runs a setting up to a rung and returns its score.
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
    """Return the cost of a race of `settings` settings, in full runs of one setting."""
    cost, before, left = 0.0, 0.0, settings
    for share in SHARES:
        if left == 1:
            break
        cost, before, left = cost + left * (1 / share - before), 1 / share, -(-left // 2)
    return cost + left * (1 - before)


def require_fits(race: int, rounds: int, where: str) -> None:
    """Refuse a race over more rounds than a setting runs for."""
    if race > rounds:
        raise FedreproError(
            f"{where}: a race over {race} rounds, but a run ends after {rounds}; let it race over "
            f"{rounds} at most"
        )
