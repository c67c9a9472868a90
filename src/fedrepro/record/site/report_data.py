"""Read figures, tables, printed values and claims from a folder of results, for the website.

The folder is reports/<scale> or reports/record/<scale> (kept results); nothing else is needed, so
both become pages in the same way.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.core.artifacts import read_checked, read_json
from fedrepro.core.errors import FedreproError
from fedrepro.core.paper_files import published_file
from fedrepro.drawings.tables import (
    TextTable,
    arrangement_of,
    fixed_keys,
    metric_meaning,
    table_of,
)
from fedrepro.numbers.exhibit_files import ExhibitFiles, open_exhibit, read_claims
from fedrepro.numbers.exhibit_tables import csv_text, read_csv
from fedrepro.numbers.run_times import exhibit_seconds, of_methods, seconds_by_setting, timings_of
from fedrepro.numbers.verdicts.printed_verdicts import PrintedValue, read_published
from fedrepro.numbers.verdicts.summary_sentences import resolve

Row = Mapping[str, str]
OF_CLAIMS = (
    *("claim", "verdict", "note", "label", "fixed", "place", "says", "reading", "check"),
    *("check_verdict", "at", "value", "low", "high", "confidence", "bound", "points"),
    *("trials", "trials_needed", "missing", "reason"),
)
LARGE = 64 * 2**10  # bytes of a csv


@dataclass(frozen=True)
class ExhibitView:
    """A figure or table for pages: key (paper/name), files, numbers, and the paper's values."""

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
        large = Path(f"{self.files.base}.csv").stat().st_size > LARGE
        return ".csv.gz" if large else ".csv"

    @property
    def alt(self) -> str:
        """Return a text that describes the picture to readers who do not see it."""
        labels = ", ".join(method["label"] for method in self.about["methods"])
        return f"{self.about['title']}. Lines for {labels}. The numbers are in the csv."

    @property
    def hours(self) -> float:
        """Return the core-hours that computing the figure or table took; nan if not recorded."""
        spent = self.files.run.get("cpu_seconds") or self.files.run.get("seconds")
        if not self.files.run:
            timings = timings_of(self.about)
            there = all(path.exists() for path in of_methods(timings))
            spent = exhibit_seconds(timings) if there else None
        return sum(spent.values()) / 3600 if spent else math.nan

    @property
    def seconds(self) -> Mapping[str, Sequence[float]]:
        """Return {method with parameters, as text: mean seconds of a trial, one per timings file}.

        {} if timings files are missing, as they are for recorded results.
        """
        timings = [] if self.files.run else of_methods(timings_of(self.about))
        return seconds_by_setting(timings) if all(path.exists() for path in timings) else {}

    @property
    def held(self) -> str:
        """Write what all numbers of the figure or table share: data, parameters, and trials."""
        return fixed_keys(self.about, self.numbers)

    @property
    def measured(self) -> str:
        """Write which numbers the table has, with their unit, as "Test accuracy, in percent"."""
        meant = metric_meaning(arrangement_of(self.about).metric)
        unit = ", in percent" if meant.unit.startswith("share") else ""
        spread = ", mean ± standard deviation over trials" if self.about["trials"] > 1 else ""
        return f"{meant.title[0].upper()}{meant.title[1:]}{unit}{spread}"

    def table(self, printed: Sequence[Row]) -> TextTable:
        """Return the numbers as a table, with the paper's values and verdicts from `printed`."""
        rows = pd.DataFrame(printed).fillna("")  # each with the columns of its own table
        frame = read_csv(csv_text(rows.drop(columns="exhibit"))) if printed else None
        return table_of(self.about, self.numbers, arrangement_of(self.about), frame)


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
        """Return the server's seconds by method; `starts` is "one start" or "different starts"."""
        rows = self.times[self.times["metric"] == "server_seconds"]
        own = rows[rows["starts"] == starts].set_index("method")["mean"]
        return {str(method): float(value) for method, value in own.items()}


