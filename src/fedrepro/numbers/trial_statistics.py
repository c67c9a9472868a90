"""Collect a method's values over trials, by metric and split of examples, and average them.

`trials` is their number. In errors, `where` names the figure, `token` a method and its parameters.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from fedrepro.api import BELIEFS
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import IN_ROUND, OF_ROUNDS, REPETITION, all_metrics
from fedrepro.planning.drawing_base import ROUND
from fedrepro.planning.exhibit import Exhibit

LEFT_OUT, SCATTER, TEST, FAILED = "left_out", "accuracy_scatter", "test", "failed"
PAIRED, BESIDE, CLIENTS_SD = "paired_mean", "paired_with", "clients_sd"
COLUMNS = (PAIRED, BESIDE)
SHARES = "share of examples"  # sizes and costs do not hang on the trial
MEANS = ("accuracy_of_means",)  # is not measured of single clients
Series = Mapping[tuple[str, str], Sequence[float]]  # (metric, split) -> a value per trial


def tidy_rows(table: pa.Table) -> pd.DataFrame:
    """Return rows sorted by trial; of a model tuned on several public samples, means over these."""
    wanted = ("trial", "setting", "round", "phase", "client", "split", "metric", "value")
    columns = [name for name in (*wanted, REPETITION) if name in table.column_names]
    frame: pd.DataFrame = table.select(columns).to_pandas()
    frame = frame.assign(split=frame["split"].fillna(""))
    if REPETITION in frame:
        plain, tuned = (frame[at] for at in (frame[REPETITION].isna(), frame[REPETITION].notna()))
        place = [name for name in columns if name not in (REPETITION, "value")]
        groups = tuned.groupby(place, sort=False, dropna=False)["value"]
        means = groups.agg(lambda values: mean(values.tolist())).reset_index()
        frame = pd.concat([plain.drop(columns=REPETITION), means], ignore_index=True)
    return frame.sort_values("trial", kind="stable")


def select_node(frame: pd.DataFrame, node: int | None, belief: str | None) -> pd.DataFrame:
    """Keep metrics of `node` of a graph (counted from 1), and those not measured by single nodes.

    None keeps those of all together. Split `belief`, "before" or "after" averaging, becomes "test".
    """
    frame = of_belief(frame, belief)
    together = frame["client"].isna()
    if node is None:
        return frame[together]
    own, key = frame["client"] == node - 1, frame["metric"] + "/" + frame["split"]
    has = key.isin(key[own]) | frame["metric"].isin(MEANS)
    return frame[own | (together & ~has)]


def of_belief(frame: pd.DataFrame, belief: str | None) -> pd.DataFrame:
    """Keep metrics of a node's `belief`, "before" or "after" averaging, as split "test"."""
    if belief is None:
        return frame
    frame = frame[~frame["split"].isin({TEST, *BELIEFS} - {belief})]
    return frame.assign(split=frame["split"].replace(belief, TEST))


def is_final(rows: pd.DataFrame) -> pd.Series:
    """Return whether each row of metrics is of the end of a run, not of a round: bool (rows,)."""
    return rows["phase"] != IN_ROUND


def of_setting(frame: pd.DataFrame, token: str, trials: int) -> pd.DataFrame:
    return frame[(frame["setting"] == token) & (frame["trial"] < trials)]


def by_metric(rows: pd.DataFrame, token: str, trials: int, where: str) -> Series:
    """Return {(metric, split): values in all `trials`} of a method's `rows`; NaN in failed trials.

    If some trials' clients leave it undefined, the only key is ("left_out", ""), with 1 in these.
    """
    if rows.empty:
        said = f"{where}: the metrics hold nothing of {token}"
        raise FedreproError(f"{said}; delete them and start again")
    if left_out := set(rows.loc[rows["metric"] == LEFT_OUT, "trial"]):
        return {(LEFT_OUT, ""): [float(trial in left_out) for trial in range(trials)]}
    groups: dict[tuple[str, str], list[tuple[int, float]]] = {}
    columns = (rows[name].tolist() for name in ("metric", "split", "trial", "value"))
    for metric, split, trial, value in zip(*columns, strict=True):
        groups.setdefault((metric, split), []).append((trial, value))
    if failed := dict.fromkeys((trial for trial, _ in groups.pop((FAILED, ""), [])), math.nan):
        groups.setdefault(("accuracy", TEST), [])
        groups = {key: sorted((dict(pairs) | failed).items()) for key, pairs in groups.items()}
        groups[FAILED, ""] = [(trial, float(trial in failed)) for trial in range(trials)]
    for (metric, _), pairs in groups.items():
        if (there := [trial for trial, _ in pairs]) != list(range(trials)):
            said = f"{where}: {token} should have {metric} in each of {trials} trials,"
            raise FedreproError(f"{said} but has it in {there}; delete its metrics and start again")
    return {key: [value for _, value in pairs] for key, pairs in groups.items()}


