"""Exhibits, printed values and claims, read from a folder of reports for the pages.

A folder of reports is reports/<scale> or reports/record/<scale>; nothing else is needed, so that
the record and a scale that was just drawn become pages in the same way.
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

from fedrepro.core.artifacts import read_checked, read_json_of
from fedrepro.core.errors import FedreproError
from fedrepro.core.paper_files import published_file
from fedrepro.drawings.tables import (
    TextTable,
    arrangement_of,
    cell_text,
    fixed_keys,
    metric_meaning,
    table_of,
)
from fedrepro.numbers.exhibit_files import ExhibitFiles, open_exhibit, read_claims
from fedrepro.numbers.exhibit_tables import csv_text, read_csv
from fedrepro.numbers.run_times import exhibit_seconds, of_methods, seconds_by_setting, timings_of
from fedrepro.numbers.trial_statistics import select_series
from fedrepro.numbers.verdicts.printed_verdicts import (
    DIFFERENT,
    FEW,
    ONE,
    OPEN,
    ROUNDING,
    UNDECIDED,
    PrintedValue,
    difference,
    read_published,
)
from fedrepro.numbers.verdicts.summary_sentences import own_verdict, resolve
from fedrepro.planning.figure_interface import final

Row = Mapping[str, str]
OF_CLAIMS = (
    *("claim", "verdict", "note", "label", "fixed", "place", "says", "reading", "check"),
    *("check_verdict", "at", "value", "low", "high", "confidence", "bound", "points"),
    *("trials", "trials_needed", "missing", "reason"),
)
LARGE = 128 * 2**10  # bytes of a csv
JUDGED_HERE = ("reproduced", *DIFFERENT, ONE, FEW, UNDECIDED, OPEN)


@dataclass(frozen=True)
class ExhibitView:
    """An exhibit: its json, its numbers, and the rows of its printed values as text."""

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
        """Return the ending of its numbers on the site: large ones are compressed."""
        large = Path(f"{self.files.base}.csv").stat().st_size > LARGE
        return ".csv.gz" if large else ".csv"

    @property
    def is_table(self) -> bool:
        return self.files.is_table

    @property
    def alt(self) -> str:
        """Describe the picture for those who do not see it."""
        labels = ", ".join(method["label"] for method in self.about["methods"])
        return f"{self.about['title']}. Lines for {labels}. The numbers are in the csv."

    @property
    def hours(self) -> float:
        """Return the core-hours of all that it was computed from; nan if they are not recorded."""
        spent = self.files.run.get("cpu_seconds") or self.files.run.get("seconds")
        if not self.files.run:
            timings = timings_of(self.about)
            there = all(path.exists() for path in of_methods(timings))
            spent = exhibit_seconds(timings) if there else None
        return sum(spent.values()) / 3600 if spent else math.nan

    @property
    def seconds(self) -> Mapping[str, Sequence[float]]:
        """Return measured seconds of a trial by setting; empty for a record, which lacks them."""
        timings = [] if self.files.run else of_methods(timings_of(self.about))
        return seconds_by_setting(timings) if all(path.exists() for path in timings) else {}

    def table(self, printed: Sequence[Row]) -> TextTable:
        """Return the exhibit's own table, with these verdicts on printed values."""
        rows = pd.DataFrame(printed).fillna("")  # each with the columns of its own table
        frame = read_csv(csv_text(rows.drop(columns="exhibit"))) if printed else None
        return table_of(self.about, self.numbers, arrangement_of(self.about), frame)

    @property
    def held(self) -> str:
        """Return data and trials, each data set once."""
        titles, dot, rest = fixed_keys(self.about, self.numbers).partition(" · ")
        return ", ".join(dict.fromkeys(titles.split(", "))) + dot + rest

    @property
    def measured(self) -> str:
        """Name the numbers of a table, with their unit."""
        meant = metric_meaning(arrangement_of(self.about).metric)
        unit = ", in percent" if meant.unit.startswith("share") else ""
        spread = ", mean ± standard deviation over trials" if self.about["trials"] > 1 else ""
        return f"{meant.title[0].upper()}{meant.title[1:]}{unit}{spread}"


@dataclass(frozen=True)
class BoardView:
    """A leaderboard: its json, table, measured seconds by start and method, and scenarios."""

    about: Mapping[str, Any]
    table: pd.DataFrame
    times: pd.DataFrame
    scenarios: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def key(self) -> str:
        return str(self.about["key"])


@dataclass(frozen=True)
class Paper:
    """A paper: its exhibits by name, every value that it printed, and its claims.

    printed: rows of the exhibits that are there, and of those that are not run. boards: of our own
    comparison, which has the form of a paper.
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
        """Return what the paper leaves open: each sentence once, with its exhibits."""
        notes: dict[str, list[str]] = {}
        for shown in self.exhibits.values():
            for note in shown.about.get("notes", ()):
                notes.setdefault(note, []).append(shown.name)
        return notes

    @property
    def stand_ins(self) -> list[str]:
        """Return sentences on data that stand in for the paper's."""
        sentences = (
            data["stand_in"] for shown in self.exhibits.values() for data in shown.about["data"]
        )
        return list(dict.fromkeys(filter(None, sentences)))

    @cached_property
    def parts(self) -> dict[str, list[str]]:
        """Map each figure to others that hold all of its numbers between them."""
        rows = {
            name: {  # each row as its columns that hold something, whatever its case
                tuple((key, one) for key, one in row.items() if key != "case" and pd.notna(one))
                for row in shown.numbers.to_dict("records")
            }
            for name, shown in self.exhibits.items()
        }
        parts: dict[str, list[str]] = {}
        for name, whole in rows.items():
            within = [other for other, some in rows.items() if some < whole]
            held = set().union(*(rows[other] for other in within))
            if held == whole and not self.exhibits[name].is_table:
                parts[name] = within
        return {name: [one for one in within if one not in parts] for name, within in parts.items()}

    def printed_of(self, exhibit: str) -> list[Row]:
        return [row for row in self.printed if row["exhibit"] == exhibit and row["mean"]]


