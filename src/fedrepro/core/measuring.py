"""When a method in rounds is measured, and when it may stop.

`40`, `auto`, `auto+until~0.97`, `auto+until~0.97+race~100`: what follows the first word may lack.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fedrepro.core.errors import FedreproError

EACH = 50  # rounds of which `auto` measures every one
GROWTH = 1.02  # and then after every 2 %


FORM = re.compile(r"(auto|\d+)(?:\+until~([^+]+))?(?:\+race~(\d+))?", re.ASCII)


@dataclass(frozen=True)
class Measuring:
    """every: rounds between measurements, None for `auto`. until: test accuracy that ends a run.

    race: rounds that the rungs of a race are shares of (see `core.racing`), 0 if there is none.
    """

    every: int | None = 1
    until: float | None = None
    race: int = 0

    @staticmethod
    def parse(text: str) -> Measuring:
        """The inverse of str. Errors: FedreproError."""
        match = FORM.fullmatch(text)
        every, until, race = match.groups() if match else ("0", None, None)
        try:
            measuring = Measuring(
                None if every == "auto" else int(every),
                None if until is None else float(until),
                int(race or 0),
            )
        except ValueError:
            measuring = Measuring(0)
        if measuring.every == 0 or (race is not None and measuring.race < 1):
            raise FedreproError(
                f"'{text}' does not say when to measure: it is a number of rounds from 1, or auto; "
                "+until~0.97 behind it ends a run at that test accuracy, and +race~100 after that "
                "lets settings race over so many rounds"
            )
        if measuring.until is not None and not 0 < measuring.until < 1:
            raise FedreproError(f"'{text}': a run ends at a test accuracy above 0 and below 1")
        return measuring

    def __str__(self) -> str:
        every = "auto" if self.every is None else str(self.every)
        until = "" if self.until is None else f"+until~{self.until:g}"
        return f"{every}{until}{f'+race~{self.race}' if self.race else ''}"

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
