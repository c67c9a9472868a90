"""When a method in rounds is evaluated, when it may stop, and rules that select one setting.

In successive halving (`race`) settings, combinations of parameter values, run together. The worse
half, by accuracy on examples at the server, stops after 1/8, 1/4 and 1/2 of a declared number of
rounds, the *rungs*. A setting goes on there even after it reached its target test accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

EACH = 50  # `auto` measures every round up to this one
LOG_GROWTH = math.log(1.02)  # and then every 2 %
SPLIT = "server_validation"  # whose accuracy decides a race
Over = Literal["end", "half", "race"]


@dataclass(frozen=True)
class EvaluationSchedule:
    """The communication rounds after which a method is evaluated, and when its run ends early.

    every: rounds from one evaluation to the next; None: 1 up to round 50, then 2 % of those done.
    until: the test accuracy that ends a run. race: rounds declared for successive halving, or 0.
    """

    every: int | None = 1
    until: float | None = None
    race: int = 0

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
        ratios = (max(n, EACH) / EACH for n in (done - 1, done))
        before, now = (math.floor(math.log(ratio) / LOG_GROWTH) for ratio in ratios)
        return done <= EACH or now > before


def rounds_to_target(rounds: Sequence[int], accuracies: Sequence[float], target: float) -> float:
    """Return the number of rounds, perhaps a fraction, until accuracy reaches `target`; or inf.

    `accuracies` are measured after `rounds`. As in the FedAvg paper, their running maximum is
    interpolated linearly, from accuracy 0 at round 0.
    """
    before, best = 0, 0.0
    for done, accuracy in zip(rounds, accuracies, strict=True):
        if accuracy >= target:
            if done == 1:  # without a measurement before it
                return 1.0
            return before + (done - before) * (target - best) / (accuracy - best)
        before, best = done, max(best, accuracy)
    return math.inf


@dataclass(frozen=True)
class SelectionRule:
    """A rule that selects hyperparameters: those whose mean of `metric` over trials is best.

    split: the examples measured on. over: which value counts: "end", a run's last; "half", the mean
    over the second half of the rounds that all runs have; "race", that at the last comparison of
    successive halving. need: the information used, a key of DISCLOSED in api.py. words: a phrase.
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
    """Return the rounds after which half the runs stop: 1/8, 1/4, 1/2 of `rounds`; () for 0."""
    return tuple(-(-rounds // share) for share in SHARES) if rounds else ()


def successive_halving(
    settings: int, rounds: int, score: Callable[[int, int], float]
) -> dict[int, int]:
    """Compare hyperparameter settings, 0 to `settings` - 1, by successive halving over `rounds`.

    `score(setting, round)` runs a setting up to a round and returns its score. Higher is better,
    NaN is worst, and the first of equals wins. Returns {setting that was stopped: its last round}.
    """
    left, stopped = list(range(settings)), dict[int, int]()
    for rung in rungs(rounds):
        if len(left) == 1:
            break
        scores = {setting: score(setting, rung) for setting in left}
        keys = {s: math.inf if math.isnan(v) else -round(v, TIE_DIGITS) for s, v in scores.items()}
        better = sorted(left, key=keys.__getitem__)[: -(-len(left) // 2)]
        stopped |= {setting: rung for setting in left if setting not in better}
        left = sorted(better)
    return stopped


def whole_runs(settings: int) -> float:
    """Return the cost of successive halving of `settings` settings, as a number of full runs."""
    cost, before, left = 0.0, 0.0, settings
    for share in SHARES:
        cost, before, left = cost + left * (1 / share - before), 1 / share, -(-left // 2)
    return cost + left * (1 - before)
