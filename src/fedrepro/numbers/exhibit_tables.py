"""Compute the two tables behind a figure or table of a paper from the metrics of its runs.

`numbers` has a row per combination of swept parameters, method, metric and split of examples: mean
and sample sd over trials, and `by_trial`, the values in trials 0, 1, … with spaces between.
`choice` has a row per combination of parameter values that was tried for a method: the number by
which one was selected, and its results.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True)
class Summary:
    """The tables behind a figure: results (`numbers`), and hyper-parameter search (`choice`).

    Both tables begin with a column for each parameter that the figure varies.
    """

    numbers: pd.DataFrame
    choice: pd.DataFrame


@dataclass(frozen=True)
class Metrics:
    """The metrics of a run (`rows`, one per measurement), and the provenance of each file read."""

    rows: pa.Table
    sources: list[dict[str, Any]]


def read_metrics(files: Sequence[Path | str]) -> Metrics:
    """Read the metrics of a run from several `files`, which hold different trials.

    Parameters that did not exist when a file was written are null in its rows.
    """
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
    """Compute a figure's or table's results, and its table of tried settings, from metrics of runs.

    Args:
        exhibit: the figure or table, as configured.
        tables: the metrics of each run.
        files: paths of the files with these metrics; drawings may read other files in the folders.
        allow_all_failed: whether a method may lack a result because it failed with all parameter
            values; if False, FedreproError is raised.
    """
    frames = {run: tidy_rows(table) for run, table in tables.items()}
    further = exhibit.settings.drawing.further
    numbers: list[dict[str, Any]] = []
    choices: list[dict[str, Any]] = []
    for point in exhibit.points:
        stands = (f"{key} {value}" for key, value in point.values.items())
        where = ", ".join([exhibit.key, *stands])
        for measure in point.measures:
            trials = point.trials[measure.label]
            for values, group in measure.groups.items():
                place = {
                    **point.values,
                    **dict(zip(measure.show, map(cell_value, values), strict=True)),
                }
                runs = {s: point.runs[measure.label, s] for s in group}
                shown = {
                    r: select_node(frames[r], measure.node, measure.belief)
                    for r in {*runs.values()}
                }
                by_setting = {
                    s: of_setting(shown[r], r.rows_of(s), trials) for s, r in runs.items()
                }
                settings = candidates(by_setting, measure, trials, where)
                chosen = group[0]
                if measure.chosen:
                    chosen = select_setting(
                        settings, measure, where, allow_all_failed=allow_all_failed
                    )
                    rows = selection_rows(settings, measure, chosen)
                    choices += [{**place, **row} for row in rows]
                place["method"] = measure.label
                series = dict(settings[chosen].series)
                if exhibit.settings.last_rounds > 1:
                    series |= last_series(
                        by_setting[chosen], exhibit.settings.last_rounds, trials, where
                    )
                token = runs[chosen].rows_of(chosen)
                series |= further(
                    (files or {}).get(runs[chosen], ()), token, measure, trials, where
                )
                rows_of_numbers = [{**place, **row} for row in _number_rows(series, chosen)]
                table = tables[runs[chosen]]
                if measure.over_clients and FAILED not in set(table["metric"].to_pylist()):
                    among = over_clients(table, token, trials, where)
                    for row in rows_of_numbers:
                        row[CLIENTS_SD] = among.get((row["metric"], row["split"]))
                numbers += rows_of_numbers
                if exhibit.by_rounds:
                    left_out = {*OF_ROUNDS} - {*exhibit.settings.drawing.of_rounds}
                    rows = _round_rows(by_setting[chosen], chosen, trials, where, left_out)
                    numbers += [{**place, **row} for row in rows]
    leading = [*exhibit.swept, *exhibit.shown]
    rounds = [ROUND] if exhibit.by_rounds else []
    paired = bool(exhibit.pairs)
    if paired:
        numbers = with_pairs(numbers, leading, exhibit.pairs)
    spreads = [CLIENTS_SD] if any(measure.over_clients for measure in exhibit.measures) else []
    races = any(run.is_race for run in exhibit.runs)
    return Summary(
        pd.DataFrame(
            numbers, columns=[*leading, *rounds, *NUMBERS, *spreads, *(COLUMNS if paired else ())]
        ),
        pd.DataFrame(choices, columns=[*leading, *CHOICE, *([STOPPED[0]] if races else [])]),
    )


def cell_value(value: Value) -> Any:
    """Return a parameter's value as a table shows it: a number unchanged, anything else as text."""
    return render(value) if isinstance(value, bool | str | tuple | None) else value


def _round_rows(
    rows: pd.DataFrame, setting: Setting, trials: int, where: str, left_out: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Yield a method's csv rows after each evaluated round, with the parameter values `setting`.

    `rows` are its measurements. Metrics in `left_out` are skipped. `trials` is the number of
    trials; `where` names the figure or table in errors.
    """
    if FAILED in rows["metric"].values:
        return
    rows = rows[~is_final(rows) & ~rows["metric"].isin(left_out)]
    for done in sorted({int(value) for value in rows["round"]}):
        series = by_metric(
            rows[rows["round"] == done], setting.token, trials, f"{where}, round {done}"
        )
        for row in _number_rows(series, setting):
            yield {ROUND: done, **row}


def _number_rows(series: Series, setting: Setting) -> Iterator[dict[str, Any]]:
    order = list(metrics_of(setting.method))
    for metric, split in sorted(series, key=lambda key: (order.index(key[0]), key[1])):
        place = {"metric": metric, "split": split, "setting": setting.token}
        yield place | over_trials(series[metric, split])


def csv_text(frame: pd.DataFrame) -> str:
    """Write a data frame as csv text; equal numbers always give equal bytes."""
    return str(frame.to_csv(index=False, float_format="%.10g", lineterminator="\n"))


def read_csv(text: str) -> pd.DataFrame:
    """Read a data frame from text of `csv_text`; empty cells of text columns are "", others NaN."""
    texts = dict.fromkeys((CASE, "method", "metric", "split", "setting", "parameter", "value"), str)
    texts |= dict.fromkeys(("criterion", "chosen", "by_trial", BESIDE, *WORDS), str)
    frame = pd.read_csv(io.StringIO(text), dtype=texts, keep_default_na=False, na_values=[""])
    for name in frame.select_dtypes(bool):
        frame[name] = frame[name].map({True: "true", False: "false"})
    return frame.fillna({name: "" for name in texts if name in frame})


def leading_columns(frame: pd.DataFrame) -> list[str]:
    """List the columns before `method` in a figure's csv, such as parameters that it varies."""
    return list(frame.columns)[: list(frame.columns).index("method")]


def tidy(exhibit: Exhibit, tables: Mapping[Run, pa.Table]) -> pa.Table:
    """Join the metrics of a figure's runs into one table that has each measurement once.

    `tables` has the metrics of each run. Trials that the figure does not use are left out.
    """
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
