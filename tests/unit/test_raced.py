"""The tool that says what races would have dropped."""

from __future__ import annotations

import runpy
from pathlib import Path

import pandas as pd

raced = runpy.run_path(str(Path(__file__).parents[2] / "tools/raced.py"))["raced"]


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


def test_a_setting_that_is_dropped_and_would_have_won_costs_what_it_has_more():
    found = raced(table(0.9), "training_lr")
    assert {trials: len(lost) for trials, lost in found.items()} == {2: 1, 1: 2}
    assert all(abs(points - 0.2) < 1e-12 for lost in found.values() for points in lost)


def test_nothing_is_lost_where_the_early_leader_stays_ahead():
    assert raced(table(0.65), "training_lr") == {2: [None], 1: [None, None]}
