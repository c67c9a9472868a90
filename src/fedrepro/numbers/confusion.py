"""Which classes a node takes for which: shares of a class's examples, as numbers of an exhibit.

The split of such a number says which share it is: `6 as 0` are the examples of class 6 that are
taken for class 0, and `6 right` those that are not confused. An exhibit may name groups of classes,
which then stand on either side: `6 as 0, 2, 3 or 4`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.artifacts import read_table
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.series import Series

if TYPE_CHECKING:
    import pandas as pd

    from fedrepro.planning.exhibit import Exhibit
    from fedrepro.planning.measures import Measure

CONFUSION, FILE = "confusion", "confusion.parquet"

Groups = Mapping[str, Sequence[int]]  # name -> classes


def read_confusions(metrics: Sequence[Path | str]) -> pd.DataFrame:
    """What lies beside the metrics of a run's blocks of trials: a row for each trial, setting,
    belief, node (client, from 0), class (label) and predicted class, with its count of examples."""
    import pandas as pd

    paths = [Path(path).with_name(FILE) for path in metrics]
    found: pd.DataFrame = pd.concat([read_table(path, CONFUSION).to_pandas() for path in paths])
    return found


def confusion_series(
    found: pd.DataFrame,
    token: str,
    exhibit: Exhibit,
    measure: Measure,
    trials: int,
    where: str,
) -> Series:
    """Every share of one setting, of the node and the belief that are shown, a value per trial.

    Errors: FedreproError for a trial that is missing, or a group with a class that there is not.
    """
    own = found[(found["setting"] == token) & (found["belief"] == measure.belief)]
    own = own[own["client"] + 1 == measure.node]
    each = []
    for trial in range(trials):
        rows = own[own["trial"] == trial]
        if rows.empty:
            raise FedreproError(
                f"{where}: {token} should have what node {measure.node} confuses in each "
                f"of {trials} trials, but lacks it in trial {trial}; delete its metrics and start "
                "again"
            )
        counts = rows.pivot(index="label", columns="predicted", values="count").to_numpy()
        each.append(shares(counts, exhibit.settings.groups, where))
    return {(CONFUSION, split): [one[split] for one in each] for split in each[0]}


def shares(counts: np.ndarray, groups: Groups, where: str) -> dict[str, float]:
    """Split -> share; counts: examples by class and predicted class, (K, K)."""
    classes = len(counts)
    sets = {str(label): [label] for label in range(classes)}
    for name, members in groups.items():
        strange = [label for label in members if label >= classes]
        if strange:
            raise FedreproError(
                f"{where}: group '{name}' has class {strange[0]}, but there are the classes 0 to "
                f"{classes - 1}"
            )
        sets[name] = list(members)
    found: dict[str, float] = {}
    for true, rows in sets.items():
        own = counts[rows]
        whole = max(1, int(own.sum()))
        for taken, columns in sets.items():
            found[f"{true} as {taken}"] = float(own[:, columns].sum() / whole)
        found[f"{true} right"] = float(counts[rows, rows].sum() / whole)
    return found
