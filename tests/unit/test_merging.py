"""Networks merged by what clients measured: closed forms that several methods share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from fedrepro.methods._merging import (
    applied_of,
    expectation_mean,
    fisher_descent,
    fisher_mean,
    kronecker_mean,
    mean_of,
    plain_descent,
    regression_mean,
)
from fedrepro.methods.fens import GateServer, class_weights, gradients
from fedrepro.methods.task_vectors import ties_merge
from fedrepro.networks.predict import gated_logits

IN, OUT, CLIENTS = 5, 4, 3
SEEDS = st.integers(0, 10_000)


def spd(rng, n):
    q = rng.normal(size=(n, n + 3))
    return q @ q.T / n


def drawn(seed):
    """Weights, factors and shares of some clients."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(CLIENTS, IN, OUT))
    inputs = np.stack([spd(rng, IN) for _ in range(CLIENTS)])
    errors = np.stack([spd(rng, OUT) for _ in range(CLIENTS)])
    return weights, inputs, errors, rng.dirichlet(np.ones(CLIENTS) * 5)


def exact(weights, inputs, errors, share):
    """The equation as one dense system of D · K unknowns, rows of W one after another."""
    system = sum(p * np.kron(a, g) for p, a, g in zip(share, inputs, errors, strict=True))
    wanted = sum(p * a @ w @ g for p, a, w, g in zip(share, inputs, weights, errors, strict=True))
    return np.linalg.solve(system, wanted.reshape(-1)).reshape(IN, OUT)


def same(value, count=CLIENTS):
    return np.stack([value] * count)


@hypothesis_given(SEEDS)
def test_conjugate_gradients_solve_the_whole_system(seed):
    weights, inputs, errors, share = drawn(seed)
    found, left = kronecker_mean(weights, inputs, errors, share)
    assert left < 1e-9
    assert np.allclose(found, exact(weights, inputs, errors, share), atol=1e-6)


@hypothesis_given(SEEDS)
def test_equal_factors_give_the_parameter_average(seed):
    weights, inputs, errors, share = drawn(seed)
    found, _ = kronecker_mean(weights, same(inputs[0]), same(errors[0]), share)
    assert np.allclose(found, mean_of(weights, share), atol=1e-8)
    again = regression_mean(weights, same(inputs[0]), share)
    assert np.allclose(again, mean_of(weights, share), atol=1e-8)


@hypothesis_given(SEEDS)
def test_with_one_factor_alike_the_expectation_is_exact_and_descent_stays_there(seed):
    weights, inputs, errors, share = drawn(seed)
    for a, g in ((same(inputs[0]), errors), (inputs, same(errors[0]))):
        pull = sum(p * x @ w @ y for p, x, w, y in zip(share, a, weights, g, strict=True))
        found = expectation_mean(a, g, pull, share)
        assert np.allclose(found, exact(weights, a, g, share), atol=1e-6)
        stays = plain_descent(applied_of(a, g, share), found, pull, 3)
        assert np.allclose(stays, found, atol=1e-6)


@hypothesis_given(SEEDS, st.sampled_from([1, 7, 400]))
def test_the_plain_descent_is_its_steps_one_by_one(seed, steps):
    weights, inputs, errors, share = drawn(seed)
    inputs = inputs / 20  # so that steps lead down
    applied = applied_of(inputs, errors, share)
    pull = sum(p * a @ w @ g for p, a, w, g in zip(share, inputs, weights, errors, strict=True))
    start = expectation_mean(inputs, errors, pull, share)
    x = start.copy()
    for _ in range(steps):
        x -= 2 / x.size * applied(applied(x) - pull)
    found = plain_descent(applied, start, pull, steps)
    assert np.allclose(found, x, rtol=1e-6, atol=1e-7)
    assert not np.isfinite(plain_descent(lambda w: 100 * applied(w), start, pull, 10_000)).any()


@hypothesis_given(SEEDS)
def test_with_unit_errors_it_is_regmean(seed):
    weights, inputs, _, share = drawn(seed)
    found, _ = kronecker_mean(weights, inputs, same(np.eye(OUT)), share)
    assert np.allclose(found, regression_mean(weights, inputs, share), atol=1e-6)


@hypothesis_given(SEEDS)
def test_with_diagonal_factors_it_is_the_fisher_weighted_average(seed):
    weights, inputs, errors, share = drawn(seed)
    a, g = (np.stack([np.diag(np.diag(one)) for one in each]) for each in (inputs, errors))
    fisher = np.stack([np.outer(np.diag(x), np.diag(y)) for x, y in zip(a, g, strict=True)])
    whole = share[:, None, None] * fisher
    found, _ = kronecker_mean(weights, a, g, share)
    assert np.allclose(found, (whole * weights).sum(0) / whole.sum(0), atol=1e-6)


@hypothesis_given(SEEDS)
def test_regmean_of_least_squares_solutions_is_the_pooled_one(seed):
    rng = np.random.default_rng(seed)
    x = [rng.normal(size=(n, IN)) * rng.uniform(0.2, 3, IN) for n in (30, 50, 20)]
    y = [rng.normal(size=(len(own), OUT)) for own in x]
    each = [np.linalg.lstsq(*pair, rcond=None)[0] for pair in zip(x, y, strict=True)]
    pooled = np.linalg.lstsq(np.vstack(x), np.vstack(y), rcond=None)[0]
    moments = np.stack([own.T @ own / len(own) for own in x])
    found = regression_mean(np.stack(each), moments, np.array([0.3, 0.5, 0.2]))
    assert np.allclose(found, pooled, atol=1e-8)


