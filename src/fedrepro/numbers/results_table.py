"""Collect the results of every method from drawn figures and tables, and compare two methods."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.core.component_notation import method_of
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.metrics import METRICS, all_metrics
from fedrepro.core.params import comparable_text
from fedrepro.core.provenance import same_bytes
from fedrepro.core.registry import SCENARIO, components
from fedrepro.core.spec import Spec
from fedrepro.numbers.exhibit_files import ExhibitFiles, command_of, open_exhibit
from fedrepro.numbers.exhibit_tables import ROUND, leading_columns
from fedrepro.numbers.intervals import interval_of_mean
from fedrepro.numbers.trial_statistics import over_trials
from fedrepro.planning.config import load_config, load_exhibits
from fedrepro.planning.figure_interface import final
from fedrepro.planning.jobs import specs_of
from fedrepro.planning.plan import Exhibit, Plan, Point

PLACE = (*SCENARIO, "clients", "method", "kind", "setting")
COLUMNS = (*PLACE, "metric", "split", "mean", "sd", "trials", "by_trial", "exhibits", "same_bytes")
ACROSS = 5  # metrics side by side, in a table as wide as a terminal
CONFIDENCE = 0.95
RUNS = ("setting", "by_trial")  # columns that tell runs from others
SIDES = ("method", "other_method")
COMPARED = ("exhibit", *SIDES, "one", "other", "difference", "low", "high", "trials", "also")


def results(
    scale: str = "quick",
    *,
    wide: bool = False,
    reports: Path | str = "reports",
    folder: Path | str = ".",
    exhibit: str = "",
    method: str = "",
    metric: str = "",
    split: str = "",
    sort: str = "",
) -> pd.DataFrame:
    """Return a table of every method in every scenario, from figures and tables drawn at a scale.

    A row is one scenario, method, metric and split of examples: with the scenario's components as
    texts, mean and sample sd of the final value over trials, and its value in each; `exhibits`, the
    figures and tables that show it; `same_bytes`: "yes" if computing the first of them again gives
    equal bytes, or why not. `attrs["notes"]` says which figures cannot be read.

    If `wide`, a row is a scenario and method, with a column of means per metric and split.
    `exhibit` is a figure or table (paper/name), or a paper, to be read alone; `method` is a label
    or name; rows on costs have every `split`. Text is sorted alphabetically, numbers from the
    largest.

    Raises:
        FedreproError: nothing drawn is what is asked for.
    """
    tables, notes = [pd.DataFrame(columns=[*COLUMNS])], list[str]()
    with contextlib.chdir(folder):
        for drawn in drawn_exhibits(scale, Path(reports), exhibit):
            try:
                files = open_exhibit(Path(reports, scale), drawn.key, scale)
                shown = {"exhibits": drawn.key, "same_bytes": same_bytes(files.about)}
                tables.append(_rows(drawn, files, scale).assign(**shown))
            except FedreproError as error:
                notes.append(str(error))
    table = pd.concat(tables[1:] or tables, ignore_index=True)
    # numbers that several exhibits show stand once
    once = table.groupby([*COLUMNS[:-2]], sort=False, dropna=False)
    names = once["exhibits"].transform(lambda keys: " ".join(dict.fromkeys(keys)))
    table = table.assign(exhibits=names).drop_duplicates([*COLUMNS[:-2]], ignore_index=True)
    for name, value in (("method", method), ("metric", metric), ("split", split)):
        if value and len(table):
            fits = table[name] == value
            if name == "method":
                fits |= table["setting"].map(method_of) == value
            if not fits.any():
                raise unknown(name, value, sorted(set(table[name])), "these results")
            table = table[fits | (name == "split") & (table["split"] == "")]
    table = _wide(table) if wide else table
    if sort:
        if sort not in table:
            raise unknown("column", sort, table.columns, "these results")
        words = not pd.api.types.is_numeric_dtype(table[sort])
        table = table.sort_values(sort, ascending=words, kind="stable")
    table.attrs["notes"] = notes
    return table


def drawn_exhibits(scale: str, reports: Path, asked: str = "") -> list[Exhibit]:
    """List the exhibits drawn at a `scale` in `reports`, all or those of the paper or key `asked`.

    Raise FedreproError if there are none.
    """
    plan = Plan(load_config(), load_exhibits(), scale)
    folder = reports / scale
    drawn = [e for e in plan.exhibits.values() if Path(f"{folder / e.key}.json").exists()]
    recorded = Path(f"reports/record/paper/{asked}.json").exists()
    if recorded and asked not in [one.key for one in drawn]:
        raise FedreproError(
            f"{folder} does not have {asked}; as recorded it is read by "
            "--reports reports/record --scale paper"
        )
    if not drawn:
        raise FedreproError(
            f"{folder} has no exhibit to take results from: draw one (make draws those of the "
            "quick scale), or read the record by --reports reports/record --scale paper"
        )
    exhibits = [one for one in drawn if asked in ("", one.key, one.key.partition("/")[0])]
    if not exhibits:
        raise unknown("exhibit", asked, [exhibit.key for exhibit in drawn], f"{folder}")
    return exhibits


def _rows(exhibit: Exhibit, files: ExhibitFiles, scale: str) -> pd.DataFrame:
    """Return the final values in a figure's csv, each with its data set, partition and model.

    `scale` is the size of its experiments, such as quick. Raise FedreproError if it is outdated.
    """
    points = {tuple(map(comparable_text, point.values.values())): point for point in exhibit.points}
    rows: list[dict[str, Any]] = []
    lacking: dict[tuple[Any, ...], tuple[Mapping[Any, Any], Point, set[str]]] = {}
    for row in final(files.table(".csv")).to_dict("records"):
        point = points.get(tuple(comparable_text(row[key]) for key in exhibit.swept))
        methods = {measure.label: measure.spec for measure in point.measures} if point else {}
        if point is None or row["method"] not in methods:
            raise FedreproError(
                f"{exhibit.key} was drawn with other settings than the config has now, and is "
                f"left out; draw it again with: {command_of(exhibit, scale)}"
            )
        rows.append(_row(row, point, methods[row["method"]]))
        meta = methods[row["method"]].component.meta
        declared = meta.get("metrics", {}) if meta["kind"] in ("federated", "peer") else ()
        place = (id(point), row["method"], row["setting"])
        lacking.setdefault(place, (row, point, set(declared)))[2].discard(row["metric"])
    rows += _reported(files, [entry for entry in lacking.values() if entry[2]])
    return pd.DataFrame(rows, columns=[*COLUMNS[:-2]])


def _reported(
    files: ExhibitFiles, lacking: Sequence[tuple[Mapping[Any, Any], Point, set[str]]]
) -> Iterator[dict[str, Any]]:
    """Yield rows of last values for metrics that methods report per round, but a csv lacks.

    `lacking` has (csv row of the method, point of the figure, names of the metrics).
    """
    if not lacking:
        return
    frame = files.metrics
    frame = frame[frame["client"].isna()]
    if "setting" not in frame:  # in files of before there were settings
        frame = frame.assign(setting=frame["method"])
    for row, point, metrics in lacking:
        for (label, setting), run in point.runs.items():
            if (label, setting.token) != (row["method"], row["setting"]):
                continue
            own = frame[(frame["setting"] == run.rows_of(setting)) & frame["metric"].isin(metrics)]
            for spec in specs_of(run.scenario):
                own = own[own[f"{spec.kind}_name"] == spec.name]
                for key in set(spec.recorded_values) - set(spec.swept):
                    if (column := f"{spec.kind}_{key}") in own:
                        value, written = spec.values[key], own[column]
                        same = written.map(comparable_text) == comparable_text(value)
                        own = own[written.isna() if value is None else same]
            for metric in sorted(metrics):
                ends = own[own["metric"] == metric].sort_values("round").groupby("trial")["value"]
                values = [float(value) for value in ends.last(skipna=False)][: int(row["trials"])]
                if len(values) == int(row["trials"]):
                    number = {**row, **over_trials(values), "metric": metric, "split": ""}
                    yield _row(number, point, setting.method)


def _row(row: Mapping[Any, Any], point: Point, method: Spec) -> dict[str, Any]:
    scenario = point.scenario
    return {
        **dict.fromkeys(SCENARIO, ""),
        **{spec.kind: spec.token for spec in specs_of(scenario)},
        "clients": scenario.clients if scenario else 0,
        "kind": method.component.meta["kind"],
        **{key: row[key] for key in ("method", "setting", "metric", "split", "by_trial", "trials")},
        **{key: float("nan" if row[key] is None else row[key]) for key in ("mean", "sd")},
    }


def _wide(table: pd.DataFrame) -> pd.DataFrame:
    order = [*METRICS, *sorted(set(table["metric"]) - set(METRICS))]
    pairs = set(zip(table["metric"], table["split"], strict=True))
    names = [" ".join(p).strip() for p in sorted(pairs, key=lambda p: (order.index(p[0]), p[1]))]
    place = [*PLACE, "trials"]
    cells: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in table.to_dict("records"):
        own = cells.setdefault(tuple(row[key] for key in place), {key: row[key] for key in place})
        own[f"{row['metric']} {row['split']}".strip()] = row["mean"]
    return pd.DataFrame(list(cells.values()), columns=[*place, *names])


def common(table: pd.DataFrame) -> list[str]:
    """List components that all rows of a results table share, such as "model: mlp"."""
    same = [name for name in SCENARIO if table[name].nunique() == 1]
    return [f"{name}: {table[name].iloc[0]}" for name in same if table[name].iloc[0]]


def scenario_blocks(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield a heading (varying components) and a table for a terminal, for each scenario."""
    differ = [name for name in (*SCENARIO, "clients") if table[name].nunique() > 1]
    groups: Any = table.groupby(differ, sort=False) if differ else [((), table)]
    for values, rows in groups:
        pairs = zip(differ, values, strict=True)
        heading = ", ".join(f"{name} {value}" for name, value in pairs if value != "")
        piece = rows[["method"]].assign(setting=rows["setting"].map(_parameters))
        if "metric" in table:
            piece["number"] = (rows["metric"] + " " + rows["split"]).str.strip()
            piece["mean"] = rows["mean"].map(_number)
            piece["sd"] = rows["sd"].map(lambda sd: _number(sd, 3))
            piece["trials"] = rows["trials"].astype(str)
            yield heading, piece.assign(**{"same bytes": rows["same_bytes"]})
            continue
        held = rows.drop(columns=[*PLACE, "trials"]).dropna(axis=1, how="all")
        for start in range(0, held.shape[1], ACROSS):
            some = held.iloc[:, start : start + ACROSS]
            yield heading, piece.join(some.apply(lambda column: column.map(_number)))


