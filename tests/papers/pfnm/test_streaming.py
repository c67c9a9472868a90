"""Streaming: a step's posterior is the next one's prior; methods whose data arrive in steps."""

from __future__ import annotations

from dataclasses import replace

import literal_matching as literal
import numpy as np
import pytest
import torch
from contract import METHODS, call, states
from hypothesis import given as drawn_from
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from test_pfnm import K, logits, network, orders_of, part_of, shaken

from fedrepro.api import ClientInfo
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.methods.matching.pfnm_sequential_matching import Rule, Variances, match_networks
from fedrepro.papers.pfnm import streaming_posterior_and_client_starts as streaming
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
        posterior = posterior or streaming.before_data(networks, variances)
        posterior, matchings = streaming.update(
            posterior, networks, shares, variances, RULE, orders, **options
        )
        found.append((posterior, networks, shares, matchings, orders))
    return found


class Step(literal.Matching):
    """One layer, one step, unit by unit: the past keeps its atoms; popularity: by client."""

    def __init__(self, vectors, precisions, mean, p0, past, step, popularity):
        super().__init__(vectors, precisions, mean, p0, gamma=1 / step)
        self.natural, self.precision, self.counts = (list(of) for of in past)
        self.popularity = popularity

    def run(self, visits):
        for client in sorted(range(len(self.h)), key=lambda j: -len(self.h[j])):
            self.assign(client)
        for client in np.ravel(visits):
            self.remove(client)
            self.assign(client)
        return self

    def assign(self, client):
        h, p, atoms, clients = (
            self.h[client],
            self.precisions[client],
            len(self.counts),
            len(self.h),
        )
        known = self.natural, self.precision, self.counts, clients, self.h0, self.p0
        # factor 0: what is popular is told apart
        rule = {"gamma": self.gamma, "factor": 0, "cap": 1, "columns": len(h)}
        table = literal.rewards(h, p, *known, **rule)
        table[:, :atoms] += [self.popularity(self, client, i) for i in range(atoms)]
        for u, i in enumerate(linear_sum_assignment(-table)[1]):
            if i < atoms:
                self.natural[i] = self.natural[i] + h[u]
                self.precision[i] = self.precision[i] + p
                self.counts[i] += 1
            self.assignments[client].append(int(i) if i < atoms else self.append(client, h[u]))


@drawn_from(seeds, st.integers(1, 4), st.booleans(), st.sampled_from([0.1, 0.5, 3.0]))
def test_every_step_is_the_literal_evaluation_of_equations_10_and_11(
    seed, steps, crowd_first, sigma2
):
    found = stream_of(seed, steps, sigma2=sigma2, crowd_first=crowd_first)
    inputs = found[0][1][0][0].shape[0]
    mean, p0 = np.zeros(inputs + 1 + K), np.full(inputs + 1 + K, 0.1)
    mean[inputs] = 0.1
    past, members = ([], [], []), np.zeros((3, 0), int)
    for step, (posterior, networks, shares, (matching,), (visits,)) in enumerate(found, 1):

        def popularity(made, client, i, step=step, members=members):
            if crowd_first and step == 1:  # equation (9)
                return np.log(made.counts[i] / (3 - made.counts[i]))
            held = members[client, i] if i < members.shape[1] else 0
            return np.log((1 + held) / (step - held))

        vectors = [np.hstack([n[0].T, n[1][:, None], n[2]]) for n in networks]
        precisions = np.array([np.r_[np.ones(inputs + 1), f] / sigma2 for f in shares])
        made = Step(vectors, precisions, mean, p0, past, step, popularity).run(visits)
        past = made.natural, made.precision, [1] * len(made.counts)
        assert [list(a) for a in matching.assignments] == made.assignments
        more = np.array([np.bincount(a, minlength=len(made.counts)) for a in made.assignments])
        members = np.pad(members, ((0, 0), (0, more.shape[1] - members.shape[1]))) + more
        assert np.array_equal(posterior.layers[0].members, members)
        weight0, bias0, weight1, _ = posterior.network
        ours = np.hstack([weight0.T, bias0[:, None], weight1])
        means = np.array(made.natural) / made.precision
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


def turned_of(rng, net):
    """The same function, with the units of each hidden layer in another order."""
    return part_of(net, [rng.permutation(len(bias)) for bias in net[1:-1:2]])


def test_the_same_network_every_step_needs_no_new_units():
    rng = np.random.default_rng(0)
    net = network(rng, (5, 4), spread=2.0)
    variances = Variances(0.1, 1e6)
    posterior = streaming.before_data([net, net], variances)
    for _ in range(4):
        turned = [turned_of(rng, net) for _ in range(2)]
        orders = orders_of(rng, 2, 2)
        posterior, _ = streaming.update(posterior, turned, np.ones((2, K)), variances, RULE, orders)
    assert [layer.members.tolist() for layer in posterior.layers] == [[[4] * 5] * 2, [[4] * 4] * 2]
    x = rng.normal(size=(20, 6))
    np.testing.assert_allclose(logits(posterior.network, x), logits(net, x), rtol=1e-3, atol=1e-2)


