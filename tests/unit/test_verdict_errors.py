"""How often verdicts are wrong: printed values of right implementations, and claims judged twice.

Claims that are judged once are in test_claims_levels.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from claim_tables import check, table

from fedrepro.verdicts.judging import AGAIN, CONFIDENCE, breaks, keeps
from fedrepro.verdicts.printed import DIFFERENT, FEW, ONE, noise, verdict
from fedrepro.verdicts.published import PrintedValue

MOST = 0.07
REPLICATES = 2000


def words(deviation: float, ours: int, theirs: int, tolerance: float = 0.01) -> list[str]:
    """Verdicts on values that are printed by an implementation like ours."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(REPLICATES):
        own, other = rng.normal(0.8, deviation, ours), rng.normal(0.8, deviation, theirs)
        printed = PrintedValue(
            "x", {}, "A", "accuracy", "test", other.mean(), None, theirs, "", None, "x"
        )
        spread = own.std(ddof=1) if ours > 1 else float("nan")
        scatter = noise(printed, spread, ours)
        away = own.mean() - other.mean()
        found.append(verdict("accuracy", own.mean(), away, tolerance, scatter, ours))
    return found


@pytest.mark.parametrize("deviation", [0.001, 0.004, 0.008, 0.016, 0.04])
@pytest.mark.parametrize(("ours", "theirs"), [(2, 1), (3, 3), (5, 1), (10, 5), (20, 5)])
def test_a_right_implementation_is_seldom_called_better_or_worse(deviation, ours, theirs):
    found = words(deviation, ours, theirs)
    assert np.isin(found, DIFFERENT).mean() < MOST


def test_one_trial_and_wide_scatter_judge_nothing():
    assert set(words(0.001, 1, 3)) == {ONE}
    assert words(0.08, 5, 3).count(FEW) > 0.99 * REPLICATES


def test_where_values_are_judged_a_right_implementation_is_reproduced():
    found = words(0.005, 20, 5)
    assert found.count("reproduced") > 0.8 * REPLICATES


@pytest.mark.parametrize(("first", "second"), [(3, 9), (5, 10), (5, 20)])
def test_a_claim_on_its_bound_that_is_judged_again_with_more_trials(first, second):
    values = np.random.default_rng(1).normal(size=(REPLICATES, second))
    one = check(form="value", above=0)

    def wrong(trials: int, error: float) -> np.ndarray:
        entries = [({"replicate": at}, "A", list(row[:trials])) for at, row in enumerate(values)]
        found = one.statements("x", {"x": table(*entries)})
        intervals = [statement.interval(1 - error) for statement in found]
        return np.array([keeps(one, i) or breaks(one, i) for i in intervals])

    error = 1 - CONFIDENCE
    looked = wrong(first, error)
    assert (looked | wrong(second, AGAIN * error)).mean() < MOST
    assert (looked | wrong(second, error)).mean() > MOST  # what the quarter is for
