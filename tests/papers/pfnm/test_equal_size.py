"""Methods of a chosen size: what is true of each, whatever the clients."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from problems import FEATURES, problem
from sklearn.cluster import KMeans

from fedrepro.api import GlobalModel
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.methods.matching.network_arrays_and_tracing import networks_of, tensors_of
from fedrepro.methods.matching.unit_fusion_and_clustering import barycentre, k_means
from fedrepro.methods.matching.unit_permutations import chain
from fedrepro.networks.network import widths
from fedrepro.networks.predict import network_of
from fedrepro.papers.pfnm.methods.pfnm_of_size_and_controls import network_of_size
from fedrepro.training.federation.client_queries_and_costs import Evaluated

METHODS = components("method")
SIZED = ("pfnm_sized", "kmeans_units", "ot_fusion", "whole_clients", "best_clients")
MERGING = ("kmeans_units", "ot_fusion", "weight_matching")
INPUTS = np.random.default_rng(5).random((50, FEATURES)).astype(np.float32) * 2


@pytest.fixture(scope="module", params=[(8,), (8, 8)], ids=str)
def given(request):
    return problem(hidden=request.param)


def call(name, given, **values):
    spec = METHODS[name].spec(values)
    return METHODS[name].fn(given.models, given.info, rng=RngKey(0), **spec.own)


def logits(tensors, given):
    """Of every network, (m, N, K)."""
    network = network_of(given.models.model, given.models.shape, given.models.classes)
    count = len(next(iter(tensors.values())))
    each = [{k: torch.from_numpy(v[i]) for k, v in tensors.items()} for i in range(count)]
    return np.stack([network.logits(one, torch.from_numpy(INPUTS)).numpy() for one in each])


def with_networks(given, networks):
    """The problem with other local models, all with equal examples of each class."""
    each = [tensors_of(network) for network in networks]
    tensors = {name: np.concatenate([one[name] for one in each]) for name in each[0]}
    counts = np.full((len(networks), given.models.classes), 20)
    clients = scoring(np.linspace(0.5, 0.9, len(networks)))
    info = replace(given.info, label_counts=counts, example_counts=counts.sum(1), clients=clients)
    return replace(given, models=replace(given.models, tensors=tensors), info=info)


def scoring(accuracy):
    """Clients that find these accuracies of their own models."""

    def evaluate(candidates, chosen):
        assert all(len(value) == len(chosen) == 1 for value in candidates.values())
        return Evaluated(accuracy[chosen][None], np.zeros((1, 1)))

    return SimpleNamespace(evaluate=evaluate)


def shuffled(network, seed):
    rng, units = np.random.default_rng(seed), chain(len(network) // 2 - 1)
    for layer in range(len(network) // 2 - 1):
        network = units.permuted(network, layer, rng.permutation(len(network[2 * layer + 1])))
    return network


@pytest.mark.parametrize("units", [3, 8, 11, 16, 32, 33])
@pytest.mark.parametrize("name", [*SIZED, "pruned_concatenation"])
def test_a_size_is_had_exactly_or_not_at_all(name, units, given):
    exact = {"exact": True} if name == "pruned_concatenation" else {}
    made = call(name, given, units=units, **exact)
    whole, depth = name in ("whole_clients", "best_clients"), len(widths(given.models.tensors))
    if name != "pfnm_sized":
        assert (made is not None) == (units <= 32 and not (whole and units % 8))
    if made is not None:
        found = widths(made.tensors)
        assert found == (units,) * depth or (name == "pfnm_sized" and sum(found) == depth * units)


@pytest.mark.parametrize(
    ("name", "count"), [*product(MERGING, (1, 5)), ("whole_clients", 1), ("best_clients", 1)]
)
def test_copies_of_one_network_in_any_order_of_units_are_that_network(name, count, given):
    (first, *_) = networks_of(given.models.tensors)
    copies = with_networks(given, [shuffled(first, seed) for seed in range(count)])
    for class_weights in (True, False):
        made = call(name, copies, class_weights=class_weights)
        assert widths(made.tensors) == widths(copies.models.tensors)
        one, several = (logits(of, copies) for of in (copies.models.tensors, made.tensors))
        assert np.allclose(several, one[:1], atol=1e-5 if count == 1 else 1e-4)


@pytest.mark.parametrize("units", [8, 16, 24])
@pytest.mark.parametrize("name", ["ot_fusion", "pfnm_sized", "best_clients", "whole_clients"])
def test_the_order_of_a_clients_units_does_not_matter(name, units, given):
    own = networks_of(given.models.tensors)
    turned = [shuffled(network, seed) for seed, network in enumerate(own)]
    one, two = (call(name, with_networks(given, of), units=units) for of in (own, turned))
    assert (one is None) == (two is None)
    if one is not None:
        assert np.allclose(logits(one.tensors, given), logits(two.tensors, given), atol=1e-3)


@pytest.mark.parametrize(("count", "weighted"), [(3, False), (2, True)])
def test_whole_clients_are_the_mean_of_their_logits_or_by_what_they_have_of_a_class(
    given, count, weighted
):
    made = call("whole_clients", given, units=8 * count, class_weights=weighted)
    drawn = RngKey(0).stream("whole-clients").permutation(4)[:count]
    counts = given.info.label_counts[drawn] if weighted else np.ones((count, 3))
    share = np.where(counts.sum(0) > 0, counts / np.maximum(counts.sum(0), 1), 1 / count)
    wanted = (share[:, None] * logits(given.models.tensors, given)[drawn]).sum(0)
    assert np.allclose(logits(made.tensors, given)[0], wanted, atol=1e-5)


def test_as_many_clusters_as_units_are_the_concatenation_and_the_best_clients_score_best(given):
    scored = replace(given.info, clients=scoring(np.array([0.2, 0.9, 0.3, 0.9])))
    ranked, each = replace(given, info=scored), logits(given.models.tensors, given)
    for units, wanted in ((8, each[1]), (24, each[1:].mean(0))):
        made = call("best_clients", ranked, units=units, class_weights=False)
        assert np.allclose(logits(made.tensors, given)[0], wanted, atol=1e-5)
    made, whole = call("kmeans_units", given, units=32), call("concatenation", given)
    assert np.allclose(logits(made.tensors, given), logits(whole.tensors, given), atol=1e-4)


def test_k_means_is_as_good_as_that_of_scikit_learn():
    points = np.random.default_rng(2).standard_normal((150, 6))
    labels = k_means(points, 8, 10, np.random.default_rng(0))
    centres = np.stack([points[labels == c].mean(0) for c in range(8)])
    ours = ((points - centres[labels]) ** 2).sum()
    assert ours < 1.03 * KMeans(8, n_init=10, random_state=0).fit(points).inertia_
    # more clusters than directions leave none out
    points = np.repeat(np.eye(3), 4, axis=0)
    labels = k_means(points, 7, 3, np.random.default_rng(0))
    for label in np.unique(labels):
        assert len(np.unique(points[labels == label], axis=0)) == 1


def test_more_sweeps_bring_the_common_units_nearer():
    rng = np.random.default_rng(4)
    measures = [rng.standard_normal((10, 3)) for _ in range(4)]
    share, start = np.full(4, 0.25), rng.standard_normal((6, 3))

    def cost(sweeps):
        points, plans = barycentre(measures, start, share, sweeps)
        return sum(
            (plan * ((own[:, None] - points) ** 2).sum(2)).sum()
            for plan, own in zip(plans, measures, strict=True)
        )

    costs = [cost(sweeps) for sweeps in (1, 2, 5, 20)]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(costs))


def stepwise(sizes):
    """Networks whose sizes fall as sigma2 passes these values; they carry their sigma2."""
    calls = []

    def at(sigma2, order=0):
        calls.append((sigma2, order))
        units = next((size for edge, size in sizes if sigma2 < edge), sizes[-1][1]) + order % 3
        return units, GlobalModel(None, {}, diagnostics={"solved_sigma2": sigma2})

    return at, calls


STEPS = [(0.5, 90), (3.0, 60), (40.0, 55), (np.inf, 50)]


def sigma2_of(at, size):
    made = network_of_size(at, size)
    return made and made.diagnostics["solved_sigma2"]


def test_the_smallest_sigma2_of_a_size_is_found_and_named():
    at, calls = stepwise(STEPS)
    for size, edge in ((60, 0.5), (55, 3.0), (50, 40.0)):
        assert edge <= sigma2_of(at, size) <= 1.011 * edge
    # all units are had at the smallest of all, and a size that there is not is not given
    assert sigma2_of(stepwise([(0.5, 90), (np.inf, 60)])[0], 90) < 1e-8
    assert [sigma2_of(at, size) for size in (49, 58, 200)] == [None] * 3
    # one that sigma2 jumps over is looked for in other orders
    assert 3.0 <= sigma2_of(at, 56) <= 1.011 * 3.0
    assert calls[-1][1] == 1
    given = problem()
    made = call("pfnm_sized", given, units=16)
    same = call("pfnm", given, sigma2=made.diagnostics["solved_sigma2"])
    assert all(np.array_equal(made.tensors[k], v) for k, v in same.tensors.items())
