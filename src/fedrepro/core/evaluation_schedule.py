"""When a method in rounds is evaluated, and when it may stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
