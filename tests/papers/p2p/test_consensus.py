"""Beliefs over weights: what consensus makes of them, and how nodes learn with them as priors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import peers_of, problem, unwell

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.networks.predict import network_of
from fedrepro.papers.p2p.methods.variational_consensus import (
    consensus,
    deviation_of,
    heard,
    spread_of,
)
from fedrepro.training.loss_terms import GaussianPrior, with_prior

METHODS = components("method")
NODES, WEIGHTS = 5, 40
UNEVEN = np.array([[0.25, 0.75], [0.4, 0.6]])  # who hears more than it is heard


def test_on_a_complete_graph_consensus_is_the_pooled_posterior_with_a_share_of_the_likelihood():
    """Conjugate: each weight is the mean of normal observations, some at each node."""
    rng = np.random.default_rng(3)
    noise, prior_mean, prior_sd = 0.7, 0.3, 1.4
    seen = [rng.normal(0.5, noise, (4 + 3 * j, WEIGHTS)) for j in range(NODES)]

    def posterior(observations, power):
        precision = prior_sd**-2 + power * len(observations) / noise**2
        shift = prior_mean / prior_sd**2 + power * observations.sum(0) / noise**2
        return shift / precision, np.full(WEIGHTS, precision**-0.5)

    own = [posterior(observations, 1) for observations in seen]
    mean, deviation = (np.stack(part) for part in zip(*own, strict=True))
    found = consensus(np.full((NODES, NODES), 1 / NODES), mean, deviation)
    pooled = posterior(np.concatenate(seen), 1 / NODES)
    for part, whole in zip(found, pooled, strict=True):
        assert np.abs(part - whole).max() < 1e-12


def test_consensus_is_the_normalised_geometric_mean_of_spreads_that_are_inverse():
    rng = np.random.default_rng(0)
    mean, deviation = rng.normal(size=(2, WEIGHTS)), rng.uniform(0.01, 2, (2, WEIGHTS))
    means, deviations = consensus(UNEVEN, mean, deviation)
    points = np.linspace(-3, 3, 7)[:, None]

    def log(mean, deviation):
        found = -((points - mean) ** 2) / (2 * deviation**2)
        return found - found[0]  # normalising moves all by the same

    for node, row in enumerate(UNEVEN):
        geometric = sum(w * log(mean[j], deviation[j]) for j, w in enumerate(row))
        assert np.allclose(log(means[node], deviations[node]), geometric, rtol=1e-10, atol=1e-9)
    deviation = np.geomspace(1e-12, 30, 50)
    assert np.allclose(deviation_of(spread_of(deviation)), deviation, rtol=1e-12)


@pytest.fixture(scope="module")
def given():
    return problem(kind="variational_mlp")


def with_model(given, **values):
    model = components("model")["variational_mlp"].spec({"hidden": [8], **values})
    network = network_of(model, given.clients.network.shape, 3)
    return peers_of(replace(given.clients, model=model, network=network, method="consensus"))


def after(made, peers, info, rounds):
    state = made.init(peers, info, RngKey(0))
    for done in range(rounds):
        state, _ = made.round(state, peers, info, RngKey(0).at(round=done))
    return state


def test_held_spreads_stay_as_they_are_and_make_consensus_one_of_means(given):
    peers, found = with_model(given), {}
    for name in ("variational_consensus", "consensus_of_means"):
        made = METHODS[name].fn(rounds=3, spreads="held")
        start = made.init(peers, given.info, RngKey(0))["before"]
        found[name] = after(made, peers, given.info, 3)["before"]
        for tensor, value in start.items():
            held = tensor.endswith("_spread")
            assert (value.tobytes() == found[name][tensor].tobytes()) == held, tensor
    one, other = found.values()
    assert all(np.allclose(one[tensor], other[tensor], atol=1e-4) for tensor in one)


def test_an_exchange_is_that_of_each_weight(given):
    peers, rng = with_model(given), np.random.default_rng(0)
    tensors = {
        name: rng.normal(size=(peers.count, *shape)).astype(np.float32)
        for name, shape in peers.network.shapes.items()
    }
    found = heard(peers.network, peers.weights, tensors, consensus)
    for name in ("weight0", "bias1"):
        each, out = (
            [of[part].reshape(peers.count, -1) for part in (name, f"{name}_spread")]
            for of in (tensors, found)
        )
        mean, deviation = consensus(peers.weights, each[0], deviation_of(each[1]))
        assert np.allclose(out[0], mean, rtol=1e-6, atol=1e-6)
        assert np.allclose(deviation_of(out[1]), deviation, rtol=1e-6)


@pytest.mark.parametrize("name", ["variational_consensus", "consensus_of_means"])
def test_an_optimiser_that_remembers_makes_a_difference_and_nothing_else_is_remembered(given, name):
    kept, not_kept = (METHODS[name].fn(rounds=4, steps=3, keep_optimiser=k) for k in (True, False))
    one, again, other = (
        after(made, with_model(given), given.info, 4)["before"]["weight0"]
        for made in (kept, kept, not_kept)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_the_first_prior_is_the_models_and_the_next_one_what_was_heard(given):
    """With a divergence that weighs much spreads go to the prior's, and then stay."""
    made = METHODS["variational_consensus"].fn(steps=400, divergence=1e4)

    def spreads(rounds, **values):
        state = after(made, with_model(given, **values), given.info, rounds)
        return np.median(deviation_of(state["before"]["weight0_spread"]))

    assert spreads(1, prior_sd=0.5, spread=0.1) == pytest.approx(0.5, abs=0.05)
    assert spreads(1, spread=0.1) == pytest.approx(0.1, abs=0.01)
    once = spreads(1, prior_sd=0.2, spread=0.02)
    assert spreads(2, prior_sd=0.2, spread=0.02) == pytest.approx(once, rel=0.05)


@pytest.mark.parametrize(("examples", "visited"), [("reused", 4 * 8), ("once", 30 / 6)])
def test_the_divergence_weighs_as_often_as_examples_are_visited(given, examples, visited):
    """Of 30, all in a round, and six rounds: counted once, each has a sixth of its likelihood."""
    made = METHODS["variational_consensus"].fn(rounds=6, divergence=0.7, examples=examples)
    term = made._prior(given.clients.network, first=False)
    assert term.share(30, minibatches=4, batch_size=8) == pytest.approx(0.7 / visited)


def test_consensus_asks_for_beliefs_that_are_finite_and_trains_with_their_prior(given):
    network = with_model(given, prior_sd=0.3).network
    assert with_prior(network, ()) == [GaussianPrior(over="client", sd=0.3)]
    assert with_prior(network, (GaussianPrior(),)) == [GaussianPrior()]
    assert with_prior(given.clients.network, ()) == []
    plain, made = problem(), METHODS["variational_consensus"].fn()
    with pytest.raises(FedreproError, match=r"and model 'mlp.*' has none: take variational_mlp"):
        made.init(peers_of(plain.clients), plain.info, RngKey(0))
    made = METHODS["variational_consensus"].fn(steps=1)
    state = after(made, with_model(given), given.info, 3)
    ill = with_model(unwell(given, given.rows[2]))
    sentence = r"a mean or a spread of node 2 in trial 0 is not finite after round 4;"
    with pytest.raises(FedreproError, match=sentence):
        made.round(state, ill, given.info, RngKey(0).at(round=3))
