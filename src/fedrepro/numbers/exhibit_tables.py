"""Compute the two tables behind a figure or table of a paper from the metrics of its runs.

`numbers` has a row per combination of swept parameters, method, metric and split, `choice` per
combination of parameter values that was tried: what selected one, and its results.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from fedrepro.core.artifacts import read_provenance, read_table
from fedrepro.core.metrics import LEADING, OF_ROUNDS, metrics_of, with_leading
from fedrepro.core.params import Value, render
from fedrepro.numbers.setting_selection import (
    CHOICE,
    STOPPED,
    candidates,
    select_setting,
    selection_rows,
)
from fedrepro.numbers.trial_statistics import (
    BESIDE,
    CLIENTS_SD,
    COLUMNS,
    FAILED,
    Series,
    by_metric,
    is_final,
    last_series,
    of_setting,
    over_clients,
    over_trials,
    select_node,
    tidy_rows,
    with_pairs,
)
from fedrepro.planning.exhibit import Setting
from fedrepro.planning.figure_interface import CASE
from fedrepro.planning.figure_interface import ROUND as ROUND
from fedrepro.planning.plan import Exhibit, Run

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS = ("method", "metric", "split", "mean", "sd", "trials", "by_trial", "setting")
WORDS = ("verdict", "unbounded", "apart", "set_up", "note")  # of a printed.csv


class Summary(NamedTuple):
    """The tables `numbers` and `choice`, whose first columns are the swept parameters."""

    numbers: pd.DataFrame
    choice: pd.DataFrame


class Metrics(NamedTuple):
    """The metrics of a run (`rows`, one per measurement), and the provenance of each file read."""

    rows: pa.Table
    sources: list[dict[str, Any]]


def read_metrics(files: Sequence[Path | str]) -> Metrics:
    """Read a run's metrics from files of different trials; parameters that files lack are null."""
    import pyarrow as pa

    tables = [read_table(path, "metrics") for path in files]
    bare = [with_leading(table.replace_schema_metadata()) for table in tables]
    rows = pa.concat_tables(bare, promote_options="default")
    return Metrics(rows, [read_provenance(table) for table in tables])


def summarise(
    exhibit: Exhibit,
    tables: Mapping[Run, pa.Table],
    files: Mapping[Run, Sequence[Path | str]] | None = None,
    *,
    allow_all_failed: bool = False,
) -> Summary:
    """Compute the tables of a figure or table from metrics of its runs.

    `files` are the paths of these metrics; drawings may read other files in their folders. With
    `allow_all_failed` a method may have failed with all parameter values; else that is an error.
    """
    frames = {run: tidy_rows(table) for run, table in tables.items()}
    further = exhibit.settings.drawing.further
    numbers: list[dict[str, Any]] = []
    choices: list[dict[str, Any]] = []
    for point in exhibit.points:
        where = ", ".join([exhibit.key, *(f"{key} {v}" for key, v in point.values.items())])
        groups = ((measure, *item) for measure in point.measures for item in measure.groups.items())
        for measure, values, group in groups:
            trials, runs = point.trials[measure.label], {}
            own = zip(measure.show, map(cell_value, values), strict=True)
            place = {**point.values, **dict(own)}
            by_setting: dict[Setting, pd.DataFrame] = {}
            shown: dict[Run, pd.DataFrame] = {}
            for s in group:
                runs[s] = run = point.runs[measure.label, s]
                if run not in shown:
                    shown[run] = select_node(frames[run], measure.node, measure.belief)
                by_setting[s] = of_setting(shown[run], run.rows_of(s), trials)
            settings = candidates(by_setting, measure, trials, where)
            chosen = group[0]
            if measure.chosen:
                chosen = select_setting(settings, measure, where, allow_all_failed)
                choices += [place | row for row in selection_rows(settings, measure, chosen)]
            place["method"], run = measure.label, runs[chosen]
            series, token = dict(settings[chosen].series), run.rows_of(chosen)
            if (last := exhibit.settings.last_rounds) > 1:
                series |= last_series(by_setting[chosen], last, trials, where)
            series |= further((files or {}).get(run, ()), token, measure, trials, where)
            rows = [place | row for row in _number_rows(series, chosen)]
            if measure.over_clients and FAILED not in set(tables[run]["metric"].to_pylist()):
                among = over_clients(tables[run], token, trials, where)
                for row in rows:
                    row[CLIENTS_SD] = among.get((row["metric"], row["split"]))
            numbers += rows
            if exhibit.by_rounds:
                left_out = {*OF_ROUNDS} - {*exhibit.settings.drawing.of_rounds}
                after = _round_rows(by_setting[chosen], chosen, trials, where, left_out)
                numbers += [place | row for row in after]
    leading = [*exhibit.swept, *exhibit.shown]
    columns = [*leading, *([ROUND] if exhibit.by_rounds else []), *NUMBERS]
    if any(measure.over_clients for measure in exhibit.measures):
        columns.append(CLIENTS_SD)
    if exhibit.pairs:
        numbers = with_pairs(numbers, leading, exhibit.pairs)
        columns += COLUMNS
    tried = [*leading, *CHOICE]
    if any(run.is_race for run in exhibit.runs):
        tried.append(STOPPED[0])
    return Summary(pd.DataFrame(numbers, columns=columns), pd.DataFrame(choices, columns=tried))


