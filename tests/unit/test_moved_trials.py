"""tools/moved_trials.py: how far trials move where they are computed again."""

import runpy
from pathlib import Path

import pandas as pd
import pytest

moved = runpy.run_path(str(Path(__file__).parents[2] / "tools/moved_trials.py"))["moved"]


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
