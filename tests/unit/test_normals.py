"""Normal random numbers in compiled code are NumPy's, bit by bit."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrepro.core.portable_ops.philox import AHEAD, EDGE, normals
from fedrepro.core.rng import RngKey
from fedrepro.networks.network import dense


def numpys(key, sd, count):
    return np.random.Generator(np.random.Philox(key=key)).normal(0.0, sd, count).astype(np.float32)


def same(one, other):
    return np.array_equal(one.view(np.int32), other.view(np.int32))


@given(st.integers(0, 2**128 - 1), st.floats(0, 10), st.integers(0, 3 * AHEAD))
def test_they_are_numpys(key, sd, count):
    assert same(normals(key, sd, count), numpys(key, sd, count))


def test_so_are_rejections_and_both_tails_and_where_words_end():
    found = normals(7, 1.0, 4_000_000)
    assert found.min() < -EDGE
    assert found.max() > EDGE
    assert same(found, numpys(7, 1.0, 4_000_000))


@pytest.mark.parametrize("sizes", [(5, 3), (784, 50, 10), (3, 4, 4, 2)])
def test_networks_begin_with_what_numpy_would_draw(sizes):
    rng = RngKey(3, 1, client=2)
    generator = rng.stream("initial-weights")
    for name, value in dense(sizes).initial(rng, 0.3, 0.1).items():
        if name.startswith("bias"):
            assert (value == np.float32(0.1)).all()
        else:
            drawn = generator.normal(0.0, 0.3, value.shape).astype(np.float32)
            assert same(value, drawn)


def test_where_numba_has_no_tables_numpy_draws(monkeypatch):
    there = dense((5, 3)).initial(RngKey(3, 1), 0.3, 0.1)
    monkeypatch.delitem(sys.modules, "fedrepro.core.portable_ops.philox")
    monkeypatch.setitem(sys.modules, "numba.np.random._constants", None)
    monkeypatch.delattr("numba.np.random._constants")
    without = dense((5, 3)).initial(RngKey(3, 1), 0.3, 0.1)
    assert all(same(there[name], without[name]) for name in there)
    assert "fedrepro.core.portable_ops.philox" not in sys.modules
