"""tools/other_processors.py: each processor has its own, and a failure on one is a failure."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools/other_processors.py"
# in the place of QEMU: says what it was given, and whose tests fail
STAND_IN = """#!/bin/sh
echo "qemu-x86_64: warning: TCG doesn't support requested feature"
grep -h . "$2/proc/cpuinfo"
echo "numba $NUMBA_CACHE_DIR; mkl $MKL_CBWR; words $*"
test "$QEMU_CPU" != "$FAILING"
"""


def run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    own = os.environ | {"PATH": f"{folder}:/usr/bin:/bin"} | variables
    return subprocess.run(
        [sys.executable, str(TOOL), *words], env=own, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def stand_in(tmp_path):
    if platform.machine() != "x86_64":
        pytest.skip("only x86-64 plays other processors")
    (tmp_path / "qemu-x86_64").write_text(STAND_IN)
    (tmp_path / "qemu-x86_64").chmod(0o755)
    return tmp_path


def test_each_processor_has_flags_and_a_cache_of_its_own(stand_in):
    found = run(stand_in, "tests/unit", "-m", "bytes", MKL_CBWR="COMPATIBLE")
    assert found.returncode == 0
    parts = found.stdout.split("== ")[1:]
    assert [part.splitlines()[0] for part in parts] == ["Haswell-noTSX", "EPYC"]
    assert len({part.partition("numba ")[2].partition(";")[0] for part in parts}) == 2
    for part in parts:
        assert "flags\t\t: avx avx2 fma\n" in part
        assert "mkl ;" in part  # fedrepro names the branch, as it would there
        assert part.rstrip().endswith("-k not lstm and not sorting tests/unit -m bytes")
        assert "warning" not in part


@pytest.mark.parametrize("failing", ["Haswell-noTSX", "EPYC"])
def test_a_failure_on_one_is_a_failure(stand_in, failing):
    assert run(stand_in, FAILING=failing).returncode == 1


def test_without_qemu_it_says_what_it_takes(tmp_path):
    own = os.environ | {"PATH": str(tmp_path)}
    found = subprocess.run([sys.executable, str(TOOL)], env=own, capture_output=True, text=True)
    assert found.returncode == 2
    assert "qemu-user" in found.stderr
