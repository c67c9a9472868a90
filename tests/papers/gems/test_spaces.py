"""Good-enough spaces: radii hold what they promise, and a common point is proven or refuted."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fedrepro.papers.gems import hidden_units, softmax_spaces
from fedrepro.papers.gems.common_points_and_certificates import Spaces, certified
from fedrepro.papers.gems.hidden_units import Merging, Units, sets_of

SEARCH = softmax_spaces.Bisection(r_max=64.0, delta=0.01, points=40)
WIDE = SEARCH.r_max / 2 ** math.ceil(math.log2(SEARCH.r_max / SEARCH.delta))
CLASSES = 3
ONE = np.ones((1, 1), np.float32)
seeds = st.integers(0, 2**32 - 1)


def softmax(seed=0, shape=ONE, examples=60, inputs=5):
    """A model that predicts most of some noisy examples right."""
    rng = np.random.default_rng(seed)
    x = rng.random((examples, inputs), np.float32)
    centre = rng.normal(size=(inputs + 1, CLASSES)).astype(np.float32)
    labels = (x @ centre[:-1] + centre[-1]).argmax(axis=1)
    labels[::7] = rng.integers(0, CLASSES, len(labels[::7]))
    return softmax_spaces.Softmax(x, labels, centre, shape)


def accuracy(model, weights):
    """Of one model, plainly."""
    return np.mean((model.inputs @ weights[:-1] + weights[-1]).argmax(axis=1) == model.labels)


def surface(model, seed, points):
    """The directions that a generator gives: (points, D + 1, K), of length 1 before the shape."""
    shape = (*model.centre.shape[::-1], points)
    drawn = np.random.default_rng(seed).standard_normal(shape, np.float32).T
    lengths = np.sqrt((drawn.astype(float) ** 2).sum(axis=(1, 2), keepdims=True))
    return model.shape * drawn / lengths


class Fixed:
    """The place of a client whose directions are drawn from a seed."""

    def __init__(self, seed):
        self.seed = seed

    def stream(self, purpose):
        return np.random.default_rng(self.seed)


def layer(seed=0, examples=30, inputs=6, width=4):
    rng = np.random.default_rng(seed)
    x = rng.random((examples, inputs), np.float32)
    return hidden_units.HiddenUnits(x, rng.normal(size=(inputs + 1, width)).astype(np.float32))


def spaces(seed, count, dims, ellipsoids, spread=1.0):
    rng = np.random.default_rng(seed)
    shapes = rng.uniform(0.1, 1.0, (count, dims)) if ellipsoids else np.ones((1, 1))
    radii = spread * np.exp(rng.normal(size=count))
    return Spaces(rng.normal(size=(count, dims)), radii, shapes, np.zeros(count, bool))


def test_bisection_gives_the_tested_side_of_the_last_interval_however_fine():
    tested = []

    def good_enough(radius):
        tested.append((radius, radius <= 10.3))
        return radius <= 10.3

    found = softmax_spaces.bisected(good_enough, SEARCH)
    assert (found.value, True) in tested
    assert 10.3 - SEARCH.delta <= found.value <= 10.3
    finer = softmax_spaces.bisected(good_enough, softmax_spaces.Bisection(64.0, 1e-300, 1))
    assert finer.value == pytest.approx(10.3, abs=1e-14)
    for bound in (0.0, 1e9):  # a radius of the whole range says so
        found = softmax_spaces.bisected(lambda radius, bound=bound: radius <= bound, SEARCH)
        assert found.capped == (bound > 0)
        assert (found.value > SEARCH.r_max - SEARCH.delta) == found.capped


@given(seeds, st.floats(0, 50))
def test_predictions_are_right_between_the_distances_found(seed, distance):
    model = softmax(seed)
    kept = model.right_within(np.random.default_rng(seed), 12)
    plain = [accuracy(model, model.centre + distance * u) for u in surface(model, seed, 12)]
    assert np.abs(kept.accuracies(distance) - plain).max() <= 1.5 / len(model.labels)


@pytest.mark.parametrize("least", [1.0, 0.1])
@pytest.mark.parametrize("bar", [0.5, 0.7, 0.8])
def test_a_ball_is_good_enough_on_its_own_samples_and_a_larger_one_is_not(least, bar):
    model = softmax()
    drawn = np.random.default_rng(1)
    found = softmax_spaces.information(model.inputs, model.centre, drawn)
    shape = softmax_spaces.relative_radii(found, least) if least < 1 else ONE
    model = softmax(shape=shape)
    radius = softmax_spaces.GoodEnough([model], [Fixed(2)], SEARCH, "shared").radius(0, bar)
    assert 0 < radius.value < SEARCH.r_max
    own = surface(model, 2, SEARCH.points)
    assert min(accuracy(model, model.centre + radius.value * u) for u in own) >= bar
    assert min(accuracy(model, model.centre + (radius.value + WIDE) * u) for u in own) < bar


def test_a_centre_that_is_not_good_enough_has_an_empty_space_and_no_bar_the_largest():
    model = softmax()
    for draws in ("shared", "fresh"):
        known = softmax_spaces.GoodEnough([model], [Fixed(2)], SEARCH, draws)
        assert known.radius(0, 1.0) == softmax_spaces.Radius(0.0, empty=True)
        assert known.radius(0, 0.0).capped


def test_fisher_information_is_the_mean_square_of_the_scores():
    model = softmax(examples=7)
    found = softmax_spaces.information(model.inputs, model.centre, np.random.default_rng(3))
    places = np.random.default_rng(3).random((7, 1))[:, 0]
    plain = np.zeros_like(found)
    for x, place in zip(model.inputs.astype(float), places, strict=True):
        share = np.exp(x @ model.centre[:-1] + model.centre[-1])
        share /= share.sum()
        label = int(np.searchsorted(share.cumsum(), place, side="right"))
        score = np.outer(np.append(x, 1.0), np.eye(CLASSES)[label] - share)
        plain += score**2 / 7
    assert np.allclose(found, plain, rtol=1e-6)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8), st.floats(0.01, 0.99))
def test_relative_radii_run_from_the_least_to_one(information, least):
    found = softmax_spaces.relative_radii(np.array(information), least)
    assert found.max() == 1
    assert found.min() >= np.float32(least)
    assert all(found[a] >= found[b] for a, b in pairwise(np.argsort(information)))


@pytest.mark.parametrize("deviation", ["outside", "inside"])
@pytest.mark.parametrize("epsilon", [0.05, 0.2])
def test_a_units_ball_keeps_its_outputs_and_a_larger_one_does_not(deviation, epsilon):
    own = layer()
    found = hidden_units.LayerSpaces([own], [Fixed(4)], SEARCH, "shared", deviation)
    radii = [radius.value for radius in found.radii(epsilon)]
    drawn = np.random.default_rng(4).standard_normal((SEARCH.points, len(own.units)), np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    root = 1 / len(own.inputs) if deviation == "outside" else 1 / math.sqrt(len(own.inputs))

    def largest(unit, radius):
        """The printed deviation of the worst point of the surface."""
        x = softmax_spaces.with_ones(own.inputs).astype(float)
        before = np.maximum(x @ unit, 0)
        after = np.maximum(x @ (unit[:, None] + radius * drawn.T), 0)
        return root * np.linalg.norm(after - before[:, None], axis=0).max()

    for unit, radius in zip(own.units.T, radii, strict=True):
        assert largest(unit, radius) <= epsilon * (1 + 1e-5)
        assert largest(unit, radius + WIDE) > epsilon * (1 - 1e-5)


@given(seeds, st.floats(0.01, 1.0))
def test_directions_that_are_left_out_would_not_change_a_radius(seed, epsilon):
    own, search = layer(seed), softmax_spaces.Bisection(64.0, 0.01, 30)
    moved = hidden_units.moves(own, np.random.default_rng(seed), search.points)
    most = epsilon * len(own.inputs) ** 0.5
    plain = [
        softmax_spaces.bisected(
            lambda r, a=a: bool((hidden_units.deviations(a, moved, r) <= most).all()), search
        )
        for a in (softmax_spaces.with_ones(own.inputs) @ own.units).T
    ]
    found = hidden_units.LayerSpaces([own], [Fixed(seed)], search, "shared", "inside")
    assert found.radii(epsilon) == plain


@given(seeds, st.integers(1, 6), st.integers(1, 5), st.booleans(), st.floats(0.05, 5))
@example(2677, 2, 3, True, 0.12253155562242424)  # the bounds are the same to the last digit
@settings(max_examples=150)
def test_a_certificate_proves_what_it_says(seed, count, dims, ellipsoids, spread):
    own = spaces(seed, count, dims, ellipsoids, spread)
    found = certified(own)
    assert found.meet is not None
    assert found.smallest <= found.largest <= found.smallest + 1e-4
    if found.meet:
        assert (own.distances(found.point) <= own.radii + 1e-4).all()
        return
    # no point's weighed mean of q is as low as 1: at its least, found here anew, it is above
    a = np.broadcast_to((own.radii[:, None] * own.shapes) ** -2.0, own.centres.shape)
    share = found.weights[:, None] * a
    least = (share * own.centres).sum(axis=0) / share.sum(axis=0)
    assert found.weights.min() >= 0
    assert (share * (least - own.centres) ** 2).sum() / found.weights.sum() > 1


@given(seeds, st.integers(1, 9), st.floats(0.01, 3))
@settings(max_examples=150)
def test_two_balls_meet_if_their_radii_reach_across(seed, dims, spread):
    own = spaces(seed, 2, dims, False, spread)
    apart = np.linalg.norm(own.centres[0] - own.centres[1])
    assume(abs(apart / own.radii.sum() - 1) > 1e-6)
    found = certified(own)
    assert found.meet == (apart <= own.radii.sum())
    assert found.largest == pytest.approx(apart / own.radii.sum(), rel=1e-6, abs=1e-6)


TURNS = 2 * np.pi * np.arange(3) / 3
TRIANGLE = np.stack([np.cos(TURNS), np.sin(TURNS)], axis=1)  # the sides are 1.73 long


@pytest.mark.parametrize("ellipsoids", [False, True])
def test_three_that_meet_only_in_pairs_are_refused(ellipsoids):
    shapes = np.ones((3, 2)) if ellipsoids else np.ones((1, 1))
    for radius, meet in ((0.95, False), (1.05, True)):
        own = Spaces(TRIANGLE, np.full(3, radius), shapes, np.zeros(3, bool))
        pairs = [Spaces(TRIANGLE[[i, j]], own.radii[:2]) for i, j in ((0, 1), (1, 2), (0, 2))]
        assert all(certified(pair).meet for pair in pairs)
        assert certified(own).meet is meet


def search_of(kind="ball"):
    return softmax_spaces.Intersecting(kind, "descent", False, 0.01)


@pytest.mark.parametrize(
    ("centres", "radii", "meet"),
    [
        ([[0.0, 0], [3, 4]], [2.0, 3], True),  # they touch
        # a space of radius 0 is its centre
        ([[0.5, 0.0], [0, 0]], [0.0, 1], True),
        ([[1.5, 0.0], [0, 0]], [0.0, 1], False),
        ([[0.0, 0], [0, 0]], [0.0, 1], True),
    ],
)
def test_two_balls_at_their_limits(centres, radii, meet):
    own = Spaces(np.array(centres), np.array(radii))
    found = certified(own)
    assert found.meet is meet
    assert radii[0] or np.array_equal(found.point, own.centres[0])
    none = own._replace(empty=np.array([False, True]))
    assert certified(none).meet is False
    assert not none.holds(own.centres[1])


@pytest.mark.parametrize("kind", ["ball", "ellipsoid", "ball, weighed by centres"])
def test_a_step_of_the_descent_follows_the_gradient(kind):
    own = spaces(3, 4, 5, True, 0.2)
    hinges = search_of(kind.partition(",")[0]).printed(own)
    if "weighed" in kind:
        hinges = hinges._replace(scales=np.abs(own.centres))
    start = np.random.default_rng(5).normal(size=5)
    slope = [(hinges.value(start + h) - hinges.value(start - h)) / 2e-6 for h in 1e-6 * np.eye(5)]
    point, _ = hinges.descended(start, lr=1e-3, steps=1)
    assert np.allclose((start - point) / 1e-3, slope, atol=1e-5)


def test_the_descent_ends_in_all_balls_where_they_meet_well():
    own = Spaces(np.array([[0.0, 0], [2, 0], [1, 2]]), np.array([1.2, 1.4, 1.6]))
    hinges = search_of().printed(own)
    point, steps = hinges.descended(np.array([5.0, 5.0]), 0.01, 1000)
    assert (hinges.value(point), own.holds(point)) == (0, True)
    assert 0 < steps < 1000
    # it takes no step from a point in all spaces, and stays at the centre of one ball
    for centres, radius in (([[0.0, 0], [1, 0]], 1.0), ([[0.25, -3.0]], 0.0)):
        own = Spaces(np.array(centres), np.full(len(centres), radius))
        point, steps = search_of().descend(own)
        assert np.array_equal(point, own.mean)
        assert steps == 0 or not radius


def merged(units, radii, clusters, grouping):
    return Merging(0.1, 1, grouping, search_of()).merged(units, radii, clusters)


@given(seeds, st.sampled_from(["greedy", "tuples"]), st.floats(0.01, 3), st.integers(1, 4))
def test_a_layer_is_merged_units_and_leftovers_and_each_ball_holds_one(
    seed, grouping, size, clusters
):
    rng = np.random.default_rng(seed)
    own = Units(rng.normal(size=(12, 3)), np.repeat(np.arange(3), 4))
    radii = size * np.exp(rng.normal(size=12) / 2)
    parts = [np.arange(12)[k::clusters] for k in range(clusters)]
    meet = own.distances <= radii[:, None] + radii
    for part in parts:
        sets = sets_of(part.tolist(), meet, own.owners, grouping)
        assert sorted(unit for some in sets for unit in some) == part.tolist()
        for some in sets:
            assert meet[np.ix_(some, some)].all()
            assert grouping == "greedy" or len(set(own.owners[some])) == len(some)
        assert grouping == "tuples" or sum(len(some) > 1 for some in sets) <= 1
    found = merged(own, radii, parts, grouping)
    assert len(found.units) == found.merged + found.leftover
    nearest = np.linalg.norm(own.centres[:, None] - found.units, axis=2) - radii[:, None]
    assert nearest.min(axis=1).max() <= 1e-4  # the guarantee of section 3.2, step 3


def test_sets_that_meet_only_in_pairs_keep_their_units():
    parts = [np.arange(3), np.arange(0)]  # an empty cluster adds nothing
    found = merged(Units(TRIANGLE, np.arange(3)), np.full(3, 0.95), parts, "greedy")
    assert (found.merged, found.leftover, found.refused) == (0, 3, 1)
    assert np.array_equal(found.units, TRIANGLE)
