"""`fedrepro doctor`: what a machine is said to be; one run at a time in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedrepro.cli.main import main
from fedrepro.core import command_under_lock
from fedrepro.core.diagnostics import usable_cores


def test_doctor_says_what_is_here_and_which_library_is_broken(tmp_path, monkeypatch, capfd):
    assert main(["doctor"]) == 0
    out = capfd.readouterr().out
    for what in ("processor ", "memory ", "BLAS ", "openblas ", "torch ", "OMP_NUM_THREADS=1"):
        assert what in out
    for name in ("torch", "numba", "scipy.linalg.blas", "threadpoolctl"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["doctor"]) == 1
    out, error = capfd.readouterr()
    assert "Traceback" not in out + error
    assert out.count("cannot be used (ModuleNotFoundError") == 3


def test_cores_are_those_of_the_affinity(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5, 6}, raising=False)
    assert usable_cores.usable_cores() == 2


def locked(folder: Path, *command: str) -> list[str]:
    lock = str(folder / ".fedrepro" / "lock")
    return [sys.executable, command_under_lock.__file__, lock, "--", *command]


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(locked(folder, *command), capture_output=True, text=True, timeout=30)


def test_a_second_live_run_is_refused_with_one_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, "sh", "-c", "echo out; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "")
    # its jobs go on when a run is killed, and do not hold the lock
    script = (
        "import os, subprocess, time; subprocess.Popen(['sleep', '5'], stdout=subprocess.DEVNULL); "
        "print(os.getpid(), flush=True); time.sleep(60)"
    )
    command = locked(tmp_path, sys.executable, "-c", script)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = process.stdout.readline().strip()
        second = run(tmp_path, "sh", "-c", "echo ran")
        assert run(tmp_path / "elsewhere", "true").returncode == 0
        process.kill()
    assert int(pid) == process.pid
    assert run(tmp_path, "true").returncode == 0
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr.count("\n") == 1
    assert f"process {pid}, since 20" in second.stderr


def test_a_shell_step_that_outlives_its_killed_shell_keeps_the_lock(tmp_path: Path) -> None:
    shell = locked(tmp_path, "sh", "-c", "sh -c 'echo started; cat'; true")
    process = subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.kill()
    process.wait()
    assert run(tmp_path, "true").returncode == 2
    process.communicate()  # ends the step's input, and so the step
    for _ in range(100):
        if run(tmp_path, "true").returncode == 0:
            return
        time.sleep(0.1)
    pytest.fail("the lock was not freed when the last step ended")


def test_what_cannot_be_run_or_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("where the folder of the lock should be")
    for folder, command in ((tmp_path, "no-such-command"), (tmp_path / "file", "true")):
        done = run(folder, command)
        assert done.returncode == 2
        assert done.stderr.startswith("fedrepro: cannot lock ")
        assert f"or run {command}: " in done.stderr
