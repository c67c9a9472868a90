"""The exhibits of the leaderboard say what was measured of their settings."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from fedrepro.papers.arena import leaderboard_1
from fedrepro.planning.config import Config, load_exhibits
from fedrepro.planning.plan import Exhibit, Plan

RECORD = Path(__file__).parents[3] / "reports/record/paper/arena"
POINT = ["model_name", "partition_name", "partition_alpha", "partition_clients"]


def falls(pattern: str, method: str) -> list[float]:
    """Points of mean test accuracy lost from 100 steps to 200, at every point, one decimal."""
    found = []
    asked = f"method_name == '{method}' and metric == 'accuracy' and split == 'test'"
    for path in RECORD.glob(pattern):
        frame = pd.read_parquet(path).query(f"{asked} and client.isna()")
        means = frame.groupby([*POINT, "method_steps"], dropna=False)["value"].mean().unstack()
        if 200 in means:
            found += list(round(100 * (means[100] - means[200]).dropna(), 1))
    return found


def test_notes_say_what_two_hundred_steps_lose():
    lost = falls("1-*.metrics.parquet", "fedfisher_kfac")
    assert len(lost) == 19  # of the twenty scenarios, the larger network has fewer steps
    starts = falls("1-starts.metrics.parquet", "matched_kfac")
    for said, numbers in (
        (leaderboard_1.COSTLY, [max(lost), -min(lost)]),
        (leaderboard_1.PARTS_1["1-starts"]["notes"][3], starts),
    ):
        assert [float(number) for number in re.findall(r"\d+\.\d", said)] == numbers


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(Config(), {"arena": load_exhibits()["arena"]}, "paper")


def test_arena_2_has_the_parts_of_arena_1_and_one_budget_for_all(plan: Plan):
    board = plan.files["arena"].boards["2"]
    assert (board.each_trial, board.supersedes) == (True, "1")
    first, second = ([t.name.partition("-")[2] for t in tables(plan, v)] for v in "12")
    assert first == second
    counts = {}
    for point in (point for part in tables(plan, "2") for point in part.points):
        assert point.scenario.training.values["epochs"] == 10
        for measure in point.measures:
            counts.setdefault(len(measure.settings), set()).add(measure.label)
            assert measure.choose is None or measure.choose.split == "client_validation"
            if measure.label == "FENS":
                assert all(s.method.values["leave"] for s in measure.settings)
    assert set(counts) == {1, 2, 8}
    assert counts[2] == {"class-weighted ensemble", "weight matching"}
    assert not counts[1] & counts[8]


def tables(plan: Plan, version: str) -> list[Exhibit]:
    return [plan.exhibit(key) for key in plan.files["arena"].parts(version, "paper")]
