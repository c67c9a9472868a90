"""Matching hidden units: rewards of equation (9), the sequential procedure, its bookkeeping."""

from __future__ import annotations

import literal_matching as literal
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrepro.core.errors import FedreproError
from fedrepro.methods.matching.pfnm_atoms_and_rewards import MatchedLayer, novelty, reward_matrix
from fedrepro.methods.matching.pfnm_sequential_matching import Rule, match, useful_columns
from fedrepro.methods.matching.unit_permutations import best_columns

seeds = st.integers(0, 2**32 - 1)


def layer_of(vectors, classed, variance=1.0, shares=None):
    """A layer whose last `classed` coordinates have a precision by client."""
    uniform = tuple(v[:, : v.shape[1] - classed] for v in vectors)
    if shares is None:
        shares = np.full((len(vectors), classed), 1 / len(vectors))
    mean = np.zeros(uniform[0].shape[1])
    mean[-1:] = 0.1
    outgoing = tuple(v[:, v.shape[1] - classed :] for v in vectors)
    return MatchedLayer(uniform, outgoing, variance, shares / variance, mean, 10.0)


def literal_of(layer, rule, visits):
    uniform = np.full((layer.clients, layer.uniform[0].shape[1]), 1 / layer.variance)
    vectors = [np.hstack(blocks) for blocks in zip(layer.uniform, layer.classed, strict=True)]
    mean = np.r_[layer.prior_mean, np.zeros(layer.classed[0].shape[1])]
    prior = mean, np.full(len(mean), 1 / layer.prior_variance)
    how = {"gamma": rule.gamma0, "factor": rule.popularity}
    how |= {"cap": rule.count_cap, "width": rule.width_cap}
    precisions = np.hstack([uniform, layer.classed_precision])
    return literal.Matching(vectors, precisions, *prior, **how).run(visits)


@given(seeds, st.integers(1, 6), st.integers(0, 12), st.sampled_from([0.1, 1.0, 10.0]))
def test_columns_left_out_are_in_no_best_assignment(seed, units, atoms, spread):
    rng = np.random.default_rng(seed)
    gains, fresh = rng.normal(0, spread, (units, atoms)), rng.normal(size=units)
    table = reward_matrix(gains, np.zeros(atoms), fresh, novelty(units, 5, 1.0))
    kept = useful_columns(table, units)
    assert list(kept[-units:]) == list(range(atoms, atoms + units))
    whole, part = best_columns(table), kept[best_columns(table[:, kept])]
    assert np.array_equal(np.minimum(whole, atoms), np.minimum(part, atoms))


def test_columns_stay_where_atoms_are_few_and_equal_units_tie_whatever_the_last_bits_say():
    table = np.random.default_rng(0).normal(size=(4, 9))
    assert list(useful_columns(table, 3)) == list(range(9))
    table = np.array([[np.nan, -9.0, 0.0, -1.0], [-9.0, -9.0, 0.0, -1.0]])
    assert list(useful_columns(table, 2)) == [0, 2, 3]
    rng = np.random.default_rng(2)
    for _ in range(50):
        table = rng.normal(size=(6, 9))
        table[4], table[:, 7] = table[1], table[:, 3]
        shaken = table * (1 + 1e-15 * rng.integers(-2, 3, table.shape))
        assert np.array_equal(best_columns(shaken), best_columns(table))


