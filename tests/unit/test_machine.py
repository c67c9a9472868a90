"""What a machine is said to be, and that wrong products are found, on machines that lack a lot."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from fedrepro.core.diagnostics import machine_facts, usable_cores

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
