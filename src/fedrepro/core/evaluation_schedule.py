"""When a method in rounds is evaluated, when it may stop, and rules that select one setting.

In successive halving (`race`) settings run together, and the worse half, by accuracy on examples at
the server, stops after 1/8, 1/4 and 1/2 of a declared number of rounds, the *rungs*. A setting that
reached its target test accuracy still runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fedrepro.core.errors import FedreproError, shown

EACH = 50  # `auto` measures every round up to this one
GROWTH = 1.02  # and then every 2 %


@dataclass(frozen=True)
class EvaluationSchedule:
    """The communication rounds after which a method is evaluated, and when its run ends early.

    every: rounds between evaluations; None for every round up to 50, then for growth by 2 %. until:
    the test accuracy that ends a run. race: the rounds of successive halving, 0 without it.
    """

    every: int | None = 1
    until: float | None = None
    race: int = 0

    def __post_init__(self) -> None:
        """Raise FedreproError unless every ≥ 1 or None, race ≥ 0, and 0 < until < 1 or None."""
        for least, rounds in ((1, 1 if self.every is None else self.every), (0, self.race)):
            if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < least:
                raise FedreproError(f"rounds are counted from {least}, not {shown(rounds)}")
        if self.until is not None and not 0 < self.until < 1:
            raise FedreproError(f"a run ends at an accuracy above 0 and below 1, not {self.until}")

    def __str__(self) -> str:
        every = "auto" if self.every is None else str(self.every)
        until = "" if self.until is None else f"+until~{self.until:g}"
        return f"{every}{until}{f'+race~{self.race}' if self.race else ''}"

    def is_due(self, done: int, rounds: int) -> bool:
        """Return whether to evaluate after round `done` of `rounds`; always the first and last."""
        if done in (1, rounds):
            return True
        if self.every is not None:
            return done % self.every == 0
        return done <= EACH or _stretch(done) > _stretch(done - 1)


def _stretch(done: int) -> int:
    return math.floor(math.log(max(done, EACH) / EACH) / math.log(GROWTH))


def rounds_to_target(rounds: Sequence[int], accuracies: Sequence[float], target: float) -> float:
    """Return the number of rounds, perhaps a fraction, until accuracy reaches `target`; or inf.

    As in the FedAvg paper, the running maximum of `accuracies`, measured after `rounds`, is
    interpolated linearly between evaluated rounds, from accuracy 0 at round 0.
    """
    before, best = 0, 0.0
    for done, accuracy in zip(rounds, accuracies, strict=True):
        if accuracy >= target:
            if done == 1:  # without a measurement before it
                return 1.0
            return before + (done - before) * (target - best) / (accuracy - best)
        before, best = done, max(best, accuracy)
    return math.inf


SPLIT = "server_validation"  # whose accuracy decides a race
Over = Literal["end", "half", "race"]


@dataclass(frozen=True)
class SelectionRule:
    """A rule that selects hyperparameters: those whose mean of a metric over trials is best.

    over: whether the metric is taken at the end of a run, on average over the second half of the
    rounds that all settings ran, or at the last comparison of successive halving. need: a name of
    the data that the rule uses, such as server_validation.
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
    """Return the rounds after which successive halving stops the worse half; () for 0 `rounds`.

    They are 1/8, 1/4 and 1/2 of `rounds`, rounded up.
    """
    return tuple(-(-rounds // share) for share in SHARES) if rounds else ()


def better_half(scores: Sequence[float]) -> list[int]:
    """Return sorted indices of the better half, rounded up; of equals the first; NaN is worst."""
    keys = [-math.inf if math.isnan(score) else round(score, TIE_DIGITS) for score in scores]
    best = sorted(range(len(keys)), key=lambda at: -keys[at])
    return sorted(best[: -(-len(keys) // 2)])


def successive_halving(
    settings: int, rounds: int, score: Callable[[int, int], float]
) -> dict[int, int]:
    """Compare parameter values, numbered from 0, by successive halving over `rounds` rounds.

    `settings` is their number. `score(setting, round)` runs a setting up to a round and returns its
    score, where higher is better. Returns {setting that did not run to the end: its last round}.
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
