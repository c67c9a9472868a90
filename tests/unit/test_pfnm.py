"""The methods pfnm and concatenation, on one hidden layer and on several."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import literal_matching as literal
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrepro.api import ClientInfo, LocalModels
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.methods.matching.network_arrays_and_tracing import class_shares, networks_of
from fedrepro.methods.matching.pfnm_sequential_matching import (
    Rule,
    Variances,
    alone,
    match_networks,
)
from fedrepro.methods.pfnm_and_concatenation import visiting_orders

D, L, K, J = 6, 5, 3, 4


def clients_of(seed=0, clients=J, hidden=(L,), spread=1.0):
    rng = np.random.default_rng(seed)
    sizes = (D, *hidden, K)
    tensors = {}
    for layer, shape in enumerate(pairwise(sizes)):
        tensors[f"weight{layer}"] = rng.normal(0, spread, (clients, *shape)).astype("f4")
        tensors[f"bias{layer}"] = rng.normal(size=(clients, shape[1])).astype("f4")
    return LocalModels(components("model")["mlp"].spec({"hidden": list(hidden)}), D, K, tensors)


COUNTS = np.array([[9, 0, 3], [1, 2, 0], [0, 5, 4], [2, 2, 2]])


def made_by(name, clients, counts=COUNTS, rng=None, **values):
    spec = components("method")[name].spec(values)
    info = ClientInfo(components("training")["adam"].spec(), label_counts=np.asarray(counts))
    return spec.component.fn(clients, info, rng=rng or RngKey(0), **spec.values)


pfnm, concatenation = partial(made_by, "pfnm"), partial(made_by, "concatenation")


def logits(network, x):
    *hidden, weight, bias = network
    for inner, shift in zip(hidden[::2], hidden[1::2], strict=True):
        x = np.maximum(x @ inner + shift, 0)
    return x @ weight + bias


RULES = {"gamma0": 50.0}, {"popularity": 2.0}, {"count_cap": 1}, {"width_cap": L}, {"sigma02": 4.0}
LITERAL = {"gamma0": "gamma", "popularity": "factor", "count_cap": "cap", "width_cap": "width"}


@pytest.mark.parametrize("rule", [*RULES, {"order": "random"}], ids=str)
@pytest.mark.parametrize("hidden", [(L,), (4, 3, 5)])
def test_the_global_model_is_the_literal_matching_of_the_clients(hidden, rule):
    clients, depth = clients_of(1, hidden=hidden, spread=0.6), len(hidden)
    visits = visiting_orders(J, depth, 3, rule.get("order", "fixed"), RngKey(0))
    own = {LITERAL.get(k, "sigma0"): v for k, v in rule.items() if k != "order"}
    matchings, out = literal.match_deep(
        networks_of(clients.tensors), COUNTS, np.array(visits), sigma=0.3,
        **{"sigma0": 10.0, "gamma": 1.0} | own,
    )  # fmt: skip
    made = pfnm(clients, sigma2=0.3, passes=3, **{"order": "fixed"} | rule)
    for (name, found), value in zip(made.tensors.items(), out, strict=True):
        assert found.dtype == np.float32
        assert found.shape == (1, *value.shape)
        np.testing.assert_allclose(found[0], value, rtol=1e-6, atol=1e-6, err_msg=name)
    shared = sum(m for matching in matchings for m in matching.counts if m > 1) / (J * sum(hidden))
    assert made.diagnostics["matched_share"] == pytest.approx(shared)
    plain = pfnm(clients, sigma2=0.3, order="fixed", passes=3)
    assert depth > 1 or not np.array_equal(made.tensors["weight0"], plain.tensors["weight0"])


def test_clients_count_by_their_share_of_a_class():
    """Two clients of one identical hidden layer; only the first has examples of class 0."""
    one = clients_of(clients=1)
    tensors = {k: np.repeat(v, 2, 0) for k, v in one.tensors.items()}
    tensors["weight1"][1] += 0.1
    tensors["bias1"][1] += 0.1
    flat = {"counts": [[8, 4, 0], [0, 4, 8]], "sigma2": 0.05, "sigma02": 1e4}
    for weights, moved in ({}, [0, 0.05, 0.1]), ({"class_weights": False}, 0.05):
        made = pfnm(replace(one, tensors=tensors), **flat, **weights).tensors
        for name in ("weight1", "bias1"):
            np.testing.assert_allclose(made[name], one.tensors[name] + moved, atol=1e-3)


def test_the_prior_mean_of_biases_draws_them_and_sigma2_by_layer_multiplies_sigma2():
    clients = clients_of(spread=0.0)
    low, high = (pfnm(clients, sigma2=100.0, bias_prior=b) for b in (0.0, 5.0))
    for name in ("bias0", "bias1"):
        assert (high.tensors[name].min() - low.tensors[name].max()) > 1
    np.testing.assert_allclose(low.tensors["weight0"], high.tensors["weight0"])
    one, two = (
        pfnm(clients_of(hidden=(4, 5)), sigma2=sigma2, sigma2_layers=layers, order="fixed")
        for sigma2, layers in ((0.5, [2.0, 0.1]), (1.0, [1.0, 0.05]))
    )
    for name, value in one.tensors.items():
        np.testing.assert_allclose(value, two.tensors[name], atol=1e-6)


def test_absent_classes_count_equally_and_a_unit_that_is_alone_is_drawn_to_the_prior():
    for counts, shares in (
        ([[3, 0], [1, 0]], [[0.75, 0.5], [0.25, 0.5]]),
        ([[3, 1], [1, 0]], [[0.75, 1], [0.25, 0]]),
    ):
        assert np.array_equal(class_shares(np.array(counts)), shares)
    for made in (pfnm(clients_of(), COUNTS * [1, 0, 1]), concatenation(clients_of(), COUNTS * 0)):
        assert all(np.isfinite(value).all() for value in made.tensors.values())
    network = (np.full((2, 1), 3.0), np.full(1, 3.0), np.full((1, 2), 3.0), np.array([3.0, 4.0]))
    variances = Variances(sigma2=0.5, sigma02=0.25, bias=2.0)  # precisions 2, and 4 of the prior
    into, bias, out, last = alone(network, np.array([1.0, 0.5]), variances)
    np.testing.assert_allclose(into, np.full((2, 1), 3 * 2 / 6))
    np.testing.assert_allclose(bias, [(3 * 2 + 2 * 4) / 6])
    np.testing.assert_allclose(out, [[3 * 2 / 6, 3 * 1 / 5]])
    np.testing.assert_array_equal(last, [3, 4])


def test_the_order_of_visits_comes_from_the_stream_of_the_trial():
    def weights(trial, order):
        clients, counts = clients_of(2, clients=8, spread=0.5), np.ones((8, K), int)
        place = RngKey(0).at(trial=trial)
        return pfnm(clients, counts, place, sigma2=0.5, order=order).tensors["weight0"].tobytes()

    for order, single in (("fixed", True), ("random", False)):
        assert (len({weights(trial, order) for trial in range(6)}) == 1) == single
    # and every layer draws its own
    orders = visiting_orders(6, 3, 4, "random", RngKey(0))
    assert [order.shape for order in orders] == [(4, 6)] * 3
    assert orders[2][-1].tolist() == [5, 1, 3, 0, 4, 2]  # as first drawn
    assert not np.array_equal(orders[0], orders[1])
    assert np.array_equal(orders[0], visiting_orders(6, 1, 4, "random", RngKey(0))[0])


@pytest.mark.parametrize("hidden", [(L,), (4, 5), (3, 2, 4, 3)])
def test_concatenation_adds_the_clients_logits_by_class_share(hidden):
    clients = clients_of(hidden=hidden)
    x = np.random.default_rng(9).normal(size=(20, D))
    own = np.stack([logits(network, x) for network in networks_of(clients.tensors)])
    shares = COUNTS / COUNTS.sum(0)
    weighted, equal = concatenation(clients), concatenation(clients, class_weights=False)
    sizes = [D, *(J * n for n in hidden), K]
    assert [v.shape for k, v in weighted.tensors.items() if k.startswith("weight")] == [
        (1, *ends) for ends in pairwise(sizes)
    ]
    for made, f in ((weighted, shares), (equal, np.full((J, K), 1 / J))):
        found = logits(networks_of(made.tensors)[0], x)
        np.testing.assert_allclose(found, (f[:, None] * own).sum(0), rtol=1e-4, atol=1e-4)


def test_pruned_concatenation_keeps_the_strongest_units_of_each_layer():
    clients = clients_of(hidden=(4, 5))
    whole = networks_of(concatenation(clients).tensors)[0]
    made = networks_of(made_by("pruned_concatenation", clients, units=7).tensors)[0]
    assert [len(made[1]), len(made[3])] == [7, 7]
    for layer, kept in ((0, made[1]), (1, made[3])):
        norms = np.hypot(np.linalg.norm(whole[2 * layer], axis=0), whole[2 * layer + 1])
        norms *= np.linalg.norm(whole[2 * layer + 2], axis=1)
        held = np.isin(whole[2 * layer + 1], kept)
        assert held.sum() == 7
        assert norms[held].min() > norms[~held].max()
    rows, columns = (np.isin(whole[i], made[i]) for i in (1, 3))
    np.testing.assert_array_equal(made[2], whole[2][np.ix_(rows, columns)])


def test_variances_that_nothing_can_be_divided_by_are_refused():
    assert Variances(1e-9, layers=(1e-9,)).noise(1) == pytest.approx((1e-18,))
    for small in (Variances(1e-300, layers=(1e-300,)), Variances(sigma02=1e-200)):
        with pytest.raises(FedreproError, match="too near to 0 to divide by"):
            small.noise(2)


seeds = st.integers(0, 2**32 - 1)


def network(rng, widths, spread=1.0):
    sizes = (D, *widths, K)
    blocks = []
    for shape in pairwise(sizes):
        blocks += [rng.normal(0, spread, shape), rng.normal(0, spread, shape[1])]
    return tuple(blocks)


def shaken(rng, net, noise):
    return tuple(block + rng.normal(0, noise, block.shape) for block in net)


def part_of(net, orders):
    """The sub-network of these hidden units of each layer."""
    blocks = list(net)
    for layer, order in enumerate(orders):
        blocks[2 * layer] = blocks[2 * layer][:, order]
        blocks[2 * layer + 1] = blocks[2 * layer + 1][order]
        blocks[2 * layer + 2] = blocks[2 * layer + 2][order]
    return tuple(blocks)


def orders_of(rng, clients, depth, passes=3):
    return [np.array([rng.permutation(clients) for _ in range(passes)]) for _ in range(depth)]


@given(
    seed=seeds,
    widths=st.integers(1, 4).flatmap(
        lambda depth: st.lists(st.tuples(*[st.integers(1, 6)] * depth), min_size=2, max_size=12)
    ),
    sigma=st.sampled_from([0.05, 0.5, 3.0]),
    by_layer=st.booleans(),
    factor=st.sampled_from([1.0, 2.0]),
    cap=st.sampled_from([None, 2, 10]),
)
def test_the_global_network_is_the_literal_matching_of_any_depth(
    seed, widths, sigma, by_layer, factor, cap
):
    rng = np.random.default_rng(seed)
    depth = len(widths[0])
    pool = network(rng, (7,) * depth)
    networks = [
        shaken(rng, part_of(pool, [rng.permutation(7)[:n] for n in own]), 0.3) for own in widths
    ]
    counts = rng.integers(0, 9, (len(widths), K)) + np.eye(len(widths), K, dtype=int)
    counts[0] += 1
    orders = orders_of(rng, len(widths), depth)
    factors = tuple(rng.uniform(0.5, 2, depth)) if by_layer else (1.0,)
    expected, out = literal.match_deep(
        networks, counts, np.array(orders), sigma=sigma * np.array(factors), sigma0=10.0,
        gamma=0.7, factor=factor, cap=cap,
    )  # fmt: skip
    variances, rule = Variances(sigma, 10.0, 0.1, factors), Rule(0.7, factor, cap)
    found, matchings = match_networks(networks, class_shares(counts), variances, rule, orders)
    for ours, theirs in zip(matchings, expected, strict=True):
        assert [list(a) for a in ours.assignments] == theirs.assignments
        assert list(ours.counts) == theirs.counts
    for ours, theirs in zip(found, out, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("hidden", [(5,), (4, 5), (3, 4, 3)])
def test_a_posterior_sigma2_changes_the_means_and_not_what_is_matched(hidden):
    made = partial(pfnm, clients_of(hidden=hidden), order="fixed")
    one, same, apart = (made(sigma2=0.1, posterior_sigma2=of) for of in (None, 0.1, 2.0))
    for name, value in one.tensors.items():
        np.testing.assert_allclose(value, same.tensors[name], rtol=1e-6, atol=1e-9)
        assert value.shape == apart.tensors[name].shape
    assert apart.diagnostics == one.diagnostics
    assert not np.allclose(one.tensors["bias0"], apart.tensors["bias0"])
    # the output bias is matched with nothing, so it has the other variance's mean
    bias, other = f"bias{len(hidden)}", made(sigma2=2.0).tensors
    np.testing.assert_allclose(apart.tensors[bias], other[bias], rtol=1e-6)


@pytest.mark.parametrize("hidden", [(5,), (4, 5), (3, 4, 3)])
def test_pfnm_that_merges_nothing_is_the_unmatched_posterior(hidden):
    clients = clients_of(hidden=hidden)
    settings = {"sigma2": 0.3, "sigma02": 4.0, "sigma2_layers": [1.0, 0.5, 2.0][: len(hidden)]}
    made = pfnm(clients, gamma0=1e9, **settings)
    control = made_by("unmatched", clients, **settings)
    assert made.diagnostics["matched_share"] == 0
    x = np.random.default_rng(1).normal(size=(30, D))
    one, two = (logits(networks_of(m.tensors)[0], x) for m in (made, control))
    np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["pfnm", "unmatched"])
def test_variances_for_another_number_of_layers_are_refused(name):
    with pytest.raises(FedreproError, match=r"has 3 values, but the networks have 2 hidden"):
        made_by(name, clients_of(hidden=(4, 5)), sigma2_layers=[1.0, 1.0, 1.0])
