"""Series over trials: the values of one setting of a method, by metric and split, and their means.

A trial's number is the one that a run ended with; numbers of single rounds are series of their own.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import IN_ROUND, REPETITION

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

LEFT_OUT = "left_out"
Series = Mapping[tuple[str, str], Sequence[float]]  # (metric, split) -> a value per trial


def global_rows(table: pa.Table) -> pd.DataFrame:
    """What global models reached, at the end (no round) and in single rounds.

    Where models are tuned, a trial's value is the mean over the samples of a size.
    """
    wanted = ("trial", "setting", "round", "phase", "client", "split", "metric", "value")
    columns = [name for name in (*wanted, REPETITION) if name in table.column_names]
    frame: pd.DataFrame = table.select(columns).to_pandas()
    frame = frame[frame["client"].isna()]
    frame = over_repetitions(frame.assign(split=frame["split"].fillna("")))
    return frame.sort_values("trial", kind="stable")


def over_repetitions(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with one in the place of those that differ in the repetition: with their mean."""
    if REPETITION not in rows:
        return rows
    import pandas as pd

    plain, tuned = rows[rows[REPETITION].isna()], rows[rows[REPETITION].notna()]
    place = [name for name in rows.columns if name not in (REPETITION, "value")]
    groups = tuned.groupby(place, sort=False, dropna=False)["value"]
    means = groups.agg(lambda values: mean(values.tolist())).reset_index()
    return pd.concat([plain.drop(columns=REPETITION), means], ignore_index=True)


def is_final(rows: pd.DataFrame) -> pd.Series:
    """Whether each row is a final value, or one of tuning, rather than one of a single round."""
    return rows["phase"] != IN_ROUND if "phase" in rows else rows["round"].isna()


def of_setting(frame: pd.DataFrame, token: str, trials: int) -> pd.DataFrame:
    """The rows of one setting in the first trials, single rounds included.

    token: what its run calls its rows, `Run.rows_of`.
    """
    return frame[(frame["setting"] == token) & (frame["trial"] < trials)]


def end_series(own: pd.DataFrame, token: str, trials: int, where: str) -> Series:
    """Values over the first trials of every metric that one setting ended with."""
    last = own[is_final(own)]
    if last.empty:
        raise FedreproError(
            f"{where}: the metrics hold nothing of {token}; delete them and start again"
        )
    return by_metric(last, token, trials, where)


def by_metric(own: pd.DataFrame, token: str, trials: int, where: str) -> Series:
    """(metric, split) -> a value per trial; every trial must be there, once.

    A setting that a method left out in some trial has nothing but in which trials it did.
    """
    out = set(own.loc[own["metric"] == LEFT_OUT, "trial"])
    if out:
        return {(LEFT_OUT, ""): [float(trial in out) for trial in range(trials)]}
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    columns = (own[name].tolist() for name in ("metric", "split", "trial", "value"))
    for metric, split, trial, value in zip(*columns, strict=True):
        group = found.setdefault((metric, split), {"trial": [], "value": []})
        group["trial"].append(trial)
        group["value"].append(value)
    for (metric, _), group in found.items():
        if group["trial"] != list(range(trials)):
            raise FedreproError(
                f"{where}: {token} should have {metric} in each of {trials} "
                f"trials, but has it in {group['trial']}; delete its metrics and start again"
            )
    return {key: group["value"] for key, group in found.items()}


def select(numbers: pd.DataFrame, metric: str, split: str) -> pd.DataFrame:
    """The rows of one metric on one split."""
    return numbers[(numbers["metric"] == metric) & (numbers["split"] == split)]


def mean(values: Sequence[float]) -> float:
    """The mean, exact before it is rounded; not a number if one of them is none.

    Infinite, as rounds to a target that was not reached are, if one of them is.
    """
    return statistics.mean(values) if all(map(math.isfinite, values)) else sum(values)


def sd(values: Sequence[float]) -> float | None:
    """Sample sd; a single value has none. `statistics` is exact: equal values give 0."""
    if len(values) < 2:
        return None
    return statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan
