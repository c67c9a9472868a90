"""The page of a scale, from the files of its exhibits alone: json, csv and choice.csv.

It needs neither the plan nor the results, so the same page can be made from what was recorded.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.api import CHOICES
from fedrepro.core.artifacts import read_json_of
from fedrepro.core.kinds import METHOD_KINDS, STAGE_WORDS
from fedrepro.core.metrics import SIZES, all_metrics, size_text
from fedrepro.drawings.layout import METHOD, Arrangement, at, name_of, table_of
from fedrepro.drawings.tables import TableRow, TextCell, TextTable, html
from fedrepro.numbers.choice import STOPPED
from fedrepro.numbers.claims.judging import CONFIDENCE
from fedrepro.numbers.counted import claim_counts, printed_counts
from fedrepro.numbers.files import TIMES, open_exhibit, read_claims
from fedrepro.numbers.series import select
from fedrepro.numbers.set_up import settled
from fedrepro.numbers.summary import ROUND

SCALES = {
    "tiny": "two client counts and two trials, to see that everything runs; not a result",
    "quick": "small data that ship with the software, few trials, minutes on two cores",
    "paper": "the data, sizes and trials of the papers",
}
SIZE_METRICS = ("hidden_units", "parameters")
LABELS = {
    "exact": "a count, and exact",
    "identity": "follows from how the method is defined",
    "ours": "no outcome is named; what is judged is ours",
}


MOST_ROWS = 40  # of a table; a longer one is left to the csv
NUMBERS = (
    "Test accuracy in percent, mean ± sample standard deviation over trials, and the size of what "
    "predicts: hidden units where layers are rows of units, parameters, and megabytes of them. "
    "“of” compares with all clients' units side by side, the concatenation. Bold: the best method "
    "at this point, where no other is written alike. Grey: bounds and controls."
)


@dataclass(frozen=True)
class Shown:
    """An exhibit as the page shows it.

    fragment: its html if it is a table. seconds: by stage. printed: rows of what is printed, as
    text.
    """

    key: str
    about: Mapping[str, Any]
    numbers: pd.DataFrame
    choice: pd.DataFrame
    fragment: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    printed: Sequence[Mapping[str, str]] = ()

    @property
    def anchor(self) -> str:
        return self.key.replace("/", "-")

    @property
    def alt(self) -> str:
        """What the picture shows, for those who do not see it."""
        labels = ", ".join(method["label"] for method in self.about["methods"])
        return f"{self.about['title']}. Lines for {labels}. The numbers are in the table below."

    @property
    def is_table(self) -> bool:
        """Whether there is a table to look at, in the place of a figure."""
        return bool(self.fragment)

    @property
    def files(self) -> list[tuple[str, str]]:
        """What there is to look at: suffix and name."""
        table = [("html", "table, html"), ("md", "markdown"), ("tex", "LaTeX")]
        table.append(("printed.csv", "beside what is printed, csv"))
        if TIMES in self.about["files"]:
            table.append(("times.csv", "measured times, csv"))
        return table if self.is_table else [("svg", "figure, svg"), ("png", "png")]

    @property
    def combinations(self) -> int:
        """Methods, counted once for each of their settings that are all shown."""
        shown = ["method", *self.about["columns"]["settings"]]
        return len(self.numbers[shown].drop_duplicates())

    @cached_property
    def table(self) -> TextTable | None:
        """Accuracy and size per method and point; None if there would be too many to read.

        Of simulations, which have neither, every number.
        """
        if self.is_table or self.combinations > MOST_ROWS:
            return None
        if not self.about["data"]:
            return self._every_number()
        columns = self.about["columns"]
        arranged = Arrangement((METHOD, *columns["settings"]), tuple(columns["points"]))
        return table_of(self.about, self.numbers, arranged, self._below, caption=NUMBERS)

    def _every_number(self) -> TextTable:
        """A row for each method and place, a column for each number, all as they ended."""
        known = all_metrics()
        leading = [*self.about["columns"]["points"], *self.about["columns"]["settings"]]
        metrics = list(dict.fromkeys(self.final["metric"]))
        rows = []
        for place, own in self.final.groupby([*leading, METHOD], sort=False, dropna=False):
            means = dict(zip(own["metric"], own["mean"], strict=True))
            cells = tuple(TextCell(text=_plain(means.get(name, math.nan))) for name in metrics)
            rows.append(TableRow(tuple(_plain(part) for part in place), cells))
        heads = tuple((known[name].title,) for name in metrics)
        corner = (*map(name_of, leading), "Method")
        return TextTable("Means over trials, at the end.", corner, heads, tuple(rows))

    @property
    def numbers_table(self) -> str:
        return html(self.table) if self.table else ""

    @property
    def handed(self) -> str:
        """What each method is handed beyond weights, and what choosing its setting reads."""
        rows = []
        for method in self.about["methods"]:
            texts = ["; ".join(method["needs"].values()) or "nothing"]
            texts.append("; ".join(method.get("discloses", {}).values()))
            cells = tuple(TextCell(text=text or " ") for text in texts)
            rows.append(TableRow((method["label"], METHOD_KINDS[method["kind"]].words), cells))
        heads = (("Handed",), ("Read to choose",))
        return html(TextTable("", ("Method", "Kind"), heads, tuple(rows)), "texts")

    @property
    def choices(self) -> str:
        """Every setting of every swept method; the chosen one in bold."""
        leading = [*self.about["columns"]["points"], *self.about["columns"]["settings"]]
        rows = []
        for row in _records(self.choice):
            texts = (
                _percent(row["criterion_mean"], row["criterion_sd"]),
                _percent(row["test_mean"], row["test_sd"]),
                _size(row["hidden_units"], row.get("parameters", math.nan)) or " ",
            )
            chosen = row["chosen"] == "true"
            heads = (*(_plain(row[key]) for key in leading), row["method"], _tried(row))
            rows.append(TableRow(heads, tuple(TextCell(text=t, best=chosen) for t in texts)))
        if not rows:
            return ""
        corner = (*map(name_of, leading), "Method", "Setting")
        shown = (("Chosen by",), ("Test accuracy (%)",), ("Size",))
        return html(TextTable("", corner, shown, tuple(rows)))

    @property
    def times(self) -> list[tuple[str, str]]:
        return [(STAGE_WORDS.get(stage, stage), duration(s)) for stage, s in self.seconds.items()]

    @property
    def total(self) -> str:
        return duration(sum(self.seconds.values())) if self.seconds else ""

    def _below(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """Size, and the chosen setting, under an accuracy."""
        own = at(self.final, row)
        units, parameters = (_value(own, metric) for metric in SIZE_METRICS)
        stacked = self._stacked(row) if "matched_share" in set(own["metric"]) else 0.0
        lines = [_size(units, parameters, stacked)]
        method = next(m for m in self.about["methods"] if m["label"] == row["method"])
        if method["swept"]:
            chosen = at(self.choice[self.choice["chosen"] == "true"], row)
            lines += [_setting(one) for one in _records(chosen)]
        return tuple(filter(None, lines))

    @cached_property
    def final(self) -> pd.DataFrame:
        return self.numbers[self.numbers[ROUND].isna()] if ROUND in self.numbers else self.numbers

    def _stacked(self, row: Mapping[str, Any]) -> float:
        """Hidden units of all clients side by side, as measured on the control that does so."""
        labels = [m["label"] for m in self.about["methods"] if m["name"] == "concatenation"]
        lost = dict.fromkeys(self.about["columns"]["settings"], math.nan)
        if not labels:
            return 0.0
        return _value(at(self.final, {**row, **lost, "method": labels[0]}), "hidden_units")


def load(folder: Path, key: str, scale: str) -> Shown:
    """An exhibit from its files in `folder`, without measured seconds."""
    files = open_exhibit(folder, key, scale)
    shown = Shown(key, files.about, files.numbers, files.table(".choice.csv"))
    if ".html" not in files.suffixes:
        return shown
    text = files.read(".printed.csv").decode()
    printed = list(csv.DictReader(io.StringIO(text, newline="")))
    return replace(shown, fragment=files.read(".html").decode(), printed=printed)


def load_maps(folder: Path) -> list[dict[str, Any]]:
    """What the drawings of partitions in `folder`, beside the page, show."""
    return _drawings(folder, "maps.json", "partitions")


def load_graphs(folder: Path) -> list[dict[str, Any]]:
    """What the drawings of graphs in `folder`, beside the page, show."""
    return _drawings(folder, "graphs.json", "graphs")


def _drawings(folder: Path, name: str, what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_json_of(folder / name, {what: list}, folder)[what]
    return [entry | {"image": f"{folder.name}/{entry['image']}"} for entry in found]


def load_claims(paths: Sequence[Path]) -> dict[str, list[list[dict[str, str]]]]:
    """Paper -> its claims, each as the rows of its checks, as text."""
    found: dict[str, list[list[dict[str, str]]]] = {}
    for path in paths:
        frame = pd.read_csv(io.StringIO(read_claims(path)), dtype=str, keep_default_na=False)
        claims: dict[str, list[dict[str, str]]] = {}
        for row in frame.to_dict("records"):
            claims.setdefault(row["claim"], []).append({str(k): v for k, v in row.items()})
        found[path.parent.name] = list(claims.values())
    return found


def page(
    scale: str,
    exhibits: Sequence[Shown],
    partitions: Sequence[Mapping[str, Any]] = (),
    claims: Mapping[str, Sequence[Any]] | None = None,
    graphs: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The page as one HTML file; figures are referred to beside it."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fedrepro.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    papers: dict[str, list[Shown]] = {}
    for shown in exhibits:
        papers.setdefault(shown.about["paper"]["name"], []).append(shown)
    notes = [data["stand_in"] for shown in exhibits for data in shown.about["data"]]
    counted = {name: _counts(own, (claims or {}).get(name, ())) for name, own in papers.items()}
    counted |= {
        name: claim_counts(found) for name, found in (claims or {}).items() if name not in papers
    }
    return environment.get_template("page.html.j2").render(
        scale=scale,
        meaning=SCALES[scale],
        papers=list(papers.values()),
        partitions=partitions,
        graphs=graphs,
        claims=claims or {},
        counts={name: told for name, told in counted.items() if told},
        interval=interval,
        labels=LABELS,
        stand_ins=list(dict.fromkeys(note for note in notes if note)),
        criterion=criterion,
    )


def _counts(exhibits: Sequence[Shown], claims: Sequence[Any]) -> list[str]:
    """What became of the printed values and of the claims of a paper, in sentences."""
    numbers = {shown.key.partition("/")[2]: shown.numbers for shown in exhibits}
    rows = [settled(row, numbers.get) for shown in exhibits for row in shown.printed]
    return [*printed_counts(rows), *claim_counts(claims)]


def criterion(method: Mapping[str, Any]) -> str:
    """What a setting of a method was chosen by, in words; earlier descriptions name the rule."""
    return str(method.get("criterion") or CHOICES[method["choice"]].words)


def interval(row: Mapping[str, str]) -> str:
    """The value that decides a check, and its interval, with its confidence if it is not 95 %."""
    level = ""
    if row["confidence"] not in ("", f"{CONFIDENCE:g}"):
        level = f" at {100 * float(row['confidence']):.4g} %"
    if not row["value"]:
        return row["low"] and f"more than {float(row['low']):.4g}{level}"
    value = f"{float(row['value']):.4g}"
    if not row["low"] or not row["high"]:
        return f"{value}, error unknown"
    ends = f"{float(row['low']):.4g} … {float(row['high']):.4g}{level}"
    return value if row["low"] == row["high"] else f"{value} ({ends})"


def duration(seconds: float) -> str:
    """Seconds for people: 0.4 s, 12 s, 3 min 20 s, 1 h 12 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]


