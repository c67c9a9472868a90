"""The branches of libraries are named before they compute, by one module that all follow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedrepro.core import arithmetic

AVX2, AVX512 = "fpu avx avx2 fma", "fpu avx avx2 fma avx512f"
NAMES = arithmetic.BRANCHES["portable"]


@pytest.fixture
def unnamed(tmp_path, monkeypatch):
    """A process in which nothing is named or loaded yet, on a processor with these flags."""
    own = {k: v for k, v in os.environ.items() if k not in (*NAMES, "FEDREPRO_NAMED")}
    monkeypatch.setattr(os, "environ", own)
    monkeypatch.setattr(arithmetic, "READERS", ())
    monkeypatch.setattr(arithmetic, "_taken", "")

    def on(flags: str) -> str:
        path = tmp_path / flags.replace(" ", "-")
        path.write_text(f"processor\t: 0\nflags\t\t: {flags}\nbogomips\t: 1\n")
        return str(path)

    return on


def test_portable_names_the_same_branches_on_every_processor(unnamed):
    for flags in (AVX2, AVX512):
        assert arithmetic.named("portable", unnamed(flags)) == "portable"
        assert {name: os.environ[name] for name in NAMES} == dict(NAMES)


@pytest.mark.parametrize(("flags", "branch"), [(AVX2, "AVX2"), (AVX512, "AVX512")])
def test_native_leaves_the_widest_branches(unnamed, flags, branch):
    assert arithmetic.named("native", unnamed(flags)) == "native"
    assert {name: os.environ[name] for name in NAMES if name in os.environ} == {"MKL_CBWR": branch}


def test_one_arithmetic_takes_the_place_of_the_other_in_processes_that_inherit(unnamed):
    arithmetic.named("portable", unnamed(AVX512))
    arithmetic.named("native", unnamed(AVX512))
    assert arithmetic.taken() == "native"
    assert "ATEN_CPU_CAPABILITY" not in os.environ
    arithmetic.named("portable", unnamed(AVX512))
    assert os.environ["ATEN_CPU_CAPABILITY"] == "avx2"


def test_what_somebody_set_stays_and_is_told(unnamed):
    os.environ["OPENBLAS_CORETYPE"] = "Zen"
    assert arithmetic.named("portable", unnamed(AVX2)) == "portable but for OPENBLAS_CORETYPE=Zen"
    assert arithmetic.named("native", unnamed(AVX2)) == "native but for OPENBLAS_CORETYPE=Zen"
    assert os.environ["OPENBLAS_CORETYPE"] == "Zen"


@pytest.mark.parametrize("flags", ["fpu avx", "fpu avx avx2"])
def test_a_processor_without_the_branches_is_native(unnamed, flags):
    assert arithmetic.named("portable", unnamed(flags)) == "native"
    assert not set(NAMES) & set(os.environ)


def test_a_system_that_does_not_tell_its_processor_is_native(unnamed, tmp_path):
    assert arithmetic.named("portable", str(tmp_path / "none")) == "native"


def test_another_word_is_portable_and_warned_of(unnamed):
    os.environ["FEDREPRO_ARITHMETIC"] = "quick"
    with pytest.warns(UserWarning, match="portable or native, not 'quick'"):
        assert arithmetic.named(None, unnamed(AVX2)) == "portable"


def test_the_warning_can_be_printed_whatever_the_word(unnamed):
    # an argument that is no UTF-8 comes with surrogates, which no terminal and no log takes
    with pytest.warns(UserWarning, match="portable is taken") as warned:
        arithmetic.named("\udcff")
    assert str(warned[0].message).isprintable()


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {k: v for k, v in os.environ.items() if k not in (*NAMES, "FEDREPRO_NAMED")}
    return subprocess.run(
        [sys.executable, "-c", code], env=own | env, capture_output=True, text=True, check=True
    )


@pytest.mark.skipif(arithmetic.flags() < arithmetic.NEEDED, reason="not an x86-64 with AVX2")
def test_libraries_take_what_is_named():
    code = (
        "import fedrepro, numpy, torch, llvmlite.binding, scipy.linalg.blas\n"
        "from threadpoolctl import threadpool_info\n"
        "from numba.core.registry import cpu_target\n"
        "print(torch.backends.cpu.get_cpu_capability())\n"
        "print({p['architecture'] for p in threadpool_info() if p['internal_api'] == 'openblas'})\n"
        "print('X86_V4' in numpy.show_config(mode='dicts')['SIMD Extensions']['found'])\n"
        "print(cpu_target.target_context.codegen().magic_tuple()[1])\n"
    )
    found = python(code).stdout.splitlines()
    assert found == ["AVX2", "{'Haswell'}", "False", "haswell"]


@pytest.mark.skipif(arithmetic.flags() < arithmetic.NEEDED, reason="not an x86-64 with AVX2")
def test_a_library_that_was_loaded_first_is_named_in_one_sentence():
    code = (
        "import {0}; import fedrepro; from fedrepro.core import arithmetic as a; print(a.taken())"
    )
    late = python(code.format("numpy"))
    assert late.stdout == "native, numpy loaded before fedrepro\n"
    assert "numpy was loaded before fedrepro" in late.stderr
    # unless it has found them named already, by the process that started this one
    in_time = python(code.format("numpy"), **NAMES, FEDREPRO_NAMED=" ".join(NAMES))
    assert (in_time.stdout, in_time.stderr) == ("portable\n", "")


def test_stages_take_what_their_words_say():
    assert arithmetic.of_words(["stage", "train"]) == "portable"
    assert arithmetic.of_words(["stage", "train", "--arithmetic", "native"]) == "native"
    assert arithmetic.of_words(["stage", "--arithmetic"]) == "portable"


def test_nothing_else_steers_the_libraries():
    root = Path(arithmetic.__file__).parents[1]
    allowed = {"core/arithmetic.py", "machine/libraries.py", "machine/products.py"}
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(name in path.read_text(encoding="utf-8") for name in NAMES)
    }
    assert found <= allowed
