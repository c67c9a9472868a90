"""Settings of a leaderboard's methods: their places in the grids, and choices in each trial.

The best client is taken in each trial, and so are settings where the leaderboard says `each_trial`;
`arena/1` takes one for all trials of a scenario, by its mean on validation examples. The metrics of
all settings also give the accuracies of a choice of both in each trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.core.errors import FedreproError

VALIDATION, TEST = "client_validation", "test"
SCENARIO = ("dataset_", "model_", "partition_", "training_")
Accuracies = Mapping[Any, np.ndarray]  # (split, setting) -> a number per trial


Ends = Mapping[str, tuple[bool, bool]]


def chosen_of(tried: pd.DataFrame) -> list[int]:
    """Where in the rows of a choice.csv of a method in a scenario the chosen setting stands."""
    if not len(tried):  # no method has several settings: there are no columns either
        return []
    return [int(at) for at in np.flatnonzero(tried["chosen"].astype(str).str.lower() == "true")]


def ends_of(tried: pd.DataFrame, chosen: Sequence[int]) -> list[Ends]:
    """Say of each choice which parameters have the lowest, or the highest number that was tried.

    Parameters of words, and of one number alone, are left out. `tried` is as in `chosen_of`, and
    `chosen` names its rows.
    """
    if not len(tried):
        return []
    names = str(tried["parameter"].iloc[0]).split(", ")
    rows = [str(value).split(", ") for value in tried["value"]]
    ranges: dict[int, tuple[float, float]] = {}
    for at in range(len(names)):
        try:
            numbers = {float(row[at]) for row in rows}
        except ValueError:
            continue
        if len(numbers) > 1:
            ranges[at] = min(numbers), max(numbers)
    return [
        {
            names[at]: (float(rows[row][at]) == least, float(rows[row][at]) == most)
            for at, (least, most) in ranges.items()
        }
        for row in chosen
    ]


def ends_in_words(choices: Sequence[Ends]) -> str:
    """How often each parameter's choice was at an end of its grid."""
    texts = []
    for name in dict.fromkeys(name for ends in choices for name in ends):
        found = [ends[name] for ends in choices if name in ends]
        low, high = (sum(ends[side] for ends in found) for side in (0, 1))
        texts.append(f"{name}: lowest in {low}, highest in {high} of {len(found)}")
    return "; ".join(texts)


def of_settings(metrics: pd.DataFrame) -> Sequence[Accuracies]:
    """Accuracies of all settings over trials, scenario by scenario."""
    rows = metrics[(metrics["phase"] == "final") & (metrics["metric"] == "accuracy")]
    rows = rows[rows["client"].isna()]
    place = [name for name in rows.columns if name.startswith(SCENARIO)]
    scenarios = rows.groupby(place, dropna=False, sort=False).ngroup().rename("scenario")
    table = rows.pivot_table(
        values="value", index=[scenarios, "trial"], columns=["split", "setting"]
    )
    return [
        dict(zip(there.columns, there.to_numpy().T, strict=True))
        for _, there in table.groupby(level=0)
    ]


def in_each_trial(
    tried: pd.DataFrame, scenarios: Sequence[Accuracies]
) -> tuple[list[int], np.ndarray]:
    """Take the best setting on validation examples in each trial: rows, and test accuracies (T,).

    Ties go to the first setting. `tried` is as in `chosen_of`.

    Raises:
        FedreproError: if none of the scenarios has the means of `tried`.
    """
    settings, means = tried["setting"].tolist(), tried["criterion_mean"].to_numpy(float)
    for there in scenarios:
        lost = np.full_like(next(iter(there.values())), np.nan)
        judged, reached = (
            np.array([there.get((split, setting), lost) for setting in settings])
            for split in (VALIDATION, TEST)
        )
        if np.allclose(judged.mean(axis=1), means, rtol=0, atol=1e-8, equal_nan=True):
            best = np.where(np.isnan(judged), -np.inf, judged).argmax(axis=0)
            return best.tolist(), reached[best, np.arange(len(lost))]
    raise FedreproError(
        f"the metrics lack the settings of '{tried['method'].iloc[0]}' that its choice.csv names: "
        "make the exhibit again"
    )
