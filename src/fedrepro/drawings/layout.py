"""From the numbers of an exhibit to its table: rows, columns and the text of each cell.

It reads an exhibit's files alone (json, csv), so that the page and the record need neither the plan
nor the config.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fedrepro.core.metrics import SIZES, TIMES, Metric, all_metrics, size_text
from fedrepro.drawings.tables import COUNT, PERCENT, NumberForm, TableRow, TextCell, TextTable
from fedrepro.drawings.words import trials_text
from fedrepro.numbers.pairing import BESIDE, as_shown
from fedrepro.numbers.series import FAILED, select
from fedrepro.planning.drawing import final
from fedrepro.planning.exhibit import CASE
from fedrepro.verdicts.counted import reasons, word_of

METHOD = "method"
# counted units; any other has decimals
WHOLE = ("units", "numbers", "passes", "rounds", "messages", "bytes", "clients", "updates")
NAMES = {
    "clients": "J",
    METHOD: "Method",
    CASE: "",
    "sigma2": "σ²",
    "sigma02": "σ₀²",
    "gamma0": "γ₀",
    "epsilon": "ε",
    "epsilon_hidden": "ε hidden",
    "clusters": "m_ε",
    "points": "p",
}
Place = tuple[str, ...]


@dataclass(frozen=True)
class Arrangement:
    """The keys (method, case, parameters) of rows and of columns, and the number in the cells.

    `best` says across which cells the best is marked: those of a column or of a row.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    metric: str = "accuracy"
    split: str = "test"
    best: str = "column"


@dataclass(frozen=True)
class Entry:
    """One number of the table: its place, and its row of the csv."""

    down: Place
    across: Place
    row: Mapping[str, Any]
    method: Mapping[str, Any]
    paired: str = ""  # what is shown in place of its mean, if that is of fewer trials than others


Below = Callable[[Mapping[str, Any]], tuple[str, ...]]  # the row of a number -> smaller lines


def arrangement_of(about: Mapping[str, Any]) -> Arrangement:
    """Return an exhibit's arrangement; by default methods and settings go down, points across."""
    points, shown = about["columns"]["points"], about["columns"]["settings"]
    wanted = drawing_of(about)
    rows = tuple(wanted.get("rows") or ()) or (METHOD, *shown)
    columns = tuple(wanted.get("columns") or ()) or tuple(k for k in points if k not in rows)
    options = {
        key: wanted[key] for key in ("metric", "split", "best") if wanted.get(key) is not None
    }
    return Arrangement(rows, columns, **options)


