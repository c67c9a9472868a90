"""PFNM on networks of several hidden layers: what is true of matching them from the top down."""

from __future__ import annotations

from itertools import pairwise

import literal_matching as literal
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_pfnm import D, K, clients_of, logits, made_by

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import parse_token
from fedrepro.methods.matching.sequential_matching import Rule, Variances, match_networks
from fedrepro.methods.matching.unit_arrays import class_shares, networks_of, tensors_of

seeds = st.integers(0, 2**32 - 1)
DEPTHS = [1, 2, 3, 6]


def network(rng, widths, spread=1.0):
    sizes = (D, *widths, K)
    blocks = []
    for shape in pairwise(sizes):
        blocks += [rng.normal(0, spread, shape), rng.normal(0, spread, shape[1])]
    return tuple(blocks)


def shaken(rng, net, noise):
    return tuple(block + rng.normal(0, noise, block.shape) for block in net)


def permuted(net, orders):
    """The same function: hidden layer c in the order orders[c]."""
    blocks = list(net)
    for layer, order in enumerate(orders):
        blocks[2 * layer] = blocks[2 * layer][:, order]
        blocks[2 * layer + 1] = blocks[2 * layer + 1][order]
        blocks[2 * layer + 2] = blocks[2 * layer + 2][order]
    return tuple(blocks)


def any_order(rng, net):
    return [rng.permutation(len(bias)) for bias in net[1:-1:2]]


part_of = permuted  # the sub-network of these hidden units


def orders_of(rng, clients, depth, passes=3):
    return [np.array([rng.permutation(clients) for _ in range(passes)]) for _ in range(depth)]


def matched(networks, shares=None, rule=None, orders=None, **variances):
    depth = len(networks[0]) // 2 - 1
    shares = np.full((len(networks), K), 1 / len(networks)) if shares is None else shares
    orders = orders or [np.tile(np.arange(len(networks)), (3, 1))] * depth
    return match_networks(networks, shares, Variances(**variances), rule or Rule(), orders)


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


@given(seeds, st.sampled_from(DEPTHS), st.sampled_from([0.05, 1.0]))
def test_the_order_of_hidden_units_matters_in_no_client_and_no_layer(seed, depth, sigma2):
    rng = np.random.default_rng(seed)
    networks = [network(rng, rng.integers(2, 6, depth)) for _ in range(4)]
    turned = [permuted(net, any_order(rng, net)) for net in networks]
    orders = orders_of(rng, 4, depth)
    (one, before), (two, after) = (
        matched(nets, orders=orders, sigma2=sigma2) for nets in (networks, turned)
    )
    assert [sorted(m.counts) for m in before] == [sorted(m.counts) for m in after]
    x = rng.normal(size=(30, D))
    expected = logits(one, x)
    scale = 1 + np.abs(expected).max()
    np.testing.assert_allclose(logits(two, x), expected, rtol=0, atol=1e-9 * scale)


