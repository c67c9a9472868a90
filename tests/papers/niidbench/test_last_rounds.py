"""NIID-Bench is judged by the mean of the last ten rounds: csv follow from the recorded metrics."""

from __future__ import annotations

import pandas as pd
import pytest
from findings import RECORD

from fedrepro.numbers.exhibit_tables import read_csv

FOLDER = RECORD / "paper/niidbench"
LAST = 10


def of_rounds(key: str) -> dict[str, dict[str, float]]:
    """By setting, the mean and deviation of test accuracy over the last ten rounds of a trial."""
    metrics = pd.read_parquet(FOLDER / f"{key}.metrics.parquet")
    rows = metrics[(metrics["metric"] == "accuracy") & (metrics["split"] == "test")]
    rows = rows[rows["phase"] == "round"].sort_values("round")
    assert (rows["trial"] == 0).all()
    return {
        setting: {
            "accuracy": group["value"].tail(LAST).mean(),
            "accuracy_scatter": group["value"].tail(LAST).std(ddof=1),
            "rounds": group["round"].tail(LAST).tolist(),
        }
        for setting, group in rows.groupby("setting")
    }


@pytest.mark.parametrize("key", ["dirichlet", "noise", "two-labels", "standard-inputs"])
def test_recorded_numbers_are_means_of_the_last_ten_rounds(key):
    table, rounds = read_csv((FOLDER / f"{key}.csv").read_text()), of_rounds(key)
    checked = 0
    for row in table[table["metric"].isin(["accuracy", "accuracy_scatter"])].itertuples():
        found = rounds[row.setting]
        assert len(found["rounds"]) == LAST
        assert found["rounds"][-1] - found["rounds"][0] == LAST - 1
        assert row.mean == pytest.approx(found[row.metric], rel=1e-9)
        checked += 1
    assert checked >= 2


def test_with_a_hundred_clients_only_the_last_round_is_there():
    table, rounds = read_csv((FOLDER / "iid-hundred.csv").read_text()), of_rounds("iid-hundred")
    for row in table[table["metric"] == "accuracy"].itertuples():
        assert rounds[row.setting]["rounds"][-3:-1] == [488, 498]
        metrics = pd.read_parquet(FOLDER / "iid-hundred.metrics.parquet")
        last = metrics[(metrics["round"] == 500) & (metrics["setting"] == row.setting)]
        value = last[(last["metric"] == "accuracy") & (last["split"] == "test")]["value"]
        assert row.mean == pytest.approx(value.iloc[0], rel=1e-9)
