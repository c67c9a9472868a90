"""One table of results: every method in every scenario, as the drawn exhibits have it.

Read from the csv of each exhibit, which holds final values of the chosen settings, and from the
plan, which knows the scenario behind each of its points.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.metrics import METRICS
from fedrepro.core.params import comparable_text
from fedrepro.core.registry import SCENARIO
from fedrepro.core.spec import Spec
from fedrepro.core.tokens import method_of
from fedrepro.numbers.exhibit_files import ExhibitFiles, open_exhibit
from fedrepro.numbers.exhibit_metadata import same_bytes
from fedrepro.numbers.series import mean, sd
from fedrepro.numbers.summary import ROUND, csv_text
from fedrepro.planning.config import load_config, load_exhibits
from fedrepro.planning.jobs import specs_of
from fedrepro.planning.plan import Exhibit, Plan, Point

WHO = ("method", "kind", "setting")
PLACE = (*SCENARIO, "clients", *WHO)
COLUMNS = (*PLACE, "metric", "split", "mean", "sd", "trials", "by_trial", "exhibits", "same_bytes")


@dataclass(frozen=True)
class Results:
    """The table, and what of the drawn exhibits could not be read into it, a sentence each."""

    table: pd.DataFrame
    notes: tuple[str, ...]


def results(
    scale: str = "quick",
    *,
    wide: bool = False,
    reports: Path | str = "reports",
    folder: Path | str = ".",
) -> pd.DataFrame:
    """Return every method in every scenario that a drawn exhibit of a scale measures.

    A row per scenario, method, metric and split: tokens of data set, partition, model, training and
    graph (empty where there is none), number of clients, the method's label and kind, the setting
    that was chosen, mean and sample sd over trials of the final value, the value in each trial, the
    exhibits that show it, and whether to compute the first of them again gives the same bytes:
    "yes", or why not. Reports of rounds are those of the last round.

    Args:
        scale: tiny, quick or paper.
        wide: whether a row is a scenario and method, with a column of means per metric and split.
        reports: folder of reports, such as reports/record.
        folder: made by `start`, or the root of the repository.

    Raises:
        FedreproError: if nothing is drawn.
    """
    with contextlib.chdir(folder):
        return collect(scale, wide=wide, reports=Path(reports)).table


@dataclass(frozen=True)
class Only:
    """A part of the table; an empty field asks for all.

    Attributes:
        exhibit: paper/name, or a paper.
        method: label or name.
        split: the examples, such as test; a model's cost, measured on none, stays.
        sort: a column; texts in their order, numbers from the largest.
    """

    exhibit: str = ""
    method: str = ""
    metric: str = ""
    split: str = ""
    sort: str = ""


def collect(scale: str, *, wide: bool, reports: Path, only: Only | None = None) -> Results:
    """Return what `results` does with notes on what it left out, or a part of it.

    Raises:
        FedreproError: if nothing is drawn, or nothing drawn matches `only`.
    """
    only = only or Only()
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    notes: list[str] = []
    for exhibit in drawn_exhibits(scale, reports, only.exhibit):
        try:
            files = open_exhibit(reports / scale, exhibit.key, scale)
            own = _rows(exhibit, files, scale)
            _add(rows, {"exhibits": exhibit.key, "same_bytes": same_bytes(files.about)}, own)
        except FedreproError as error:
            notes.append(str(error))
    table = pd.DataFrame(list(rows.values()), columns=list(COLUMNS))
    for name in ("method", "metric", "split"):
        asked = getattr(only, name)
        if asked and len(table):
            fits = table[name] == asked
            if name == "method":
                fits |= table["setting"].map(method_of) == asked
            if name == "split":
                fits |= (table[name] == "") & fits.any()
            if not fits.any():
                raise unknown(name, asked, sorted(set(table[name])), "these results")
            table = table[fits]
    table = _wide(table) if wide else table
    if only.sort:
        if only.sort not in table:
            raise unknown("column", only.sort, table.columns, "these results")
        numeric = pd.api.types.is_numeric_dtype(table[only.sort])
        table = table.sort_values(only.sort, ascending=not numeric, kind="stable")
    return Results(table, tuple(notes))


def drawn_exhibits(scale: str, reports: Path, asked: str = "") -> list[Exhibit]:
    """List the exhibits of a scale that a folder of reports has; `asked` is one, or a paper.

    Raises:
        FedreproError: if there is none.
    """
    plan = Plan(load_config(), load_exhibits(), scale)
    folder = reports / scale
    drawn = [e for e in plan.exhibits.values() if Path(f"{folder / e.key}.json").exists()]
    recorded = Path(f"reports/record/paper/{asked}.json").exists()
    if recorded and not any(exhibit.key == asked for exhibit in drawn):
        raise FedreproError(
            f"{reports / scale} does not have {asked}; as recorded it is read by "
            "--reports reports/record --scale paper"
        )
    if not drawn:
        raise FedreproError(
            f"{reports / scale} has no exhibit to take results from: draw one (make draws those of "
            "the quick scale), or read the record by --reports reports/record --scale paper"
        )
    exhibits = [
        exhibit for exhibit in drawn if asked in ("", exhibit.key, exhibit.key.partition("/")[0])
    ]
    if not exhibits:
        raise unknown("exhibit", asked, [exhibit.key for exhibit in drawn], f"{reports / scale}")
    return exhibits


def _add(
    rows: dict[tuple[str, ...], dict[str, Any]],
    shown_by: Mapping[str, str],
    added: Sequence[dict[str, Any]],
) -> None:
    for row in added:
        key = tuple(map(str, row.values()))  # a missing sd is not equal to itself
        entry = rows.setdefault(key, {**row, **shown_by})
        shown = entry["exhibits"].split()
        if shown_by["exhibits"] not in shown:
            entry["exhibits"] = " ".join([*shown, shown_by["exhibits"]])


def _rows(exhibit: Exhibit, files: ExhibitFiles, scale: str) -> list[dict[str, Any]]:
    """Return the final values of one exhibit, each with its scenario."""
    text = files.read(".csv").decode()
    points = {tuple(map(comparable_text, point.values.values())): point for point in exhibit.points}
    rows: list[dict[str, Any]] = []
    shown: dict[tuple[Any, ...], tuple[Mapping[str, str], Point, set[str]]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if row.get(ROUND):
            continue
        point = points.get(tuple(comparable_text(row.get(key, "")) for key in exhibit.swept))
        methods = {measure.label: measure.spec for measure in point.measures} if point else {}
        if point is None or row["method"] not in methods:
            raise FedreproError(
                f"{exhibit.key} was drawn with other settings than the config has now, and is "
                f"left out; draw it again with: snakemake --cores 2 reports/{scale}/"
                f"{exhibit.key}{exhibit.suffix}"
            )
        rows.append(_row(row, point, methods[row["method"]]))
        meta = methods[row["method"]].component.meta
        declared = meta.get("metrics", {}) if meta["kind"] in ("federated", "peer") else ()
        place = (id(point), row["method"], row["setting"])
        shown.setdefault(place, (row, point, set(declared)))[2].discard(row["metric"])
    return [*rows, *_reported(files, [entry for entry in shown.values() if entry[2]])]


def _reported(
    files: ExhibitFiles, shown: Sequence[tuple[Mapping[str, str], Point, set[str]]]
) -> Iterator[dict[str, Any]]:
    """Return what methods declare and report of rounds alone, as it was in the last one.

    `shown` has a row of a method at a point, and the metrics that its rows lack.
    """
    if not shown:
        return
    frame = pd.read_parquet(io.BytesIO(files.read(".metrics.parquet")))
    frame = frame[frame["client"].isna() & frame["metric"].isin(set.union(*(s[2] for s in shown)))]
    if "setting" not in frame:  # in files of before there were settings
        frame = frame.assign(setting=frame["method"])
    for row, point, metrics in shown:
        for (label, setting), run in point.runs.items():
            if (label, setting.token) != (row["method"], row["setting"]):
                continue
            own = frame[frame["setting"] == run.rows_of(setting)]
            for spec in specs_of(run.scenario):
                own = own[_is_of(own, spec)]
            for metric in sorted(metrics):
                ends = own[own["metric"] == metric].sort_values("round").groupby("trial")["value"]
                values = [float(value) for value in ends.last(skipna=False)][: int(row["trials"])]
                if len(values) == int(row["trials"]):
                    numbers = {"mean": mean(values), "sd": sd(values) or "", "split": ""}
                    texts = " ".join(f"{value:.10g}" for value in values)
                    number = {**row, **numbers, "metric": metric, "by_trial": texts}
                    yield _row(number, point, setting.method)


def _is_of(rows: pd.DataFrame, spec: Spec) -> pd.Series:
    """Tell which rows of metrics are of a component with its values."""
    fits = rows[f"{spec.kind}_name"] == spec.name
    for key in set(spec.recorded_values) - set(spec.swept):
        if (column := f"{spec.kind}_{key}") in rows:
            value = spec.values[key]
            fits &= (
                rows[column].isna()
                if value is None
                else rows[column].map(comparable_text) == comparable_text(value)
            )
    return fits


def _row(row: Mapping[str, Any], point: Point, method: Spec) -> dict[str, Any]:
    scenario = point.scenario
    return {
        **dict.fromkeys(SCENARIO, ""),
        **{spec.kind: spec.token for spec in specs_of(scenario)},
        "clients": scenario.clients if scenario else 0,
        "method": row["method"],
        "kind": method.component.meta["kind"],
        "setting": row["setting"],
        "metric": row["metric"],
        "split": row["split"],
        "mean": float(row["mean"] or "nan"),
        "sd": float(row["sd"] or "nan"),
        "trials": int(row["trials"]),
        "by_trial": row["by_trial"],
    }


def _wide(table: pd.DataFrame) -> pd.DataFrame:
    """Turn rows into one per scenario and method, a column per metric and split: `accuracy test`.

    Methods that were measured in several numbers of trials have a row for each.
    """
    names = (table["metric"] + " " + table["split"]).str.strip()
    # those of METRICS first, then what methods declare
    order = [*METRICS, *sorted(set(table["metric"]) - set(METRICS))]
    columns = sorted(
        dict.fromkeys(zip(table["metric"], names, strict=True)),
        key=lambda pair: (order.index(pair[0]), pair[1]),
    )
    place = [*PLACE, "trials"]
    cells: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row, name in zip(table.to_dict("records"), names, strict=True):
        place_values = {key: row[key] for key in place}
        cells.setdefault(tuple(place_values.values()), place_values)[name] = row["mean"]
    return pd.DataFrame(list(cells.values()), columns=[*place, *(name for _, name in columns)])


ACROSS = 5  # metrics side by side, in a table as wide as a terminal


@dataclass(frozen=True)
class ScenarioRows:
    """The rows of one scenario as texts. heading: what of the scenario is not that of all."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def common(results: Results) -> list[str]:
    """List what all rows have in common, a line each: `dataset: digits`."""
    table = results.table
    same = [name for name in SCENARIO if table[name].nunique() == 1]
    return [f"{name}: {table[name].iloc[0]}" for name in same if table[name].iloc[0]]


