"""The near end of a peer's script: a process of the peers' environment that works on demand."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import harness

from fedrepro.core.errors import FedreproError

PYTHON = harness.ROOT / ".venv-peers" / "bin" / "python"
SCRIPTS = harness.ROOT / "benchmarks" / "peers"


class Peer:
    """Started once, it runs the work whenever it is called; so its start is not measured."""

    def __init__(self, script: str, problem: Path, log: Path, *words: str) -> None:
        if not PYTHON.exists():
            raise FedreproError(
                f"{PYTHON.relative_to(harness.ROOT)} is not there: the frameworks to compare "
                "with have an environment of their own; install them with: make bench-peers"
            )
        self.log = log
        self.process = subprocess.Popen(
            [PYTHON, SCRIPTS / script, problem, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w", encoding="utf-8"),
            text=True,
            env={**harness.unpinned(), "PYTHONPATH": str(SCRIPTS)},
        )
        self._line()

    def __call__(self) -> harness.Timed:
        assert self.process.stdin is not None
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        found = json.loads(self._line())
        return harness.Timed(found.pop("seconds"), found)

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            last = self.log.read_text(encoding="utf-8")[-800:]
            raise FedreproError(f"{self.process.args[1]} stopped:\n{last}")  # type: ignore[index]
        return line

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