@dataclass(frozen=True)
class Paper:
    """A paper as the website shows it: figures and tables by name, printed values and claims.

    printed: rows of printed values, also of figures and tables that were not run. claims: for each
    claim, the rows of its checks. boards: leaderboards, which only the project's own comparison
    has; it is stored like a paper.
    """

    name: str
    title: str
    source: str
    exhibits: Mapping[str, ExhibitView]
    printed: Sequence[Row] = ()
    claims: Sequence[Sequence[Row]] = ()
    boards: Sequence[BoardView] = ()

    @cached_property
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
    """All papers of a folder of results, and drawings of partitions (`maps`) and of graphs."""

    scale: str
    papers: Sequence[Paper]
    maps: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    graphs: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @property
    def stand_ins(self) -> list[str]:
        """Return sentences on data that were used in place of the papers' own, each once."""
        return list(dict.fromkeys(note for paper in self.papers for note in paper.stand_ins))


def read_reports(folder: Path, scale: str, keys: Sequence[str]) -> Reports:
    """Read figures and tables (`keys`, as paper/name) and their papers' claims from `folder`.

    Raises:
        FedreproError: if files are missing, damaged or of another scale (tiny, quick or paper).
    """
    papers: dict[str, dict[str, ExhibitView]] = {}
    for key in keys:
        files = open_exhibit(folder, key, scale)
        files.read(".choice.csv")  # it is copied, so its checksum is checked here
        printed = files.read(".printed.csv").decode() if files.is_table else ""
        name = key.partition("/")[2]
        rows = [{"exhibit": name, **row} for row in _rows(printed)]
        shown = ExhibitView(key, files, files.numbers, rows)
        papers.setdefault(shown.about["paper"]["name"], {})[name] = shown
    if not papers:
        raise FedreproError(f"{folder} holds no exhibit; make some first, or record them")
    return Reports(scale, [_paper(folder, name, exhibits) for name, exhibits in papers.items()])


def _rows(text: str) -> csv.DictReader[str]:
    return csv.DictReader(io.StringIO(text, newline=""))


def _paper(folder: Path, name: str, exhibits: Mapping[str, ExhibitView]) -> Paper:
    about = next(iter(exhibits.values())).about["paper"]
    numbers = {shown.name: shown.numbers for shown in exhibits.values()}
    claims = folder / name / "claims.csv"
    claim_rows = claims_of(read_claims(claims)) if claims.exists() else []
    rows = [
        resolve(row, numbers.get, claim_rows, shown.printed)
        for shown in exhibits.values()
        for row in shown.printed
    ]
    values = read_published(published_file(name))
    rows += [_not_run(value) for value in values if value.exhibit not in exhibits]
    boards = []
    for drawn in sorted((folder / name).glob("[1-9]*.groups.svg")):
        base = str(drawn).removesuffix(".groups.svg")
        described = Path(f"{base}.json")
        own = read_json(described, {"key": str, "files": dict, "board": dict})
        tables = (
            read_csv(read_checked(f"{base}{suffix}", own["files"][suffix], described).decode())
            for suffix in (".csv", ".times.csv", ".scenarios.csv")
        )
        boards.append(BoardView(own, *tables))
    return Paper(name, about["title"], about["source"], exhibits, rows, claim_rows, boards)


def _not_run(value: PrintedValue) -> dict[str, str]:
    absent = dict.fromkeys(("mean", "sd", "trials", "difference", "tolerance", "noise"), "")
    sd = "" if value.sd is None else f"{value.sd:g}"
    cell = {"exhibit": value.exhibit, **value.cell}
    cell |= {key: getattr(value, key) for key in ("method", "metric", "split")}
    notes = {key: getattr(value, key) for key in ("apart", "set_up", "source", "note")}
    numbers = {"printed": f"{value.value:g}", "printed_sd": sd, **absent}
    return {**cell, **numbers, "verdict": "not run", **notes}


def claims_of(text: str) -> list[list[dict[str, str]]]:
    """Read the text of a claims.csv; return for each claim a list of rows, one for each check."""
    by_claim: dict[str, list[dict[str, str]]] = {}
    for row in _rows(text):
        # records of an earlier form lack some columns
        by_claim.setdefault(row["claim"], []).append(dict.fromkeys(OF_CLAIMS, "") | row)
    return list(by_claim.values())


def drawings_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return descriptions of the drawings (partitions or graphs) in `folder`, with images."""
    name = "maps.json" if kind == "partitions" else "graphs.json"
    entries: list[dict[str, Any]] = read_json(folder / name, {kind: list}, folder)[kind]
    return [entry | {"image": f"{folder.name}/{entry['image']}"} for entry in entries]
