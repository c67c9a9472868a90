"""The exhibits of the leaderboard say what was measured of their settings."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from fedrepro.papers.arena import exhibits

RECORD = Path(__file__).parents[3] / "reports/record/paper/arena"
POINT = ["model_name", "partition_name", "partition_alpha", "partition_clients"]


def falls(pattern: str, method: str) -> list[float]:
    """Points of mean test accuracy lost from 100 steps to 200, at every point, one decimal."""
    found = []
    for path in RECORD.glob(pattern):
        frame = pd.read_parquet(path)
        frame = frame[
            (frame["method_name"] == method)
            & (frame["metric"] == "accuracy")
            & (frame["split"] == "test")
            & frame["client"].isna()
        ]
        for _, rows in frame.groupby(POINT, dropna=False):
            means = rows.groupby("method_steps")["value"].mean()
            if 200 in means.index:
                found.append(round(100 * float(means[100] - means[200]), 1))
    return found


@pytest.mark.parametrize(
    ("said", "pattern", "method"),
    [
        (exhibits.COSTLY, "1-*.metrics.parquet", "fedfisher_kfac"),
        (exhibits.starts()["notes"][3], "1-starts.metrics.parquet", "matched_kfac"),
    ],
)
def test_notes_say_what_two_hundred_steps_lose(said: str, pattern: str, method: str):
    lost = falls(pattern, method)
    if method == "fedfisher_kfac":
        assert len(lost) == 19  # of the twenty scenarios, the larger network has fewer steps
        lost = [max(lost), -min(lost)]
    numbers = [float(number) for number in re.findall(r"\d+\.\d", said)]
    assert numbers == lost
