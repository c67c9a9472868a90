"""Units in another order: what weight matching computes, on networks small enough to do by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fedrepro.methods.matching.unit_permutations import (
    align_units,
    fitted,
    layer_agreement,
    mean_network,
    permuted,
)


def drawn(rng, *sizes):
    """A network with these sizes, inputs first and classes last: weights in, bias, and so on."""
    blocks = []
    for below, above in pairwise(sizes):
        blocks += [rng.normal(size=(below, above)), rng.normal(size=above)]
    return tuple(blocks)


def test_agreement_adds_products_over_weights_in_bias_and_weights_out():
    model = (np.array([[1.0, 2.0]]), np.array([3.0, 5.0]), np.array([[7.0], [11.0]]), np.zeros(1))
    network = (np.array([[1.0, 3.0]]), np.array([2.0, 4.0]), np.array([[1.0], [5.0]]), np.ones(1))
    found = layer_agreement(model, network, 0)
    assert found.tolist() == [
        [1 * 1 + 3 * 2 + 7 * 1, 1 * 3 + 3 * 4 + 7 * 5],
        [2 * 1 + 5 * 2 + 11 * 1, 2 * 3 + 5 * 4 + 11 * 5],
    ]


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_an_order_moves_columns_in_bias_and_rows_out_of_its_layer_alone(layer):
    network = drawn(np.random.default_rng(0), 2, 3, 3, 3, 4)
    order = np.array([2, 0, 1])
    found = permuted(network, layer, order)
    touched = 2 * layer, 2 * layer + 1, 2 * layer + 2
    for at, (new, old) in enumerate(zip(found, network, strict=True)):
        if at not in touched:
            assert new is old
    weights_in, bias, weights_out = (found[at] for at in touched)
    for place, unit in enumerate(order):
        assert (weights_in[:, place] == network[touched[0]][:, unit]).all()
        assert bias[place] == network[touched[1]][unit]
        assert (weights_out[place] == network[touched[2]][unit]).all()


def sum_of(networks):
    return tuple(map(sum, zip(*networks, strict=True)))


def moved(networks, sweeps, seed=0):
    return align_units(networks, sweeps, np.random.default_rng(seed))


def test_sweeps_go_on_until_every_network_fits_the_mean_of_the_others():
    """One sweep is too few for some of these, as it should be for the test to say anything."""
    rng, unfinished = np.random.default_rng(1), 0
    for _ in range(12):
        networks = [drawn(rng, 3, 6, 5, 2) for _ in range(4)]
        made = moved(networks, 100)
        for j, own in enumerate(made):
            rest = sum_of([other for i, other in enumerate(made) if i != j])
            mean = tuple(block / (len(made) - 1) for block in rest)
            for seed in range(3):
                assert fitted(own, mean, np.random.default_rng(seed)) is own
        once = moved(networks, 1)
        unfinished += any(
            not np.array_equal(a, b)
            for one, two in zip(once, made, strict=True)
            for a, b in zip(one, two, strict=True)
        )
    assert unfinished > 0


def test_a_sweep_in_which_nothing_moves_is_the_last():
    network = drawn(np.random.default_rng(2), 3, 4, 2)
    states = []
    for sweeps in (0, 1, 2, 9):
        rng = np.random.default_rng(0)
        align_units([network] * 3, sweeps, rng)
        states.append(rng.bit_generator.state["state"])
    assert states[0] != states[1] == states[2] == states[3]


def test_one_network_alone_draws_nothing_but_its_place():
    network = drawn(np.random.default_rng(3), 3, 4, 2)
    rng, other = np.random.default_rng(0), np.random.default_rng(0)
    (found,) = align_units([network], 5, rng)
    other.permutation(1)
    assert found is network
    assert rng.bit_generator.state == other.bit_generator.state


def test_weights_to_a_class_count_by_its_shares_and_all_others_by_examples():
    rng = np.random.default_rng(4)
    one, two = drawn(rng, 2, 3, 2), drawn(rng, 2, 3, 2)
    share, towards = np.array([0.25, 0.75]), np.array([[1.0, 0.4], [0.0, 0.6]])
    found = mean_network([one, two], share, towards)
    assert np.allclose(found[0], 0.25 * one[0] + 0.75 * two[0])
    assert np.allclose(found[1], 0.25 * one[1] + 0.75 * two[1])
    assert np.allclose(found[2][:, 0], one[2][:, 0])
    assert np.allclose(found[2][:, 1], 0.4 * one[2][:, 1] + 0.6 * two[2][:, 1])
    assert np.allclose(found[3], [one[3][0], 0.4 * one[3][1] + 0.6 * two[3][1]])


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_the_order_does_not_depend_on_how_large_weights_are(scale):
    rng = np.random.default_rng(5)
    network, model = drawn(rng, 3, 8, 2), drawn(rng, 3, 8, 2)
    plain = fitted(network, model, np.random.default_rng(0))
    found = fitted(tuple(scale * b for b in network), model, np.random.default_rng(0))
    assert not np.array_equal(plain[1], network[1])
    assert np.allclose(found[1] / scale, plain[1], rtol=1e-12)
