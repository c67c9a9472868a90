"""The drawing of hyper-parameters, and what it needs of an exhibit."""

from __future__ import annotations

import pandas as pd
import pytest
from small_exhibits import small

from fedrepro.core.errors import FedreproError
from fedrepro.drawings.canvas import figure, render, rules
from fedrepro.papers.rm.drawings.hyper_parameters import FOLLOWED

ADAPTIVE = [{"name": "adaptive_fedavg", "label": "AH"}]
CASES = {"one": {"label": "one"}, "two": {"label": "two"}}
SETTINGS = {"drawing": "hyper-parameters", "sweep": {"partition.clients": [2]}, "cases": CASES}


def rows():
    """Two cases, three rounds, two trials; every number is another one."""
    value = 1
    for case in CASES:
        for done in (1, 2, 3):
            for metric in ("mean_lr", "mean_steps", "sampled_lr", "sampled_steps", "reward"):
                one, two = value / 1000, (value + 1) / 1000
                value += 2
                yield {
                    "case": case,
                    "round": done,
                    "method": "AH",
                    "metric": metric,
                    "split": "",
                    "mean": (one + two) / 2,
                    "sd": 0.01,
                    "by_trial": f"{one} {two}",
                }


def test_lines_are_means_and_dots_are_what_trials_drew():
    numbers = pd.DataFrame(rows())
    with rules():
        drawn = figure(small(methods=ADAPTIVE, **SETTINGS), numbers)
    for axes, followed in zip(drawn.axes, FOLLOWED, strict=True):
        own = numbers[numbers["metric"] == followed.metric]
        assert [y for line in axes.lines for y in line.get_ydata()] == list(own["mean"])
        drew = numbers.loc[numbers["metric"] == followed.dots, "by_trial"]
        dots = [
            y
            for dots in axes.collections
            for y in dots.get_offsets()[:, 1]
            if len(dots.get_offsets()) == 6
        ]
        assert dots == [float(value) for text in drew for value in text.split()]


def test_equal_numbers_give_equal_pictures():
    exhibit, numbers = small(methods=ADAPTIVE, **SETTINGS), pd.DataFrame(rows())
    assert render(exhibit, numbers) == render(exhibit, numbers)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"methods": [{"name": "fedavg"}]}, "the hyper-parameters that 'fedavg' chooses are not"),
        ({"methods": [*ADAPTIVE, {"name": "fedavg"}]}, "of one method are drawn, not of 2"),
        ({"sweep": {"partition.clients": [2, 4]}}, "2 cases and 4 points"),
        ({"cases": {}}, "0 cases and 1 points"),
    ],
)
def test_what_cannot_be_drawn_so_is_a_sentence(change, sentence):
    with pytest.raises(FedreproError, match=sentence):
        small(**{"methods": ADAPTIVE, **SETTINGS, **change})
