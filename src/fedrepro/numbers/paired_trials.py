"""Means and spreads that figures show in place of plain ones: paired means, sd over clients.

A method with fewer trials may be paired with another (planning.pairing). Its mean is of other
trials than its rivals' means. It is replaced by the other method's mean over all its trials, plus
the mean difference over the trials that both have: what the two share in a trial, its partition and
local models, then cancels.

Where an entry says `spread: clients`, the csv has the sample sd over clients of each one's mean
over trials in a column of its own. Tables and figures show it in place of the sd over trials, by
which verdicts are judged; a printed spread over clients counts nothing there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import all_metrics
from fedrepro.numbers.series import mean, of_setting, sd
from fedrepro.planning.drawing import ROUND
from fedrepro.planning.exhibit import Pair

if TYPE_CHECKING:
    import pyarrow as pa

PAIRED, BESIDE, CLIENTS_SD = "paired_mean", "paired_with", "clients_sd"
COLUMNS = (PAIRED, BESIDE)
SHARES = "share of examples"  # sizes and costs do not hang on the trial


def with_pairs(
    rows: Sequence[dict[str, Any]], leading: Sequence[str], pairs: Mapping[str, Pair]
) -> list[dict[str, Any]]:
    """Fill COLUMNS of the rows of an exhibit's csv wherever a mean is paired.

    `leading` names the columns of a number's place. A method whose rounds are shown is paired with
    the final value of the other, if that has no rounds.
    """
    places = [name for name in leading if name != ROUND]
    final = [row for row in rows if ROUND not in row or pd.isna(row[ROUND])]
    ends = {_key(row, places, row["method"]): row for row in final}
    return [row | _paired(row, places, pairs.get(row["method"]), ends) for row in rows]


def _paired(
    row: Mapping[str, Any],
    places: Sequence[str],
    pair: Pair | None,
    ends: Mapping[tuple[str, ...], Mapping[str, Any]],
) -> dict[str, Any]:
    unpaired = {PAIRED: None, BESIDE: ""}
    metric = all_metrics().get(row["metric"])
    if pair is None or metric is None or metric.unit != SHARES:
        return unpaired
    other = ends.get(_key(row, places, pair.beside))
    if other is None or other["trials"] <= row["trials"]:
        return unpaired
    values, other_values = (list(map(float, entry["by_trial"].split())) for entry in (row, other))
    difference = mean([a - b for a, b in zip(values, other_values, strict=False)])
    return {PAIRED: mean(other_values) + difference, BESIDE: pair.beside}


def _key(row: Mapping[str, Any], places: Sequence[str], method: str) -> tuple[str, ...]:
    where = (str(row[name]) for name in places if name in row and not pd.isna(row[name]))
    return (method, row["metric"], row["split"], *where)


def over_clients(
    table: pa.Table, token: str, trials: int, where: str
) -> Mapping[tuple[str, str], float | None]:
    """Compute the sd over clients of their means over the first trials, of one setting of a method.

    Returns:
        Metric and split -> sd over clients, of ends of runs.

    Raises:
        FedreproError: for a method that has no numbers of single clients.
    """
    columns = ["trial", "setting", "round", "client", "split", "metric", "value"]
    frame: pd.DataFrame = table.select(columns).to_pandas()
    frame = frame[frame["client"].notna() & frame["round"].isna()]
    rows = of_setting(frame.assign(split=frame["split"].fillna("")), token, trials)
    if rows.empty:
        raise FedreproError(
            f"{where}: {token} has no numbers of single clients, so it has no spread over them; "
            "leave out spread: clients"
        )
    spreads = {}
    for (metric, split), group in rows.groupby(["metric", "split"], sort=False):
        means = [mean(client["value"].tolist()) for _, client in group.groupby("client")]
        spreads[str(metric), str(split)] = sd(means)
    return spreads


def as_shown(numbers: pd.DataFrame) -> pd.DataFrame:
    """Return numbers as figures show them, with paired means for plain ones, which have no sd.

    Other rows have the spread that is asked for.
    """
    if CLIENTS_SD in numbers:
        spread = numbers[CLIENTS_SD]
        numbers = numbers.assign(sd=numbers["sd"].where(spread.isna(), spread))
    if PAIRED not in numbers:
        return numbers
    paired = numbers[PAIRED].notna()
    kept = numbers.assign(mean=numbers["mean"].where(~paired, numbers[PAIRED]))
    return kept.assign(sd=numbers["sd"].where(~paired))