def last_series(own: pd.DataFrame, rounds: int, trials: int, where: str) -> Series:
    """Return {(metric, split): mean over the last `rounds` evaluated rounds, by trial}.

    `own` has a method's metrics; errors name `where`. The metric "accuracy_scatter" is the sd of
    accuracies over these rounds. Metrics that sum over rounds are left out; a failed run gives {}.
    """
    if FAILED in own["metric"].values:
        return {}
    curves = own[~is_final(own) & ~own["metric"].isin(OF_ROUNDS)]
    lost = set(curves[(curves["metric"] == "accuracy") & curves["value"].isna()]["trial"])
    most = curves.groupby("trial")["round"].nunique().max() if len(curves) else rounds
    if most < rounds and not lost:  # a trial alone may have ended early
        said = f"{where}: a mean over the last {rounds} measured rounds needs {rounds}, and there "
        raise FedreproError(f"{said}are {most}; measure more often, or lower `last_rounds`")
    series: dict[tuple[str, str], list[float]] = {}
    for place, rows in curves.groupby(["metric", "split", "trial"]):
        (metric, split), trial = map(str, place[:2]), place[2]
        values = rows.sort_values("round")["value"].tolist()[-rounds:]
        values = [math.nan, math.nan] if trial in lost else values
        series.setdefault((metric, split), []).append(mean(values))
        if metric == "accuracy":
            series.setdefault((SCATTER, split), []).append(sd(values) or 0.0)
    return {key: values for key, values in series.items() if len(values) == trials}


def mean(values: Sequence[float]) -> float:
    """Return the mean over trials, exact before rounding; NaN or infinite if a value is."""
    return statistics.mean(values) if all(map(math.isfinite, values)) else sum(values)


def over_trials(values: Sequence[float]) -> dict[str, Any]:
    """Return csv cells for `values` by trial: "mean", "sd", "trials" (count), "by_trial" (text)."""
    texts = " ".join(f"{value:.10g}" for value in values)
    return {"mean": mean(values), "sd": sd(values), "trials": len(values), "by_trial": texts}


def sd(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation: None for one value, NaN if a value is not finite."""
    if len(values) < 2:
        return None
    return statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan


def with_pairs(rows: Sequence[Mapping[Any, Any]], exhibit: Exhibit) -> list[dict[str, Any]]:
    """Add columns `paired_mean` and `paired_with` to a figure's `rows`, for methods of few trials.

    `paired_with` is a method of more trials, by the figure's settings. `paired_mean` is its final
    mean, plus the mean difference to it in shared trials. Thus easy trials favour no method.
    """
    compared = {m.label: m.paired_with for m in exhibit.measures if m.label in exhibit.pairs}
    shown = {measure.label: measure.show for measure in exhibit.measures}

    def key(row: Mapping[Any, Any], method: str) -> tuple[str, ...]:
        places = (*exhibit.swept, *shown[method])
        where = (str(row[name]) for name in places if name in row and not pd.isna(row[name]))
        return (method, row["metric"], row["split"], *where)

    final = [row for row in rows if ROUND not in row or pd.isna(row[ROUND])]
    ends = {key(row, row["method"]): row for row in final}
    paired = []
    for row in rows:
        cells: dict[str, Any] = {PAIRED: None, BESIDE: ""}
        label, metric = compared.get(row["method"]), all_metrics().get(row["metric"])
        other = ends.get(key(row, label)) if label else None
        shared = metric is not None and metric.unit == SHARES
        if label and shared and other and other["trials"] > row["trials"]:
            own, others = (list(map(float, one["by_trial"].split())) for one in (row, other))
            difference = mean([a - b for a, b in zip(own, others, strict=False)])
            cells = {PAIRED: mean(others) + difference, BESIDE: label}
        paired.append({**row, **cells})
    return paired


def over_clients(
    frame: pd.DataFrame, token: str, trials: int, where: str
) -> Mapping[tuple[str, str], float | None]:
    """Return the sd over clients of each client's mean over trials: {(metric, split): sd or None}.

    `frame` has rows of metrics; final values count. FedreproError without rows of clients.
    """
    rows = of_setting(frame[frame["client"].notna() & frame["round"].isna()], token, trials)
    if rows.empty:
        said = f"{where}: {token} has no numbers of single clients, so it has no spread over them"
        raise FedreproError(f"{said}; leave out spread: clients")
    of_clients = rows.groupby(["metric", "split", "client"])["value"]
    means: Any = of_clients.agg(lambda values: mean(values.tolist())).groupby(level=[0, 1])
    return {(metric, split): sd(own.tolist()) for (metric, split), own in means}


def as_shown(numbers: pd.DataFrame) -> pd.DataFrame:
    """Put `paired_mean` into `mean`, and `clients_sd` into `sd`, in csv rows `numbers` with these.

    `paired_mean` (see `with_pairs`) is of methods with few trials; their sd is emptied.
    `clients_sd` (see `over_clients`) is the sd over clients, in place of that over trials.
    """
    if CLIENTS_SD in numbers:
        numbers = numbers.assign(sd=numbers[CLIENTS_SD].fillna(numbers["sd"]))
    if PAIRED not in numbers:
        return numbers
    plain = numbers[PAIRED].isna()
    means = numbers["mean"].where(plain, numbers[PAIRED])
    return numbers.assign(mean=means, sd=numbers["sd"].where(plain))
