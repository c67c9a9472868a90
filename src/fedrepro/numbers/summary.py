"""From the metrics of an exhibit's runs to the two tables behind a figure.

`numbers` has a row per point, method, metric and split: mean and sample sd over trials, and
`by_trial`, the value in each from trial 0 on, separated by spaces; where an exhibit shows every
value of a parameter, or single rounds, also per value or round. `choice` has a row per setting of
every method that has one chosen: what it was chosen by, and what the others reached.
"""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedrepro.core.artifacts import read_provenance, read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import LEADING, OF_ROUNDS, metrics_of, with_leading
from fedrepro.core.spec import Spec, Value, render
from fedrepro.planning.plan import Exhibit, Measure, Point, Run

if TYPE_CHECKING:
    import pyarrow as pa

ROUND = "round"
NUMBERS = ("method", "metric", "split", "mean", "sd", "trials", "by_trial", "setting")
CHOICE = (
    "method",
    "setting",
    "parameter",
    "value",
    "criterion",
    "criterion_mean",
    "criterion_sd",
    "test_mean",
    "test_sd",
    "hidden_units",
    "parameters",
    "chosen",
)
# the metric and split that each rule of choice reads; the test split is none of them
CRITERIA = {
    "pooled_train": ("accuracy", "train"),
    "client_train": ("accuracy_clients", "train"),
}
TEST = ("accuracy", "test")
TIE_DIGITS = 12  # shares of equal counts may differ by rounding; beyond this they are a tie

Series = Mapping[tuple[str, str], Sequence[float]]  # (metric, split) -> a value per trial


@dataclass(frozen=True)
class Summary:
    """The tables of one exhibit; both begin with a column per swept or shown parameter."""

    numbers: pd.DataFrame
    choice: pd.DataFrame


@dataclass(frozen=True)
class Metrics:
    """The rows of a run's files, and where each file comes from."""

    rows: pa.Table
    sources: list[dict[str, Any]]


def read_metrics(files: Sequence[Path | str]) -> Metrics:
    """The metrics of a run from the files of its blocks of trials."""
    import pyarrow as pa

    tables = [read_table(path, "metrics") for path in files]
    rows = pa.concat_tables([with_leading(t.replace_schema_metadata()) for t in tables])
    return Metrics(rows, [read_provenance(table) for table in tables])


def summarise(exhibit: Exhibit, tables: Mapping[Run, pa.Table]) -> Summary:
    """Every number of the exhibit, and how the settings of swept methods were chosen."""
    frames = {run: _global_rows(table) for run, table in tables.items()}
    numbers: list[dict[str, Any]] = []
    choices: list[dict[str, Any]] = []
    for point in exhibit.points:
        where = f"{exhibit.key}, {_at(point)}"
        for measure in exhibit.measures:
            trials = point.trials[measure.label]
            for values, group in measure.groups.items():
                place = {**point.values, **dict(zip(measure.show, map(_cell, values), strict=True))}
                own = {s: frames[point.runs[measure.label, s.token]] for s in group}
                settings = {s: _series(f, s, trials, where) for s, f in own.items()}
                chosen = group[0]
                if measure.chosen:
                    chosen = choose(settings, measure, where)
                    rows = _choice_rows(settings, measure, chosen)
                    choices += [{**place, **row} for row in rows]
                place["method"] = measure.label
                numbers += [{**place, **row} for row in _number_rows(settings[chosen], chosen)]
                if exhibit.by_rounds:
                    rows = _round_rows(own[chosen], chosen, trials, where)
                    numbers += [{**place, **row} for row in rows]
    leading = [*exhibit.swept, *exhibit.shown]
    rounds = [ROUND] if exhibit.by_rounds else []
    return Summary(
        pd.DataFrame(numbers, columns=[*leading, *rounds, *NUMBERS]),
        pd.DataFrame(choices, columns=[*leading, *CHOICE]),
    )


