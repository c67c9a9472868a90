"""Rules that select one setting of hyperparameters, and successive halving, which stops bad ones.

In successive halving (`race`) settings run together, and the worse half, by accuracy on examples at
the server, stops after 1/8, 1/4 and 1/2 of a declared number of rounds, the *rungs*. A setting that
reached its target test accuracy still runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fedrepro.core.errors import FedreproError

SPLIT = "server_validation"  # whose accuracy decides a race
Over = Literal["end", "best", "area", "half", "race"]


@dataclass(frozen=True)
class SelectionRule:
    """A rule that selects hyperparameters: those whose mean of a metric over trials is best.

    over: whether the metric is taken at the end of a run, in the best round, on average over rounds
    (`area`) or over the second half of the rounds that all settings ran, or at the last comparison
    of successive halving. need: a name of the data that the rule uses, such as server_validation.
    """

    name: str
    metric: str
    split: str
    over: Over
    need: str
    words: str


_WORDS = {  # by what they look at
    "pooled_train": "on the pooled training data",
    "client_train": "and clients on the clients' own training data",
    "server": "on labelled examples at the server",
    "race": (
        "on labelled examples at the server, by which at 1/8, 1/4 and 1/2 of the rounds the worse "
        "half stops"
    ),
    "client_validation": "and clients on the clients' own validation examples",
    "public": "on the labelled public sample",
}
_SPLITS = {"server": SPLIT, "race": SPLIT, "pooled_train": "train", "client_train": "train"}
SELECTION_RULES = {
    name: SelectionRule(
        name,
        "accuracy_clients" if words.startswith("and clients") else "accuracy",
        split := _SPLITS.get(name, name),
        "race" if name == "race" else "end",
        f"{name}_accuracy" if split == "train" else split,
        f"mean accuracy over all trials {words}",
    )
    for name, words in _WORDS.items()
}
SHARES = (8, 4, 2)  # of the declared rounds, one over these
TIE_DIGITS = 12  # shares of equal counts may differ by rounding; beyond this they are a tie


def rungs(rounds: int) -> tuple[int, ...]:
    """Return 1/8, 1/4, 1/2 of `rounds`, rounded up, at which the worse half stops; none for 0."""
    return tuple(-(-rounds // share) for share in SHARES) if rounds else ()


def better_half(scores: Sequence[float]) -> list[int]:
    """Return sorted indices of the better half, rounded up; of equals the first; NaN is worst."""
    keys = [-math.inf if math.isnan(score) else round(score, TIE_DIGITS) for score in scores]
    best = sorted(range(len(keys)), key=lambda at: -keys[at])
    return sorted(best[: -(-len(keys) // 2)])


def successive_halving(
    settings: int, rounds: int, score: Callable[[int, int], float]
) -> dict[int, int]:
    """Run `settings` numbered settings by successive halving over a declared number of `rounds`.

    `score` runs a setting up to a round, and returns its score. The result has, for each setting
    that did not run to the end, the round after which it stopped.
    """
    left, stopped = list(range(settings)), dict[int, int]()
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
