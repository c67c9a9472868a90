"""Randomness depends on what it is for, never on who drew before."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedrepro.core.rng import RngKey

OUTSIDE, NUMBERS = st.just(-1), st.integers(0, 12)


def places(rounds, epochs):
    return st.builds(
        RngKey, st.integers(0, 99), st.integers(0, 9), st.integers(-1, 9), rounds, epochs, NUMBERS
    )


# what draws in no epoch; what draws in epochs, of local training or of a method in rounds
KINDS = (
    places(st.integers(-1, 12), OUTSIDE),
    places(OUTSIDE, NUMBERS),
    places(NUMBERS, NUMBERS),
)
PLACES = st.one_of(KINDS)


@given(PLACES, st.sampled_from(["minibatches", "initial-weights"]))
def test_the_same_place_gives_the_same_draws(place, purpose):
    first = place.stream(purpose).random(4)
    place.stream("something else").random(100)
    assert np.array_equal(first, place.stream(purpose).random(4))


@given(PLACES)
def test_a_stream_is_philox_with_the_digest_as_its_key(place):
    """As NumPy documents it, so that others can draw the same numbers."""
    plain = np.random.Generator(np.random.Philox(key=place.key("x")))
    assert np.array_equal(plain.permutation(50), place.stream("x").permutation(50))


@given(st.one_of(*(st.tuples(kind, kind) for kind in KINDS)))
def test_no_two_places_of_a_kind_share_a_stream(pair):
    one, other = pair
    same = np.array_equal(one.stream("x").random(4), other.stream("x").random(4))
    assert same == (one == other)


def test_no_two_clocks_of_a_kind_are_the_same():
    assert RngKey(0).stream("a").random() != RngKey(0).stream("b").random()
    assert RngKey(1, 11).stream("x").random() != RngKey(11, 1).stream("x").random()
    numbers = range(30)
    local = {RngKey(0, epoch=e).clock for e in numbers}
    rounds = {
        RngKey(0, round=r, epoch=e, call=c).clock for r in numbers for e in numbers for c in (0, 1)
    }
    assert len(local) == 30
    assert len(rounds) == 2 * 30 * 30


@given(NUMBERS)
def test_the_first_epoch_of_a_round_goes_as_that_epoch_of_local_training(number):
    """Common random numbers; and what was computed before there were epochs stays as it is."""
    in_a_round, alone = RngKey(0, round=number, epoch=0), RngKey(0, epoch=number)
    assert in_a_round.key("minibatches") == alone.key("minibatches")
    assert in_a_round.key("minibatches") == RngKey(0, round=number).key("minibatches")


def test_the_stream_is_pinned():
    # A change here changes every result: it needs new versions of everything that draws.
    pinned = [2207773108, 1947826049, 2560004868]
    assert RngKey(0).stream("pin").integers(0, 2**32, 3).tolist() == pinned
    # local training's epoch 3, and round 3 of a method with one epoch a round
    for place in (RngKey(0, 1, 2, epoch=3), RngKey(0, 1, 2, round=3, epoch=0)):
        assert place.stream("minibatches").permutation(6).tolist() == [1, 2, 0, 4, 3, 5]
