"""A process that says when it has done a round, watched from outside with all that it starts.

It prints a json object a line: {"round": n} after each round, and at last {"accuracy": …}.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import harness
import psutil

EACH = 1.0  # seconds between two looks at its memory


@dataclass(frozen=True)
class Limits:
    """minutes: of processor time, and six times as many by the clock."""

    minutes: float
    gib: float


@dataclass
class Tree:
    """A process and its descendants: processor seconds of all that were ever seen, and GiB."""

    process: psutil.Process
    seconds: dict[int, float] = field(default_factory=dict)
    gib: float = 0.0

    def look(self) -> float:
        """Processor seconds so far; memory is shared out among those who share it (PSS)."""
        held = 0
        for one in self._all():
            try:
                times, held = one.cpu_times(), held + one.memory_full_info().pss
            except psutil.Error:  # it has ended meanwhile
                continue
            self.seconds[one.pid] = times.user + times.system
        self.gib = max(self.gib, held / 2**30)
        return sum(self.seconds.values())

    def kill(self) -> None:
        for one in self._all():
            try:
                one.kill()
            except psutil.Error:
                continue

    def _all(self) -> list[psutil.Process]:
        try:
            return [self.process, *self.process.children(recursive=True)]
        except psutil.Error:
            return []


def watched(
    words: Sequence[str], environment: Mapping[str, str], limits: Limits
) -> dict[str, object]:
    """Processor seconds of a round, the first aside, and to the end of that one; GiB at the peak;
    or what stopped it."""
    began, ticks, told = time.monotonic(), [], {}
    stopped = threading.Event()
    why: list[str] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        started = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**harness.unpinned(), **environment},
        )
        tree = Tree(psutil.Process(started.pid))

        def guard() -> None:
            while not stopped.wait(EACH):
                if tree.look() > 60 * limits.minutes:
                    why.append(f"more than {limits.minutes:g} minutes of processor time")
                if time.monotonic() - began > 6 * 60 * limits.minutes:
                    why.append(f"longer than {6 * limits.minutes:g} minutes")
                if tree.gib > limits.gib:
                    why.append(f"more than {limits.gib:g} GiB")
                if why:
                    tree.kill()
                    return

        watching = threading.Thread(target=guard)
        watching.start()
        assert started.stdout is not None
        for line in started.stdout:
            said = json.loads(line)
            if "round" in said:
                ticks.append(tree.look())
            else:
                told |= said
        left = started.wait()
        stopped.set()
        watching.join()
        log.seek(0)
        last = [line.strip() for line in log.read().splitlines() if line.strip()][-3:]
    found: dict[str, object] = {"rounds": len(ticks), "gib": round(tree.gib, 3)}
    if ticks:
        found["first_round_after"] = round(ticks[0], 2)
    if len(ticks) > 1:
        found["seconds"] = round((ticks[-1] - ticks[0]) / (len(ticks) - 1), 4)
    if why or left:
        said = why[0] if why else f"exit status {left}: {' / '.join(last)}"
        return {**found, "stopped_by": said}
    return {**found, **told}