def drawing_of(about: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the drawing of an exhibit by name with its options, also from an older record."""
    settings = about["settings"]
    drawing: Mapping[str, Any] | str = settings["drawing"]
    if isinstance(drawing, str):
        return {"name": drawing, **(settings.get("table") or {})}
    return drawing


def table_of(
    about: Mapping[str, Any],
    numbers: pd.DataFrame,
    arranged: Arrangement,
    below: Below | None = None,
    printed: pd.DataFrame | None = None,
    caption: str = "",
) -> TextTable:
    """Arrange the numbers of one metric as a table; parameters of one value have no head."""
    shown = as_shown(numbers)
    last = final(shown)
    wanted = select(last, arranged.metric, arranged.split).to_dict("records")
    entries = _entries(about, [{str(k): v for k, v in row.items()} for row in wanted], arranged)
    downs, acrosses = (_ordered(entries, about, arranged, side) for side in ("rows", "columns"))
    at_place = {(entry.down, entry.across): entry for entry in entries}
    best = _best(entries, arranged)
    notes = _Notes(printed)

    def cell(place: tuple[Place, Place]) -> TextCell:
        if place not in at_place:
            return TextCell(text=" ")
        text_cell = _cell(at_place[place], arranged, last, below or nothing_below, notes)
        return replace(text_cell, best=place in best)

    soft = {e.down: e.method["reference"] and METHOD in arranged.rows for e in entries}
    rows = tuple(
        TableRow(
            _heads(arranged.rows, down, plain=True),
            tuple(cell((down, across)) for across in acrosses),
            soft[down],
        )
        for down in downs
    )
    several = [len({a[at] for a in acrosses}) > 1 for at in range(len(arranged.columns))]
    kept = several if any(several) else [True] * len(several)
    heads = tuple(
        tuple(itertools.compress(_heads(arranged.columns, across), kept)) for across in acrosses
    )
    corner = tuple(name_of(key) for key in arranged.rows)
    return TextTable(caption, corner, heads, rows, tuple(notes.texts))


def held(about: Mapping[str, Any], numbers: pd.DataFrame) -> str:
    """Write data, parameters of one value, and trials: Digits (8×8) · J = 4 · 2 trials.

    A reduction against the paper comes last. With measured times the machine stands for trials.
    """
    titles = ", ".join(dict.fromkeys(data["title"] for data in about["data"]))
    values = {key: list(dict.fromkeys(numbers[key])) for key in about["columns"]["points"]}
    lone = {key: cell_text(distinct[0]) for key, distinct in values.items() if len(distinct) == 1}
    lone.pop(CASE, None)
    trials = trials_text(*sorted(set(numbers["trials"].astype(int))))
    if arrangement_of(about).metric in TIMES:
        trials = f"measured on {' and '.join(machines(about))}"
    reduced = about["settings"].get("reduced")
    last = [trials, f"reduced: {reduced}"] if reduced else [trials]
    return " · ".join([titles, *_heads(tuple(lone), tuple(lone.values())), *last])


def machines(about: Mapping[str, Any]) -> list[str]:
    """List the processors, or other devices, that computed an exhibit."""
    names = (
        origin["machine"]["cpu"] if origin["device"] == "cpu" else origin["device"]
        for origin in about["computed"]
    )
    return list(dict.fromkeys(names))


def _entries(
    about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], arranged: Arrangement
) -> list[Entry]:
    """Return the numbers in the order of the csv."""
    methods = {method["label"]: method for method in about["methods"]}
    return [
        Entry(
            tuple(cell_text(row.get(key)) for key in arranged.rows),
            tuple(cell_text(row.get(key)) for key in arranged.columns),
            row,
            methods[row[METHOD]],
            about.get("pairs", {}).get(row[METHOD], ""),
        )
        for row in rows
        if row[METHOD] in methods
    ]


def _ordered(
    entries: Sequence[Entry], about: Mapping[str, Any], arranged: Arrangement, side: str
) -> list[Place]:
    """Order the places down or across: each part as its values first appear."""
    keys = arranged.rows if side == "rows" else arranged.columns
    places = [e.down if side == "rows" else e.across for e in entries]
    ranks = [list(dict.fromkeys(place[at] for place in places)) for at in range(len(keys))]
    for at, key in enumerate(keys):
        if key == METHOD:
            ranks[at] = [method["label"] for method in about["methods"]]
    return sorted(
        dict.fromkeys(places),
        key=lambda place: [rank.index(text) for rank, text in zip(ranks, place, strict=True)],
    )


def _heads(keys: Sequence[str], place: Place, *, plain: bool = False) -> tuple[str, ...]:
    """Write the heads of a row or column, one text for each key; `plain` leaves out names."""
    heads = []
    for key, value in zip(keys, place, strict=True):
        shown = widths(value) if key == "hidden" else value
        bare = plain or key in (METHOD, CASE) or not value
        heads.append(shown if bare else f"{name_of(key)} = {shown}")
    return tuple(heads)


def _cell(
    entry: Entry,
    arranged: Arrangement,
    numbers: pd.DataFrame,
    below: Below,
    notes: _Notes,
) -> TextCell:
    row = entry.row
    value = float(row["mean"])
    spread = None if pd.isna(row["sd"]) else float(row["sd"])
    printed, verdict, marks = notes.of(row, form_of(arranged.metric))
    if cell_text(row.get(BESIDE)):
        marks = (*marks, *notes.mark(entry.paired))
    return TextCell(
        value=value,
        spread=spread,
        form=form_of(arranged.metric),
        text="" if math.isfinite(value) else _beyond(row, numbers),
        below=below(row),
        printed=printed,
        verdict=verdict,
        notes=marks,
    )


def _beyond(row: Mapping[str, Any], numbers: pd.DataFrame) -> str:
    """Write the text for rounds that were not enough, or for a method that failed."""
    if math.isnan(row["mean"]):
        return "" if at(select(numbers, FAILED, ""), row).empty else FAILED
    done = at(select(numbers, "rounds", ""), row)
    most = max((float(v) for text in done["by_trial"] for v in text.split()), default=math.nan)
    return f"> {COUNT.text(most)}" if math.isfinite(most) else "not reached"


def at(numbers: pd.DataFrame, row: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of the same method, setting and point as a row of another metric."""
    names = list(numbers.columns)
    for key in (*names[: names.index(METHOD)], METHOD):
        column = numbers[key]
        numbers = numbers[column.isna() if pd.isna(row[key]) else column == row[key]]
    return numbers


def _best(entries: Sequence[Entry], arranged: Arrangement) -> set[tuple[Place, Place]]:
    """Return the places of the best rivals; none where two are written alike."""
    better = meaning_of(arranged.metric).better
    lines: dict[Place, list[Entry]] = {}
    for entry in entries:
        if not entry.method["reference"] and math.isfinite(entry.row["mean"]):
            side = entry.across if arranged.best == "column" else entry.down
            lines.setdefault(side, []).append(entry)
    places = set()
    for rivals in lines.values() if better and arranged.best != "none" else ():
        top = max(rivals, key=lambda entry: better * entry.row["mean"])
        form = form_of(arranged.metric)
        alike = [e for e in rivals if form.text(e.row["mean"]) == form.text(top.row["mean"])]
        if len(alike) == 1 and len(rivals) > 1:
            places.add((top.down, top.across))
    return places


class _Notes:
    """The printed values of a table, and the footnotes of their notes."""

    def __init__(self, printed: pd.DataFrame | None) -> None:
        records = [] if printed is None else printed.to_dict("records")
        self.rows = [{str(key): value for key, value in row.items()} for row in records]
        self.keys = [] if printed is None else list(printed.columns)
        self.keys = self.keys[: self.keys.index("mean")] if self.keys else []
        self.texts: list[str] = []

    def of(self, row: Mapping[str, Any], form: NumberForm) -> tuple[str, str, tuple[int, ...]]:
        """Return the printed value in words, its verdict, and the numbers of its footnotes."""
        for printed_row in self.rows:
            if all(cell_text(printed_row[key]) == cell_text(row.get(key)) for key in self.keys):
                cells = {key: cell_text(value) for key, value in printed_row.items()}
                return _printed(printed_row, form), word_of(cells), self.mark(reasons(cells))
        return "", "", ()

    def mark(self, note: str) -> tuple[int, ...]:
        if not note:
            return ()
        if note not in self.texts:
            self.texts.append(note)
        return (self.texts.index(note) + 1,)


def _printed(row: Mapping[str, Any], form: NumberForm) -> str:
    value = float(row["printed"])
    if math.isinf(value):
        return "not reached"
    spread = "" if pd.isna(row["printed_sd"]) else f" ± {form.text(float(row['printed_sd']))}"
    return f"{form.text(value)}{spread}"


def form_of(metric: str) -> NumberForm:
    """Return the form of a metric: shares in percent, anything else as a count."""
    unit = meaning_of(metric).unit
    return PERCENT if unit.startswith("share") else NumberForm(digits=None if unit in WHOLE else 3)


def meaning_of(metric: str) -> Metric:
    """Return a metric by name; one that a record has and no method declares any longer is bare."""
    return all_metrics().get(metric) or Metric(metric, "", None, None, 0)


def nothing_below(row: Mapping[str, Any]) -> tuple[str, ...]:
    return ()


def sizes_below(numbers: pd.DataFrame, size: str) -> Below:
    """Return the text of a model's size under each number, in the exhibit's unit."""
    wanted = SIZES[size]

    def below(row: Mapping[str, Any]) -> tuple[str, ...]:
        sizes = at(select(numbers, wanted.metric, ""), row)["mean"]
        return (size_text(float(sizes.iloc[0]), wanted),) if len(sizes) else ()

    return below


def name_of(key: str) -> str:
    """Return the name of a parameter or a method in tables."""
    return NAMES.get(key, key.replace("_", " "))


def widths(value: str) -> str:
    """Shorten equal widths of layers, as 50@50; anything else stays as it is."""
    each = value.split("@")
    return f"{len(each)} × {each[0]}" if len(each) > len(set(each)) == 1 else " + ".join(each)


def cell_text(value: Any) -> str:
    """Write a value as it stands in a table: 5 for 5.0, nothing for a missing one."""
    if isinstance(value, str):
        return value
    return "" if value is None or pd.isna(value) else f"{value:g}"
