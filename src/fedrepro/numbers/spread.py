"""Spread over clients: how far apart those of a method are whose clients predict by themselves.

The csv of an exhibit has it in a column of its own where an entry says `spread: clients`: the
sample sd over clients of each one's mean over trials. Tables and figures then show it in the place
of the sd over trials. Verdicts are judged by the latter, and a printed spread over clients counts
nothing there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedrepro.core.errors import FedreproError
from fedrepro.numbers.series import mean, of_setting, sd

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

CLIENTS_SD = "clients_sd"
Spreads = Mapping[tuple[str, str], float | None]  # (metric, split) -> sd over clients


def client_rows(table: pa.Table) -> pd.DataFrame:
    """Keep the final numbers of single clients."""
    columns = ["trial", "setting", "round", "client", "split", "metric", "value"]
    frame: pd.DataFrame = table.select(columns).to_pandas()
    frame = frame[frame["client"].notna() & frame["round"].isna()]
    return frame.assign(split=frame["split"].fillna(""))


def over_clients(rows: pd.DataFrame, token: str, trials: int, where: str) -> Spreads:
    """Compute the sd over clients of their means over the first trials, of one setting of a method.

    Raises:
        FedreproError: for a method that has no numbers of single clients.
    """
    setting_rows = of_setting(rows, token, trials)
    if setting_rows.empty:
        raise FedreproError(
            f"{where}: {token} has no numbers of single clients, so it has no spread over them; "
            "leave out spread: clients"
        )
    spreads = {}
    for (metric, split), group in setting_rows.groupby(["metric", "split"], sort=False):
        means = [mean(client["value"].tolist()) for _, client in group.groupby("client")]
        spreads[str(metric), str(split)] = sd(means)
    return spreads


def with_spread(numbers: pd.DataFrame) -> pd.DataFrame:
    """Numbers as they are shown: the spread over clients stands for that over trials."""
    if CLIENTS_SD not in numbers:
        return numbers
    clients_sd = numbers[CLIENTS_SD]
    return numbers.assign(sd=numbers["sd"].where(clients_sd.isna(), clients_sd))
