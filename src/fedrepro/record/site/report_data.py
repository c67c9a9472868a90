"""Read figures, tables, printed values and claims from a folder of results, for the website.

A claim is a sentence of a paper on its results; a check compares one number of ours with a bound.
Clients have "one start" if they trained from equal initial weights, else "different starts".
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.core.checksummed_files import read_checked, read_json
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import TIMES
from fedrepro.core.paper_files import claims_file, published_file
from fedrepro.drawings import tables
from fedrepro.numbers.cost_and_needs_words import megabytes, needs_in_words
from fedrepro.numbers.exhibit_files import ExhibitFiles, open_exhibit, read_claims
from fedrepro.numbers.run_times import spent_by_stage, timings_of
from fedrepro.numbers.tables_and_selection import csv_text, read_csv
from fedrepro.numbers.verdicts.claim_verdicts import COLUMNS
from fedrepro.numbers.verdicts.verdict_counts_and_unreported_settings import Row, resolve
from fedrepro.numbers.verdicts.verdicts_on_printed_values import PRINTED, read_published
from fedrepro.planning.config_files import load_exhibits
from fedrepro.planning.drawing_base import final

LARGE = 64 * 2**10  # bytes of a csv
AS_PRINTED = ("exhibit", "method", "metric", "split", "apart", "set_up", "source", "note")
COUNTED = {"Exchanges": "rounds", "Passes": "passes", "Parameters": "parameters"}


@dataclass(frozen=True)
class ExhibitView:
    """A figure or table for pages: key (paper/name), files, numbers, and rows of printed.csv."""

    key: str
    files: ExhibitFiles
    numbers: pd.DataFrame
    printed: Sequence[Row] = ()

    @property
    def about(self) -> Mapping[str, Any]:
        return self.files.about

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]

    @property
    def csv(self) -> str:
        """Return the ending of the csv's name on the website: .csv, or .csv.gz for a large csv."""
        return ".csv.gz" if os.path.getsize(f"{self.files.base}.csv") > LARGE else ".csv"

    @property
    def alt(self) -> str:
        """Describe the picture to readers who do not see it."""
        labels = ", ".join(method["label"] for method in self.about["methods"])
        return f"{self.about['title']}. Lines for {labels}. The numbers are in the csv."

    @property
    def hours(self) -> float:
        """Return the core-hours that computing the figure or table took; nan if not recorded."""
        spent = self.files.run.get("cpu_seconds") or self.files.run.get("seconds")
        if not self.files.run:
            spent = spent_by_stage(timings_of(self.about)).get("seconds")
        return sum(spent.values()) / 3600 if spent else math.nan

    @property
    def measured(self) -> str:
        """Write which numbers the table has, with their unit, as "Test accuracy, in percent"."""
        meant = tables.metric_meaning(tables.arrangement_of(self.about).metric)
        unit = ", in percent" if meant.unit.startswith("share") else ""
        over = "rounds" if tables.arrangement_of(self.about).metric in TIMES else "trials"
        spread = f", mean ± standard deviation over {over}" if self.about["trials"] > 1 else ""
        return f"{meant.title[0].upper()}{meant.title[1:]}{unit}{spread}"

    def table(self, printed: Sequence[Row]) -> tables.TextTable:
        """Return the numbers as a table, with the paper's values and verdicts from `printed`."""
        rows = pd.DataFrame(printed).fillna("")  # each with the columns of its own table
        frame = read_csv(csv_text(rows.drop(columns="exhibit"))) if printed else None
        return tables.table_of(self.about, self.numbers, tables.arrangement_of(self.about), frame)


@dataclass(frozen=True)
class BoardView:
    """A leaderboard for pages: its json `about`, and tables of scores, seconds and scenarios."""

    about: Mapping[str, Any]
    table: pd.DataFrame
    times: pd.DataFrame
    scenarios: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def key(self) -> str:
        return str(self.about["key"])

    def seconds_of(self, starts: str) -> dict[str, float]:
        """Return {method: server's mean seconds} for clients with `starts`, such as "one start"."""
        rows = self.times.query("metric == 'server_seconds' and starts == @starts")
        return dict(zip(rows["method"], rows["mean"], strict=True))


@dataclass(frozen=True)
class Paper:
    """A paper as the website shows it: figures and tables by name, printed values and claims.

    printed: rows, also of figures and tables that were not run. claims: for each claim, the rows of
    its checks. boards: leaderboards, only of the project's own comparison, which is a Paper too.
    """

    name: str
    title: str
    source: str
    exhibits: Mapping[str, ExhibitView]
    printed: Sequence[Row] = ()
    claims: Sequence[Sequence[Row]] = ()
    boards: Sequence[BoardView] = ()

    @property
    def notes(self) -> dict[str, list[str]]:
        """Return {sentence on what the paper leaves open: names of figures and tables}."""
        notes: dict[str, list[str]] = {}
        for shown in self.exhibits.values():
            for note in shown.about.get("notes", ()):
                notes.setdefault(note, []).append(shown.name)
        return notes

    @property
    def stand_ins(self) -> list[str]:
        """Return sentences on data that were used in place of the paper's own, each once."""
        data = (one for shown in self.exhibits.values() for one in shown.about["data"])
        return list(dict.fromkeys(one["stand_in"] for one in data if one["stand_in"]))

    def printed_of(self, exhibit: str) -> list[Row]:
        return [row for row in self.printed if row["exhibit"] == exhibit and row["mean"]]