def _cell(value: Value) -> Any:
    """A shown value as it stands in a table: numbers as they are, anything else as text."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return value if plain else render(value)


def choose(settings: Mapping[Spec, Series], measure: Measure, where: str) -> Spec:
    """The setting with the highest mean over trials of its criterion; ties go to the first.

    A setting whose criterion is not a number in some trial has failed and is never chosen.
    """
    assert measure.choose is not None
    criterion = CRITERIA[measure.choose]
    for setting, series in settings.items():
        if criterion not in series:
            raise FedreproError(
                f"{where}: {setting.token} is chosen by {criterion[0]} on the {criterion[1]} "
                f"split, which its metrics lack; let '{setting.name}' evaluate {criterion[1]}"
            )
    means = {s: _mean(series[criterion]) for s, series in settings.items()}
    able = {s: round(mean, TIE_DIGITS) for s, mean in means.items() if math.isfinite(mean)}
    if not able:
        raise FedreproError(
            f"{where}: {criterion[0]} on the {criterion[1]} split, by which a setting of "
            f"{measure.spec.token} is chosen, is not a number for any of them; they have all "
            "diverged: try other settings"
        )
    return max(able, key=able.__getitem__)


def _global_rows(table: pa.Table) -> pd.DataFrame:
    """What global models reached, at the end (no round) and in single rounds."""
    columns = ["trial", "method", "round", "client", "split", "metric", "value"]
    frame: pd.DataFrame = table.select(columns).to_pandas()
    frame = frame[frame["client"].isna()]
    return frame.assign(split=frame["split"].fillna("")).sort_values("trial", kind="stable")


def _series(frame: pd.DataFrame, setting: Spec, trials: int, where: str) -> Series:
    """Values over the first trials of every metric that one setting ended with."""
    own = frame[(frame["method"] == setting.token) & frame["round"].isna()]
    own = own[own["trial"] < trials]
    if own.empty:
        raise FedreproError(
            f"{where}: the metrics hold nothing of {setting.token}; delete them and start again"
        )
    return _by_metric(own, setting, trials, where)


def _by_metric(own: pd.DataFrame, setting: Spec, trials: int, where: str) -> Series:
    """(metric, split) -> a value per trial; every trial must be there, once."""
    found: dict[tuple[str, str], Sequence[float]] = {}
    for key, group in own.groupby(["metric", "split"], sort=False):
        if group["trial"].tolist() != list(range(trials)):
            raise FedreproError(
                f"{where}: {setting.token} should have {key[0]} in each of {trials} "
                f"trials, but has it in {group['trial'].tolist()}; delete its metrics and start "
                "again"
            )
        found[str(key[0]), str(key[1])] = group["value"].tolist()
    return found


def _round_rows(
    frame: pd.DataFrame, setting: Spec, trials: int, where: str
) -> Iterator[dict[str, Any]]:
    """The numbers of single rounds; none for a method that has no rounds."""
    own = frame[(frame["method"] == setting.token) & frame["round"].notna()]
    own = own[(own["trial"] < trials) & ~own["metric"].isin(OF_ROUNDS)]
    for done in sorted({int(value) for value in own["round"]}):
        series = _by_metric(own[own["round"] == done], setting, trials, f"{where}, round {done}")
        for row in _number_rows(series, setting):
            yield {ROUND: done, **row}


def _number_rows(series: Series, setting: Spec) -> Iterator[dict[str, Any]]:
    order = list(metrics_of(setting))
    for metric, split in sorted(series, key=lambda key: (order.index(key[0]), key[1])):
        values = series[metric, split]
        yield {
            "metric": metric,
            "split": split,
            "mean": _mean(values),
            "sd": _sd(values),
            "trials": len(values),
            "by_trial": " ".join(f"{value:.10g}" for value in values),
            "setting": setting.token,
        }


def _choice_rows(
    settings: Mapping[Spec, Series], measure: Measure, chosen: Spec
) -> Iterator[dict[str, Any]]:
    assert measure.choose is not None
    (parameter,) = measure.chosen
    for setting, series in settings.items():
        criterion = series[CRITERIA[measure.choose]]
        test = series.get(TEST, ())
        sizes = {metric: series.get((metric, "")) for metric in ("hidden_units", "parameters")}
        yield {
            "method": measure.label,
            "setting": setting.token,
            "parameter": parameter,
            "value": render(setting.values[parameter]),
            "criterion": measure.choose,
            "criterion_mean": _mean(criterion),
            "criterion_sd": _sd(criterion),
            "test_mean": _mean(test) if test else None,
            "test_sd": _sd(test),
            **{metric: _mean(v) if v else None for metric, v in sizes.items()},
            "chosen": "true" if setting == chosen else "false",
        }


def _mean(values: Sequence[float]) -> float:
    """The mean, exact before it is rounded; not a number if one of them is none."""
    return statistics.mean(values) if all(map(math.isfinite, values)) else math.nan


def _sd(values: Sequence[float]) -> float | None:
    """Sample sd; a single value has none. `statistics` is exact: equal values give 0."""
    if len(values) < 2:
        return None
    return statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan


def _at(point: Point) -> str:
    return ", ".join(f"{key} {value}" for key, value in point.values.items())


def csv_text(frame: pd.DataFrame) -> str:
    """The frame as csv, equal bytes for equal numbers."""
    return str(frame.to_csv(index=False, float_format="%.10g", lineterminator="\n"))


def read_csv(text: str) -> pd.DataFrame:
    """A frame back from `csv_text`; only an empty field is a missing number."""
    texts = dict.fromkeys(("method", "metric", "split", "setting", "parameter", "value"), str)
    texts |= dict.fromkeys(("criterion", "chosen", "by_trial"), str)
    frame = pd.read_csv(io.StringIO(text), dtype=texts, keep_default_na=False, na_values=[""])
    for name in frame.select_dtypes(bool):
        frame[name] = frame[name].map({True: "true", False: "false"})
    found = [name for name in texts if name in frame]
    return frame.fillna(dict.fromkeys(found, ""))


def leading_columns(frame: pd.DataFrame) -> list[str]:
    """The columns of either table that say where a number stands: what is swept or shown."""
    names = list(frame.columns)
    return names[: names.index("method")]


def tidy(exhibit: Exhibit, tables: Mapping[Run, pa.Table]) -> pa.Table:
    """All rows of all runs, each once, ordered by point and method, however jobs were cut."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted: dict[tuple[Run, str], int] = {}
    for point in exhibit.points:
        for (label, setting), run in point.runs.items():
            wanted[run, setting] = max(wanted.get((run, setting), 0), point.trials[label])
    parts = []
    for (run, setting), trials in wanted.items():
        rows = tables[run]
        own = pc.and_(pc.equal(rows["method"], setting), pc.less(rows["trial"], trials))
        parts.append(rows.filter(own))
    whole = pa.concat_tables(parts, promote_options="permissive")
    return whole.select([*LEADING, *sorted(set(whole.column_names) - set(LEADING))])
