"""What papers/rm/findings.md says of the record beyond the numbers that it asks for."""

from __future__ import annotations

import pandas as pd
from findings import RECORD, asked, told

FLAT = told("rm")


def test_what_is_said_of_table_1_is_in_the_record():
    table = pd.read_csv(RECORD / "paper/rm/table-1.printed.csv").query("metric == 'accuracy'")
    good = table[table["verdict"] == "reproduced"]
    assert good["apart"].isna().sum() == 10
    assert sorted(good["method"][good["apart"].notna()]) == ["FA", *["FA+WD"] * 3]
    few = table[(table["verdict"] == "few trials") & table["method"].isin(["FA+RM", "FA+WD"])]
    assert set(few["case"]) == {"C = 0.5, one class each"}
    left = table.drop(index=[*good.index, *few.index])
    assert (len(few), len(left)) == (2, 4)
    assert (left["verdict"] == "worse").sum() == 2
    assert set(left["case"]) == {"C = 1.0, one class each", "C = 0.5, one class each"}
    assert set(left["method"]) == {"FA+AH", "FA+RM+AH"}
    fa = 100 * table[table["method"] == "FA"]["difference"].abs().max()
    assert f"FA in all four cells, by {fa:.1f} at most" in FLAT
    apart = asked("rm/table-1", "range FA minus FA+WD", 2)
    assert f"with our λ is FA to {max(map(abs, apart)):.2f} points" in FLAT
    fixed = table[table["method"].isin(["FA", "FA+WD", "FA+RM"])]
    assert f"all {len(fixed)} accuracies are within 0.5 points of the printed ones" in FLAT
    assert fixed["difference"].abs().max() < 0.005


def test_no_setting_reaches_the_fixed_schedule_and_accuracy_falls_along_each():
    rows = pd.read_csv(RECORD / "paper/rm/sensitivity.csv").query("metric == 'accuracy'")
    of = {
        name: list(rows[(rows["method"] == name) & (rows["split"] == "test")]["mean"])
        for name in rows["method"].unique()
    }
    assert all(values == sorted(values, reverse=True) for values in of.values())
    tried = [*of["FA+AH, hyper learning rate"], *of["FA+AH, window"]]
    assert len(tried) - 1 == 8  # one is that of table 1, in both
    assert 100 * max(tried) < asked("rm/sensitivity", "FA, least entropy at least_entropy=2")[0]
    assert "In none of the eight settings does it reach the fixed schedule" in FLAT
