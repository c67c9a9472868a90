"""Beliefs on graphs: both forms of algorithm 1 against what is known of them exactly."""

from __future__ import annotations

import numpy as np
import pytest

from fedrepro.papers.p2p.methods import finite_beliefs, regression_beliefs
from fedrepro.papers.p2p.methods.finite_beliefs import (
    Problem,
    corrected_bound,
    least_rate,
    printed_bound,
)
from fedrepro.papers.p2p.methods.regression_beliefs import Information

W = np.array([[0.9, 0.1], [0.6, 0.4]])
NOISE = 0.64


@pytest.fixture
def draws() -> np.random.Generator:
    return np.random.default_rng(3)


# --------------------------------------------------------------------------------- a finite set


def test_beliefs_sum_to_one_however_far_apart_they_are():
    logs = np.array([[0.0, -2000.0], [1e4, 1e4]])
    found = np.exp(finite_beliefs.normalised(logs)).sum(axis=-1)
    assert found == pytest.approx([1, 1], abs=1e-12)


def test_a_node_alone_has_the_exact_posterior(draws):
    likelihoods = np.log(draws.random((5, 1, 4)))
    beliefs = finite_beliefs.uniform((1, 4))
    for seen in likelihoods:
        beliefs = finite_beliefs.consensus(np.eye(1), finite_beliefs.updated(beliefs, seen))
    product = np.exp(likelihoods.sum(axis=0))
    assert np.exp(beliefs) == pytest.approx(product / product.sum(), rel=1e-12)


def test_on_a_complete_graph_the_likelihood_is_taken_to_the_power_one_over_n(draws):
    nodes, likelihoods = 3, np.log(draws.random((6, 3, 4)))
    weights = np.full((nodes, nodes), 1 / nodes)
    beliefs = finite_beliefs.uniform((nodes, 4))
    for seen in likelihoods:
        beliefs = finite_beliefs.consensus(weights, finite_beliefs.updated(beliefs, seen))
    pooled = finite_beliefs.normalised(likelihoods.sum(axis=(0, 1)) / nodes)
    assert beliefs == pytest.approx(np.tile(pooled, (nodes, 1)), abs=1e-12)


def test_the_recursion_of_the_proof(draws):
    """log rho(a)/rho(b) after n steps is sum_k sum_j (W^k)_ij z_j^(n-k+1): appendix A."""
    steps, likelihoods = 7, np.log(draws.random((7, 2, 2)))
    beliefs = finite_beliefs.uniform((2, 2))
    for seen in likelihoods:
        beliefs = finite_beliefs.consensus(W, finite_beliefs.updated(beliefs, seen))
    ratios = likelihoods[..., 0] - likelihoods[..., 1]
    power = np.linalg.matrix_power
    expected = sum(power(W, k) @ ratios[steps - k] for k in range(1, steps + 1))
    assert beliefs[:, 0] - beliefs[:, 1] == pytest.approx(expected, abs=1e-12)


def test_repeats_do_not_touch_one_another(draws):
    likelihoods = np.log(draws.random((8, 2, 4)))
    together = finite_beliefs.consensus(
        W, finite_beliefs.updated(finite_beliefs.uniform((8, 2, 4)), likelihoods)
    )
    for one, seen in zip(together, likelihoods, strict=True):
        alone = finite_beliefs.consensus(
            W, finite_beliefs.updated(finite_beliefs.uniform((2, 4)), seen)
        )
        assert np.array_equal(one, alone)


