"""When a method in rounds is measured, and when it may stop: `40`, `auto`, `auto+until~0.97`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedrepro.core.errors import FedreproError

EACH = 50  # rounds of which `auto` measures every one
GROWTH = 1.02  # and then after every 2 %


@dataclass(frozen=True)
class Measuring:
    """every: rounds between measurements, None for `auto`. until: test accuracy that ends a run."""

    every: int | None = 1
    until: float | None = None

    @staticmethod
    def parse(text: str) -> Measuring:
        """The inverse of str. Errors: FedreproError."""
        every, mark, until = text.partition("+until~")
        try:
            found = Measuring(
                None if every == "auto" else int(every), float(until) if mark else None
            )
        except ValueError:
            found = Measuring(0)
        if found.every is not None and found.every < 1:
            raise FedreproError(
                f"'{text}' does not say when to measure: it is a number of rounds from 1, or auto, "
                "and +until~0.97 behind it ends a run at that test accuracy"
            )
        if found.until is not None and not 0 < found.until <= 1:
            raise FedreproError(f"'{text}': a run ends at a test accuracy above 0 and at most 1")
        return found

    def __str__(self) -> str:
        every = "auto" if self.every is None else str(self.every)
        return every if self.until is None else f"{every}+until~{self.until:g}"

    def is_due(self, done: int, rounds: int) -> bool:
        """Whether accuracy is measured after `done` of `rounds` rounds; always at both ends."""
        if done in (1, rounds):
            return True
        if self.every is not None:
            return done % self.every == 0
        return done <= EACH or _stretch(done) > _stretch(done - 1)


def _stretch(done: int) -> int:
    return math.floor(math.log(max(done, EACH) / EACH) / math.log(GROWTH))


def rounds_to_target(rounds: Sequence[int], accuracies: Sequence[float], target: float) -> float:
    """Rounds until a curve reaches the target, as FedAvg counts them: inf if it never does.

    The curve is made monotone by the best so far, and is linear between measurements, from no
    accuracy before the first round on. Source: FedAvg, section 3 (tables 1 and 2).
    """
    before, best = 0, 0.0
    for done, accuracy in zip(rounds, accuracies, strict=True):
        if accuracy >= target:
            if done == 1:  # nothing is known before it
                return 1.0
            return before + (done - before) * (target - best) / (accuracy - best)
        before, best = done, max(best, accuracy)
    return math.inf