@dataclass(frozen=True)
class Reports:
    """All papers of a folder, with any drawings of partitions (`maps`) and of graphs."""

    scale: str
    papers: Sequence[Paper]
    maps: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    graphs: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @property
    def stand_ins(self) -> list[str]:
        """Return sentences on data that stand in for those of the papers."""
        return list(dict.fromkeys(note for paper in self.papers for note in paper.stand_ins))


def read_reports(folder: Path, scale: str, keys: Sequence[str]) -> Reports:
    """Read the exhibits `keys` (paper/name) of a folder, by paper.

    Raises:
        FedreproError: if files are missing, damaged or of another scale.
    """
    papers: dict[str, dict[str, ExhibitView]] = {}
    for key in keys:
        shown = _shown(folder, key, scale)
        papers.setdefault(shown.about["paper"]["name"], {})[shown.name] = shown
    if not papers:
        raise FedreproError(f"{folder} holds no exhibit; make some first, or record them")
    return Reports(scale, [_paper(folder, name, exhibits) for name, exhibits in papers.items()])


def _shown(folder: Path, key: str, scale: str) -> ExhibitView:
    files = open_exhibit(folder, key, scale)
    files.read(".choice.csv")  # it is copied, so its checksum is checked here
    text, numbers = files.read(".printed.csv").decode() if files.is_table else "", files.numbers
    rows = [
        {"exhibit": key.partition("/")[2], **judged_again(row, numbers)}
        for row in csv.DictReader(io.StringIO(text, newline=""))
    ]
    return ExhibitView(key, files, numbers, rows)


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
        base = drawn.with_name(drawn.name.removesuffix(".groups.svg"))
        described = Path(f"{base}.json")
        own = read_json_of(described, {"key": str, "files": dict, "board": dict})
        tables = (
            read_csv(read_checked(f"{base}{suffix}", own["files"][suffix], described).decode())
            for suffix in (".csv", ".times.csv", ".scenarios.csv")
        )
        boards.append(BoardView(own, *tables))
    return Paper(name, about["title"], about["source"], exhibits, rows, claim_rows, boards)


def maps_of(folder: Path) -> list[dict[str, Any]]:
    """Read the list of the drawings of partitions in `folder`."""
    return _drawings(folder, "maps.json", "partitions")


def graphs_of(folder: Path) -> list[dict[str, Any]]:
    """Read the list of the drawings of graphs in `folder`."""
    return _drawings(folder, "graphs.json", "graphs")


def _drawings(folder: Path, name: str, what: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = read_json_of(folder / name, {what: list}, folder)[what]
    return [entry | {"image": f"{folder.name}/{entry['image']}"} for entry in entries]


def _not_run(value: PrintedValue) -> dict[str, str]:
    absent = dict.fromkeys(("mean", "sd", "trials", "difference", "tolerance", "noise"), "")
    sd = "" if value.sd is None else f"{value.sd:g}"
    cell = {"exhibit": value.exhibit, **value.cell}
    cell |= {key: getattr(value, key) for key in ("method", "metric", "split")}
    notes = {key: getattr(value, key) for key in ("apart", "set_up", "source", "note")}
    numbers = {"printed": f"{value.value:g}", "printed_sd": sd, **absent}
    return {**cell, **numbers, "verdict": "not run", **notes}


def claims_of(text: str) -> list[list[dict[str, str]]]:
    """Group the rows of a claims.csv, one for each check, by claim."""
    by_claim: dict[str, list[dict[str, str]]] = {}
    for row in csv.DictReader(io.StringIO(text, newline="")):
        # records of an earlier form lack some columns
        by_claim.setdefault(row["claim"], []).append(dict.fromkeys(OF_CLAIMS, "") | row)
    return list(by_claim.values())


def judged_again(row: Row, numbers: pd.DataFrame) -> dict[str, str]:
    """Return a row of a printed.csv with the mean and the verdict from the exhibit's numbers.

    The tolerance stays as it is written: it holds the errors of both means.
    """
    again = dict(row)
    if row["verdict"] not in JUDGED_HERE or not row["tolerance"]:
        return again
    matching = select_series(final(numbers), row["metric"], row["split"])
    for key in list(row)[: list(row).index("mean")]:
        if key in matching and key not in ("metric", "split"):
            text = matching[key].map(cell_text)
            matching = matching[text == cell_text(_number(row[key]))]
    if len(matching) != 1:
        return again
    mean = float(matching["mean"].iloc[0])
    if math.isclose(mean, float(row["mean"] or "nan"), rel_tol=1e-6) or math.isinf(mean):
        return again
    away = difference(mean, float(row["printed"]))
    again |= {"mean": f"{mean:.10g}", "difference": f"{away:.10g}"}
    far = abs(away) > float(row["tolerance"]) + ROUNDING
    return again | {"verdict": OPEN if row["set_up"] and far else own_verdict(again)}


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
