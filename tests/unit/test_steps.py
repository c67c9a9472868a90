"""Compiled steps give the same bytes on every processor; randomness depends on what it is for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import once
import pytest
import step_digests
from hypothesis import given
from hypothesis import strategies as st

from fedrepro.core.portable_ops import compiled_functions_and_products as llvm_code_and_products
from fedrepro.core.portable_ops import elementary_functions_random_cpu_modes as elementary_functions
from fedrepro.core.rng import RngKey

HERE = Path(__file__).parent
STORED = json.loads((HERE / "step_digests.json").read_text())
PLAYED = ["Haswell-noTSX", "EPYC"]


@pytest.mark.parametrize("name", step_digests.CASES)
def test_steps_leave_the_bytes_of_any_processor(name):
    found = step_digests.digests([name])
    assert found == {key: STORED[key] for key in found}


KINDS = ["logistic", "beliefs", "pooled", "listed", "every letter"]
WORDS = [sys.executable, str(HERE / "step_digests.py"), *KINDS, "float32"]
NAMED = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse4.2",
}


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="no qemu plays another processor")
@pytest.mark.parametrize("processor", PLAYED)
def test_another_processor_computes_the_same(processor):
    """The code is made here, once for both, under a name that both processors have."""

    def compiled_here(_):
        subprocess.run(WORDS, env=os.environ | NAMED, check=True, stdout=subprocess.DEVNULL)

    once.folder("steps-of-haswell", compiled_here)
    env = os.environ | NAMED | {"QEMU_CPU": processor}
    played = subprocess.run(
        ["qemu-x86_64", *WORDS], env=env, check=True, stdout=subprocess.PIPE, text=True
    )
    found = json.loads(played.stdout)
    assert found == {key: STORED[key] for key in found}


def multiplied(dtype, rows, inner, columns):
    """bias + a @ b by the compiled product, and bias, a and b."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(rows, inner)).astype(dtype), np.zeros((inner, columns), dtype)
    b[:] = rng.normal(size=b.shape)
    bias, out = rng.normal(size=columns).astype(dtype), np.zeros((rows, columns), dtype)
    by = llvm_code_and_products.multiplier(np.dtype(dtype).name).address
    call(by, out.reshape(-1), bias, a.reshape(-1), b.reshape(-1), rows, inner, columns)
    return out, bias, a, b


@numba.njit
def call(by, out, bias, a, b, rows, inner, columns):
    left, right = (a, 0, inner, 1), (b, 0, columns)
    sizes = rows, inner, columns
    llvm_code_and_products.product(by, (out, 0, columns), (bias, 0, 0), left, right, sizes)


@given(st.integers(1, 30), st.integers(1, 70), st.integers(1, 12), st.sampled_from(["f4", "f8"]))
def test_products_of_any_shape(rows, inner, eighths, kind):
    out, bias, a, b = multiplied(np.dtype(kind).type, rows, inner, 8 * eighths)
    right = bias.astype("f8") + a.astype("f8") @ b.astype("f8")
    np.testing.assert_allclose(out, right, atol=1e-4 if kind == "f4" else 1e-12)


@numba.njit
def _halve(values):
    before = elementary_functions.flush()
    for k in range(len(values)):
        values[k] *= np.float32(0.5)
    elementary_functions.restore(before)


@pytest.mark.skipif(not elementary_functions.X86, reason="counts them on x86-64 only")
def test_numbers_below_the_smallest_normal_one_count_as_zero_for_a_while():
    """Weights of pixels that are never lit decay to them, and they take a processor long."""
    smallest = np.finfo(np.float32).tiny
    values = np.full(64, 1.5 * smallest, np.float32)
    halves = values * np.float32(0.5)
    assert (halves > 0).all()
    _halve(values)
    assert (values == 0).all()
    _halve(halves)
    assert (halves == 0).all()
    assert np.float32(1.5 * smallest) * np.float32(0.5) > 0  # and then no more


def test_an_element_is_one_chain_of_fused_additions_and_small_numbers_stay_to_others():
    """In float32 a fused step is the rounded exact sum, which float64 holds for small integers."""
    out, bias, a, b = multiplied(np.float32, 7, 50, 40)
    found = np.broadcast_to(bias, (7, 40)).astype(np.float32)
    for k in range(50):
        exact = np.outer(a[:, k], b[k].astype("f8")).astype(np.longdouble) + found
        found = exact.astype(np.float32)
    assert np.array_equal(found, out)
    step_digests.digests(["amsgrad"])
    assert np.full(64, 1e-38, np.float32)[0] * np.float32(0.5) > 0


