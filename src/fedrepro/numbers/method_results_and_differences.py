"""Collect results from figures drawn at a scale (tiny, quick or paper), and compare two methods."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.literature_names_and_setting_tokens import method_of
from fedrepro.core.metrics import all_metrics
from fedrepro.core.params import comparable_text
from fedrepro.core.provenance import same_bytes
from fedrepro.core.registry import SCENARIO, components
from fedrepro.numbers.exhibit_files import ExhibitFiles, command, open_exhibit
from fedrepro.numbers.intervals import interval_of_mean
from fedrepro.numbers.tables_and_selection import leading_columns
from fedrepro.numbers.verdicts.claim_numbers import by_trial
from fedrepro.planning.config_files import load_config, load_exhibits
from fedrepro.planning.drawing_base import ROUND, final
from fedrepro.planning.plan import Exhibit, Plan
from fedrepro.planning.scenarios_runs_and_jobs import clients_of, specs_of

PLACE = (*SCENARIO, "clients", "method", "kind", "setting")
NUMBER = (*PLACE, "metric", "split", "mean", "sd", "trials", "by_trial")
COLUMNS = (*NUMBER, "exhibits", "same_bytes")
CONFIDENCE = 0.95
SIDES = ("method", "other_method")
COMPARED = ("exhibit", *SIDES, "one", "other", "difference", "low", "high", "trials")


def results(
    scale: str = "quick",
    *,
    reports: Path | str = "reports",
    folder: Path | str = ".",
    exhibit: str = "",
    method: str = "",
    metric: str = "",
    split: str = "",
) -> pd.DataFrame:
    """Return a table of every method in every scenario, from figures and tables drawn at a scale.

    A row is one scenario (its components as texts), method, metric and split of examples: mean and
    sample sd of the final value over trials, and its value in each; `exhibits`, the figures and
    tables that show it; `same_bytes`: "yes" if computing the first of them again gives equal bytes,
    or why not. `attrs["notes"]` of the table says which figures cannot be read.

    `reports` is the folder of results in the project's `folder`. Only `exhibit`, paper/name or a
    paper, is read. Rows are kept of `method` (label or name), `metric`, and `split` or no split.

    Raises:
        FedreproError: no drawn figure or table has what is asked for.
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
    once = table.groupby([*NUMBER], sort=False, dropna=False, as_index=False)
    table = once.agg({"exhibits": " ".join, "same_bytes": "first"})
    for name, value in (("method", method), ("metric", metric), ("split", split)):
        if value and len(table):
            fits = table[name] == value
            if name == "method":
                fits |= table["setting"].map(method_of) == value
            if not fits.any():
                raise unknown(name, value, sorted(set(table[name])), "these results")
            table = table[fits | (name == "split") & (table["split"] == "")]
    table.attrs["notes"] = notes
    return table


def drawn_exhibits(scale: str, reports: Path, asked: str = "") -> list[Exhibit]:
    """List the figures and tables drawn at `scale` in `reports`: all, or of a paper or key `asked`.

    Raise FedreproError if there are none. A key is paper/name.
    """
    plan = Plan(load_config(), load_exhibits(), scale)
    folder = reports / scale
    drawn = [e for e in plan.exhibits.values() if Path(f"{folder / e.key}.json").exists()]
    if not drawn:
        said = f"{folder} has no exhibit to take results from: draw one (make: all of quick)"
        fix = "or read the record by --reports reports/record --scale paper"
        raise FedreproError("; ".join([f"{said}, {fix}", *plan.mistakes]))
    exhibits = [one for one in drawn if asked in ("", one.key, one.key.partition("/")[0])]
    if not exhibits:
        known = [exhibit.key for exhibit in drawn]
        raise plan.broken.get(asked) or unknown("exhibit", asked, known, f"{folder}")
    return exhibits


def _rows(exhibit: Exhibit, files: ExhibitFiles, scale: str) -> pd.DataFrame:
    """Return a figure's final values, scenarios' components; raise if another config drew it."""
    points = {tuple(map(comparable_text, point.values.values())): point for point in exhibit.points}
    rows: list[dict[str, Any]] = []
    for row in final(files.table(".csv")).to_dict("records"):
        point = points.get(tuple(comparable_text(row[key]) for key in exhibit.swept))
        methods = {measure.label: measure.spec for measure in point.measures} if point else {}
        if point is None or row["method"] not in methods:
            said = f"{exhibit.key} was drawn with other settings than the config has now, and is"
            fix = f"draw it again with: {command(scale, exhibit.key, exhibit.suffix)}"
            raise FedreproError(f"{said} left out; {fix}")
        scenario = point.scenario
        place = {
            **dict.fromkeys(SCENARIO, ""),
            **{spec.kind: spec.token for spec in specs_of(scenario)},
            "clients": (clients_of(scenario.partition) or "") if scenario else 0,
            "kind": methods[row["method"]].component.meta["kind"],
        }
        rows.append({str(key): value for key, value in row.items()} | place)
    return pd.DataFrame(rows, columns=[*NUMBER])


def common(table: pd.DataFrame) -> list[str]:
    """List components that all rows of a results table share, such as "model: mlp"."""
    same = [name for name in SCENARIO if table[name].nunique() == 1]
    return [f"{name}: {table[name].iloc[0]}" for name in same if table[name].iloc[0]]