def cell_value(value: Value) -> Any:
    return render(value) if isinstance(value, bool | str | tuple | None) else value


def _round_rows(
    rows: pd.DataFrame, setting: Setting, trials: int, where: str, left_out: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Yield a method's csv rows by round, without the metrics `left_out`; errors name `where`."""
    if FAILED in rows["metric"].values:
        return
    rows = rows[~is_final(rows) & ~rows["metric"].isin(left_out)]
    for done in sorted(set(rows["round"].astype(int).tolist())):
        own = rows[rows["round"] == done]
        series = by_metric(own, setting.token, trials, f"{where}, round {done}")
        yield from ({ROUND: done, **row} for row in _number_rows(series, setting))


def _number_rows(series: Series, setting: Setting) -> Iterator[dict[str, Any]]:
    order = list(metrics_of(setting.method))
    for metric, split in sorted(series, key=lambda key: (order.index(key[0]), key[1])):
        place = {"metric": metric, "split": split, "setting": setting.token}
        yield place | over_trials(series[metric, split])


def csv_text(frame: pd.DataFrame) -> str:
    return str(frame.to_csv(index=False, float_format="%.10g", lineterminator="\n"))


def read_csv(text: str) -> pd.DataFrame:
    """Read a data frame from csv text; empty cells of columns of text are "", and others NaN."""
    texts = dict.fromkeys((CASE, "method", "metric", "split", "setting", "parameter", "value"), str)
    texts |= dict.fromkeys(("criterion", "chosen", "by_trial", BESIDE, *WORDS), str)
    frame = pd.read_csv(io.StringIO(text), dtype=texts, keep_default_na=False, na_values=[""])
    for name in frame.select_dtypes(bool):
        frame[name] = frame[name].map({True: "true", False: "false"})
    return frame.fillna({name: "" for name in texts if name in frame})


def leading_columns(frame: pd.DataFrame) -> list[str]:
    """List the columns before `method` in a figure's csv: the parameters that it varies."""
    return list(frame.columns)[: list(frame.columns).index("method")]


def tidy(exhibit: Exhibit, tables: Mapping[Run, pa.Table]) -> pa.Table:
    """Join the metrics of a figure's runs, in the trials that it uses, each measurement once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted: dict[tuple[Run, str], int] = {}
    for point in exhibit.points:
        for (label, setting), run in point.runs.items():
            key = run, run.rows_of(setting)
            wanted[key] = max(wanted.get(key, 0), point.trials[label])
    parts = []
    for (run, token), trials in wanted.items():
        rows = tables[run]
        mask = pc.and_(pc.equal(rows["setting"], token), pc.less(rows["trial"], trials))
        parts.append(rows.filter(mask))
    whole = pa.concat_tables(parts, promote_options="permissive")
    return whole.select([*LEADING, *sorted(set(whole.column_names) - set(LEADING))])
