"""NIID-Bench is judged by the mean of the last ten rounds: csv follow from the recorded metrics."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from findings import RECORD

from fedrepro.numbers.tables_and_selection import read_csv

FOLDER = RECORD / "paper/niidbench"


@pytest.mark.parametrize("key", ["dirichlet", "noise", "two-labels", "standard-inputs"])
def test_recorded_numbers_are_means_of_the_last_ten_rounds(key):
    rows = pd.read_parquet(FOLDER / f"{key}.metrics.parquet").query(
        "metric == 'accuracy' and split == 'test' and phase == 'round'"
    )
    assert (rows["trial"] == 0).all()  # the only one
    rounds = {name: own.tail(10) for name, own in rows.sort_values("round").groupby("setting")}
    table = read_csv((FOLDER / f"{key}.csv").read_text())
    table = table[table["metric"].isin(["accuracy", "accuracy_scatter"])]
    assert len(table) >= 2
    for row in table.itertuples():
        last = rounds[row.setting]
        assert np.ptp(last["round"]) == len(last) - 1 == 9
        of_all = last["value"].mean() if row.metric == "accuracy" else last["value"].std(ddof=1)
        assert row.mean == pytest.approx(of_all, rel=1e-9)