@given(
    seed=seeds,
    widths=st.lists(st.integers(1, 7), min_size=1, max_size=14),
    passes=st.integers(0, 6),
    variance=st.sampled_from([0.05, 0.5, 2.0, 10.0]),
    classed=st.integers(0, 3),
    gamma0=st.sampled_from([0.3, 1.0, 5.0]),
    factor=st.sampled_from([1.0, 2.0]),
    cap=st.sampled_from([None, 2, 10]),
    room=st.integers(0, 12),
    same=st.booleans(),
)
@settings(max_examples=80)
def test_matching_is_what_the_literal_procedure_gives(
    seed, widths, passes, variance, classed, gamma0, factor, cap, room, same
):
    rng = np.random.default_rng(seed)
    pool = rng.normal(0, 1.5, (9, 4 + classed))
    vectors = [
        pool[rng.permutation(9)[:n]] * same + rng.normal(0, 0.4, (n, 4 + classed)) for n in widths
    ]
    shares = rng.random((len(widths), classed)) * (rng.random((len(widths), classed)) < 0.7)
    layer = layer_of(vectors, classed, variance, shares=shares)
    rule = Rule(gamma0, factor, cap, max(widths) + room)
    visits = rng.permuted(np.tile(np.arange(len(widths)), (passes, 1)), axis=1)
    expected = literal_of(layer, rule, visits)
    found = match(layer, rule, visits)
    assert [list(a) for a in found.assignments] == expected.assignments
    assert list(found.counts) == expected.counts
    natural, precision, classed, own = vars(found.atoms).values()
    means = np.hstack([natural / precision[:, None], classed / own])
    np.testing.assert_allclose(means, expected.means, rtol=0, atol=1e-12)


def test_atoms_are_summed_from_their_members_without_residue():
    """A client of huge weights comes and goes; what it leaves in running sums must not show."""
    rng = np.random.default_rng(5)
    vectors = [rng.normal(0, 1, (6, 5)) for _ in range(5)]
    vectors[2] = vectors[2] * 1e7
    layer = layer_of(vectors, 0, shares=np.empty((5, 0)))
    found = match(layer, Rule(), np.array([rng.permutation(5) for _ in range(8)]))
    units, atoms = np.concatenate(layer.uniform), np.concatenate(found.assignments)
    members = [units[atoms == i] for i in range(len(found.counts))]
    assert [len(m) for m in members] == list(found.counts)
    exact = [(layer.prior_mean / 10 + np.sum(m, axis=0)) / (0.1 + len(m)) for m in members]
    uniform = found.atoms.natural / found.atoms.precision[:, None]
    np.testing.assert_allclose(uniform, exact, rtol=1e-14, atol=0)


def test_past_the_width_cap_a_client_adds_one_atom_and_a_cap_of_the_width_is_not_refused():
    rng = np.random.default_rng(6)
    layer = layer_of([rng.normal(0, 30, (8, 6)) for _ in range(5)], 2, variance=0.01)
    none = np.empty((0, 5), int)
    assert len(match(layer, Rule(), none).counts) == 40
    assert len(match(layer, Rule(width_cap=20), none).counts) == 22  # 8, 16, 20, 21, 22
    with pytest.raises(FedreproError, match="too large for the variances"):
        best_columns(np.array([[1.0, np.nan], [0.0, 1.0]]))
    assert len(match(layer_of(NINE, 1), Rule(width_cap=9), ONCE).counts) == 9


TWO, NINE = [np.ones((2, 3)), np.eye(2, 3)], [np.random.default_rng(7).normal(size=(9, 4))]
NONE, ONCE = np.empty((0, 2), int), np.zeros((1, 1), int)
REFUSED = [
    (NINE, Rule(width_cap=5), ONCE, r"client 0 has 9 hidden units.*raise width_cap to 9"),
    *((TWO, Rule(), visits, "visit all 2 clients once") for visits in ([[0, 0]], [[0, 2]], [[0]])),
    (TWO, Rule(), [0, 1], "visit all 2 clients once"),
    ([np.ones((2, 3)), np.array([[0.0, 1.0, np.nan]])], Rule(), NONE, "model of client 1"),
    ([np.full((2, 3), 1e200), np.full((1, 3), 1e200)], Rule(), NONE, "large for the variances"),
]


@pytest.mark.parametrize(("vectors", "rule", "visits", "sentence"), REFUSED)
def test_what_cannot_be_matched_is_refused(vectors, rule, visits, sentence):
    with pytest.raises(FedreproError, match=sentence):
        match(layer_of(vectors, 1), rule, np.array(visits))