def test_what_no_client_has_an_opinion_on_stays_at_the_average():
    """Dead inputs and unseen outputs: rows and columns of zeros in every factor."""
    weights, inputs, errors, share = drawn(3)
    inputs[:, 2], inputs[:, :, 2] = 0, 0
    errors[:, 1], errors[:, :, 1] = 0, 0
    found, left = kronecker_mean(weights, inputs, errors, share)
    average = mean_of(weights, share)
    assert left < 1e-9
    assert np.allclose(found[2], average[2])
    assert np.allclose(found[:, 1], average[:, 1])
    assert np.allclose(regression_mean(weights, inputs, share)[2], average[2])


def test_a_large_ridge_gives_the_parameter_average():
    weights, inputs, _, share = drawn(4)
    found = regression_mean(weights, inputs, share, ridge=1e9)
    assert np.allclose(found, mean_of(weights, share), atol=1e-6)


@pytest.mark.parametrize("merge", [regression_mean, lambda w, a, p: kronecker_mean(w, a, a, p)[0]])
def test_weights_that_are_no_numbers_are_no_error(merge):
    """A client whose training diverged: the merged network is not finite, and is left out."""
    weights = np.full((2, 3, 3), np.nan)
    assert not np.isfinite(merge(weights, same(np.eye(3), 2), np.ones(2) / 2)).any()


# ----------------------------------------------------------------------- diagonal information


@hypothesis_given(SEEDS)
def test_equal_information_gives_the_average_and_a_common_factor_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    weights, share = rng.normal(size=(CLIENTS, 6)), rng.dirichlet(np.ones(CLIENTS))
    information = rng.exponential(size=(CLIENTS, 6))
    equal = same(information[0])
    assert np.allclose(fisher_mean(weights, equal, share), mean_of(weights, share))
    found = fisher_mean(weights, information, share)
    assert np.allclose(found, fisher_mean(weights, 1e3 * information, share))
    assert (found <= weights.max(axis=0) + 1e-12).all()
    assert (found >= weights.min(axis=0) - 1e-12).all()


def test_a_weight_that_one_client_alone_knows_is_its_own():
    weights = np.array([[1.0, 2.0], [5.0, -4.0]])
    found = fisher_mean(weights, np.array([[3.0, 0.0], [0.0, 0.0]]), np.array([0.5, 0.5]))
    assert found.tolist() == [1.0, -1.0]


def test_fedfishers_descent_leaves_a_flat_coordinate_at_the_average():
    """Curved ones are at the minimiser after 2000 steps, one of 1e-8 is not."""
    fisher = np.array([[1e-8, 1, 0.5], [3e-8, 0.2, 2]])
    weights, share = np.array([[1.0] * 3, [-1.0] * 3]), np.array([0.5, 0.5])
    curve, pull = mean_of(fisher, share), mean_of(fisher * weights, share)
    found = fisher_descent(lambda w: curve * w - pull, mean_of(weights, share), 2000, 0.01, False)
    exact = fisher_mean(weights, fisher, share)
    assert abs(found[0]) < 1e-3
    assert abs(exact[0]) > 0.4
    assert np.abs(found[1:] - exact[1:]).max() < 0.02


# ---------------------------------------------------------------------------------------- gates


def test_a_gate_of_even_weights_is_the_mean_of_logits():
    logits = np.random.default_rng(0).normal(size=(5, 4, 3))  # examples, networks, classes
    gate = class_weights(4, 3, np.full((4, 3), 0.25))
    assert np.allclose(gated_logits(gate, logits.reshape(5, 12)), logits.mean(axis=1))


@pytest.mark.parametrize("deep", [False, True])
def test_gradients_of_a_gate_are_differences_of_its_loss(deep):
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(8, 6)), rng.integers(0, 3, 8)
    gate = {
        "weight0": rng.normal(size=(6, 4 if deep else 3)),
        "bias0": rng.normal(size=4 if deep else 3),
    }
    if deep:
        gate |= {"weight1": rng.normal(size=(4, 3)), "bias1": rng.normal(size=3)}

    def loss(gate):
        out = gated_logits(gate, logits)
        return np.mean(np.log(np.exp(out).sum(1)) - out[np.arange(8), labels])

    for name, value in gradients(gate, logits, labels).items():
        for at in np.ndindex(value.shape):
            moved = [{**gate, name: gate[name].copy()} for _ in range(2)]
            moved[0][name][at] += 1e-5
            moved[1][name][at] -= 1e-5
            assert value[at] == pytest.approx((loss(moved[0]) - loss(moved[1])) / 2e-5, abs=1e-6)


def test_the_first_step_of_fedadam_is_almost_the_sign_of_the_move():
    server = GateServer({"weight0": np.zeros(4)}, 1.0)
    move = np.array([5.0, -7.0, 3e3, -40.0])
    server.step([{"weight0": move}], np.ones(1))
    assert np.allclose(server.gate["weight0"], np.sign(move), rtol=5e-3)


# --------------------------------------------------------------------------------- task vectors


@hypothesis_given(SEEDS)
def test_one_task_vector_kept_whole_is_itself(seed):
    vector = np.random.default_rng(seed).normal(size=(1, 9))
    assert np.array_equal(ties_merge(vector, 1.0), vector[0])


def test_of_two_opposite_task_vectors_the_larger_wins_undiluted():
    vector = np.random.default_rng(0).normal(size=9)
    assert np.allclose(ties_merge(np.stack([vector, -0.5 * vector]), 1.0), vector)


def test_of_a_task_vector_the_largest_entries_count():
    found = ties_merge(np.array([[1.0, -4, 2, 0.5, 3], [0, 0, 6, 0, -0.1]]), 0.4)
    # two of each are kept; 3 outweighs -0.1, so it gives the sign and is alone in the mean
    assert found.tolist() == [0, -4, 6, 0, 3]
