"""Randomness depends on what it is for, never on who drew before."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedrepro.rng import Rng

PLACES = st.builds(
    Rng, st.integers(0, 99), st.integers(0, 9), st.integers(-1, 9), st.integers(-1, 9)
)


@given(PLACES, st.sampled_from(["minibatches", "initial-weights"]))
def test_the_same_place_gives_the_same_draws(place, purpose):
    first = place.stream(purpose).random(4)
    place.stream("something else").random(100)
    assert np.array_equal(first, place.stream(purpose).random(4))


@given(PLACES, PLACES)
def test_other_places_give_other_draws(one, other):
    same = np.array_equal(one.stream("x").random(4), other.stream("x").random(4))
    assert same == (one == other)


def test_purposes_do_not_share_draws():
    assert Rng(0).stream("a").random() != Rng(0).stream("b").random()


def test_digits_of_neighbours_do_not_run_together():
    assert Rng(1, 11).stream("x").random() != Rng(11, 1).stream("x").random()


def test_at_changes_only_what_is_named():
    assert Rng(5, 1, 2, 3).at(client=7) == Rng(5, 1, 7, 3)
    assert Rng(5, 1, 2, 3).at(trial=0, round=0) == Rng(5, 0, 2, 0)


def test_the_stream_is_pinned():
    # A change here changes every result: it needs new versions of everything that draws.
    assert Rng(0).stream("pin").integers(0, 2**32, 3).tolist() == PINNED


PINNED = [2207773108, 1947826049, 2560004868]