@given(seeds, st.sampled_from(DEPTHS))
def test_a_network_predicts_the_same_in_any_order_of_its_hidden_units(seed, depth):
    """Claim P5: an exact property of fully connected networks."""
    rng = np.random.default_rng(seed)
    net = network(rng, rng.integers(1, 7, depth))
    x = rng.normal(size=(10, D))
    expected = logits(net, x)
    found = logits(permuted(net, any_order(rng, net)), x)
    np.testing.assert_allclose(found, expected, atol=1e-10 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("depth", DEPTHS)
def test_identical_clients_are_matched_one_to_one_in_every_layer(depth):
    rng = np.random.default_rng(depth)
    net = network(rng, [5 + layer for layer in range(depth)], spread=2.0)
    turned = [permuted(net, any_order(rng, net)) for _ in range(5)]
    made, matchings = matched(turned, sigma2=0.1, sigma02=1e6)
    assert [len(m.counts) for m in matchings] == [5 + layer for layer in reversed(range(depth))]
    assert all((m.counts == 5).all() for m in matchings)
    x = rng.normal(size=(20, D))
    np.testing.assert_allclose(logits(made, x), logits(net, x), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("depth", DEPTHS)
def test_planted_units_are_found_in_every_layer(depth):
    """Clients hold one network with noise, but for some of the lowest units, in any order."""
    rng = np.random.default_rng(depth)
    whole = network(rng, (8,) * depth, spread=3.0)
    parts = [
        [rng.permutation(8)[: 6 if layer == 0 else 8] for layer in range(depth)] for _ in range(6)
    ]
    networks = [shaken(rng, part_of(whole, part), 0.02) for part in parts]
    _, matchings = matched(networks, sigma2=0.1)
    for layer, matching in zip(reversed(range(depth)), matchings, strict=True):
        planted = np.concatenate([part[layer] for part in parts])
        seats = set(zip(planted, np.concatenate(matching.assignments), strict=True))
        assert len(seats) == len(set(planted)) == len(matching.counts)


def test_absent_units_draw_the_average_towards_zero():
    """Of two clients one lacks a unit of the top layer: half the weight to it, as in the code."""
    rng = np.random.default_rng(0)
    whole = network(rng, (3, 4), spread=3.0)
    missing = part_of(whole, [np.arange(3), np.arange(3)])
    # The noise must be large for a unit that lacks a weight to be taken for the same.
    made, matchings = matched([whole, missing], np.ones((2, K)), sigma2=10.0, sigma02=1e9)
    assert [list(m.counts) for m in matchings] == [[2, 2, 2, 1], [2, 2, 2]]
    np.testing.assert_allclose(made[2][:, :3], whole[2][:, :3], atol=1e-6)
    np.testing.assert_allclose(made[2][:, 3], whole[2][:, 3] / 2, atol=1e-6)


@pytest.mark.parametrize("hidden", [(5,), (4, 5), (3, 4, 3)])
def test_a_posterior_sigma2_changes_the_means_and_not_what_is_matched(hidden):
    clients = clients_of(hidden=hidden)
    one, same, apart, other = (
        made_by("pfnm", clients, order="fixed", **settings)
        for settings in (
            {"sigma2": 0.1},
            {"sigma2": 0.1, "posterior_sigma2": 0.1},
            {"sigma2": 0.1, "posterior_sigma2": 2.0},
            {"sigma2": 2.0},
        )
    )
    for name, value in one.tensors.items():
        np.testing.assert_allclose(value, same.tensors[name], rtol=1e-6, atol=1e-9)
        assert value.shape == apart.tensors[name].shape
    assert apart.diagnostics == one.diagnostics
    assert not np.allclose(one.tensors["bias0"], apart.tensors["bias0"])
    # the output bias is matched with nothing, so it has the other variance's mean
    bias = f"bias{len(hidden)}"
    np.testing.assert_allclose(apart.tensors[bias], other.tensors[bias], rtol=1e-6)


@pytest.mark.parametrize("hidden", [(5,), (4, 5), (3, 4, 3)])
def test_pfnm_that_merges_nothing_is_the_unmatched_posterior(hidden):
    clients = clients_of(hidden=hidden)
    settings = {"sigma2": 0.3, "sigma02": 4.0, "sigma2_layers": [1.0, 0.5, 2.0][: len(hidden)]}
    made = made_by("pfnm", clients, gamma0=1e9, **settings)
    control = made_by("unmatched", clients, **settings)
    assert made.diagnostics["matched_share"] == 0
    x = np.random.default_rng(1).normal(size=(30, D))
    one, two = (logits(networks_of(m.tensors)[0], x) for m in (made, control))
    np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4)


def test_sigma2_by_layer_multiplies_sigma2():
    clients = clients_of(hidden=(4, 5))
    one = made_by("pfnm", clients, sigma2=0.5, sigma2_layers=[2.0, 0.1], order="fixed")
    two = made_by("pfnm", clients, sigma2_layers=[1.0, 0.05], order="fixed")
    for name, value in one.tensors.items():
        np.testing.assert_allclose(value, two.tensors[name], atol=1e-6)
    spec = parse_token("method", "pfnm+sigma2~0.1@1+sigma2_layers~1@0.1")
    assert spec["sigma2_layers"] == (1.0, 0.1)
    assert spec.swept == ("sigma2",)


@pytest.mark.parametrize("name", ["pfnm", "unmatched"])
def test_variances_for_another_number_of_layers_are_refused(name):
    with pytest.raises(FedreproError, match=r"has 3 values, but the networks have 2 hidden"):
        made_by(name, clients_of(hidden=(4, 5)), sigma2_layers=[1.0, 1.0, 1.0])


def test_every_layer_draws_its_own_order_of_visits():
    from fedrepro.core.rng import RngKey
    from fedrepro.methods.pfnm import visiting_orders

    orders = visiting_orders(6, 3, 4, "random", RngKey(0))
    assert [order.shape for order in orders] == [(4, 6)] * 3
    assert not np.array_equal(orders[0], orders[1])
    assert np.array_equal(orders[0], visiting_orders(6, 1, 4, "random", RngKey(0))[0])


# Sizes from the top, matched share, and the sum of each tensor times a wave, as first computed.
# fmt: off
GOLDEN = {
    (4, 5): [
        15, 7, 3, 0.583333, 1.0837, -3.8119, -5.165, -2.5822, -1.5172, 0.49416,
    ],
    (4, 3, 5): [
        13, 8, 6, 3, 0.625, -1.512, -1.9195, 0.88519, 1.8592, 0.79976, -2.9504, 0.43621,
        -0.92606,
    ],
    (3, 3, 3, 3, 3, 3): [
        10, 6, 6, 6, 6, 4, 3, 0.694444, 0.72307, 0.72561, -2.8579, 0.41863, -2.7081,
        -1.4025, -0.23204, 1.0429, -3.6179, 0.076715, 1.2502, -1.9314, -0.10736, -0.78056,
    ],
}
# fmt: on


@pytest.mark.parametrize("hidden", GOLDEN)
def test_numbers_of_several_layers_change_only_with_the_version(hidden):
    made = made_by("pfnm", clients_of(3, hidden=hidden, spread=0.6), sigma2=0.4)
    numbers = [v.shape[2] for k, v in made.tensors.items() if k.startswith("weight")]
    numbers += [float(f"{made.diagnostics['matched_share']:.6g}")]
    for value in made.tensors.values():
        numbers.append(float(f"{np.cos(np.arange(value.size) * 0.7) @ value.ravel():.5g}"))
    np.testing.assert_allclose(numbers, GOLDEN[hidden], rtol=1e-3, atol=1e-3)


def test_tensors_and_networks_are_inverse():
    net = network(np.random.default_rng(0), (3, 2))
    tensors = tensors_of(net)
    assert list(tensors) == ["weight0", "bias0", "weight1", "bias1", "weight2", "bias2"]
    for value, block in zip(networks_of(tensors)[0], net, strict=True):
        np.testing.assert_allclose(value, block, rtol=1e-6)