def _parameters(setting: str) -> str:
    """Return the parameter values in a method's text form `setting`, as "lr=0.1, epochs=5"."""
    words = setting.removeprefix(method_of(setting)).lstrip("+;")
    return words.replace(";", ", ").replace("+", " ").replace("~", "=")


def _number(value: float, digits: int = 6) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}g}"


def paired_differences(
    scale: str,
    one: str,
    other: str,
    reports: Path,
    metric: str = "accuracy",
    split: str = "test",
    exhibit: str = "",
) -> pd.DataFrame:
    """Compare the methods `one` and `other` (labels or names) wherever drawn figures show both.

    In a trial both have equal data, partition and, if one-shot, local models, so variation from
    these cancels in the difference. Compared are final values with selected parameter values, in
    shared trials. `exhibit` restricts figures to one, or to one paper's.

    Returns:
        A row per point of a figure, with the columns COMPARED: both labels, their means over
        `trials`, the mean difference with its interval by Student's t at CONFIDENCE (infinite for
        one trial), `also` (other figures that show the runs); and the swept parameters.

    Raises:
        FedreproError: no figure or table has both methods.
    """
    if metric not in all_metrics():
        raise unknown("metric", metric, all_metrics())
    if one.lower() == other.lower():
        raise FedreproError(f"{one} is named twice: name two methods")
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    names: set[str] = set()
    splits: set[str] = set()
    for drawn in drawn_exhibits(scale, reports, exhibit):
        table = final(open_exhibit(reports / scale, drawn.key, scale).table(".csv"))
        names |= set(table["method"])
        table = table[table["metric"] == metric]
        splits |= set(table["split"]) - {""}
        # what a model costs is measured on no examples
        table = table[table["split"].isin([split, ""])]
        for runs, row in _of_exhibit(drawn.key, table, one, other):
            if (known := rows.setdefault(runs, row)) is not row:
                known["also"] = (*known["also"], drawn.key)
    if rows:
        return pd.DataFrame(list(rows.values()))
    for method in (one, other):
        if method not in names and method not in components("method"):
            raise unknown("method", method, names, "the drawn exhibits")
    if splits and split not in splits:
        raise unknown("split", split, splits, "the drawn exhibits")
    raise FedreproError(
        f"no drawn exhibit has {metric} {split} of both {one} and {other} at one point: put "
        "both into the methods of an exhibit, and draw it"
    )