def test_consensus_that_is_not_normalised_leaves_the_optimum_where_it_is(draws):
    """Claim Q8, exactly: KL(q || kappa rho) = KL(q || rho) - log kappa for every q."""
    before = finite_beliefs.updated(finite_beliefs.uniform((2, 5)), np.log(draws.random((2, 5))))
    raw, rho = finite_beliefs.averaged(W, before), finite_beliefs.consensus(W, before)
    seen = np.log(draws.random((2, 5)))
    assert finite_beliefs.updated(raw, seen) == pytest.approx(
        finite_beliefs.updated(rho, seen), abs=1e-12
    )
    q = draws.dirichlet(np.ones(5), size=(20, 2))
    gap = (q * (np.log(q) - raw)).sum(axis=-1) - (q * (np.log(q) - rho)).sum(axis=-1)
    constant = -(raw - rho)[:, 0]
    assert gap == pytest.approx(np.broadcast_to(constant, gap.shape), abs=1e-12)


def test_a_tie_is_an_error_and_an_estimate_leads_by_more_than_rounding():
    near, far = [finite_beliefs.TIE, 0.0, -1.0], [3 * finite_beliefs.TIE, 0.0, -1.0]
    logs = np.log([[0.4, 0.4, 0.2], [0.4, 0.3, 0.3], [0.2, 0.4, 0.4]])
    found = finite_beliefs.learnt(np.array([*logs, near, far]), truth=0)
    assert found.tolist() == [False, True, False, False, True]


# ------------------------------------------------------------------------------------ Gaussian


def observations(draws, nodes, steps, weights=3):
    return draws.normal(size=(steps, nodes, weights)), draws.normal(size=(steps, nodes))


def test_one_node_of_the_regression_has_the_exact_posterior(draws):
    features, targets = observations(draws, 1, 12)
    beliefs = Information.prior(0.5, 3)
    for f, y in zip(features, targets, strict=True):
        beliefs = regression_beliefs.consensus(
            np.eye(1), regression_beliefs.observed(beliefs, f, y, NOISE)
        )
    x, y = features[:, 0], targets[:, 0]
    precision = np.eye(3) / 0.5 + x.T @ x / NOISE
    assert beliefs.covariance[0] == pytest.approx(np.linalg.inv(precision), rel=1e-10)
    assert beliefs.mean[0] == pytest.approx(np.linalg.solve(precision, x.T @ y / NOISE), rel=1e-10)


def test_on_a_complete_graph_precisions_are_those_of_all_data_divided_by_n(draws):
    nodes = 4
    features, targets = observations(draws, nodes, 9)
    weights = np.full((nodes, nodes), 1 / nodes)
    beliefs = Information.prior(0.5, 3)
    for f, y in zip(features, targets, strict=True):
        beliefs = regression_beliefs.consensus(
            weights, regression_beliefs.observed(beliefs, f, y, NOISE)
        )
    x, y = features.reshape(-1, 3), targets.reshape(-1)
    precision = np.eye(3) / 0.5 + x.T @ x / NOISE / nodes
    shift = x.T @ y / NOISE / nodes
    for node in range(nodes):
        assert beliefs.precision[node] == pytest.approx(precision, rel=1e-10)
        assert beliefs.shift[node] == pytest.approx(shift, rel=1e-10)


def test_the_finite_set_on_a_fine_grid_is_the_gaussian_in_one_dimension(draws):
    grid = np.linspace(-6, 6, 4001)
    features, targets = observations(draws, 2, 6, weights=1)
    exact = Information.prior(0.5, 1)
    logs = finite_beliefs.normalised(np.tile(-(grid**2), (2, 1)))  # N(0, 0.5)
    for f, y in zip(features, targets, strict=True):
        exact = regression_beliefs.consensus(W, regression_beliefs.observed(exact, f, y, NOISE))
        likelihoods = -((y[:, None] - f * grid) ** 2) / (2 * NOISE)
        logs = finite_beliefs.consensus(W, finite_beliefs.updated(logs, likelihoods))
    mass = np.exp(logs)
    mean = mass @ grid
    variance = (mass * (grid - mean[:, None]) ** 2).sum(axis=1)
    assert mean == pytest.approx(exact.mean[:, 0], abs=1e-9)
    assert variance == pytest.approx(exact.covariance[:, 0, 0], abs=1e-9)


