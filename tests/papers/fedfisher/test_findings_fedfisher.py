"""What papers/fedfisher/findings.md counts is what the record has."""

from __future__ import annotations

import pandas as pd
from findings import RECORD, told


def test_most_means_lie_within_the_range_of_the_rerun():
    """Means against the bounds of claims J1 to J5: the least and the most of the rerun's starts."""
    rows = pd.read_csv(RECORD / "paper/fedfisher/claims.csv")
    rows = rows[rows["claim"].isin(["J1", "J2", "J3", "J4", "J5"])]
    ends = rows["bound"].str.extract(r"at least ([\d.]+) and at most ([\d.]+)").astype(float)
    inside = (rows["value"] >= ends[0]) & (rows["value"] <= ends[1])
    assert told("fedfisher").count(f"{inside.sum()} of {len(rows)}") == 2
    assert inside.all()
