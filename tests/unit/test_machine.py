"""`fedrepro doctor`: what a machine is said to be, and what is wrong; one run at a time."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fedrepro.cli.main import main
from fedrepro.core.diagnostics import machine_facts, usable_cores
from fedrepro.core.diagnostics import machine_facts as doctor
from fedrepro.core.diagnostics import run_locked as module
from fedrepro.core.diagnostics.machine_facts import Observation


def well():
    yield Observation("cores", "2")


def ill():
    yield Observation("disk", "full", wrong=True)


def test_the_last_line_says_whether_all_is_well(monkeypatch):
    lines = []
    for parts, told in (((well,), "All is well."), ((well, ill), "Not all is well: see disk.")):
        monkeypatch.setattr(doctor, "PARTS", parts)
        assert doctor.examine(lines.append) == len(parts) - 1
        assert lines[-1] == told


def ill_here():
    yield Observation("process", str(os.getpid()))
    raise RuntimeError("no such thing\nat all")


def dying():
    faulthandler.disable()  # pytest's, which would print where it was
    os.kill(os.getpid(), signal.SIGILL)
    yield


def hanging():
    time.sleep(60)
    yield


def test_each_library_is_asked_in_a_process_of_its_own(monkeypatch):
    """A crash, and what hangs, is a line, and the others are asked all the same."""
    parts = {"broken": ill_here, "MKL": dying, "BLAS": hanging, "cores": well}
    monkeypatch.setattr(doctor, "ASKED", parts)
    began = time.monotonic()
    process, broken, crashed, lost, last, environment = doctor.computing(2.0)
    assert time.monotonic() - began < 50
    assert process.words != str(os.getpid())
    assert (
        broken.words == "cannot be used (RuntimeError: no such thing at all): run `make env` again"
    )
    assert crashed.words.startswith("broke down (exit status -4)")
    assert lost.words.startswith("gave no answer for 2 s")
    assert [one.wrong for one in (broken, crashed, lost, last)] == [True, True, True, False]
    assert environment.what == "environment"


def test_a_machine_that_lacks_nearly_everything_gets_lines_and_no_traceback(
    tmp_path, monkeypatch, capfd
):
    """No program, no /proc, no library, no configuration."""
    absent = ("torch", "numba", "scipy.linalg.blas", "threadpoolctl", "llvmlite.binding")
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("CPUINFO", "MEMINFO"):
        monkeypatch.setattr(f"fedrepro.core.diagnostics.machine_facts.{name}", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 1
    out, error = capfd.readouterr()
    assert "Traceback" not in out + error
    lines = out.splitlines()
    assert lines[-1].startswith("Not all is well: see ")
    for what in ("torch", "Numba", "BLAS"):
        assert what in lines[-1]
    assert any(line.startswith("numpy matmul") and "right" in line for line in lines)


EPYC = """processor\t: 0
model name\t: AMD EPYC 9R14
flags\t\t: fpu sse2 avx avx2 fma avx512f avx512bw

processor\t: 1
flags\t\t: fpu
"""
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd sve bf16\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [(EPYC, "AMD EPYC 9R14 (avx avx2 fma avx512f avx512bw)"), (ARM, "(asimd bf16 sve)")],
)
def test_a_processor_has_its_name_and_the_flags_that_matter(tmp_path, monkeypatch, text, words):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    monkeypatch.setattr(machine_facts, "CPUINFO", str(path))
    assert words in machine_facts.processor().words
    path.unlink()
    found = machine_facts.processor()
    assert "does not tell its flags" in found.words
    assert not found.wrong


def test_memory_is_what_a_container_may_use(tmp_path, monkeypatch):
    info, most = tmp_path / "meminfo", tmp_path / "memory.max"
    monkeypatch.setattr(machine_facts, "MEMINFO", str(info))
    monkeypatch.setattr(machine_facts, "LIMITS", (str(most), str(tmp_path / "none")))
    info.write_text("MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\n")
    for limit, further in (("", ""), ("max", ""), (f"{2**31}", ", limited to 2.0")):
        most.write_text(f"{limit}\n")
        assert machine_facts.memory().words == f"8.0 GiB, 4.0 free{further}"
    info.unlink()
    assert machine_facts.memory().words == "the system does not tell"


@pytest.mark.parametrize(
    ("limits", "given"),
    [
        ({}, 8),
        ({"": "max 100000"}, 8),
        ({"": "150000 100000"}, 1),
        ({"": "50000 100000"}, 1),
        ({"slurm/job": "300000 100000", "slurm": "max 100000", "": "600000 100000"}, 3),
        ({"slurm": "200000 100000"}, 2),
        ({"other": "100000 100000"}, 8),
        ({"": "a limit"}, 8),
    ],
)
def test_cores_are_those_of_the_affinity_and_of_control_groups(
    tmp_path, monkeypatch, limits, given
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for folder, limit in limits.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "cpu.max").write_text(f"{limit}\n")
    own = tmp_path / "own"
    own.write_text("0::/slurm/job\n")
    assert usable_cores.usable_cores(str(tmp_path), str(own)) == given
    if given == 8:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
        assert usable_cores.usable_cores(str(tmp_path), str(tmp_path / "none")) == 1


def test_a_full_disk_is_wrong_and_a_library_that_cannot_be_loaded_is_said(monkeypatch):
    assert not any(found.wrong for found in machine_facts.disk(least=0))
    full = machine_facts.disk(least=2**80)
    assert all(found.wrong and "too little" in found.words for found in full)
    monkeypatch.setitem(sys.modules, "numba", None)
    numba = next(machine_facts.asked("Numba"))
    assert numba.wrong
    assert "cannot be used (ModuleNotFoundError" in numba.words


@pytest.mark.parametrize(
    ("product", "wrong"),
    [
        (lambda a, b: a @ b, False),
        (lambda a, b: a[:, ::-1] @ b[::-1], False),  # another order of summation
        # as bfloat16 has it: seven bits behind the first
        (lambda a, b: (a.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) @ b, True),
        (lambda a, b: a @ b + np.eye(len(a), b.shape[1], 9) * np.float32(0.1), True),
        (lambda a, b: (a @ b) * np.float32("nan"), True),
    ],
)
def test_a_wrong_product_is_found(product, wrong):
    found = machine_facts.checked_product("numpy matmul", product)
    assert found.wrong == wrong
    assert ("WRONG" in found.words) == wrong


def test_each_library_says_its_branch_and_is_right_here():
    asked = (one for what in machine_facts.ASKED for one in machine_facts.asked(what))
    found = {finding.what: finding for finding in asked}
    due = {"ATen", "GPU", "numpy", "Numba", "torch mm on cpu", "numpy matmul"}
    assert {*due, "scipy sgemm"} <= set(found)
    assert any(what.startswith("openblas of ") for what in found)
    assert not [finding for finding in found.values() if finding.wrong]
    assert "torch " in found["ATen"].words
    assert "OMP_NUM_THREADS=1" in machine_facts.environment_variables().words


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


def test_what_cannot_be_run_or_locked_is_named_and_a_wrong_call_shows_the_usage(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("where the folder of the lock should be")
    for folder, command, status, words in (
        (tmp_path, "no-such-command", 127, "cannot run no-such-command: "),
        (tmp_path / "file", "true", 2, "cannot lock "),
    ):
        done = run(folder, command)
        assert done.returncode == status
        assert re.fullmatch(rf"fedrepro: {words}.*\n", done.stderr)
    for words in ([], ["lock"], ["lock", "--"], ["lock", "command"]):
        call = [sys.executable, str(LOCKED), *words]
        done = subprocess.run(call, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("usage:")
