"""The page of a scale, from the files of its exhibits alone: json, csv and choice.csv.

It needs neither the plan nor the results, so the same page can be made from what was recorded.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.api import CHOICES
from fedrepro.core.artifacts import read_json_of
from fedrepro.core.metrics import SIZES, size_text
from fedrepro.numbers.claims.judging import CONFIDENCE
from fedrepro.numbers.files import open_exhibit, read_claims
from fedrepro.numbers.summary import ROUND
from fedrepro.planning.exhibit import CASE

SCALES = {
    "tiny": "two client counts and two trials, to see that everything runs; not a result",
    "quick": "small data that ship with the software, few trials, minutes on two cores",
    "paper": "the data, sizes and trials of the papers",
}
KINDS = {
    "one_shot": "one-shot",
    "federated": "in rounds",
    "peer": "in rounds, without a server",
    "control": "control",
}
STAGES = {
    "train": "training local models",
    "aggregate": "one-shot methods and controls",
    "federate": "methods in rounds",
}
SIZE_METRICS = ("hidden_units", "parameters")


LABELS = {
    "exact": "a count, and exact",
    "identity": "follows from how the method is defined",
}


@dataclass(frozen=True)
class TableCell:
    """One method at one point, as text: accuracy, size, and the chosen setting."""

    accuracy: str
    size: str = ""
    chosen: str = ""
    best: bool = False


MOST_ROWS = 40  # of a table; a longer one is left to the csv


@dataclass(frozen=True)
class MethodRow:
    """One method of a table, or one of its settings that are all shown."""

    label: str
    reference: bool
    cells: list[TableCell]


@dataclass(frozen=True)
class Shown:
    """An exhibit as the page shows it; `seconds` are measured, by stage."""

    key: str
    about: Mapping[str, Any]
    numbers: pd.DataFrame
    choice: pd.DataFrame
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def anchor(self) -> str:
        return self.key.replace("/", "-")

    @property
    def alt(self) -> str:
        """What the picture shows, for those who do not see it."""
        labels = ", ".join(method["label"] for method in self.about["methods"])
        return f"{self.about['title']}. Lines for {labels}. The numbers are in the table below."

    @property
    def points(self) -> list[dict[str, Any]]:
        """The swept values of each point, in order."""
        columns = self.about["columns"]["points"]
        rows = self.numbers[columns].drop_duplicates().to_dict("records")
        return [{str(key): value for key, value in row.items()} for row in rows]

    @property
    def heads(self) -> list[str]:
        return [
            ", ".join(v if k == CASE else f"{_word(k)} = {v}" for k, v in point.items())
            for point in self.points
        ]

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Each method with the values of its shown parameters, one entry per combination."""
        found = []
        for method in self.about["methods"]:
            own = self.numbers[self.numbers["method"] == method["label"]]
            values = own[method["shown"]].drop_duplicates().to_dict("records")
            found += [
                {**method, "values": given} for given in (values if method["shown"] else [{}])
            ]
        return found

    @property
    def rows(self) -> list[MethodRow]:
        """Accuracy and size per method and point; the best of the rivals is marked.

        None if there would be too many to read.
        """
        methods = self.settings
        if len(methods) > MOST_ROWS:
            return []
        best = [
            max((self._mean(m, p) for m in methods if not m["reference"]), default=0.0)
            for p in self.points
        ]
        return [
            MethodRow(
                _named(method),
                method["reference"],
                [self._cell(method, p, top) for p, top in zip(self.points, best, strict=True)],
            )
            for method in methods
        ]

    @property
    def choices(self) -> list[list[str]]:
        """Every setting of every swept method, as text."""
        return [
            [
                *(_plain(row[key]) for key in self.choice_columns),
                row["method"],
                f"{row['parameter']} = {row['value']}",
                _percent(row["criterion_mean"], row["criterion_sd"]),
                _percent(row["test_mean"], row["test_sd"]),
                _size(row["hidden_units"], row.get("parameters", math.nan)),
                "chosen" if row["chosen"] == "true" else "",
            ]
            for row in self.choice.to_dict("records")
        ]

    @property
    def choice_columns(self) -> list[str]:
        """What tells the choices apart: what is swept, and parameters of which all is shown."""
        columns = self.about["columns"]
        return [*columns["points"], *columns["settings"]]

    @property
    def times(self) -> list[tuple[str, str]]:
        return [(STAGES.get(stage, stage), duration(s)) for stage, s in self.seconds.items()]

    @property
    def total(self) -> str:
        return duration(sum(self.seconds.values())) if self.seconds else ""

    def _at(self, method: Mapping[str, Any], point: Mapping[str, Any]) -> pd.DataFrame:
        wanted = self.numbers["method"] == method["label"]
        if ROUND in self.numbers:
            wanted &= self.numbers[ROUND].isna()
        for key, value in {**point, **method["values"]}.items():
            wanted &= self.numbers[key] == value
        rows: pd.DataFrame = self.numbers[wanted]
        return rows

    def _mean(self, method: Mapping[str, Any], point: Mapping[str, Any]) -> float:
        return _value(self._at(method, point), "accuracy", "test")[0]

    def _cell(self, method: Mapping[str, Any], point: Mapping[str, Any], best: float) -> TableCell:
        rows = self._at(method, point)
        mean, sd = _value(rows, "accuracy", "test")
        units, parameters = (_value(rows, metric, "")[0] for metric in SIZE_METRICS)
        stacked = self._stacked(point) if "matched_share" in set(rows["metric"]) else 0.0
        size = _size(units, parameters, stacked)
        chosen = self._chosen(method, point) if method["swept"] else ""
        return TableCell(_percent(mean, sd), size, chosen, not method["reference"] and mean == best)

    def _stacked(self, point: Mapping[str, Any]) -> float:
        """Hidden units of all clients side by side, as measured on the control that does so."""
        control = [m for m in self.settings if m["name"] == "concatenation"]
        return _value(self._at(control[0], point), "hidden_units", "")[0] if control else 0.0

    def _chosen(self, method: Mapping[str, Any], point: Mapping[str, Any]) -> str:
        wanted = (self.choice["method"] == method["label"]) & (self.choice["chosen"] == "true")
        for key, value in {**point, **method["values"]}.items():
            wanted &= self.choice[key] == value
        return f"{method['swept']} = {self.choice[wanted]['value'].iloc[0]}"


