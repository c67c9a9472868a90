"""Rules that select one setting of hyperparameters, and successive halving, which stops bad ones.

In successive halving (`race`) settings run together, and the worse half stops after 1/8, 1/4 and
1/2 of a declared number of rounds, the *rungs*. Settings are compared by accuracy on examples at
the server, never on test examples. So a setting that reached its target test accuracy still runs.
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
    """A rule that selects hyperparameters: those whose mean of a metric over trials is best.

    split: the examples that the metric is measured on. over: whether the metric is taken at the end
    of a run, in the best round, on average over rounds (`area`) or over the second half of the
    rounds that all settings ran, or at the last comparison of successive halving. need: the key, in
    DISCLOSED, of the data that the rule uses. words: a description.
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
    """Return the rounds after which successive halving stops the worse half; empty for 0 rounds.

    They are 1/8, 1/4 and 1/2 of `rounds`, rounded up. After a round that is in the tuple twice,
    settings are halved twice.
    """
    return tuple(-(-rounds // share) for share in SHARES) if rounds else ()


def better_half(scores: Sequence[float]) -> list[int]:
    """Return the indices of the better half of the scores, rounded up, in ascending order.

    Of equal scores the first is better; NaN is the worst.
    """
    keys = [-math.inf if math.isnan(score) else round(score, TIE_DIGITS) for score in scores]
    best = sorted(range(len(keys)), key=lambda at: -keys[at])
    return sorted(best[: -(-len(keys) // 2)])


def successive_halving(
    settings: int, rounds: int, score: Callable[[int, int], float]
) -> dict[int, int]:
    """Run settings by successive halving; return the round after which each setting stopped.

    Settings are numbered from 0; settings that ran to the end are not in the result.

    Args:
        settings: the number of settings of hyperparameters.
        rounds: the declared number of rounds.
        score: a function of (setting, round) that runs it up to this round and returns its score.
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
    """Return what successive halving of this many settings costs, in full runs of one setting."""
    cost, before, left = 0.0, 0.0, settings
    for share in SHARES:
        if left == 1:
            break
        cost, before, left = cost + left * (1 / share - before), 1 / share, -(-left // 2)
    return cost + left * (1 - before)


def require_fits(race: int, rounds: int, where: str) -> None:
    """Raise if successive halving needs more rounds (`race`) than the run called `where` has."""
    if race > rounds:
        raise FedreproError(
            f"{where}: a race over {race} rounds, but a run ends after {rounds}; let it race over "
            f"{rounds} at most"
        )
