"""The methods pfnm and concatenation, on one hidden layer and on several."""

from __future__ import annotations

import subprocess
import sys
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
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.methods.matching.network_arrays import class_shares, networks_of
from fedrepro.methods.matching.sequential_matching import Rule, Variances, alone, match_networks
from fedrepro.methods.pfnm import visiting_orders

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


def test_the_global_model_is_the_literal_matching_of_the_clients():
    clients = clients_of(spread=0.6)
    made = pfnm(clients, sigma2=0.5, sigma02=4.0, gamma0=0.7, order="fixed", passes=3)
    visits = np.tile(np.arange(J), (3, 1))
    matching, out = literal.match_networks(
        networks_of(clients.tensors), COUNTS, visits, sigma=0.5, sigma0=4.0, gamma=0.7
    )
    for name, value in zip(("weight0", "bias0", "weight1", "bias1"), out, strict=True):
        assert made.tensors[name].dtype == np.float32
        assert made.tensors[name].shape == (1, *value.shape)
        np.testing.assert_allclose(made.tensors[name][0], value, rtol=1e-6, atol=1e-6)
    shared = sum(m for m in matching.counts if m > 1) / (J * L)
    assert made.diagnostics["matched_share"] == pytest.approx(shared)
    assert 0 < shared < 1


def test_options_of_the_rule_reach_the_matching():
    clients = clients_of(1, spread=0.6)
    visits = np.tile(np.arange(J), (5, 1))
    for rule in ({"factor": 2.0}, {"cap": 1}, {"width": L}):
        names = {"factor": "popularity", "cap": "count_cap", "width": "width_cap"}
        _, out = literal.match_networks(
            networks_of(clients.tensors), COUNTS, visits, sigma=0.3, sigma0=10.0, gamma=1.0, **rule
        )
        values = {names[key]: value for key, value in rule.items()}
        made = pfnm(clients, sigma2=0.3, order="fixed", **values)
        plain = pfnm(clients, sigma2=0.3, order="fixed")
        np.testing.assert_allclose(made.tensors["weight0"][0], out[0], rtol=1e-5, atol=1e-6)
        assert not np.array_equal(made.tensors["weight0"], plain.tensors["weight0"])


def test_identical_clients_or_one_alone_give_back_their_network_as_the_prior_flattens():
    clients, flat = clients_of(clients=1), {"sigma2": 0.01, "sigma02": 1e4}
    same = replace(clients, tensors={k: np.repeat(v, J, 0) for k, v in clients.tensors.items()})
    made = pfnm(same, np.ones((J, K), int), **flat)
    for name, value in clients.tensors.items():
        np.testing.assert_allclose(made.tensors[name], value, atol=1e-4)
    assert made.diagnostics == {"matched_share": 1.0}
    made = pfnm(clients, COUNTS[:1] + 1, **flat)
    np.testing.assert_allclose(made.tensors["weight0"], clients.tensors["weight0"], atol=1e-4)
    assert made.diagnostics == {"matched_share": 0.0}


def test_clients_count_by_their_share_of_a_class():
    """Two clients of one identical hidden layer; only the first has examples of class 0."""
    one = clients_of(clients=1).tensors
    tensors = {k: np.repeat(v, 2, 0) for k, v in one.items()}
    tensors["weight1"][1] += 0.1
    tensors["bias1"][1] += 0.1
    clients = LocalModels(clients_of().model, D, K, tensors)
    counts = np.array([[8, 4, 0], [0, 4, 8]])
    made = pfnm(clients, counts, sigma2=0.05, sigma02=1e4)
    expected = one["weight1"] + np.array([0.0, 0.05, 0.1])
    np.testing.assert_allclose(made.tensors["weight1"], expected, atol=1e-3)
    np.testing.assert_allclose(
        made.tensors["bias1"][0] - one["bias1"][0], [0, 0.05, 0.1], atol=1e-3
    )
    equal = pfnm(clients, counts, sigma2=0.05, sigma02=1e4, class_weights=False)
    np.testing.assert_allclose(equal.tensors["weight1"], one["weight1"] + 0.05, atol=1e-3)


def test_the_prior_mean_of_biases_draws_them():
    clients = clients_of(spread=0.0)
    low, high = (pfnm(clients, sigma2=100.0, bias_prior=b) for b in (0.0, 5.0))
    for name in ("bias0", "bias1"):
        assert (high.tensors[name].min() - low.tensors[name].max()) > 1
    np.testing.assert_allclose(low.tensors["weight0"], high.tensors["weight0"])


