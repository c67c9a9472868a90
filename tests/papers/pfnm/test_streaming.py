"""Streaming: a step's posterior is the next one's prior; methods whose data arrive in steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from contract import METHODS, as_split, asked_by, call, states
from hypothesis import given as drawn_from
from hypothesis import strategies as st
from problems import problem
from scipy.optimize import linear_sum_assignment
from test_pfnm import K, any_order, logits, network, orders_of, part_of, permuted, shaken

from fedrepro.api import ClientInfo
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.methods.matching.sequential_matching import Rule, Variances, match_networks
from fedrepro.numbers.model_evaluation import correct
from fedrepro.papers.pfnm.streaming_posterior import (
    arriving,
    before_data,
    start_of,
    subsample,
    update,
)
from fedrepro.training.federation.clients import initial_weights

seeds = st.integers(0, 2**32 - 1)
RULE = Rule()


def stream_of(seed, steps, widths=((4,), (3,), (4,)), sigma2=0.5, **options):
    """Posteriors after each step, the networks of each step and the matchings."""
    rng = np.random.default_rng(seed)
    depth = len(widths[0])
    pool = network(rng, (6,) * depth, spread=1.5)
    posterior, variances = None, Variances(sigma2)
    found = []
    for _ in range(steps):
        networks = [
            shaken(rng, part_of(pool, [rng.permutation(6)[:n] for n in own]), 0.3) for own in widths
        ]
        shares = rng.dirichlet(np.ones(len(widths)), K).T
        orders = orders_of(rng, len(widths), depth, passes=2)
        posterior = posterior or before_data(networks, variances)
        posterior, matchings = update(
            posterior, networks, shares, variances, RULE, orders, **options
        )
        found.append((posterior, networks, shares, matchings, orders))
    return found


def literal_step(past, members, vectors, precisions, h0, p0, step, visits, gamma, first):
    """One layer, one step, unit by unit. past: lists (G, S) of atoms; first: the eq. (9) step."""
    clients = len(vectors)
    G, S = [g.copy() for g, _ in past], [s.copy() for _, s in past]
    count = [1] * len(past)  # the past keeps its atoms
    held = [[] for _ in vectors]
    owned = [list(row) for row in members]

    def assign(j):
        h, p = vectors[j] * precisions[j], precisions[j]
        table = np.empty((len(h), len(G) + len(h)))
        for u, row in enumerate(h):
            for i in range(len(G)):
                m = owned[j][i] if i < len(owned[j]) else 0
                popular = np.log((1 + m) / (step - m))
                if first:
                    popular = np.log(count[i] / (clients - count[i]))
                table[u, i] = ((row + G[i]) ** 2 / (p + S[i]) - G[i] ** 2 / S[i]).sum() + popular
            alone = ((row + h0) ** 2 / (p + p0) - h0**2 / p0).sum()
            for t in range(len(h)):
                table[u, len(G) + t] = (
                    alone + 2 * np.log(gamma / (step * clients)) - 2 * np.log(t + 1)
                )
        atoms = len(G)
        for u, i in enumerate(linear_sum_assignment(-table)[1]):
            if i >= atoms:
                i = len(G)
                G.append(h0.copy()), S.append(p0.copy()), count.append(0)
            G[i], S[i], count[i] = G[i] + h[u], S[i] + p, count[i] + 1
            held[j].append(int(i))

    def remove(j):
        for u, i in enumerate(held[j]):
            G[i] = G[i] - vectors[j][u] * precisions[j]
            S[i], count[i] = S[i] - precisions[j], count[i] - 1
        held[j] = []
        for i in [a for a, n in enumerate(count) if n == 0][::-1]:
            del G[i], S[i], count[i]
            for k in range(clients):
                held[k] = [a - (a > i) for a in held[k]]

    for j in sorted(range(clients), key=lambda j: -len(vectors[j])):
        assign(j)
    for j in np.ravel(visits):
        remove(j)
        assign(j)
    return list(zip(G, S, strict=True)), held


@drawn_from(seeds, st.integers(1, 4), st.booleans(), st.sampled_from([0.1, 0.5, 3.0]))
def test_every_step_is_the_literal_evaluation_of_equations_10_and_11(
    seed, steps, crowd_first, sigma2
):
    found = stream_of(seed, steps, sigma2=sigma2, crowd_first=crowd_first)
    inputs = found[0][1][0][0].shape[0]
    h0 = np.zeros(inputs + 1 + K)
    h0[inputs] = 0.1 / 10
    past, members = [], [[] for _ in range(3)]
    for step, (posterior, networks, shares, (matching,), (visits,)) in enumerate(found, 1):
        vectors = [np.hstack([n[0].T, n[1][:, None], n[2]]) for n in networks]
        precisions = [np.r_[np.ones(inputs + 1), f] / sigma2 for f in shares]
        past, held = literal_step(
            past, members, vectors, precisions, h0, np.full(len(h0), 0.1), step, visits, 1.0,
            crowd_first and step == 1,
        )  # fmt: skip
        assert [list(a) for a in matching.assignments] == held
        members = [
            np.bincount(own, minlength=len(past)) + np.pad(m, (0, len(past) - len(m)))
            for own, m in zip(held, members, strict=True)
        ]
        assert np.array_equal(posterior.layers[0].members, members)
        means = np.array([g / s for g, s in past])
        weight0, bias0, weight1, _ = posterior.network
        ours = np.hstack([weight0.T, bias0[:, None], weight1])
        np.testing.assert_allclose(ours, means, rtol=0, atol=1e-12)


@pytest.mark.parametrize("widths", [((4,), (3,)), ((4, 5), (3, 2), (4, 4))])
def test_one_step_from_nothing_is_matching_without_a_stream(widths):
    [(posterior, networks, shares, matchings, orders)] = stream_of(1, 1, widths)
    expected, plain = match_networks(networks, shares, Variances(0.5), RULE, orders)
    for ours, theirs in zip(posterior.network, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-14)
    for ours, theirs in zip(matchings, plain, strict=True):
        assert all(map(np.array_equal, ours.assignments, theirs.assignments))
    assert posterior.step == 1


@drawn_from(seeds, st.sampled_from([1, 2, 3]))
def test_the_posterior_is_the_sum_over_all_members_of_all_steps(seed, depth):
    """Equation (10), over every step at once; for the lower layers over the last atoms above."""
    found = stream_of(seed, 4, ((4,) * depth, (3,) * depth, (5,) * depth))
    last = found[-1][0]
    for layer in range(depth):
        top, atoms = layer == depth - 1, last.layers[layer].atoms
        width = 0 if top else len(last.layers[layer + 1].atoms.natural)
        natural = np.zeros((len(atoms.natural), (last.inputs if layer == 0 else 0) + 1 + width))
        natural[:, natural.shape[1] - width - 1] = 0.1 / 10
        counts = np.zeros(len(natural))
        for _, networks, _, matchings, _ in found:
            ours = matchings[depth - 1 - layer].assignments
            for j, network_ in enumerate(networks):
                own = network_[2 * layer + 1][:, None]
                own = np.hstack([network_[0].T, own]) if layer == 0 else own
                natural[ours[j], : own.shape[1]] += own / 0.5
                if not top:
                    above = matchings[depth - 2 - layer].assignments[j]
                    at = np.ix_(ours[j], own.shape[1] + above)
                    natural[at] += network_[2 * layer + 2] / 0.5
                counts[ours[j]] += 1
        np.testing.assert_allclose(atoms.natural, natural, atol=1e-11)
        np.testing.assert_allclose(atoms.precision, 0.1 + counts / 0.5)
        assert np.array_equal(last.layers[layer].members.sum(0), counts)


def test_the_same_network_every_step_needs_no_new_units():
    rng = np.random.default_rng(0)
    net = network(rng, (5, 4), spread=2.0)
    variances = Variances(0.1, 1e6)
    posterior = before_data([net, net], variances)
    for _ in range(4):
        turned = [permuted(net, any_order(rng, net)) for _ in range(2)]
        orders = orders_of(rng, 2, 2)
        posterior, _ = update(posterior, turned, np.ones((2, K)), variances, RULE, orders)
    assert [layer.members.tolist() for layer in posterior.layers] == [[[4] * 5] * 2, [[4] * 4] * 2]
    x = rng.normal(size=(20, 6))
    np.testing.assert_allclose(logits(posterior.network, x), logits(net, x), rtol=1e-3, atol=1e-2)


@drawn_from(seeds)
def test_the_order_of_hidden_units_matters_at_no_step(seed):
    rng = np.random.default_rng(seed)
    variances = Variances(0.5)
    steps = [[network(rng, (4, 3)) for _ in range(3)] for _ in range(3)]
    orders = [orders_of(rng, 3, 2) for _ in steps]
    made = []
    for turn in (False, True):
        posterior = before_data(steps[0], variances)
        for networks, visits in zip(steps, orders, strict=True):
            given_ = [permuted(n, any_order(rng, n)) if turn else n for n in networks]
            shares = np.full((3, K), 1 / 3)
            posterior, _ = update(posterior, given_, shares, variances, RULE, visits)
        made.append(posterior.network)
    x = rng.normal(size=(20, 6))
    one, two = (logits(net, x) for net in made)
    np.testing.assert_allclose(one, two, atol=1e-9 * (1 + np.abs(one).max()))


# --- where a client starts from ---


def test_units_are_drawn_without_replacement_by_how_often_they_were_held():
    members = np.array([0, 1, 9, 0, 5, 5])
    drawn = [subsample(members, 3, 1, np.random.default_rng(i)) for i in range(400)]
    assert all(len(set(d)) == 2 and not {0, 3} & set(d) for d in drawn)
    assert all((np.diff(d) > 0).all() for d in drawn)
    times = np.bincount(np.concatenate(drawn), minlength=6)
    assert times[2] > times[4] > times[1] > 0
    # all that were ever held are taken where they are fewer
    assert list(subsample(members, 9, 1, np.random.default_rng(0))) == [1, 2, 4, 5]
    assert list(subsample(members, 1, 3, np.random.default_rng(0))) == []


@pytest.mark.parametrize("widths", [(4,), (4, 5)])
def test_a_start_is_part_of_the_global_network_with_fresh_units(widths):
    posterior = stream_of(5, 3, (widths, (3,) * len(widths)))[-1][0]
    stream = np.random.default_rng(1)
    made = start_of(posterior, 0, widths, Variances(), 1, 0.0, stream)
    whole = posterior.network
    assert [b.shape for b in made[1::2]] == [(n,) for n in (*widths, K)]
    assert np.array_equal(made[-1], whole[-1])
    for layer, width in enumerate(widths):
        at = np.flatnonzero(np.isin(whole[2 * layer + 1], made[2 * layer + 1][:-1]))
        assert len(at) == width - 1  # the last one is fresh
        assert made[2 * layer + 1][-1] == 0.1
        assert not made[2 * layer][:, -1].any()
        assert not made[2 * layer + 2][-1].any()
        assert (posterior.layers[layer].members[0, at] > 0).all()
    at = np.flatnonzero(np.isin(whole[1], made[1][:-1]))
    np.testing.assert_array_equal(made[0][:, :-1], whole[0][:, at])


def test_noise_moves_all_but_the_output_bias():
    posterior = stream_of(5, 2)[-1][0]
    still, moved = (
        start_of(posterior, 1, (4,), Variances(), 1, sd, np.random.default_rng(2))
        for sd in (0.0, 0.01)
    )
    for one, two in zip(still[:-1], moved[:-1], strict=True):
        assert 0 < np.abs(one - two).max() < 0.06
    assert np.array_equal(still[-1], moved[-1])


NOTHING = ClientInfo(training=None)


@pytest.fixture(scope="module")
def given():
    return problem()


def test_all_data_of_a_client_arrive_once_in_parts_as_equal_as_can_be(given):
    parts = [
        arriving(given.clients, step, 7, RngKey(0).at(round=step)).data.rows for step in range(7)
    ]
    for client, rows in enumerate(given.rows):
        own = [part[client] for part in parts]
        assert np.array_equal(np.sort(np.concatenate(own)), np.sort(rows))
        sizes = [len(part) for part in own]
        assert max(sizes) - min(sizes) <= 1
    again = arriving(given.clients, 3, 7, RngKey(0).at(round=99)).data.rows
    assert all(map(np.array_equal, again, parts[3]))


def test_a_stream_of_more_steps_than_examples_is_refused(given):
    few = replace(
        given.clients, data=replace(given.clients.data, rows=[given.rows[0], given.rows[1][:3]])
    )
    with pytest.raises(FedreproError, match="client 1 has 3 examples, too few for a stream of 4"):
        arriving(few, 0, 4, RngKey(0))


def trained_in_a_round(given):
    """The same problem with local models trained as in the first round of a method."""
    clients = given.clients
    starts = initial_weights(
        clients.network, clients.settings, [RngKey(0, client=j) for j in range(clients.count)]
    )
    found = clients.train(starts, RngKey(0, round=0), epochs=clients.settings.epochs)
    return replace(given, models=replace(given.models, tensors=found.tensors))


def test_one_step_of_pfnm_streaming_is_pfnm(given):
    """All data at once, trained as the local models were."""
    given = trained_in_a_round(given)
    values = {"sigma2": 0.1, "order": "fixed"}
    made = METHODS["pfnm_streaming"].fn(steps=1, **values)
    *_, state = states(made, given.clients)
    ours, plain = made.model(state, given.clients), call("pfnm", given, **values)
    for name, value in plain.tensors.items():
        assert np.allclose(ours.tensors[name], value, atol=1e-4)


@pytest.mark.parametrize("hidden", [(8,), (6, 5)])
def test_pfnm_streaming_reports_its_size_at_every_step(hidden):
    given = problem(hidden=hidden)
    made = METHODS["pfnm_streaming"].fn(steps=3, sigma2=0.1)
    state, sizes = made.init(given.clients, given.info, RngKey(0)), []
    for done in range(3):
        state, numbers = made.round(state, given.clients, given.info, RngKey(0).at(round=done))
        model = made.model(state, given.clients)
        assert numbers.metrics["hidden_units"] == sum(v.shape[1] for v in biases_of(model)[:-1])
        sizes.append(numbers.metrics["hidden_units"])
    assert sizes == sorted(sizes)
    assert correct(model, as_split(given)).mean() > 0.5


def biases_of(model):
    return [value for name, value in model.tensors.items() if name.startswith("bias")]


def test_streaming_ensembles_train_on_and_keep_all_or_the_latest(given):
    latest, everyone = (
        METHODS["uniform_ensemble_streaming"].fn(steps=3, members=members)
        for members in ("latest", "all")
    )
    new, old = states(latest, given.clients), states(everyone, given.clients)
    assert [latest.model(s, given.clients).networks for s in new] == [4, 4, 4, 4]
    assert [everyone.model(s, given.clients).networks for s in old] == [4, 4, 8, 12]
    for name, value in new[-1]["networks"].items():
        assert np.array_equal(value, old[-1]["networks"][name][-4:])
        assert np.array_equal(new[1]["networks"][name], old[-1]["networks"][name][:4])


def test_the_uniform_streaming_ensemble_never_counts_labels(given):
    """It does not declare that it sees them, and clients tell nobody else."""
    made = METHODS["uniform_ensemble_streaming"].fn(steps=2)
    clients = asked_by(made, given.clients)
    with pytest.raises(FedreproError, match="add 'label_counts' to its needs"):
        _ = clients.label_counts
    *_, last = states(made, given.clients)
    assert made.model(last, given.clients).networks == 4


def test_a_streaming_ensemble_of_one_step_is_the_ensemble(given):
    given = trained_in_a_round(given)
    for name in ("uniform_ensemble", "weighted_ensemble"):
        made = METHODS[f"{name}_streaming"].fn(steps=1)
        *_, state = states(made, given.clients)
        ours, plain = made.model(state, given.clients), call(name, given)
        assert np.allclose(ours.weights, plain.weights)
        assert all(np.allclose(ours.tensors[k], v, atol=1e-4) for k, v in plain.tensors.items())


def test_downpour_streaming_of_one_step_is_downpour(given):
    stream = METHODS["downpour_streaming"].fn(steps=1, rounds=3)
    plain = METHODS["downpour_sgd"].fn(rounds=3)
    one, two = states(stream, given.clients)[-1], states(plain, given.clients)[-1]
    assert torch.allclose(one["flat"], two["flat"], atol=1e-5)
    given.clients.ledger.begin()
    first = stream.init(given.clients, NOTHING, RngKey(0))
    _, report = stream.round(first, given.clients, NOTHING, RngKey(0).at(round=0))
    assert (report.exchanges, given.clients.ledger.traffic.messages_up) == (3, 3 * 4)