def scenario_blocks(results: Results) -> Iterator[ScenarioRows]:
    """Cut the table into pieces that a terminal is wide enough for, one scenario after another.

    Rows of a scenario keep the order of the table, and scenarios that of their first rows.
    """
    table, place = results.table, [*SCENARIO, "clients"]
    differ = [name for name in place if table[name].nunique() > 1]
    wide = "metric" not in table
    by_scenario: dict[tuple[object, ...], list[dict[Any, Any]]] = {}
    for row in table.to_dict("records"):
        by_scenario.setdefault(tuple(row[name] for name in differ), []).append(row)
    for values, rows in by_scenario.items():
        pairs = zip(differ, values, strict=True)
        heading = ", ".join(f"{name} {value}" for name, value in pairs if value != "")
        yield from _across(heading, rows) if wide else (_down(heading, rows),)


def _down(heading: str, rows: Sequence[Mapping[Any, Any]]) -> ScenarioRows:
    columns = ("method", "setting", "number", "mean", "sd", "trials", "same bytes")
    return ScenarioRows(
        heading,
        columns,
        tuple(
            (
                row["method"],
                _parameters(row["setting"]),
                f"{row['metric']} {row['split']}".strip(),
                _number(row["mean"]),
                _number(row["sd"], 3),
                str(row["trials"]),
                row["same_bytes"],
            )
            for row in rows
        ),
    )


def _across(heading: str, rows: Sequence[Mapping[Any, Any]]) -> Iterator[ScenarioRows]:
    """Lay some metrics out in columns, as far as any of the rows has them."""
    names = [name for name in rows[0] if name not in (*PLACE, "trials")]
    held = [name for name in names if not all(math.isnan(row[name]) for row in rows)]
    for start in range(0, len(held), ACROSS):
        metrics = held[start : start + ACROSS]
        texts = tuple(
            (row["method"], _parameters(row["setting"]), *(_number(row[name]) for name in metrics))
            for row in rows
        )
        yield ScenarioRows(heading, ("method", "setting", *metrics), texts)


def _parameters(setting: str) -> str:
    """Write a setting's token without the name of its method, in words that lines can be cut at."""
    words = setting.removeprefix(method_of(setting)).lstrip("+;")
    return words.replace(";", ", ").replace("+", " ").replace("~", "=")


def _number(value: float, digits: int = 6) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}g}"


def as_csv(results: Results) -> str:
    return csv_text(results.table)