def test_a_class_that_nobody_has_counts_equally_and_one_that_one_has_is_all_its_own():
    for counts, shares in (
        ([[3, 0], [1, 0]], [[0.75, 0.5], [0.25, 0.5]]),
        ([[3, 1], [1, 0]], [[0.75, 1], [0.25, 0]]),
    ):
        assert np.array_equal(class_shares(np.array(counts)), shares)
    for made in (pfnm(clients_of(), COUNTS * [1, 0, 1]), concatenation(clients_of(), COUNTS * 0)):
        assert all(np.isfinite(value).all() for value in made.tensors.values())


def test_a_unit_that_is_alone_is_drawn_to_the_prior_and_biases_to_its_mean():
    network = (np.full((2, 1), 3.0), np.full(1, 3.0), np.full((1, 2), 3.0), np.array([3.0, 4.0]))
    variances = Variances(sigma2=0.5, sigma02=0.25, bias=2.0)  # precisions 2, and 4 of the prior
    into, bias, out, last = alone(network, np.array([1.0, 0.5]), variances)
    np.testing.assert_allclose(into, np.full((2, 1), 3 * 2 / 6))
    np.testing.assert_allclose(bias, [(3 * 2 + 2 * 4) / 6])
    np.testing.assert_allclose(out, [[3 * 2 / 6, 3 * 1 / 5]])
    np.testing.assert_array_equal(last, [3, 4])


def test_the_order_of_visits_comes_from_the_stream_of_the_trial():
    clients = clients_of(2, clients=8, spread=0.5)
    counts = np.ones((8, K), int)

    def weights(trial, **values):
        made = pfnm(clients, counts, RngKey(0).at(trial=trial), sigma2=0.5, **values)
        return made.tensors["weight0"].tobytes()

    assert weights(0) == weights(0)
    assert len({weights(trial) for trial in range(6)}) > 1
    assert len({weights(trial, order="fixed") for trial in range(6)}) == 1


def test_parameters_have_ranges_and_stand_in_tokens():
    spec = parse_token("method", "pfnm+count_cap~none+popularity~2+sigma2~0.01@0.1@1")
    assert spec["count_cap"] is None
    assert spec["popularity"] == 2.0
    assert [s["sigma2"] for s in spec.expand()] == [0.01, 0.1, 1.0]
    for token in ("pfnm+sigma2~0", "pfnm+gamma0~-1", "pfnm+passes~-1", "pfnm+order~sorted"):
        with pytest.raises(FedreproError):
            parse_token("method", token)


def test_matching_loads_no_torch():
    code = (
        "import sys, fedrepro.papers.pfnm.check\n"
        "from fedrepro.methods import pfnm\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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


def test_pruning_to_more_units_than_there_are_keeps_them_all():
    clients = clients_of(hidden=(4, 5))
    made = made_by("pruned_concatenation", clients, units=99)
    for name, value in concatenation(clients).tensors.items():
        np.testing.assert_array_equal(made.tensors[name], value)


def test_what_is_kept_does_not_change_with_a_units_scale():
    """A ReLU unit times c with outgoing weights over c is the same unit."""
    clients = clients_of()
    scale = np.random.default_rng(3).uniform(0.1, 10, (J, L)).astype("f4")
    scaled = {
        "weight0": clients.tensors["weight0"] * scale[:, None],
        "bias0": clients.tensors["bias0"] * scale,
        "weight1": clients.tensors["weight1"] / scale[:, :, None],
        "bias1": clients.tensors["bias1"],
    }
    x = np.random.default_rng(9).normal(size=(20, D))
    one, two = (
        logits(networks_of(made_by("pruned_concatenation", c, units=6).tensors)[0], x)
        for c in (clients, replace(clients, tensors=scaled))
    )
    np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4)


def test_variances_that_nothing_can_be_divided_by_are_refused():
    assert Variances(1e-9, layers=(1e-9,)).noise(1) == pytest.approx((1e-18,))
    for small in (Variances(1e-300, layers=(1e-300,)), Variances(sigma02=1e-200)):
        with pytest.raises(FedreproError, match="too near to 0 to divide by"):
            small.noise(2)


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