@dataclass(frozen=True)
class Reports:
    scale: str
    papers: Sequence[Paper]


def read_reports(folder: Path, scale: str, keys: Sequence[str]) -> Reports:
    """Read figures, tables (`keys`: paper/name) and claims at a `scale` (tiny, …) from `folder`."""
    papers: dict[str, dict[str, ExhibitView]] = {}
    for key in keys:
        files, name = open_exhibit(folder, key, scale), key.partition("/")[2]
        files.read(".choice.csv")  # it is copied, so its checksum is checked here
        printed = files.read(".printed.csv").decode() if files.is_table else ""
        rows = [{"exhibit": name, **row} for row in _rows(printed)]
        shown = ExhibitView(key, files, files.numbers, rows)
        papers.setdefault(shown.about["paper"]["name"], {})[name] = shown
    if not papers:
        raise FedreproError(f"{folder} holds no exhibit; make some first, or record them")
    return Reports(scale, [_paper(folder, name, exhibits) for name, exhibits in papers.items()])


def _rows(text: str) -> csv.DictReader[str]:
    return csv.DictReader(io.StringIO(text, newline=""))


def _paper(folder: Path, name: str, exhibits: Mapping[str, ExhibitView]) -> Paper:
    about, path = next(iter(exhibits.values())).about["paper"], folder / name / "claims.csv"
    # files are left of claims and leaderboards that were taken out
    claims = claims_of(read_claims(path)) if path.exists() and claims_file(name).exists() else []
    numbers = {shown.name: shown.numbers for shown in exhibits.values()}
    printed = [(row, shown.printed) for shown in exhibits.values() for row in shown.printed]
    rows = [resolve(row, numbers.get, claims, of_table) for row, of_table in printed]
    for value in (v for v in read_published(published_file(name)) if v.exhibit not in exhibits):
        own = {key: getattr(value, key) for key in AS_PRINTED}
        spread = "" if value.sd is None else f"{value.sd:g}"
        own |= {"printed": f"{value.value:g}", "printed_sd": spread, "verdict": "not run"}
        rows.append({**dict.fromkeys(PRINTED, ""), **value.cell, **own})
    boards, drawn = [], sorted((folder / name).glob("[1-9]*.groups.svg"), reverse=True)
    file = load_exhibits(of=[name]).get(name) if drawn else None
    bases = (str(path).removesuffix(".groups.svg") for path in drawn)  # newest first
    for base in (base for base in bases if file and Path(base).name in file.boards):
        own = read_json(f"{base}.json", {"key": str, "files": dict, "board": dict})
        texts = (
            read_checked(f"{base}{suffix}", own["files"][suffix], f"{base}.json").decode()
            for suffix in (".csv", ".times.csv", ".scenarios.csv")
        )
        boards.append(BoardView(own, *map(read_csv, texts)))
    return Paper(name, about["title"], about["source"], exhibits, rows, claims, boards)


def claims_of(text: str) -> list[list[dict[str, str]]]:
    """Read the text of a claims.csv; return for each claim a list of rows, one for each check."""
    by_claim: dict[str, list[dict[str, str]]] = {}
    for row in _rows(text):
        # records of an earlier form lack some columns
        by_claim.setdefault(row["claim"], []).append(dict.fromkeys(COLUMNS, "") | row)
    return list(by_claim.values())


def cost_table(about: Mapping[str, Any], numbers: pd.DataFrame) -> list[dict[str, str]]:
    """Return rows of a table on what methods cost and need, each as {column head: text}.

    `about` is the json of a figure or table, `numbers` its csv. There is a row for each method that
    sends bytes; the list is empty if the rows differ only in the method's name.
    """
    by_number = final(numbers).groupby(["method", "metric"])["mean"]
    values = {key: sorted(own.dropna()) for key, own in by_number}
    rows = []
    for method in about["methods"]:
        label = method["label"]
        if not any(sent := values.get((label, "bytes_up"), ())):
            continue
        cells = {"Method": label, "Clients send": _range(sent, megabytes)}
        for head, metric in COUNTED.items():
            found = values.get((label, metric), ())
            cells[head] = _range(found, lambda v: f"{v:,.4g}" if v < 10_000 else f"{v:,.0f}")
        cells["Seconds a round"] = _range(values.get((label, "seconds"), ()), "{:.3g}".format)
        cells["It sees"] = needs_in_words(method["needs"], method.get("sends", ""))
        rows.append(cells)
    heads = [head for head in (rows or [{}])[0] if any(row[head] for row in rows)]
    different = {tuple(row.values())[1:] for row in rows}
    return [{head: row[head] for head in heads} for row in rows] if len(different) > 1 else []


def _range(values: Sequence[float], text: Callable[[float], str]) -> str:
    return " to ".join(dict.fromkeys(text(end) for end in (*values[:1], *values[-1:])))
