"""Scores, intervals of ranks, and groups of methods that are not told apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import Rng
from fedrepro.numbers import standings as standings_module
from fedrepro.numbers.standings import (
    DRAWS,
    Standing,
    against,
    chance,
    grouped,
    holm,
    ranks_of,
    resampled,
    scores_of,
    standings,
    student,
)

NAMES = [f"scenario {letter}" for letter in "abcdef"]


def noise(seed: int, scenarios: int = 6, trials: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(scenarios, trials))


def stand(scores: dict[str, np.ndarray], seed: int = 0) -> dict[str, Standing]:
    names = NAMES[: len(next(iter(scores.values())))]
    return {one.method: one for one in standings(scores, names, Rng(seed))}


def test_the_baseline_scores_nothing_and_the_ceiling_one() -> None:
    low, high = np.array([0.5, 0.6]), np.array([0.9, 0.8])
    assert np.allclose(scores_of(low, low, high), 0)
    assert scores_of(high, low, high).mean() == pytest.approx(1)
    assert scores_of((low + high) / 2, low, high).mean() == pytest.approx(0.5)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6))
def test_equal_methods_share_a_group_and_their_intervals(seed: int, scenarios: int) -> None:
    same = noise(seed, scenarios)
    found = stand({"one": same, "two": same.copy(), "three": same.copy()})
    assert {one.group for one in found.values()} == {1}
    assert {(one.rank_low, one.rank_high) for one in found.values()} == {(1, 1)}
    assert found["one"].beside == ("three", "two")


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_one_that_is_better_by_far_everywhere_is_alone(seed: int) -> None:
    found = stand({"far": noise(seed) + 50, "a": noise(seed + 1), "b": noise(seed + 1)})
    assert (
        found["far"]
        == stand({"b": noise(seed + 1), "a": noise(seed + 1), "far": noise(seed) + 50})["far"]
    )
    assert (found["far"].group, found["far"].rank_low, found["far"].rank_high) == (1, 1, 1)
    assert found["far"].beside == ()
    assert found["a"].group == found["b"].group == 2


@settings(max_examples=5, deadline=None)
@given(st.permutations(range(6)), st.permutations(["a", "b", "c"]))
def test_the_order_of_scenarios_and_methods_does_not_matter(
    rows: list[int], methods: list[str]
) -> None:
    scores = {name: noise(at) for at, name in enumerate("abc")}
    first = standings(scores, NAMES, Rng(3))
    other = {name: scores[name][rows] for name in methods}
    assert standings(other, [NAMES[row] for row in rows], Rng(3)) == first


def test_a_seed_gives_the_same_again_and_another_seed_other_draws() -> None:
    values = np.stack([noise(1), noise(2)])
    assert np.array_equal(resampled(values, Rng(0)), resampled(values, Rng(0)))
    assert not np.array_equal(resampled(values, Rng(0)), resampled(values, Rng(1)))


def test_pairs_cancel_what_trials_have_in_common() -> None:
    """The trials scatter by ten, and one method is better by a tenth in each."""
    common = 10 * noise(0)
    found = stand({"better": common + 0.1 + 0.001 * noise(1), "other": common})
    assert (found["better"].group, found["other"].group) == (1, 2)
    assert found["better"].high > found["other"].low  # intervals of each alone overlap


def test_the_interval_of_a_mean_is_about_that_of_its_scatter() -> None:
    """Scenarios of one mean: the standard error is sd / √(S T), and draws within add to it."""
    values = noise(5)[None]
    spread = resampled(values, Rng(0)).std()
    error = values.std() / np.sqrt(values.size)
    assert error < spread < 1.8 * error


def test_methods_that_differ_by_chance_are_seldom_told_apart() -> None:
    found = [stand({"a": noise(2 * at), "b": noise(2 * at + 1)}) for at in range(60)]
    assert sum(one["a"].group != one["b"].group for one in found) <= 6


def test_many_methods_that_are_far_apart_are_told_apart(monkeypatch) -> None:
    """253 pairs ask for less than 0.0002, which no number of 10,000 draws can say."""
    scores = {f"method {at:02}": 10.0 * at + 0.1 * noise(at) for at in range(23)}
    assert sorted(one.group for one in stand(scores).values()) == list(range(1, 24))
    monkeypatch.setattr(standings_module, "DRAWS", 1000)
    assert len({one.group for one in stand(scores).values()}) == 23
    line = np.zeros_like(noise(0))
    verdicts = against(scores, line - 5, NAMES, Rng(0)).values()
    assert {one.verdict for one in verdicts} == {"better"}


@pytest.mark.parametrize(
    ("scenarios", "trials"), [(20, 5), (14, 5), (6, 5), (3, 5), (2, 5), (1, 5)]
)
@pytest.mark.parametrize("between", [0.0, 5.0])
def test_the_chance_below_what_draws_can_say_is_calibrated(scenarios, trials, between) -> None:
    """10,000 differences that are none: so few are below a chance as it says.

    between: how far scenarios scatter, in sds of trials; one or two are taken as they are.
    """
    rng = np.random.default_rng(scenarios)
    values = rng.normal(size=(10_000, scenarios, trials))
    if scenarios > 2:
        values += between * rng.normal(size=(10_000, scenarios, 1))
    chances = np.array([student(one) for one in values])
    for level in (0.05, 0.01, 0.001):
        error = (level / len(chances)) ** 0.5
        assert abs((chances < level).mean() - level) < 5 * error


def test_a_chance_is_that_of_draws_where_they_say_one() -> None:
    drawn = np.array([-1.0, *[1.0] * 99])
    assert chance(noise(0) + 100, drawn) == 2 * 2 / 101
    assert chance(noise(0) + 100, drawn[1:]) < 1e-9
    assert chance(np.array([[1.0]]), drawn[1:]) == 2 / 100  # one number says nothing of its scatter
    assert student(np.full((3, 2), 0.5)) == 0.0
    assert student(np.zeros((3, 2))) == 1.0


def test_holm_takes_the_smallest_against_all_and_the_next_against_the_rest() -> None:
    assert holm([0.01, 0.04, 0.03]) == [True, False, False]
    assert holm([0.01, 0.02, 0.05]) == [True, True, True]
    assert holm([0.02, 0.02, 0.02]) == [False, False, False]
    assert holm([]) == []


def test_a_group_is_what_is_not_told_apart_from_its_best() -> None:
    apart = np.zeros((4, 4), bool)
    apart[0, 2] = apart[2, 0] = apart[0, 3] = apart[3, 0] = True
    assert grouped([0, 1, 2, 3], apart) == {0: 1, 1: 1, 2: 2, 3: 2}


def test_equal_ranks_share_the_lower_one() -> None:
    drawn = np.array([[3.0], [1.0], [3.0]])
    assert ranks_of(drawn).ravel().tolist() == [1, 3, 1]
    assert resampled(noise(0)[None], Rng(0)).shape == (1, DRAWS)


def test_a_score_that_is_no_number_or_of_other_trials_is_refused() -> None:
    lost = noise(0)
    lost[0, 0] = np.nan
    with pytest.raises(FedreproError, match="'b' has a score that is not a number"):
        stand({"a": noise(1), "b": lost})
    with pytest.raises(FedreproError, match="'b' has scores in other scenarios"):
        stand({"a": noise(1), "b": noise(0, 5)})
    assert standings({}, [], Rng(0)) == []