def test_the_expected_squared_error_is_that_of_many_new_examples(draws):
    means, truth = np.array([[0.1, 0.2, -0.4]]), np.array([-0.3, 0.5, 0.8])
    moments = np.diag([1, 1 / 3, 0.75])
    exact = regression_beliefs.expected_squared_error(means, truth, moments, NOISE)
    count = 200_000
    x = np.stack(
        [np.ones(count), draws.uniform(-1, 1, count), draws.uniform(-1.5, 1.5, count)], axis=1
    )
    y = x @ truth + draws.normal(0, NOISE**0.5, count)
    assert ((y - x @ means[0]) ** 2).mean() == pytest.approx(exact[0], rel=0.02)


def test_a_node_that_saw_nothing_believes_the_prior():
    prior = Information.prior(0.5, 3)
    found = regression_beliefs.believed_variance(prior.covariance, np.diag([1, 1 / 3, 0.75]), NOISE)
    assert found == pytest.approx(NOISE + 0.5 * (1 + 1 / 3 + 0.75))


# -------------------------------------------------------------------------------------- bounds

C = np.log(0.7 / 0.3)
EVIDENCE = 0.4 * C  # of the node that sees a bit against the wrong value of it, in nats


def problem(**changes) -> Problem:
    usual = {"nodes": 2, "parameters": 4, "range": C, "rate": EVIDENCE / 2, "delta": 0.05}
    return Problem(**usual | changes)


def test_the_bounds_of_case_a():
    """W = [[.25, .75], [.75, .25]]: eigenvalue -1/2, S_W = 1."""
    assert printed_bound(problem(), -0.5) == pytest.approx(1597, abs=1)
    assert corrected_bound(problem(), 1.0) == pytest.approx(4060, abs=1)
    # where mixing takes longest, and where there is next to nothing to tell
    assert corrected_bound(problem(), 1e4) == pytest.approx(4 * C * 1e4 / (EVIDENCE / 2))
    found = corrected_bound(problem(range=1e-3), 1.0)
    assert found == pytest.approx(2 * np.log(2 * 4) / (EVIDENCE / 2))


def test_the_rate_is_that_of_the_parameter_that_is_hardest_to_tell():
    evidence = np.array([[EVIDENCE, 0, EVIDENCE], [0, EVIDENCE, EVIDENCE]])
    assert least_rate(np.array([6 / 7, 1 / 7]), evidence) == pytest.approx(EVIDENCE / 7)


def test_the_printed_bound_grows_as_remark_1_says():
    """Claim Q3, on the formula: log N, log M, and inverse in 1 - lambda; in K it is squared."""
    usual = printed_bound(problem(), 0.2)
    for what in ("nodes", "parameters"):
        grown = [printed_bound(problem(**{what: 4**k}), 0.2) for k in range(1, 6)]
        steps = np.diff(grown)
        assert steps == pytest.approx(np.full(4, steps[0]))
        assert steps[0] > 0
    assert printed_bound(problem(), 0.6) == pytest.approx(2 * usual)
    assert printed_bound(problem(rate=EVIDENCE), 0.2) == pytest.approx(usual / 4)


def test_the_excess_risk_of_corollary_1_as_printed_is_exceeded_and_pinskers_never(draws):
    """Claim Q2, exactly: two coins whose losses of -1 and 1 differ by more than is printed."""

    def of(p, q):
        """Difference of losses at most 1, and the root of the divergence in nats."""
        return abs(p - q).sum(), float((p * np.log(p / q)).sum()) ** 0.5

    excess, root = of(np.array([0.5, 0.5]), np.array([0.6, 0.4]))
    assert root / 2 < excess <= 2**0.5 * root  # printed: B sqrt(r) / 2; Pinsker: B sqrt(2 r)
    pairs = (of(p, q) for p, q in draws.dirichlet(np.ones(4), size=(200, 2)))
    assert all(apart <= 2**0.5 * root for apart, root in pairs)