def load(folder: Path, key: str, scale: str) -> Shown:
    """An exhibit from its files in `folder`, without measured seconds."""
    files = open_exhibit(folder, key, scale)
    return Shown(key, files.about, files.table(".csv"), files.table(".choice.csv"))


def load_maps(folder: Path) -> list[dict[str, Any]]:
    """What the drawings of partitions in `folder`, beside the page, show."""
    path = folder / "maps.json"
    found: list[dict[str, Any]] = read_json_of(path, {"partitions": list}, folder)["partitions"]
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
    return environment.get_template("page.html.j2").render(
        scale=scale,
        meaning=SCALES[scale],
        papers=list(papers.values()),
        partitions=partitions,
        claims=claims or {},
        interval=interval,
        labels=LABELS,
        stand_ins=list(dict.fromkeys(note for note in notes if note)),
        kinds=KINDS,
        criterion=criterion,
    )


def criterion(method: Mapping[str, Any]) -> str:
    """What a setting of a method was chosen by, in words; earlier descriptions name the rule."""
    return str(method.get("criterion") or CHOICES[method["choice"]].words)


def interval(row: Mapping[str, str]) -> str:
    """The value that decides a check, and its interval, with its confidence if it is not 95 %."""
    if not row["value"]:
        return row["low"] and f"more than {float(row['low']):.4g}"
    value = f"{float(row['value']):.4g}"
    if not row["low"] or not row["high"]:
        return f"{value}, error unknown"
    ends = f"{float(row['low']):.4g} … {float(row['high']):.4g}"
    if row["confidence"] not in ("", f"{CONFIDENCE:g}"):
        ends += f" at {100 * float(row['confidence']):.4g} %"
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


def _named(method: Mapping[str, Any]) -> str:
    """A method, with the setting that a row is about."""
    given = ", ".join(f"{_word(k)} {_plain(v)}" for k, v in method["values"].items())
    return f"{method['label']}: {given}" if given else str(method["label"])


def _plain(value: Any) -> str:
    """A number without needless digits, or a text; nothing where a method lacks the parameter."""
    if isinstance(value, str):
        return value
    return "" if pd.isna(value) else f"{value:g}"


def _word(key: str) -> str:
    return "J" if key == "clients" else key


def _value(rows: pd.DataFrame, metric: str, split: str) -> tuple[float, float]:
    """Mean and sd of one metric; not-a-number where there is none."""
    found = rows[(rows["metric"] == metric) & (rows["split"] == split)]
    if found.empty:
        return float("nan"), float("nan")
    return float(found["mean"].iloc[0]), float(found["sd"].iloc[0])


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
