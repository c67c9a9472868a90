"""The exhibits of the leaderboard say what was measured of their settings."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from fedrepro.papers.arena import exhibits
from fedrepro.planning.config import Config, load_exhibits
from fedrepro.planning.plan import Plan, ground_of, part_keys, tables_of_board

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
        (exhibits.PARTS_1["1-starts"]["notes"][3], "1-starts.metrics.parquet", "matched_kfac"),
    ],
)
def test_notes_say_what_two_hundred_steps_lose(said: str, pattern: str, method: str):
    lost = falls(pattern, method)
    if method == "fedfisher_kfac":
        assert len(lost) == 19  # of the twenty scenarios, the larger network has fewer steps
        lost = [max(lost), -min(lost)]
    numbers = [float(number) for number in re.findall(r"\d+\.\d", said)]
    assert numbers == lost


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(Config(), {"arena": load_exhibits()["arena"]}, "paper")


def tried(plan: Plan, version: str) -> dict[str, dict[str, set[object]]]:
    """Label -> parameter -> its values in all parts."""
    found: dict[str, dict[str, set[object]]] = {}
    for part in tables_of_board(plan, "arena", version):
        for measure in (measure for point in part.points for measure in point.measures):
            for setting in measure.settings:
                for key in measure.chosen:
                    found.setdefault(measure.label, {}).setdefault(key, set()).add(setting[key])
    return found


def test_arena_2_has_the_parts_of_arena_1_and_one_budget_for_all(plan: Plan):
    first, second = ([k.partition("-")[2] for k in part_keys(plan, "arena", v)] for v in "12")
    assert first == second
    counts = {}
    for part in tables_of_board(plan, "arena", "2"):
        for point in part.points:
            assert point.scenario.training.values["epochs"] == 10
            for measure in point.measures:
                counts.setdefault(len(measure.settings), set()).add(measure.label)
                assert measure.choose is None or measure.choose.split == "client_validation"
                if measure.label == "FENS":
                    assert all(s.method.values["leave"] for s in measure.settings)
    assert set(counts) == {1, 2, 8}
    assert counts[2] == {"class-weighted ensemble", "weight matching"}
    assert not counts[1] & counts[8]


def test_grids_go_on_where_arena_1_chose_their_ends(plan: Plan):
    before, now = tried(plan, "1"), tried(plan, "2")
    ends = {
        ("RegMean++", "ridge"): "both",
        ("FENS", "rate"): "highest",
        ("TIES", "scale"): "lowest",
        ("FedFisher (diagonal)", "steps"): "highest",
        ("FedLPA", "damping"): "both",
    }
    for (label, key), end in ends.items():
        old, new = before[label].get(key, {1e-6}), now[label][key]
        assert end == "highest" or min(new) < min(old), label
        assert end == "lowest" or max(new) > max(old), label
    adam = {
        name: {setting["server_lr"] for setting in measure.settings}
        for name in ("arena/rounds", "arena/rounds-2")
        for measure in plan.exhibit(name).measures
        if measure.label == "FedAdam"
    }
    assert max(adam["arena/rounds-2"]) > max(adam["arena/rounds"])


def test_arena_2_is_frozen_and_takes_the_place_of_arena_1(plan: Plan):
    board = plan.files["arena"].boards["2"]
    assert board.ground == ground_of(tables_of_board(plan, "arena", "2"))
    assert (board.each_trial, board.supersedes) == (True, "1")


def test_what_runs_in_both_is_not_computed_again(plan: Plan):
    """Local models of both but for FedFisher's grid, and methods whose grid is as it was."""
    runs = {
        version: {
            (str(point.scenario), run.method.token)
            for part in tables_of_board(plan, "arena", version)
            for point in part.points
            for (label, _), run in point.runs.items()
            if label in ("FedAvg", "task arithmetic", "best client", "mean of probabilities")
            and "fedfisher" not in part.key
        }
        for version in "12"
    }
    assert runs["1"] == runs["2"]