def _tried(row: Mapping[str, Any]) -> str:
    """A setting, and after how many rounds a race stopped it."""
    at = row.get(STOPPED[0], math.nan)
    return _setting(row) if math.isnan(at) else f"{_setting(row)}; stopped after round {at:.0f}"


def _setting(row: Mapping[str, Any]) -> str:
    """The chosen values of a row of choices, such as sigma2 = 0.1, each after its parameter."""
    pairs = zip(row["parameter"].split(", "), row["value"].split(", "), strict=True)
    return ", ".join(f"{key} = {value}" for key, value in pairs)


def _plain(value: Any) -> str:
    """A number without needless digits, or a text; nothing where a method lacks the parameter."""
    if isinstance(value, str):
        return value
    return "" if pd.isna(value) else f"{value:g}"


def _value(rows: pd.DataFrame, metric: str) -> float:
    """The mean of a metric of no split; not-a-number where there is none."""
    found = select(rows, metric, "")["mean"]
    return float(found.iloc[0]) if len(found) else math.nan


def _percent(mean: float, sd: float) -> str:
    """A share in percent, with its sd where there is one."""
    if pd.isna(mean):
        return "–"
    return f"{100 * mean:.2f}" if pd.isna(sd) else f"{100 * mean:.2f} ± {100 * sd:.2f}"


def _size(units: float, parameters: float, stacked: float = 0.0) -> str:
    """Hidden units where there are such, of all clients' if asked for, parameters and bytes."""
    found = []
    if not pd.isna(units):
        of = f" of {stacked:.0f}" if stacked else ""
        found.append(f"{units:.0f}{of} units")
    if not pd.isna(parameters):
        found += [size_text(parameters, SIZES[name]) for name in ("parameters", "megabytes")]
    return ", ".join(found)
