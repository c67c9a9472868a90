"""The compiled passes over variational weights, against NumPy in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrepro.training import passes

TYPES = pytest.mark.parametrize(("dtype", "off"), [(np.float32, 4e-7), (np.float64, 1e-14)])


def close(found, right, off):
    np.testing.assert_allclose(found, right, rtol=off, atol=0)


@TYPES
def test_softplus_to_the_last_bits(dtype, off):
    spread = np.linspace(-80, 80, 20_001).astype(dtype)
    out = np.empty_like(spread)
    passes.softplus(spread, out)
    close(out, np.logaddexp(0, spread.astype(np.float64)), off)


@TYPES
def test_softplus_far_out_and_of_what_is_not_a_number(dtype, off):
    spread = np.array([-1e6, -200, 1e6, np.inf, np.nan], dtype)
    out = np.empty_like(spread)
    passes.softplus(spread, out)
    assert (out[:2] >= 0).all()
    assert out[:2].max() < 2e-38
    assert out[2:4].tolist() == [1e6, np.inf]
    assert np.isnan(out[4])


def normal(rng, dtype, count, mean=0.0, sd=1.0):
    return rng.normal(mean, sd, count).astype(dtype)


@TYPES
@given(seed=st.integers(0, 2**31), count=st.integers(1, 200))
def test_weights_are_drawn_by_their_deviations(dtype, off, seed, count):
    rng = np.random.default_rng(seed)
    mean, spread, noise = (normal(rng, dtype, count) for _ in range(3))
    deviation, drawn = np.empty_like(mean), np.empty_like(mean)
    passes.draw(mean, spread, noise, deviation, drawn)
    right = np.logaddexp(0, spread.astype(np.float64))
    close(deviation, right, off)
    np.testing.assert_allclose(drawn, mean + right * noise, atol=30 * off)


def divergence(mean, spread, prior_mean, prior_deviation):
    deviation = np.logaddexp(0, spread)
    ratio = deviation / prior_deviation
    gap = (mean - prior_mean) / prior_deviation
    return 0.5 * (ratio**2 + gap**2 - 1) - np.log(ratio)


@pytest.mark.parametrize("prior", ["of each weight", "constant"])
@given(seed=st.integers(0, 2**31))
def test_gradients_are_the_differences_of_loss_and_divergence(prior, seed):
    """The loss is g · θ with θ = mean + σ ε, differentiated by central differences."""
    rng = np.random.default_rng(seed)
    mean, spread, noise, g, at = (normal(rng, np.float64, 50) for _ in range(5))
    sd, share = 0.7, 0.3
    width = np.full(50, sd) if prior == "constant" else rng.uniform(0.3, 2, 50)
    center = np.zeros(50) if prior == "constant" else at

    def loss(mean, spread):
        drawn = mean + np.logaddexp(0, spread) * noise
        return g * drawn + share * divergence(mean, spread, center, width)

    deviation, at_mean, at_spread = np.logaddexp(0, spread), g.copy(), noise.copy()
    if prior == "constant":
        passes.turn_to_constant(mean, spread, deviation, sd, share, at_mean, at_spread)
    else:
        passes.turn(mean, spread, deviation, center, width, share, at_mean, at_spread)
    h = 1e-5
    by_mean = (loss(mean + h, spread) - loss(mean - h, spread)) / (2 * h)
    by_spread = (loss(mean, spread + h) - loss(mean, spread - h)) / (2 * h)
    np.testing.assert_allclose(at_mean, by_mean, atol=1e-7)
    np.testing.assert_allclose(at_spread, by_spread, atol=1e-7)


@TYPES
def test_at_the_prior_the_divergence_pulls_at_nothing(dtype, off):
    rng = np.random.default_rng(0)
    mean, spread = normal(rng, dtype, 1000), normal(rng, dtype, 1000, -4)
    deviation = np.empty_like(mean)
    passes.softplus(spread, deviation)
    at_mean, at_spread = np.zeros_like(mean), normal(rng, dtype, 1000)
    passes.turn(mean, spread, deviation, mean, deviation, dtype(1), at_mean, at_spread)
    assert not at_mean.any()
    assert not at_spread.any()


def test_parts_of_any_length_are_the_same_as_the_whole():
    """What is left over of a vector is computed to the same bytes."""
    rng = np.random.default_rng(1)
    spread = normal(rng, np.float32, 1000)
    whole, parts = np.empty_like(spread), np.empty_like(spread)
    passes.softplus(spread, whole)
    for rows in np.split(np.arange(1000), [1, 4, 11, 300, 303, 777]):
        out = parts[rows[0] : rows[-1] + 1]
        passes.softplus(spread[rows[0] : rows[-1] + 1], out)
    assert whole.tobytes() == parts.tobytes()