@numba.njit(error_model="numpy")
def mapped(x, exps, softplus):
    for i in range(len(x)):
        exps[i] = elementary_functions.exp_of(-abs(x[i]))
        softplus[i] = elementary_functions.softplus_of(x[i])


@pytest.mark.parametrize(("dtype", "off"), [(np.float32, 4e-7), (np.float64, 1e-14)])
def test_exponentials_to_the_last_bits(dtype, off):
    x = np.linspace(-80, 80, 20_001).astype(dtype)
    exps, softplus = np.empty_like(x), np.empty_like(x)
    mapped(x, exps, softplus)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(exps, np.exp(-np.abs(wide)), rtol=off, atol=0)
    np.testing.assert_allclose(softplus, np.logaddexp(0, wide), rtol=off, atol=0)
    far = np.array([-1e6, 1e6, np.inf, np.nan], dtype)
    exps, softplus = np.empty_like(far), np.empty_like(far)
    mapped(far, exps, softplus)
    assert softplus[1:3].tolist() == [1e6, np.inf]
    assert 0 <= softplus[0] < 2e-38
    assert np.isnan([exps[3], softplus[3]]).all()


@numba.njit(error_model="numpy")
def logarithms(x, out):
    for i in range(len(x)):
        out[i] = elementary_functions.log_of(x[i])


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=20))
def test_logarithms_to_the_last_bits(values):
    x = np.array(values)
    out = np.empty_like(x)
    logarithms(x, out)
    np.testing.assert_allclose(out, np.log(x), rtol=1e-15, atol=1e-16)


@numba.njit
def drawn(key, inside, piece, first, out):
    elementary_functions.words(key, inside, piece, first, out)


@given(st.integers(0, 2**128 - 1), st.integers(0, 99), st.integers(0, 9), st.integers(0, 50))
def test_random_words_are_those_of_numpy(key, inside, piece, first):
    philox = np.random.Philox(key=key)
    state = philox.state
    state["state"]["counter"][1:3] = inside, piece
    philox.state = state
    out = np.empty(23, np.uint64)
    drawn(np.array([key % 2**64, key >> 64], np.uint64), inside, piece, first, out)
    assert np.array_equal(out, philox.random_raw(first + 23)[first:])


def test_no_two_clocks_of_a_kind_are_the_same():
    assert RngKey(0).stream("a").random() != RngKey(0).stream("b").random()
    assert RngKey(1, 11).stream("x").random() != RngKey(11, 1).stream("x").random()
    numbers = range(30)
    local = {RngKey(0, epoch=e).clock for e in numbers}
    rounds = {
        RngKey(0, round=r, epoch=e, call=c).clock for r in numbers for e in numbers for c in (0, 1)
    }
    assert len(local) == 30
    assert len(rounds) == 2 * 30 * 30


@given(st.integers(0, 12))
def test_the_first_epoch_of_a_round_goes_as_that_epoch_of_local_training(number):
    """Common random numbers; and what was computed before there were epochs stays as it is."""
    in_a_round, alone = RngKey(0, round=number, epoch=0), RngKey(0, epoch=number)
    assert in_a_round.key("minibatches") == alone.key("minibatches")
    assert in_a_round.key("minibatches") == RngKey(0, round=number).key("minibatches")


def test_the_stream_is_pinned():
    # A change here changes every result: it needs new versions of everything that draws.
    pinned = [2207773108, 1947826049, 2560004868]
    assert RngKey(0).stream("pin").integers(0, 2**32, 3).tolist() == pinned
    plain = np.random.Generator(np.random.Philox(key=RngKey(0).key("pin")))  # as NumPy documents
    assert plain.integers(0, 2**32, 3).tolist() == pinned
    # local training's epoch 3, and round 3 of a method with one epoch a round
    for place in (RngKey(0, 1, 2, epoch=3), RngKey(0, 1, 2, round=3, epoch=0)):
        assert place.stream("minibatches").permutation(6).tolist() == [1, 2, 0, 4, 3, 5]
