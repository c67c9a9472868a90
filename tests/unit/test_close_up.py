"""The drawing of accuracy alone, the whole range beside a close-up, and what it needs."""

from __future__ import annotations

import pandas as pd
import pytest
from small_exhibits import small

from fedrepro.core.errors import FedreproError
from fedrepro.drawings.canvas import figure, render, rules

METHODS = [{"name": "average", "label": "A"}, {"name": "uniform_ensemble", "label": "B"}]
SETTINGS = {"drawing": "accuracy-close-up", "methods": METHODS}
MEANS = {"A": (0.81, 0.85), "B": (0.2, 0.3)}


def rows():
    for method, means in MEANS.items():
        for clients, mean in zip((2, 4), means, strict=True):
            head = {"clients": clients, "method": method, "metric": "accuracy", "split": "test"}
            yield head | {"mean": mean, "sd": 0.01}


def test_both_panels_hold_the_means_and_the_second_only_what_is_near_the_best():
    with rules():
        drawn = figure(small(**SETTINGS), pd.DataFrame(rows()))
    whole, close = drawn.axes
    for axes in (whole, close):
        found = {tuple(line.get_ydata()) for line in axes.lines}
        assert found == set(MEANS.values())
        assert axes.get_xlabel() == "clients J"
    assert whole.get_ylim() == (0, 1)
    low, high = close.get_ylim()
    assert 0.7 < low < 0.81 < 0.85 < high < 0.9


def test_equal_numbers_give_equal_pictures():
    exhibit, numbers = small(**SETTINGS), pd.DataFrame(rows())
    assert render(exhibit, numbers) == render(exhibit, numbers)


def test_it_has_one_scenario():
    with pytest.raises(FedreproError, match="it has cases"):
        small(**SETTINGS, cases={"one": {"label": "one"}})
