"""When rounds are measured, and how many it took to a target."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrepro.core.errors import FedreproError
from fedrepro.core.evaluation_schedule import EvaluationSchedule, rounds_to_target
from fedrepro.core.metrics import SIZES, size_text


@pytest.mark.parametrize(
    "given", [(0,), (-3,), ("often",), (None, 2), (None, 0), (1, 1), (1.5,), (1, None, -8), (True,)]
)
def test_what_does_not_say_when_is_refused(given: tuple) -> None:
    with pytest.raises(FedreproError, match=r"rounds are counted from|a run ends at"):
        EvaluationSchedule(*given)


def test_auto_measures_every_early_round_and_few_late_ones() -> None:
    assert str(EvaluationSchedule()) == "1"
    due = [done for done in range(1, 1001) if EvaluationSchedule(None).is_due(done, 1000)]
    assert due[:50] == list(range(1, 51))
    assert due[-1] == 1000
    assert 180 <= len(due) <= 210
    gaps = [b - a for a, b in itertools.pairwise(due)]
    assert max(gaps) <= 1000 * 0.02 + 1
    # after round 50 the first one beyond each further two percent
    later = {math.ceil(50 * 1.02**k) for k in range(1, 152)}
    assert set(due[50:]) == {*later, 1000}


@given(st.integers(1, 40), st.integers(1, 200))
def test_both_ends_are_always_measured(every: int, rounds: int) -> None:
    assert EvaluationSchedule(every).is_due(1, rounds)
    assert EvaluationSchedule(every).is_due(rounds, rounds)


def test_rounds_to_target_are_read_off_the_monotone_curve() -> None:
    curve = [1, 2, 3, 4], [0.2, 0.6, 0.4, 0.9]
    assert rounds_to_target(*curve, 0.4) == pytest.approx(1.5)
    assert rounds_to_target(*curve, 0.6) == 2
    # the dip at round 3 is passed over: from (3, .6) to (4, .9)
    assert rounds_to_target(*curve, 0.75) == pytest.approx(3.5)
    assert rounds_to_target(*curve, 0.1) == 1
    assert rounds_to_target(*curve, 0.95) == math.inf


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0.05, 1))
def test_more_is_never_reached_sooner(accuracies: list[float], target: float) -> None:
    rounds = list(range(1, len(accuracies) + 1))
    found = rounds_to_target(rounds, accuracies, target)
    assert found <= rounds_to_target(rounds, accuracies, min(1, target + 0.05))
    assert (found == math.inf) == (max(accuracies) < target)


@pytest.mark.parametrize(
    ("size", "value", "text"),
    [
        ("hidden_units", 225, "225 units"),
        ("parameters", 178_885, "178,885 parameters"),
        ("megabytes", 178_885, "0.716 MB"),
    ],
)
def test_sizes_are_counts_or_megabytes_in_words(size: str, value: float, text: str) -> None:
    assert size_text(value, SIZES[size]) == text
