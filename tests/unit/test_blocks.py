"""Networks with convolutions in the arrays of matching: channels are units."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from fedrepro.api import ClientInfo, LocalModels
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.methods.matching.unit_arrays import blocks_of, orders_of, widths_of
from fedrepro.methods.matching.unit_permutations import (
    agreement,
    align_units,
    gradient,
    in_common_order,
    ordered,
    permuted,
)
from fedrepro.methods.unit_matching import reordered
from fedrepro.networks.predict import network_of
from fedrepro.training.examples import Examples
from fedrepro.training.federation.moments import kronecker_factors

CLASSES, CLIENTS = 3, 3
MODELS = {
    "mlp": ("mlp", {"hidden": [7, 5]}, (40,)),
    "mlp-bias-free": ("mlp", {"hidden": [7], "bias": False}, (6,)),
    "cnn": ("cnn", {"channels": [4, 5], "kernel": 3, "hidden": [6]}, (2, 8, 8)),
    "cnn-bias-free": (
        "cnn",
        {"channels": [4, 3], "kernel": 3, "hidden": [6, 5], "padding": "valid", "bias": False},
        (12, 12),
    ),
}


@cache
def given(name):
    """One network, copies of it with its units in other orders, and the orders."""
    kind, values, shape = MODELS[name]
    model = components("model")[kind].spec(values)
    network = network_of(model, shape, CLASSES)
    one = {k: v[None] for k, v in network.initial(RngKey(0), 0.5, 0.1).items()}
    rng = np.random.default_rng(2)
    one = {k: v + 0.3 * rng.normal(size=v.shape).astype(np.float32) for k, v in one.items()}
    blocks = blocks_of(model, shape, CLASSES)
    (own,) = blocks.networks(one)
    orders = [[rng.permutation(width) for width in widths_of(own)] for _ in range(CLIENTS - 1)]
    copies = [own, *(ordered(own, order) for order in orders)]
    return model, network, shape, blocks, copies, orders


def stacked(blocks, copies):
    each = [blocks.tensors(copy) for copy in copies]
    return {name: np.concatenate([one[name] for one in each]) for name in each[0]}


def logits(network, tensors, x):
    return network.logits({k: torch.from_numpy(v) for k, v in tensors.items()}, x).numpy()


@pytest.mark.parametrize("name", MODELS)
def test_arrays_are_the_network_and_a_permuted_one_computes_the_same(name):
    _, network, shape, blocks, copies, _ = given(name)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(9, int(np.prod(shape)))))
    each = [
        logits(network, {k: v[0] for k, v in blocks.tensors(copy).items()}, x.float())
        for copy in copies
    ]
    assert each[0].std() > 0.1
    assert all(np.allclose(each[0], other, atol=1e-4) for other in each[1:])
    (again,) = blocks.networks(blocks.tensors(copies[0]))
    assert all(np.array_equal(a, b) for a, b in zip(again, copies[0], strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_orders_are_read_off_a_permuted_network(name):
    *_, copies, orders = given(name)
    for copy, order in zip(copies[1:], orders, strict=True):
        found = orders_of(copies[0], copy)
        assert all(np.array_equal(a, b) for a, b in zip(found, order, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_weight_matching_brings_permuted_copies_together(name):
    *_, copies, _ = given(name)
    matched = align_units(copies, 100, np.random.default_rng(0))
    for blocks in zip(*matched, strict=True):
        assert all(np.allclose(blocks[0], other) for other in blocks[1:])


@pytest.mark.parametrize("name", MODELS)
def test_common_order_brings_permuted_copies_together(name):
    *_, copies, _ = given(name)
    matched = in_common_order(copies, 100, 1e-9)
    for blocks in zip(*matched, strict=True):
        assert all(np.allclose(blocks[0], other) for other in blocks[1:])


def test_the_gradient_of_the_agreement_is_that_of_differences():
    *_, copies, _ = given("cnn")
    rng = np.random.default_rng(4)
    plans = [[rng.random((w, w)) for w in widths_of(copies[0])] for _ in copies]
    found = gradient(copies, plans, 1)
    for layer, slope in enumerate(found):
        at = (1, 2)
        values = []
        for move in (1e-5, -1e-5):
            moved = [[one.copy() for one in plan] for plan in plans]
            moved[1][layer][at] += move
            values.append(agreement(copies, moved))
        assert slope[at] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-5)


def test_the_agreement_of_networks_never_falls():
    rng = np.random.default_rng(5)
    *_, copies, _ = given("cnn")
    other = [tuple(b + rng.normal(size=b.shape) for b in copies[0]) for _ in range(3)]
    eyes = [[np.eye(w) for w in widths_of(copies[0])] for _ in other]
    after = in_common_order(other, 50, 1e-9)
    assert agreement(after, eyes) >= agreement(other, eyes)
    assert [len(network) for network in after] == [len(copies[0])] * 3


@pytest.mark.parametrize("method", ["weight_matching", "ot_fusion", "c2m3"])
@pytest.mark.parametrize("name", MODELS)
def test_a_method_that_matches_gives_permuted_copies_back_as_one(method, name):
    """Also convolutions, whose channels are units."""
    model, network, shape, blocks, copies, _ = given(name)
    models = LocalModels(model, shape, CLASSES, stacked(blocks, copies))
    counts = np.array([[3, 1, 2], [1, 1, 1], [5, 0, 4]])
    info = ClientInfo(model, example_counts=counts.sum(1), label_counts=counts)
    item = components("method")[method]
    made = item.fn(models, info, rng=RngKey(0), **item.spec().own)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(9, int(np.prod(shape))))).float()
    first, found = (
        logits(network, {k: v[0] for k, v in tensors.items()}, x)
        for tensors in (models.tensors, made.tensors)
    )
    assert np.allclose(first, found, atol=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_moments_of_a_permuted_network_are_those_permuted(name):
    """What the server makes of answers is what a client would answer for its permuted model."""
    _, network, shape, blocks, copies, orders = given(name)
    rng = np.random.default_rng(7)
    examples = Examples(
        torch.from_numpy(rng.normal(size=(20, int(np.prod(shape)))).astype(np.float32)),
        torch.from_numpy(rng.integers(0, CLASSES, 20)),
    )
    one, other = (
        kronecker_factors(
            network,
            {k: torch.from_numpy(v[0]) for k, v in blocks.tensors(copy).items()},
            examples,
        )
        for copy in copies[:2]
    )
    found = reordered(one, [layer.weight for layer in blocks.layers], orders[0])
    assert found.keys() == other.keys()
    for key, value in other.items():
        assert np.allclose(found[key], value, rtol=1e-3, atol=1e-5), key


def test_a_convolutional_network_is_fused_at_its_own_width_only():
    model, _, shape, blocks, copies, _ = given("cnn")
    models = LocalModels(model, shape, CLASSES, stacked(blocks, copies))
    counts = np.ones((3, 3), int)
    info = ClientInfo(model, example_counts=counts.sum(1), label_counts=counts)
    item = components("method")["ot_fusion"]
    with pytest.raises(FedreproError, match="leave out units"):
        item.fn(models, info, rng=RngKey(0), **item.spec({"units": 5}).own)


def test_permuting_twice_is_permuting_once_by_both():
    *_, copies, _ = given("cnn")
    one, two = np.array([2, 0, 3, 1]), np.array([1, 3, 0, 2])
    found = permuted(permuted(copies[0], 0, one), 0, two)
    expected = permuted(copies[0], 0, one[two])
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
