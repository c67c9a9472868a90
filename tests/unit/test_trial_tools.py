"""tools/moved_trials.py: how far trials move; tools/raced.py: what races would have dropped."""

from __future__ import annotations

import runpy
from pathlib import Path

import pandas as pd
import pytest

TOOLS = Path(__file__).parents[2] / "tools"
moved = runpy.run_path(str(TOOLS / "moved_trials.py"))["moved"]
raced = runpy.run_path(str(TOOLS / "raced.py"))["raced"]


def trials(values: dict[float, list[float]], setting: str, stopped: tuple[float, ...] = ()):
    """Final accuracies by step size and trial, and where a race stopped a step size."""
    rows = [
        (trial, setting + str(lr), "final", "test", metric, value, lr)
        for lr, given in values.items()
        for trial, accuracy in enumerate(given)
        for metric, value in [("accuracy", accuracy), ("stopped_at", 20.0)][: 1 + (lr in stopped)]
    ]
    names = ["trial", "setting", "phase", "split", "metric", "value", "training_lr"]
    return pd.DataFrame(rows, columns=names)


def test_a_trial_is_compared_with_itself_however_its_setting_is_written():
    ours = trials({0.1: [0.90, 0.92], 0.2: [0.50, 0.52]}, "b")
    recorded = trials({0.1: [0.91, 0.92], 0.2: [0.50, 0.52]}, "a")
    (row,) = moved(ours, recorded).itertuples()
    assert (row.metric, row.trials) == ("accuracy", 2)
    assert row.largest == pytest.approx(0.01)
    assert row.mean == pytest.approx(0.01 / 4)


@pytest.mark.parametrize("turned", [False, True])
def test_what_a_race_stopped_is_not_compared_with_what_ran_to_the_end(turned):
    pair = [
        trials({0.1: [0.90, 0.92], 0.2: [0.99, 0.99]}, "a"),
        trials({0.1: [0.91, 0.92], 0.2: [0.20, 0.20]}, "a", stopped=(0.2,)),
    ]
    (row,) = moved(*(pair[::-1] if turned else pair)).itertuples()
    assert row.largest == pytest.approx(0.01)


def table(late_bloomer: float) -> pd.DataFrame:
    """Three rates in two trials of 16 rounds: one leads early, another one at the end."""
    rows = []
    for trial in (0, 1):
        for lr, early, late in ((0.1, 0.6, 0.7), (0.2, 0.5, 0.6), (0.4, 0.1, late_bloomer)):
            for number in range(1, 17):
                for split in ("server_validation", "test"):
                    value = early if number <= 4 else late
                    rows.append(
                        {"trial": trial, "round": number, "phase": "round", "split": split,
                         "metric": "accuracy", "value": value, "training_lr": lr,
                         "method_name": "fedavg"}
                    )  # fmt: skip
    return pd.DataFrame(rows)


def test_a_setting_that_is_dropped_costs_what_it_has_more_at_the_end():
    found = raced(table(0.9), "training_lr")
    assert {trials: len(lost) for trials, lost in found.items()} == {2: 1, 1: 2}
    assert all(abs(points - 0.2) < 1e-12 for lost in found.values() for points in lost)
    assert raced(table(0.65), "training_lr") == {2: [None], 1: [None, None]}
