"""Settings of a leaderboard's methods: where in their grids they lie, and chosen in each trial.

`arena/1` takes one setting for all trials of a scenario, by its mean on validation examples; the
best client is taken in each trial. What the methods reach if both are taken in each trial follows
from the metrics of all settings.
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


def ends_of(tried: pd.DataFrame) -> dict[str, tuple[bool, bool]]:
    """Parameter -> whether the chosen number is the lowest that was tried, and the highest.

    tried: the rows of a choice.csv of a method in a scenario. Without parameters of words, and of
    one number alone.
    """
    if not len(tried):
        return {}
    names = str(tried["parameter"].iloc[0]).split(", ")
    rows = [str(value).split(", ") for value in tried["value"]]
    taken, ends = rows[tried["chosen"].astype(str).str.lower().tolist().index("true")], {}
    for at, name in enumerate(names):
        try:
            numbers, chosen = {float(row[at]) for row in rows}, float(taken[at])
        except ValueError:
            continue
        if len(numbers) > 1:
            ends[name] = chosen == min(numbers), chosen == max(numbers)
    return ends


def ends_in_words(per_scene: Sequence[Mapping[str, tuple[bool, bool]]]) -> str:
    """How often each parameter's choice was at an end of its grid, over scenarios."""
    told = []
    for name in dict.fromkeys(name for ends in per_scene for name in ends):
        found = [ends[name] for ends in per_scene if name in ends]
        low, high = (sum(ends[side] for ends in found) for side in (0, 1))
        told.append(f"{name}: lowest in {low}, highest in {high} of {len(found)}")
    return "; ".join(told)


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


def in_each_trial(tried: pd.DataFrame, scenarios: Sequence[Accuracies]) -> np.ndarray:
    """Test accuracy of the setting that is best on validation examples in each trial, (T,).

    tried: as in `ends_of`; scenarios: of the exhibit, one of which has the means of `tried`. Ties
    go to the first setting. Errors: FedreproError if none has them.
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
            taken: np.ndarray = reached[best, np.arange(len(lost))]
            return taken
    raise FedreproError(
        f"the metrics lack the settings of '{tried['method'].iloc[0]}' that its choice.csv names: "
        "make the exhibit again"
    )
