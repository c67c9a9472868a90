"""Progress of a trial of a method in rounds, and its checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrepro.api import Traffic
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import Number
from fedrepro.core.selection_rules import SPLIT
from fedrepro.core.serialization import from_plain, load_state, save_state, to_plain
from fedrepro.stages.common import log

REACHED, DIVERGED = "reached", "diverged"  # why there are no further rounds


@dataclass(frozen=True)
class Progress:
    """Progress of a trial: rounds done, the method's state, and its numbers.

    seconds: of all rounds and the start; client_seconds: those of clients among them; each: of
    single rounds. exchanges, traffic, rejected: of all rounds so far. idle: rounds in a row, up to
    the last, in which every update was rejected. ended: why there are no further rounds: `reached`
    (the target), `diverged`, too many idle rounds, or empty. target: the progress when it reached
    its target, if a race let it go on.
    """

    done: int
    state: dict[str, Any]
    recorded: list[Number] = field(default_factory=list)
    seconds: float = 0.0
    client_seconds: float = 0.0
    each: list[float] = field(default_factory=list)
    exchanges: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    rejected: int = 0
    idle: int = 0
    ended: str = ""
    target: Progress | None = None

    @property
    def times(self) -> dict[str, Any]:
        """Return columns of timings: seconds of all, clients and server, and of single rounds."""
        return {
            "seconds": self.seconds,
            "client_seconds": self.client_seconds,
            "server_seconds": self.seconds - self.client_seconds,
            "round_seconds": self.each,
        }

    @property
    def outcome(self) -> Progress:
        """Return the progress that counts as a run: nothing after its target."""
        return self.target or self

    @property
    def accuracy(self) -> float:
        """Return the last accuracy on test data; NaN before the first."""
        values = (
            number.value
            for number in reversed(self.recorded)
            if (number.metric, number.split, number.client) == ("accuracy", "test", None)
        )
        return next(values, math.nan)

    def accuracy_at(self, rung: int) -> float:
        """Return the accuracy that decides a race at a rung; NaN for a run that ended before."""
        wanted = ("accuracy", SPLIT, rung, None)
        values = (
            number.value
            for number in self.recorded
            if (number.metric, number.split, number.round, number.client) == wanted
        )
        return next(values, math.nan)

    def packed(self) -> dict[str, Any]:
        """Return it as plain data and tensors, for a checkpoint."""
        target = self.target and self.target.packed()
        state, traffic = to_plain(self.state), vars(self.traffic)
        recorded = [tuple(number) for number in self.recorded]
        plain = {"state": state, "traffic": traffic, "target": target, "recorded": recorded}
        return {**vars(self), **plain}

    @staticmethod
    def unpacked(kept: Mapping[str, Any]) -> Progress:
        """Restore the progress of `packed`."""
        recorded = [Number(*row) for row in kept["recorded"]]
        state, traffic = from_plain(kept["state"]), Traffic(**kept["traffic"])
        target = kept["target"] and Progress.unpacked(kept["target"])
        restored = {"recorded": recorded, "state": state, "traffic": traffic, "target": target}
        return Progress(**{**kept, **restored})


class Checkpointer:
    """Checkpoints of one trial: written at most every `seconds`, and at the end."""

    def __init__(self, path: Path, meaning: str, seconds: float) -> None:
        self.path, self.meaning, self.seconds = path, meaning, seconds
        self.written = time.perf_counter()

    def load(self) -> Progress | None:
        """Return the last checkpoint, if it can be read and has the same meaning."""
        if not self.path.exists():
            return None
        try:
            kept = load_state(self.path)
        except FedreproError as error:
            log(f"{error}; starting this trial again")
            return None
        if kept.pop("meaning") != self.meaning:
            log(f"{self.path} is of other sources, settings or another device; starting again")
            return None
        log(f"going on from round {kept['done']} of {self.path.name}")
        return Progress.unpacked(kept)

    def maybe_save(self, progress: Progress, *, last: bool) -> None:
        """Write a checkpoint if it is the last, or enough time has passed since the previous."""
        now = time.perf_counter()
        if last or now - self.written >= self.seconds:
            save_state(self.path, {"meaning": self.meaning, **progress.packed()})
            self.written = now
