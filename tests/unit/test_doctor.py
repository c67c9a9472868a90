"""`fedrepro doctor`: one last line that says whether all is well, on whatever machine."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time

from fedrepro.cli.main import main
from fedrepro.core.diagnostics import machine_facts as doctor
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
