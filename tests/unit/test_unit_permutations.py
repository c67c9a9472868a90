"""Units in another order, of perceptrons, networks with convolutions, and modules."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from problems import model_of
from torch import nn

from fedrepro.api import ClientInfo, LocalModels
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.methods.match_units_then_merge import in_one_order
from fedrepro.methods.matching.network_arrays_and_tracing import units_of
from fedrepro.methods.matching.unit_permutations import (
    agreement,
    align_units,
    chain,
    fitted,
    gradient,
    in_common_order,
)
from fedrepro.networks.predict import network_of
from fedrepro.training.federation.fisher_and_input_moments import kronecker_factors
from fedrepro.training.training_examples import Examples

CLASSES, CLIENTS = 3, 3


class Block(nn.Module):
    """A residual block of one convolution, one of a channel each, and a factor for each channel."""

    def __init__(self, shape, classes):
        super().__init__()
        self.stem, self.own = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.deep, self.norm = nn.Conv2d(4, 4, 3, groups=4), nn.GroupNorm(1, 4)
        self.top, self.scale = nn.Conv2d(4, 5, 3), nn.Parameter(torch.ones(5, 1, 1))
        self.head = nn.Linear(5 * 16, classes)
        self.register_buffer("mean", torch.zeros(5, 1, 1))
        self.double()

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = self.norm(self.deep(x + self.own(x)))
        if self.training:
            self.mean.add_(1)
        return self.head(((torch.relu(self.top(x)) - self.mean) * self.scale).flatten(1))


class Scaled(nn.Module):
    """Shares a layer with its inputs, and scales one unit by a number and classes by a row."""

    def __init__(self, shape, classes):
        super().__init__()
        self.flat, self.same, self.deep = nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 5)
        self.gate, self.alpha = nn.Linear(5, 1), nn.Parameter(torch.tensor(2.0))
        self.wide, self.head = nn.Linear(1, 4), nn.Linear(4, classes)
        self.factor = nn.Parameter(torch.ones(1, classes))

    def forward(self, x):
        x = torch.relu(self.deep(torch.relu(self.same(torch.relu(self.same(self.flat(x)))))))
        return self.head(torch.relu(self.wide(self.gate(x) * self.alpha))) * self.factor


MODELS = {
    "mlp": ("mlp", {"hidden": [7, 5]}, (40,)),
    "mlp-bias-free": ("mlp", {"hidden": [7], "bias": False}, (6,)),
    "cnn": ("cnn", {"channels": [4, 5], "kernel": 3, "hidden": [6]}, (2, 8, 8)),
    "cnn-bias-free": (
        "cnn",
        {"channels": [4, 3], "kernel": 3, "hidden": [6, 5], "padding": "valid", "bias": False},
        (12, 12),
    ),
    "resnet": ("resnet8", {"norm": "batch", "width": 4}, (1, 8, 8)),
    "block": (Block, {}, (1, 8, 8)),
    "scaled": (Scaled, {}, (1, 8, 8)),
}


@cache
def given(name):
    """One network, and copies of it with its units in other orders."""
    kind, values, shape = MODELS[name]
    model = components("model")[kind].spec(values) if isinstance(kind, str) else model_of(kind)
    network = network_of(model, shape, CLASSES)
    one = {k: v[None] for k, v in network.initial(RngKey(0), 0.5, 0.1).items()}
    rng = np.random.default_rng(2)
    one = {k: v + 0.3 * rng.normal(size=v.shape).astype(np.float32) for k, v in one.items()}
    one = {k: np.abs(v) if "var" in k else v for k, v in one.items()}
    blocks = units_of(model, shape, CLASSES)
    (own,) = blocks.networks(one)
    copies = [own, own, own]
    for place in range(1, CLIENTS):
        for layer, width in enumerate(widths(blocks, own)):
            copies[place] = blocks.units.permuted(copies[place], layer, rng.permutation(width))
    return model, network, shape, blocks, copies


def widths(blocks, network):
    return [blocks.units.width(network, layer) for layer in range(len(blocks.units.uses))]


def stacked(blocks, copies):
    each = [blocks.tensors(copy) for copy in copies]
    return {name: np.concatenate([one[name] for one in each]) for name in each[0]}


def logits(network, tensors):
    """Of the first of some networks, for the same inputs each time."""
    x = np.random.default_rng(0).normal(size=(9, int(np.prod(network.shape)))).astype(np.float32)
    first = {k: torch.tensor(v[0]) for k, v in tensors.items()}
    return network.logits(first, torch.from_numpy(x)).numpy()


def applied(name, method, moved=0.0, **values):
    """The copies as models of clients, and what a method makes of them; one may be moved."""
    model, _, shape, blocks, copies = given(name)
    copies = [copies[0], (*copies[1][:-1], copies[1][-1] + moved), copies[2]]
    models = LocalModels(model, shape, CLASSES, stacked(blocks, copies))
    counts = np.array([[3, 1, 2], [1, 1, 1], [5, 0, 4]])
    info = ClientInfo(model, example_counts=counts.sum(1), label_counts=counts)
    item = components("method")[method]
    return models, item.fn(models, info, rng=RngKey(0), **item.spec(values).own)


@pytest.mark.parametrize("name", MODELS)
def test_arrays_are_the_network_and_a_permuted_one_computes_the_same(name):
    _, network, _, blocks, copies = given(name)
    each = [logits(network, blocks.tensors(copy)) for copy in copies]
    assert each[0].std() > 0.1
    assert all(np.allclose(each[0], other, atol=1e-4) for other in each[1:])
    (again,) = blocks.networks(blocks.tensors(copies[0]))
    assert all(np.array_equal(a, b) for a, b in zip(again, copies[0], strict=True))
    assert name != "block" or sorted(widths(blocks, copies[0])) == [4, 5]


@pytest.mark.parametrize(
    ("match", "how"), [(align_units, np.random.default_rng(0)), (in_common_order, 1e-9)]
)
@pytest.mark.parametrize("name", MODELS)
def test_permuted_copies_are_brought_together(name, match, how):
    *_, blocks, copies = given(name)
    for arrays in zip(*match(copies, 100, how, blocks.units), strict=True):
        assert all(np.allclose(arrays[0], other) for other in arrays[1:])


@pytest.mark.parametrize("name", ["cnn", "resnet", "block"])
def test_the_gradient_of_the_agreement_is_that_of_differences(name):
    *_, blocks, copies = given(name)
    rng = np.random.default_rng(4)
    plans = [[rng.random((w, w)) for w in widths(blocks, copies[0])] for _ in copies]
    for layer, slope in enumerate(gradient(copies, plans, 1, blocks.units)):
        values = []
        for move in (1e-5, -1e-5):
            moved = [[one.copy() for one in plan] for plan in plans]
            moved[1][layer][1, 2] += move
            values.append(agreement(copies, moved, blocks.units))
        assert slope[1, 2] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-5)


@pytest.mark.parametrize("name", ["cnn", "resnet"])
def test_the_agreement_of_networks_never_falls(name):
    rng = np.random.default_rng(5)
    *_, blocks, copies = given(name)
    other = [tuple(b + rng.normal(size=b.shape) for b in copies[0]) for _ in range(3)]
    eyes = [[np.eye(w) for w in widths(blocks, copies[0])] for _ in other]
    after = in_common_order(other, 50, 1e-9, blocks.units)
    assert agreement(after, eyes, blocks.units) >= agreement(other, eyes, blocks.units)
    assert [len(network) for network in after] == [len(copies[0])] * 3


@pytest.mark.parametrize("method", ["weight_matching", "ot_fusion", "c2m3"])
@pytest.mark.parametrize("name", MODELS)
def test_a_method_that_matches_gives_permuted_copies_back_as_one(method, name):
    """Also convolutions, whose channels are units."""
    models, made = applied(name, method)
    first, found = (logits(given(name)[1], one.tensors) for one in (models, made))
    assert np.allclose(first, found, atol=1e-3)
    assert all(one.shape == made.tensors[k].shape[1:] for k, (one, *_) in models.tensors.items())


@pytest.mark.parametrize("name", MODELS)
def test_moments_of_a_permuted_network_are_those_permuted(name):
    """What the server makes of answers is what a client would answer for its permuted model."""
    model, network, shape, blocks, copies = given(name)
    rng = np.random.default_rng(7)
    examples = Examples(
        torch.from_numpy(rng.normal(size=(20, int(np.prod(shape)))).astype(np.float32)),
        torch.from_numpy(rng.integers(0, CLASSES, 20)),
    )
    models = LocalModels(model, shape, CLASSES, stacked(blocks, copies[:2]))
    answers = [
        kronecker_factors(
            network, {k: torch.tensor(v[j]) for k, v in models.tensors.items()}, examples
        )
        for j in range(2)
    ]
    matched, (found, other) = in_one_order(models, answers, RngKey(0), 100)
    assert all(np.allclose(*value) for value in matched.tensors.values())
    assert not all(np.allclose(*value) for value in models.tensors.values())
    assert found.keys() == other.keys()
    for key, value in other.items():
        assert np.allclose(found[key], value, rtol=1e-3, atol=1e-5), key


@pytest.mark.parametrize("method", ["weight_matching", "ot_fusion"])
def test_with_class_weights_a_client_counts_by_its_share_of_a_class(method):
    """Of copies, one of which has another last bias."""
    for class_weights, share in ((False, [3 / 18] * 3), (True, [1 / 9, 1 / 2, 1 / 7])):
        _, made = applied("mlp", method, moved=1.0, class_weights=class_weights)
        assert np.allclose(made.tensors["bias2"][0] - given("mlp")[4][0][-1], share, atol=1e-5)


def drawn(rng, *sizes):
    """A network with these sizes, inputs first and classes last: weights in, bias, and so on."""
    blocks = []
    for below, above in pairwise(sizes):
        blocks += [rng.normal(size=(below, above)), rng.normal(size=above)]
    return tuple(blocks)


def test_agreement_adds_products_and_weights_to_a_class_count_by_its_shares():
    model = (np.array([[1.0, 2.0]]), np.array([3.0, 5.0]), np.array([[7.0], [11.0]]), np.zeros(1))
    network = (np.array([[1.0, 3.0]]), np.array([2.0, 4.0]), np.array([[1.0], [5.0]]), np.ones(1))
    found = chain(1).agreement(model, network, 0)
    assert found.tolist() == [
        [1 * 1 + 3 * 2 + 7 * 1, 1 * 3 + 3 * 4 + 7 * 5],
        [2 * 1 + 5 * 2 + 11 * 1, 2 * 3 + 5 * 4 + 11 * 5],
    ]
    rng = np.random.default_rng(4)
    one, two = drawn(rng, 2, 3, 2), drawn(rng, 2, 3, 2)
    share, towards = np.array([0.25, 0.75]), np.array([[1.0, 0.4], [0.0, 0.6]])
    found = chain(1).mean([one, two], share, towards)
    assert np.allclose(found[0], 0.25 * one[0] + 0.75 * two[0])
    assert np.allclose(found[1], 0.25 * one[1] + 0.75 * two[1])
    assert np.allclose(found[2][:, 0], one[2][:, 0])
    assert np.allclose(found[2][:, 1], 0.4 * one[2][:, 1] + 0.6 * two[2][:, 1])
    assert np.allclose(found[3], [one[3][0], 0.4 * one[3][1] + 0.6 * two[3][1]])
    eyes, sets = [(np.eye(3),)] * 2, chain(1)
    counted = replace(sets, largest=(4,))  # of batches: no weights, so they agree on nothing
    more = [(*one, np.array(100.0)), (*two, np.array(90.0))]
    assert agreement(more, eyes, counted) == agreement([one, two], eyes, sets)
    with pytest.raises(FedreproError, match="leave out units"):
        applied("cnn", "ot_fusion", units=5)


def moved(networks, sweeps, seed=0):
    return align_units(
        networks, sweeps, np.random.default_rng(seed), chain(len(networks[0]) // 2 - 1)
    )


def test_sweeps_go_on_until_every_network_fits_the_mean_of_the_others():
    """One sweep is too few for some of these, as it should be for the test to say anything."""
    rng, unfinished = np.random.default_rng(1), 0
    for _ in range(12):
        networks = [drawn(rng, 3, 6, 5, 2) for _ in range(4)]
        made = moved(networks, 100)
        for j, own in enumerate(made):
            rest = (other for i, other in enumerate(made) if i != j)
            mean = tuple(np.mean(blocks, axis=0) for blocks in zip(*rest, strict=True))
            for seed in range(3):
                assert fitted(own, mean, np.random.default_rng(seed), chain(2)) is own
        once = moved(networks, 1)
        unfinished += any(
            not np.array_equal(a, b)
            for one, two in zip(once, made, strict=True)
            for a, b in zip(one, two, strict=True)
        )
    assert unfinished > 0