def scenario_blocks(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (heading such as "clients 10", table to print) for each scenario of a results table."""
    differ = [name for name in (*SCENARIO, "clients") if table[name].nunique() > 1]
    groups: Any = table.groupby(differ, sort=False) if differ else [((), table)]
    for values, rows in groups:
        pairs = zip(differ, values, strict=True)
        heading = ", ".join(f"{name} {value}" for name, value in pairs if value != "")
        columns = {
            "method": rows["method"],
            "setting": rows["setting"].map(_parameters),
            "number": (rows["metric"] + " " + rows["split"]).str.strip(),
            "mean": rows["mean"].map("{:.6g}".format),
            "sd": rows["sd"].map("{:.3g}".format, na_action="ignore").fillna(""),
            "trials": rows["trials"].astype(str),
            "same bytes": rows["same_bytes"],
        }
        yield heading, pd.DataFrame(columns)


def _parameters(setting: str) -> str:
    """Return the parameter values in a method's text form `setting`, as "lr=0.1, epochs=5"."""
    words = setting.removeprefix(method_of(setting)).lstrip("+;")
    return words.replace(";", ", ").replace("+", " ").replace("~", "=")


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
    these cancels in the difference. Final values with selected parameter values are compared, in
    shared trials. Figures are in `reports`, of one `exhibit` (paper/name) or paper if it is given.
    With one `exhibit`, a parameter of only one method may vary: each of its values is compared.

    Returns:
        A row per combination of swept parameters; equal results in several figures are listed once.
        Columns: `exhibit`, the labels `method` and `other_method`, their means `one` and `other`
        over `trials`, the mean `difference`, its 95 % interval `low` to `high` by Student's t
        (infinite for one trial), and the swept parameters.

    Raises:
        FedreproError: a name is unknown, or no figure or table has both methods.
    """
    if metric not in all_metrics():
        raise unknown("metric", metric, all_metrics())
    if one.lower() == other.lower():
        raise FedreproError(f"{one} is named twice: name two methods")
    rows: list[dict[str, Any]] = []
    shown: dict[tuple[str, ...], str] = {}
    names: set[str] = set()
    for drawn in drawn_exhibits(scale, reports, exhibit):
        table = final(open_exhibit(reports / scale, drawn.key, scale).table(".csv"))
        names |= set(table["method"])
        # what a model costs is measured on no examples
        table = table[(table["metric"] == metric) & table["split"].isin([split, ""])]
        leading = [name for name in leading_columns(table) if name != ROUND]
        first, second = (_named(table, name).assign(all=0) for name in (one, other))
        # in a figure that is asked for by name, what one of them alone shows need not be equal
        both_show = (n for n in leading if first[n].notna().any() and second[n].notna().any())
        on = list(both_show) if exhibit == drawn.key else leading
        both = first.merge(second, on=["all", *on], suffixes=("", "_other"))
        for row in both[both["method"] != both["method_other"]].to_dict("records"):
            texts = row["by_trial"], row["by_trial_other"]
            left, right = by_trial([tuple(map(float, text.split())) for text in texts]).T
            found = interval_of_mean(left - right, CONFIDENCE)
            labels, means = (row["method"], row["method_other"]), (left.mean(), right.mean())
            ends = found.value, found.low, found.high
            cells = dict(zip(COMPARED, (drawn.key, *labels, *means, *ends, len(left)), strict=True))
            place = {n: row[n] if pd.notna(row[n]) else row.get(f"{n}_other") for n in leading}
            runs = row["setting"], row["setting_other"], *texts
            if shown.setdefault(runs, drawn.key) == drawn.key:  # a figure may join others' points
                rows.append({"exhibit": drawn.key, **place, **cells})
    if rows:
        return pd.DataFrame(rows)
    for method in (one, other):
        if method not in names and method not in components("method"):
            raise unknown("method", method, names, "the drawn exhibits")
    said = f"no drawn exhibit has {metric} {split} of both {one} and {other} at one point"
    raise FedreproError(f"{said}: put both into the methods of an exhibit, and draw it")


def _named(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the csv rows of the method with the label `name`, or else with this name."""
    own = table[table["method"] == name]
    called = table["setting"].map(method_of) == name
    return own if len(own) else table[called | (table["method"].str.lower() == name.lower())]


def point_words(row: Mapping[Any, Any]) -> str:
    """Write the scenario in a `row` of `paired_differences` as text: "clients 10, alpha 0.1"."""
    known = {key: value for key, value in row.items() if key not in COMPARED and pd.notna(value)}
    return ", ".join(f"{key} {value}" for key, value in known.items() if value != "")


def paired_verdict(differences: pd.DataFrame, metric: str, one: str, other: str) -> str:
    """Say at how many rows of `paired_differences` in `metric` `one` is better or worse."""
    better = all_metrics()[metric].better
    above, below = int((differences["low"] > 0).sum()), int((differences["high"] < 0).sum())
    more, less = (above, below) if (better or 1) > 0 else (below, above)
    words = ("better", "worse") if better else ("larger", "smaller")
    without = int((~np.isfinite(differences["difference"])).sum())
    level = len(differences) - more - less - without
    return (
        f"{one} is {words[0]} than {other} at {more} of {len(differences)} points, {words[1]} at "
        f"{less}, {f'without a number at {without}, ' if without else ''}and not separated at "
        f"{level} (95 % intervals of the paired difference, each point by itself)"
    )
