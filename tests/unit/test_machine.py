"""What a machine is said to be, and that wrong products are found, on machines that lack a lot."""

from __future__ import annotations

import ctypes
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import conftest
from fedrepro.machine import cores, facts, libraries, products
from fedrepro.machine.observation import Observation, why

EPYC = """processor\t: 0
model name\t: AMD EPYC 9R14
flags\t\t: fpu sse2 avx avx2 fma avx512f avx512bw

processor\t: 1
flags\t\t: fpu
"""
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd sve bf16\n"


def one(found) -> Observation:
    (only,) = found
    return only


# ------------------------------------------------------------------------------------- facts


@pytest.mark.parametrize(
    ("text", "words"),
    [(EPYC, "AMD EPYC 9R14 (avx avx2 fma avx512f avx512bw)"), (ARM, "(asimd bf16 sve)")],
)
def test_a_processor_has_its_name_and_the_flags_that_matter(tmp_path, text, words):
    (tmp_path / "cpuinfo").write_text(text)
    assert words in facts.processor(tmp_path / "cpuinfo").words


def test_a_processor_that_is_not_told_is_said(tmp_path):
    found = facts.processor(tmp_path / "none")
    assert "does not tell its flags" in found.words
    assert not found.wrong


def test_memory_is_what_a_container_may_use(tmp_path):
    info = tmp_path / "meminfo"
    info.write_text("MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\n")
    assert facts.memory(info, tmp_path).words == "8.0 GiB, 4.0 free"
    (tmp_path / "memory.max").write_text("max\n")
    assert facts.memory(info, tmp_path).words == "8.0 GiB, 4.0 free"
    (tmp_path / "memory.max").write_text(f"{2**31}\n")
    assert facts.memory(info, tmp_path).words == "8.0 GiB, 4.0 free, limited to 2.0"


def test_memory_that_is_not_told_is_said(tmp_path, monkeypatch):
    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr(os, "sysconf", unknown)
    assert facts.memory(tmp_path / "none", tmp_path).words == "the system does not tell"


@pytest.mark.parametrize(
    ("limits", "given"),
    [
        ({}, 8),
        ({"": "max 100000"}, 8),
        ({"": "400000 100000"}, 4),
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
    assert cores.usable_cores(str(tmp_path), str(own)) == given
    if given == 8:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
        assert cores.usable_cores(str(tmp_path), str(tmp_path / "none")) == 1


def test_a_full_disk_is_wrong():
    assert not any(found.wrong for found in facts.disk(least=0))
    assert all(found.wrong and "too little" in found.words for found in facts.disk(least=2**80))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("AccountingStorageType = accounting_storage/slurmdbd", "23.02.1, with accounting"),
        ("AccountingStorageType = accounting_storage/none", "23.02.1, without accounting"),
        ("AccountingStorageType = (null)", "23.02.1, without accounting"),
        ("slurm_load_ctl_conf error: Unable to contact", "controller does not answer"),
        (None, "scontrol does not answer"),
    ],
)
def test_slurm_is_asked_whether_it_keeps_account(tmp_path, monkeypatch, answer, words):
    told = {"sbatch": "", "scontrol": answer}
    for name, text in told.items():
        if text is not None:
            (tmp_path / name).write_text(f"#!/bin/sh\necho '{text}\nSLURM_VERSION = 23.02.1'\n")
            (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert words in facts.slurm().words


def test_without_slurm_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert facts.slurm() == Observation("SLURM", "none")


# ---------------------------------------------------------------------------------- products


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(products, "LAYERS", ((10, 200, 30), (6, 30, 7)))
    monkeypatch.setattr(products, "PLACED", ((2, 30, 7),))
    monkeypatch.setattr(products, "IMAGES", (((2, 3, 9, 9), (4, 3, 3, 3)),))


def matmul(a, b):
    return a @ b


def one_off(a, b):
    found = a @ b
    found[-1, -1] *= 1.01
    return found


def shortened(a, b):
    """As bfloat16 has it: seven bits behind the first."""
    return (a.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) @ b


def without_a_number(a, b):
    return (a @ b) * np.float32("nan")


def moving(a, b):
    """Right, but for a last bit that depends on where the first matrix lies."""
    return np.nextafter(a @ b, np.float32(9)) if a.ctypes.data % 64 else a @ b


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("product", [one_off, shortened, without_a_number])
def test_a_wrong_product_is_found(product):
    found = products.checked("numpy matmul", product)
    assert found.wrong
    assert "WRONG" in found.words


@pytest.mark.usefixtures("small")
def test_a_right_product_is_well_and_one_whose_bytes_move_is_not():
    found = products.checked("numpy matmul", matmul)
    assert not found.wrong
    assert "the same bytes" in found.words
    found = products.checked("torch mm", moving)
    assert found.wrong
    assert "BYTES DEPEND" in found.words
    assert "MKL_CBWR" in found.words


def convolved(images, kernels):
    patches = np.lib.stride_tricks.sliding_window_view(images, kernels.shape[2:], (2, 3))
    return np.einsum("ncijhw,dchw->ndij", patches, kernels)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("convolve", "words"),
    [
        (convolved, "the same bytes"),
        (lambda x, w: convolved(x, w[:, :, ::-1]), "WRONG"),
        (lambda x, w: convolved(x, w) + np.float32(x.ctypes.data % 64 / 2**25), "BYTES DEPEND"),
    ],
)
def test_convolutions_are_held_to_sums_over_patches(convolve, words):
    found = products.checked("torch conv2d", convolve)
    assert words in found.words
    assert found.wrong == (convolve is not convolved)