@drawn_from(seeds)
def test_the_order_of_hidden_units_matters_at_no_step(seed):
    rng = np.random.default_rng(seed)
    steps = [[network(rng, (4, 3)) for _ in range(3)] for _ in range(3)]
    orders, variances, made = [orders_of(rng, 3, 2) for _ in steps], Variances(0.5), []
    for turn in (False, True):
        posterior = streaming.before_data(steps[0], variances)
        for networks, visits in zip(steps, orders, strict=True):
            own = [turned_of(rng, n) if turn else n for n in networks]
            shares = np.full((3, K), 1 / 3)
            posterior, _ = streaming.update(posterior, own, shares, variances, RULE, visits)
        made.append(posterior.network)
    x = rng.normal(size=(20, 6))
    one, two = (logits(net, x) for net in made)
    np.testing.assert_allclose(one, two, atol=1e-9 * (1 + np.abs(one).max()))


def test_units_are_drawn_without_replacement_by_how_often_they_were_held():
    members = np.array([0, 1, 9, 0, 5, 5])
    drawn = [streaming.subsample(members, 3, 1, np.random.default_rng(i)) for i in range(400)]
    assert all(len(set(d)) == 2 and not {0, 3} & set(d) for d in drawn)
    assert all((np.diff(d) > 0).all() for d in drawn)
    times = np.bincount(np.concatenate(drawn), minlength=6)
    assert times[2] > times[4] > times[1] > 0
    # all that were ever held are taken where they are fewer
    assert list(streaming.subsample(members, 9, 1, np.random.default_rng(0))) == [1, 2, 4, 5]
    assert list(streaming.subsample(members, 1, 3, np.random.default_rng(0))) == []


@pytest.mark.parametrize("widths", [(4,), (4, 5)])
def test_a_start_is_part_of_the_global_network_with_fresh_units(widths):
    posterior = stream_of(5, 3, (widths, (3,) * len(widths)))[-1][0]
    stream = np.random.default_rng(1)
    made = streaming.start_of(posterior, 0, widths, Variances(), 1, 0.0, stream)
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


def test_all_data_of_a_client_arrive_once_in_equal_parts_unless_there_are_too_few(given):
    parts = [
        streaming.arriving(given.clients, step, 7, RngKey(0).at(round=step)).data.rows
        for step in range(7)
    ]
    for rows, *own in zip(given.rows, *parts, strict=True):
        assert np.array_equal(np.sort(np.concatenate(own)), np.sort(rows))
        assert np.ptp([len(part) for part in own]) <= 1
    again = streaming.arriving(given.clients, 3, 7, RngKey(0).at(round=99)).data.rows
    assert all(map(np.array_equal, again, parts[3]))
    rows = [given.rows[0], given.rows[1][:3]]
    few = replace(given.clients, data=replace(given.clients.data, rows=rows))
    with pytest.raises(FedreproError, match="client 1 has 3 examples, too few for a stream of 4"):
        streaming.arriving(few, 0, 4, RngKey(0))


@pytest.fixture(scope="module")
def in_a_round(given):
    """The same problem with local models trained as in the first round of a method."""
    clients = given.clients
    places = [RngKey(0, client=j) for j in range(clients.count)]
    starts = initial_weights(clients.network, clients.settings, places)
    found = clients.train(starts, RngKey(0, round=0), epochs=clients.settings.epochs)
    return replace(given, models=replace(given.models, tensors=found.tensors))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pfnm", {"sigma2": 0.1, "order": "fixed"}),
        ("uniform_ensemble", {}),
        ("weighted_ensemble", {}),
    ],
)
def test_one_step_is_the_method_without_a_stream(in_a_round, name, values):
    """All data at once, trained as the local models were."""
    made = METHODS[f"{name}_streaming"].fn(steps=1, **values)
    *_, state = states(made, in_a_round.clients)
    ours, plain = made.model(state, in_a_round.clients), call(name, in_a_round, **values)
    assert all(np.allclose(ours.tensors[k], v, atol=1e-4) for k, v in plain.tensors.items())
    assert plain.weights is None or np.allclose(ours.weights, plain.weights)


def test_streaming_ensembles_keep_all_or_the_latest_and_downpour_of_one_step_is_downpour(given):
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
    stream = METHODS["downpour_streaming"].fn(steps=1, rounds=3)
    plain = METHODS["downpour_sgd"].fn(rounds=3)
    one, two = states(stream, given.clients)[-1], states(plain, given.clients)[-1]
    assert torch.allclose(one["flat"], two["flat"], atol=1e-5)
    given.clients.ledger.begin()
    nothing = ClientInfo(training=None)
    first = stream.init(given.clients, nothing, RngKey(0))
    _, report = stream.round(first, given.clients, nothing, RngKey(0).at(round=0))
    assert (report.exchanges, given.clients.ledger.traffic.messages_up) == (3, 3 * 4)
