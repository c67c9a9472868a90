"""`fedrepro doctor`: one last line that says whether all is well, on whatever machine."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time

import pytest

from fedrepro.cli import doctor
from fedrepro.cli.main import main
from fedrepro.core.diagnostics.machine_facts import Observation

TABLE = """\
name,version,file,form,mirror,urls,checksum,bytes,unpacked,licence,citation
mnist,1,a.gz,publisher,,,,4,,none,none
mnist,1,b.gz,publisher,,,,4,,none,none
plays,1,c.gz,publisher,other/c.gz,,,,,none,none
"""


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder with a table of data sets and no configuration but the default."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config/datasets.csv").write_text(TABLE)
    (tmp_path / "config/config.yaml").write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREPRO_MIRROR", raising=False)
    return tmp_path


def examined(monkeypatch, *parts):
    monkeypatch.setattr(doctor, "PARTS", parts)
    lines = []
    return doctor.examine(lines.append), lines


def well():
    yield Observation("cores", "2")


def ill():
    yield Observation("disk", "full", wrong=True)


def broken():
    yield Observation("before", "this")
    raise RuntimeError("no such thing\nat all")


def test_the_last_line_says_whether_all_is_well(monkeypatch):
    status, lines = examined(monkeypatch, well)
    assert (status, lines[-1]) == (0, "All is well.")
    status, lines = examined(monkeypatch, well, ill, broken)
    assert (status, lines[-1]) == (1, "Not all is well: see disk, broken.")
    assert lines[-2].startswith("broken ")
    assert lines[-2].endswith(" is not known (RuntimeError: no such thing)")


# --------------------------------------------------------------------- what computes, apart


def asked(monkeypatch, part, seconds=30.0):
    monkeypatch.setattr(doctor, "libraries", part)
    return list(doctor.computing(seconds))


def test_what_computes_is_asked_in_a_process_of_its_own(monkeypatch):
    def process():
        yield Observation("process", str(os.getpid()))
        yield from broken()

    found = asked(monkeypatch, process)
    assert found[0].words != str(os.getpid())
    assert found[1] == Observation("before", "this")
    assert found[2] == Observation(
        "process", "is not known (RuntimeError: no such thing)", wrong=True
    )


def test_a_crash_is_a_line_and_nothing_said_before_is_lost(monkeypatch):
    def dying():
        yield Observation("MKL", "2024")
        faulthandler.disable()  # pytest's, which would print where it was
        os.kill(os.getpid(), signal.SIGILL)

    before, last = asked(monkeypatch, dying)
    assert before.what == "MKL"
    assert last.wrong
    assert "broke down (exit status -4) in the line after the last" in last.words


def test_what_hangs_is_given_up(monkeypatch):
    def hanging():
        yield Observation("MKL", "2024")
        time.sleep(60)

    began = time.monotonic()
    found = asked(monkeypatch, hanging, seconds=0.3)
    assert time.monotonic() - began < 30
    assert [one.wrong for one in found] == [False, True]
    assert "no answer for 0.3 s" in found[1].words


# ------------------------------------------------------------------------------------- data


def test_data_sets_are_those_of_which_files_are_there(clone, monkeypatch):
    mirror = clone / "mirror"
    for name in ("mnist/a.gz", "other/c.gz"):
        (mirror / name).parent.mkdir(parents=True)
        (mirror / name).write_bytes(b"1234")
    monkeypatch.setenv("FEDREPRO_MIRROR", str(mirror))
    found = list(doctor.data_sets())
    assert [one.wrong for one in found] == [False, False]
    assert found[0].words == f"{mirror}: mnist (1 of 2 files), plays"
    assert found[1].words == "resources: no data set"
    (mirror / "mnist/a.gz").write_bytes(b"12")
    (wrong,) = [one for one in doctor.data_sets() if one.wrong]
    assert "mnist/a.gz has not the size" in wrong.words
    monkeypatch.delenv("FEDREPRO_MIRROR")
    assert "none is set" in next(doctor.data_sets()).words
    monkeypatch.setenv("FEDREPRO_MIRROR", str(clone / "none"))
    found = next(doctor.data_sets())
    assert (found.wrong, "is not there" in found.words) == (True, True)


# ---------------------------------------------------------------------- the whole of it, bare


def test_a_machine_that_lacks_nearly_everything_gets_lines_and_no_traceback(
    tmp_path, monkeypatch, capfd
):
    """No program, no /proc, no library, no configuration."""
    absent = ("torch", "numba", "scipy.linalg.blas", "threadpoolctl", "llvmlite.binding")
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("CPUINFO", "MEMINFO", "CGROUPS"):
        monkeypatch.setattr(f"fedrepro.core.diagnostics.machine_facts.{name}", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 1
    out, error = capfd.readouterr()
    assert "Traceback" not in out + error
    lines = out.splitlines()
    assert lines[-1].startswith("Not all is well: see ")
    for what in ("torch", "Numba", "BLAS", "data"):
        assert what in lines[-1]
    assert any(line.startswith("numpy matmul") and "right" in line for line in lines)
