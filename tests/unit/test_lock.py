"""core/diagnostics/run_locked.py: one run at a time in a folder, and a killed run never blocks the
next."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedrepro.core.diagnostics import run_locked as module

LOCKED = Path(module.__file__)


def locked(folder: Path, *command: str) -> list[str]:
    return [sys.executable, str(LOCKED), str(folder / ".fedrepro" / "lock"), "--", *command]


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(locked(folder, *command), capture_output=True, text=True, timeout=30)


HELD = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


@contextmanager
def holder(folder: Path, script: str) -> Iterator[subprocess.Popen[str]]:
    """A live run that says its process number once it holds the lock."""
    command = locked(folder, sys.executable, "-c", script)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_second_live_run_is_refused_with_one_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, "sh", "-c", "echo out; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "")
    # the command takes the place of run_locked.py, and may do so again
    script = f"import os, sys; os.execv(sys.executable, [sys.executable, '-c', {HELD!r}])"
    with holder(tmp_path, script) as process:
        pid = first_line(process)
        second = run(tmp_path, "sh", "-c", "echo ran")
        assert run(tmp_path / "elsewhere", "true").returncode == 0
    assert int(pid) == process.pid
    assert run(tmp_path, "true").returncode == 0  # a killed run frees the lock
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr.count("\n") == 1
    assert f"process {pid}, since 20" in second.stderr
    assert f"kill {pid}" in second.stderr


def test_jobs_left_over_by_a_killed_python_do_not_hold_the_lock(tmp_path: Path) -> None:
    script = (
        "import subprocess, time; subprocess.Popen(['sleep', '5'], stdout=subprocess.DEVNULL); "
        "print('begun', flush=True); time.sleep(60)"
    )
    with holder(tmp_path, script) as process:
        first_line(process)
        process.kill()
        process.wait()
        assert run(tmp_path, "true").returncode == 0


def test_a_shell_step_that_outlives_its_killed_shell_keeps_the_lock(tmp_path: Path) -> None:
    shell = locked(tmp_path, "sh", "-c", "sh -c 'echo started; cat'; true")
    process = subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first_line(process) == "started"
    process.kill()
    process.wait()
    second = run(tmp_path, "true")
    assert second.returncode == 2
    assert "still at work" in second.stderr
    process.communicate()  # ends the step's input, and so the step
    for _ in range(100):
        if run(tmp_path, "true").returncode == 0:
            return
        time.sleep(0.1)
    pytest.fail("the lock was not freed when the last step ended")


def test_what_cannot_be_run_or_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("where the folder of the lock should be")
    for folder, command, status, words in (
        (tmp_path, "no-such-command", 127, "cannot run no-such-command: "),
        (tmp_path / "file", "true", 2, "cannot lock "),
    ):
        done = run(folder, command)
        assert done.returncode == status
        assert re.fullmatch(rf"fedrepro: {words}.*\n", done.stderr)


def test_a_wrong_call_shows_the_usage(tmp_path: Path) -> None:
    for words in ([], ["lock"], ["lock", "--"], ["lock", "command"]):
        call = [sys.executable, str(LOCKED), *words]
        done = subprocess.run(call, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("usage:")