def test_the_bound_holds_for_any_order_of_summation_and_knows_tf32():
    a, b = products.drawn((4, 3000), (3000, 5))
    order = np.argsort(np.abs(a[0]))
    one_by_one = np.zeros((4, 5), np.float32)
    for k in order:
        one_by_one += np.outer(a[:, k], b[k])
    assert products.share_of_bound(one_by_one, a, b) < 1
    a, b = a[:, :4], b[:4]
    cut = (a.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) @ b
    assert products.share_of_bound(cut, a, b) > 1
    assert products.share_of_bound(cut, a, b, products.TF32) < 1


def test_the_bound_is_a_number_of_roundings_of_the_sum_of_sizes():
    """n u / (1 − n u), here of three products of size 2 that cancel to 2."""
    left, right = np.float32([[1, -1, 1]]), np.float32([[2], [2], [2]])
    unit = 2.0**-24
    allowed = 3 * unit / (1 - 3 * unit) * 6
    for share in (0.5, 4.0):
        found = np.array([[2 + share * allowed]])
        assert products.share_of_bound(found, left, right) == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize("offset", products.OFFSETS)
def test_matrices_lie_where_they_are_put(offset):
    found = products.placed(np.arange(6, dtype=np.float32).reshape(2, 3), offset)
    assert found.ctypes.data % products.LINE == 4 * offset
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.usefixtures("small")
def test_every_library_that_computes_is_right_here():
    found = {finding.what: finding for finding in products.products()}
    assert {"torch mm", "torch bmm", "torch conv2d", "numpy matmul", "scipy sgemm"} <= set(found)
    assert not [finding for finding in found.values() if finding.wrong]


def test_a_library_that_is_absent_or_breaks_is_said(monkeypatch):
    def broken():
        raise OSError("libmkl.so: cannot open\nand more")

    monkeypatch.setattr(products, "LIBRARIES", {"torch": broken})
    found = one(products.products())
    assert found.words == "cannot compute (OSError: libmkl.so: cannot open)"
    assert found.wrong
    assert why(KeyError()) == "KeyError"


# --------------------------------------------------------------------------------- libraries


def test_each_library_says_its_branch():
    found = {finding.what: finding.words for finding in libraries.libraries()}
    assert {"ATen", "MKL", "oneDNN", "GPU", "numpy", "Numba", "environment"} <= set(found)
    assert "torch " in found["ATen"]
    assert "OMP_NUM_THREADS=1" in found["environment"]


def test_a_library_that_cannot_be_loaded_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(libraries, "ASKED", {"Numba": libraries._numba})
    numba = next(libraries.libraries())
    assert numba.wrong
    assert "cannot be used (ModuleNotFoundError" in numba.words


def test_what_mkl_and_onednn_report_becomes_words(monkeypatch):
    lines = (
        "MKL_VERBOSE oneMKL 2024.0 Update 2 Product build 20240605 for Intel(R) 64 architecture "
        "Intel(R) Advanced Vector Extensions 512 (Intel(R) AVX-512) enabled processors, Lnx\n"
        "MKL_VERBOSE SGEMM(N,N,8,8,8,0x7f,0x55,8) 33.20ms CNR:AVX2 Dyn:1 FastMM:1 TID:0  NThr:2\n"
    )
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    words = libraries._mkl(lines).words
    assert words.startswith("2024.0 Update 2, MKL_CBWR=AVX2, takes AVX2, as on Intel(R) Advanced")
    monkeypatch.delenv("MKL_CBWR")
    assert libraries._mkl("").words == (
        "of unknown version, MKL_CBWR is not set, does not tell its branch"
    )
    lines = (
        "onednn_verbose,v1,info,oneDNN v3.13.3 (commit b38f)\nonednn_verbose,v1,info,cpu,isa:Intel "
        "AVX2\nonednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx2,forward_training\n"
    )
    assert libraries._onednn(lines).words == "v3.13.3, takes Intel AVX2, convolves by jit:avx2"
    assert libraries._onednn("").words == "is not asked for convolutions"


def test_what_a_library_prints_past_python_is_heard():
    assert libraries.said(lambda: ctypes.CDLL(None).puts(b"from C")) == "from C\n"


def test_a_processor_that_is_played_is_told(monkeypatch):
    """The kernel goes on to show the real one."""
    monkeypatch.setattr(libraries, "kernel_flags", lambda: frozenset({"amx_tile", "avx", "sve"}))
    assert "emulation" in [finding.what for finding in libraries._numba()]
    monkeypatch.setattr(libraries, "kernel_flags", frozenset)
    assert "emulation" not in [finding.what for finding in libraries._numba()]


# ------------------------------------------------------------------------- tests that compare


def test_a_test_with_bytes_in_its_name_is_known(request):
    assert request.node.get_closest_marker("bytes")


def test_a_test_that_compares_arrays_is_known(request):
    assert all(np.array_equal(value, value) for value in (1, 2))
    assert request.node.get_closest_marker("bytes")


def test_others_are_not(request):
    assert not request.node.get_closest_marker("bytes")


@pytest.mark.parametrize(("marked", "failed"), [(True, True), (True, False), (False, True)])
def test_only_a_failing_test_that_is_marked_names_the_machine(monkeypatch, marked, failed):
    monkeypatch.setattr(libraries, "ASKED", {})
    item = SimpleNamespace(get_closest_marker=lambda name: marked and name == "bytes")
    report = SimpleNamespace(failed=failed, sections=[])
    hook = conftest.pytest_runtest_makereport(item)
    next(hook)
    with pytest.raises(StopIteration) as done:
        hook.send(report)
    assert done.value.value is report
    named = [text for title, text in report.sections if title == "machine"]
    assert len(named) == (marked and failed)
    assert all("processor: " in text and "environment: " in text for text in named)