def _of_exhibit(
    key: str, table: pd.DataFrame, one: str, other: str
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Compare methods `one` and `other` at each point of `table`, the csv of the exhibit `key`.

    Yields (the columns RUNS of both as texts, to recognize equal runs; a row of the comparison).
    """
    leading = [name for name in leading_columns(table) if name != ROUND]
    points: dict[tuple[str, ...], list[Mapping[Any, Any]]] = {}
    for row in table.to_dict("records"):
        place = tuple("" if pd.isna(row[name]) else str(row[name]) for name in leading)
        points.setdefault(place, []).append(row)
    for place, rows in points.items():
        pairs = itertools.product(_named(rows, one), _named(rows, other))
        for pair in (pair for pair in pairs if pair[0] is not pair[1]):
            values = [np.array(row["by_trial"].split(), float) for row in pair]
            count = min(map(len, values))
            left, right = (own[:count] for own in values)
            found = interval_of_mean(left - right, CONFIDENCE)
            labels = (row["method"] for row in pair)
            means = float(left.mean()), float(right.mean())
            cells = (key, *labels, *means, found.value, found.low, found.high, count, ())
            identity = tuple(str(row[name]) for row in pair for name in RUNS)
            known = dict(zip(COMPARED, cells, strict=True))
            yield identity, {"exhibit": key, **dict(zip(leading, place, strict=True)), **known}


def _named(rows: Sequence[Mapping[Any, Any]], name: str) -> list[Mapping[Any, Any]]:
    """Return the csv rows of the method with the label `name`, or else with this name."""

    def called(row: Mapping[Any, Any]) -> bool:
        return name == method_of(row["setting"]) or name.lower() == row["method"].lower()

    return [row for row in rows if row["method"] == name] or [*filter(called, rows)]


def point_words(row: Mapping[Any, Any]) -> str:
    """Write the scenario in a `row` of `paired_differences` as text: "clients 10, alpha 0.1"."""
    known = {key: value for key, value in row.items() if key not in COMPARED and pd.notna(value)}
    return ", ".join(f"{key} {value}" for key, value in known.items() if value != "")


def sides(differences: pd.DataFrame, one: str, other: str) -> tuple[str, str]:
    """Return names for two compared methods: their labels, or `one`, `other` if labels vary."""
    first, second = (set(differences[side]) for side in SIDES)
    return first.pop() if len(first) == 1 else one, second.pop() if len(second) == 1 else other


def paired_verdict(differences: pd.DataFrame, metric: str, names: tuple[str, str]) -> str:
    """Say at how many points the first of `names` is better, worse or not distinguishable."""
    better = all_metrics()[metric].better
    above, below = int((differences["low"] > 0).sum()), int((differences["high"] < 0).sum())
    more, less = (above, below) if (better or 1) > 0 else (below, above)
    words = ("better", "worse") if better else ("larger", "smaller")
    return (
        f"{names[0]} is {words[0]} than {names[1]} at {more} of {len(differences)} points, "
        f"{words[1]} at {less}, and not told apart at {len(differences) - more - less} (95 % "
        "intervals of the paired difference, each point by itself)"
    )
