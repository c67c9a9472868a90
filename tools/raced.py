"""Find how much accuracy successive halving would have cost, from runs of all settings to the end.

    .venv/bin/python tools/raced.py fedavg/fedsgd-against-fedavg

Repeats the race (successive halving) between settings, such as learning rates, on recorded
validation accuracies of the server: on the mean of all trials, of each half of them, and for each
trial. The setting that wins the race is compared with the setting whose mean
validation accuracy over the second half of the rounds is best. Prints how often they differ, and
how many points of final test accuracy the race loses, as a mean over all races and at most.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from fedrepro.core.evaluation_schedule import SPLIT, successive_halving

RECORD = Path(__file__).parents[1] / "reports/record"
NOT_SPECS = ("trial", "method", "setting", "client", "round", "phase", "split", "metric", "value")


def main(words: list[str]) -> int:
    """Print a table of the accuracy lost by successive halving; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("exhibits", nargs="+", help="such as fedavg/fedsgd-against-fedavg")
    parser.add_argument("--over", default="training_lr", help="the column of what is raced")
    parser.add_argument("--reports", type=Path, default=RECORD)
    given = parser.parse_args(words)
    print("| exhibit | trials in a race | races | another setting | points lost | at most |")
    print("| --- | --- | --- | --- | --- | --- |")
    for key in given.exhibits:
        table = pd.read_parquet(given.reports / "paper" / f"{key}.metrics.parquet")
        for trials, lost in raced(table, given.over).items():
            other = [points for points in lost if points is not None]
            told = [100 * points for points in other]
            print(
                f"| {key} | {trials} | {len(lost)} | {len(other)} "
                f"| {sum(told) / len(lost):.2f} | {max(told, default=0):.1f} |"
            )
    return 0


def raced(table: pd.DataFrame, over: str) -> dict[int, list[float | None]]:
    """Return the test accuracy lost in each race, by the number of trials that the race averages.

    `table` has recorded metrics, and settings differ in its column `over`. A loss is None if the
    race selects the best setting.
    """
    table = table[(table["metric"] == "accuracy") & (table["phase"] == "round")]
    cell = [name for name in table.columns if name not in (*NOT_SPECS, over)]
    found: dict[int, list[float | None]] = {}
    for _, own in table.groupby(cell, dropna=False):
        if own[over].nunique() < 3:  # of two settings no race is left after a rung
            continue
        curves = {split: _curves(own[own["split"] == split], over) for split in (SPLIT, "test")}
        for some in _groups(sorted(own["trial"].unique())):
            means = [curves[split].loc[some].groupby(over).mean() for split in (SPLIT, "test")]
            found.setdefault(len(some), []).append(_lost(*means))
    return found


def _curves(table: pd.DataFrame, over: str) -> pd.DataFrame:
    """Return accuracies by (trial, setting) and round; after a run's end its last is repeated."""
    curves = table.pivot_table(index=["trial", over], columns="round", values="value")
    return curves.ffill(axis=1).fillna(0)


def _groups(trials: list[int]) -> Iterator[list[int]]:
    yield trials
    half = len(trials) // 2
    if half > 1:
        yield trials[:half]
        yield trials[half : 2 * half]
    yield from ([one] for one in trials)


def _lost(validation: pd.DataFrame, test: pd.DataFrame) -> float | None:
    """Return the best setting's test accuracy less the race winner's; None if they are the same."""
    rounds = [int(number) for number in validation.columns]

    def score(setting: int, rung: int) -> float:
        return float(validation.iloc[setting][max(r for r in rounds if r <= rung)])

    stopped = successive_halving(len(validation), max(rounds), score)
    left = [at for at in range(len(validation)) if at not in stopped]
    won = max(left, key=lambda at: score(at, max(rounds)))
    late = validation[[r for r in rounds if r > max(rounds) / 2]].mean(axis=1)
    best = int(late.argmax())
    return None if best == won else float(test.iloc[best, -1] - test.iloc[won, -1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
