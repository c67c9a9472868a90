"""Arrange results as a table of texts, and write it as html by a template, which escapes texts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

import pandas as pd
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedrepro.core.metrics import SIZES, TIMES, Metric, all_metrics
from fedrepro.drawings.exhibits.table import TableDrawing
from fedrepro.drawings.lines_and_layout import GREEK
from fedrepro.drawings.style import trials_text
from fedrepro.numbers.trial_statistics import BESIDE, FAILED, as_shown
from fedrepro.numbers.verdicts.verdict_counts_and_unreported_settings import reasons, word_of
from fedrepro.planning.drawing_base import CASE, final, select_series

Form = Callable[[float], str]  # how numbers are written
HeadValues = tuple[str, ...]
Place = tuple[HeadValues, HeadValues]  # down, across
Row = Mapping[Any, Any]  # of a csv


@dataclass(frozen=True)
class TextCell:
    """A cell of a table: a number with its spread, or a text in its place.

    below: smaller lines under the number. printed: the paper's value. verdict: how our number
    compares with it. best: whether best of its row or column. notes: numbers of its footnotes.
    """

    number: str
    below: tuple[str, ...] = ()
    printed: str = ""
    verdict: str = ""
    best: bool = False
    notes: tuple[int, ...] = ()


@dataclass(frozen=True)
class TableRow:
    """A row of a table: headings and cells; `soft` if of a reference, such as pooled training."""

    heads: tuple[str, ...]
    cells: tuple[TextCell, ...]
    soft: bool = False


@dataclass(frozen=True)
class TextTable:
    """A table of texts; `heads`: columns' headings, top first; `corner`: titles of row headings."""

    caption: str
    corner: tuple[str, ...]
    heads: tuple[tuple[str, ...], ...]
    rows: tuple[TableRow, ...]
    footnotes: tuple[str, ...] = ()

    @property
    def levels(self) -> list[list[tuple[str, int]]]:
        """Return header rows from the top, each a list of (text, number of columns it spans)."""
        levels = []
        for depth in range(max((len(head) for head in self.heads), default=0)):
            # a text spans no further than the one above it
            runs = itertools.groupby(head[: depth + 1] for head in self.heads)
            levels.append([(above[depth], len(list(run))) for above, run in runs])
        return levels


@cache
def environment(*packages: str) -> Environment:
    """Return a jinja2 environment with templates of `packages`; it escapes texts, not `Markup`."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        finalize=lambda value: (
            Markup(escape(" ".join(value.split()))) if type(value) is str else value
        ),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def html(table: TextTable) -> str:
    """Return a table as html: one <table>, and a list of its footnotes if it has any."""
    return environment("fedrepro.drawings").get_template("table.html").render(table=table)


METHOD = "method"
# counted units; any other has decimals
WHOLE = ("units", "numbers", "passes", "rounds", "messages", "bytes", "clients", "updates")
NAMES = GREEK | {
    "clients": "J",
    METHOD: "Method",
    CASE: "",
    "epsilon_hidden": "ε hidden",
    "clusters": "m_ε",
    "points": "p",
}


def arrangement_of(about: Mapping[str, Any]) -> TableDrawing:
    """Return a table's layout from `about`, an exhibit's json; for a figure, the default one."""
    wanted: Any = about["settings"]["drawing"]
    if isinstance(wanted, str):  # as in an older record
        wanted = about["settings"].get("table") or {}
    options = {k: v for k in TableDrawing.model_fields if (v := wanted.get(k)) is not None}
    given = TableDrawing.model_construct(**{"sizes": False} | options)
    rows, columns = given.sides(about["columns"]["points"], about["columns"]["settings"])
    return given.model_copy(update={"rows": rows, "columns": columns})


def table_of(
    about: Mapping[str, Any],
    numbers: pd.DataFrame,
    arranged: TableDrawing,
    printed: pd.DataFrame | None = None,
    caption: str = "",
) -> TextTable:
    """Arrange an exhibit's results, from its json `about` and csv `numbers`, as a table of texts.

    `arranged` has the metric, rows and columns, `printed` (a printed.csv) the paper's values.
    """
    last = final(as_shown(numbers))
    labels = [method["label"] for method in about["methods"]]
    bounds = {method["label"] for method in about["methods"] if method["reference"]}
    sides, form = (arranged.rows, arranged.columns), number_form(arranged.metric)
    size = about["settings"]["size"] if arranged.sizes else None
    found: dict[Place, Row] = {}
    for row in select_series(last, arranged.metric, arranged.split).to_dict("records"):
        if row[METHOD] in labels:
            down, across = (tuple(cell_text(row.get(key)) for key in side) for side in sides)
            found[down, across] = row
    downs = _ordered([down for down, _ in found], arranged.rows, labels)
    acrosses = _ordered([across for _, across in found], arranged.columns, labels)
    best = _best(found, arranged, bounds)
    columns, known = list[str](), dict[HeadValues, Row]()  # of print, by the texts of its cell
    if printed is not None:
        columns = list(printed.columns)[: list(printed).index("mean")]
        for one in reversed(printed.to_dict("records")):
            known[tuple(cell_text(one[key]) for key in columns)] = one
    notes: dict[str, int] = {}  # footnotes, with their numbers

    def mark(note: str) -> tuple[int, ...]:
        return (notes.setdefault(note, len(notes) + 1),) if note else ()

    def of_print(row: Row) -> dict[str, Any]:
        """Return fields of `TextCell` (printed, verdict, notes) for a row; {} if not printed."""
        one = known.get(tuple(cell_text(row.get(key)) for key in columns))
        if one is None:
            return {}
        cells = {str(key): cell_text(value) for key, value in one.items()}
        value, sd = float(one["printed"]), one["printed_sd"]
        words = "not reached" if math.isinf(value) else number_text(form, value, sd)
        return {"printed": words, "verdict": word_of(cells), "notes": mark(reasons(cells))}

    def cell(place: Place) -> TextCell:
        row = found.get(place)
        if row is None:
            return TextCell(" ")
        value, given = float(row["mean"]), of_print(row)
        if cell_text(row.get(BESIDE)):
            paired = mark(about.get("pairs", {}).get(row[METHOD], ""))
            given["notes"] = (*given.get("notes", ()), *paired)
        text = number_text(form, value, row["sd"]) if math.isfinite(value) else _beyond(row, last)
        means = row_values(select_series(numbers, size, ""), row)["mean"] if size else ()
        below = tuple(f"{float(mean):,.0f} {SIZES[size]}" for mean in means[:1] if size)
        return TextCell(text, below, best=place in best, **given)

    soft = {down for (down, _), row in found.items() if row[METHOD] in bounds}
    rows = tuple(
        TableRow(
            _heads(arranged.rows, down, plain=True),
            tuple(cell((down, across)) for across in acrosses),
            METHOD in arranged.rows and down in soft,
        )
        for down in downs
    )
    several = [len({*texts}) > 1 for texts in zip(*acrosses, strict=True)]
    kept = several if any(several) else [True] * len(several)
    heads = (itertools.compress(_heads(arranged.columns, across), kept) for across in acrosses)
    corner = tuple(column_title(key) for key in arranged.rows)
    return TextTable(caption, corner, tuple(map(tuple, heads)), rows, tuple(notes))


def fixed_keys(about: Mapping[str, Any], numbers: pd.DataFrame) -> str:
    """Return a line on what all numbers of a table share, as "Digits (8×8) · J = 4 · 2 trials".

    It lists data sets, fixed parameters, and trials or, for times, machines, from the json `about`.
    """
    titles = ", ".join(dict.fromkeys(data["title"] for data in about["data"]))
    values = {key: numbers[key].unique() for key in about["columns"]["points"] if key != CASE}
    lone = {key: cell_text(distinct[0]) for key, distinct in values.items() if len(distinct) == 1}
    trials = trials_text(*sorted(set(numbers["trials"].astype(int))))
    if arrangement_of(about).metric in TIMES:
        trials = f"measured on {' and '.join(machines(about['computed']))}"
    return " · ".join([titles, *_heads(tuple(lone), tuple(lone.values())), trials])


def machines(origins: Iterable[Mapping[str, Any]]) -> list[str]:
    """List the processors or GPUs in `origins`, the records of how results were computed."""
    names = (
        one["machine"]["cpu"] if one["device"] == "cpu" else one["device"]
        for one in origins
        if "machine" in one
    )
    return list(dict.fromkeys(filter(None, names)))


def _ordered(
    places: Sequence[HeadValues], keys: Sequence[str], labels: list[str]
) -> list[HeadValues]:
    """Sort tuples of values of `keys`, once each: methods by `labels`, others as they come."""
    orders = [labels if key == METHOD else [p[at] for p in places] for at, key in enumerate(keys)]
    return sorted(dict.fromkeys(places), key=lambda place: [*map(list.index, orders, place)])


def _heads(keys: Sequence[str], place: HeadValues, *, plain: bool = False) -> tuple[str, ...]:
    """Return headings "J = 5" ("5" if `plain`) of a row or column with values `place` of `keys`."""
    heads = []
    for key, value in zip(keys, place, strict=True):
        shown = widths_text(value) if key == "hidden" else value
        bare = plain or key in (METHOD, CASE) or not value
        heads.append(shown if bare else f"{column_title(key)} = {shown}")
    return tuple(heads)


def _beyond(row: Row, numbers: pd.DataFrame) -> str:
    """Return the text for a csv row whose mean is nan or infinite; `numbers` is the whole csv."""
    if math.isnan(row["mean"]):
        return "–" if row_values(select_series(numbers, FAILED, ""), row).empty else FAILED
    done = row_values(select_series(numbers, "rounds", ""), row)
    most = max((float(v) for text in done["by_trial"] for v in text.split()), default=math.nan)
    return f"> {number_form('rounds')(most)}" if math.isfinite(most) else "not reached"


def row_values(numbers: pd.DataFrame, row: Row) -> pd.DataFrame:
    """Return the rows of `numbers` whose method and parameter values equal those of `row`."""
    for key in numbers.columns[: [*numbers.columns].index(METHOD) + 1]:
        column = numbers[key]
        numbers = numbers[column.isna() if pd.isna(row[key]) else column == row[key]]
    return numbers


def _best(found: Mapping[Place, Row], arranged: TableDrawing, bounds: set[str]) -> set[Place]:
    """Return the places in `found` whose number is the only best one of their row or column."""
    better, form = metric_meaning(arranged.metric).better, number_form(arranged.metric)
    if not better or arranged.best == "none":
        return set()
    lines: dict[HeadValues, dict[Place, float]] = {}
    for place, row in found.items():
        if row[METHOD] not in bounds and math.isfinite(row["mean"]):
            side = place[1] if arranged.best == "column" else place[0]
            lines.setdefault(side, {})[place] = row["mean"]
    places = set()
    for rivals in lines.values():
        top = max(rivals, key=lambda place: better * rivals[place])
        texts = [*map(form, rivals.values())]
        if texts.count(form(rivals[top])) == 1 < len(rivals):
            places.add(top)
    return places


def number_form(metric: str) -> Form:
    """Return a function that writes numbers of a metric: in percent, whole, or with decimals."""
    unit = metric_meaning(metric).unit
    if unit.startswith("share"):
        return lambda share: f"{100 * share:,.2f}"
    if unit in WHOLE:  # a mean of them may not be whole
        return lambda count: f"{count:,.{0 if count == round(count) else 1}f}"
    return lambda value: f"{value:,.3f}"


def number_text(form: Form, value: float, spread: float) -> str:
    """Write a number and its spread, each by `form`, as "94.12 ± 0.30"; no spread if it is nan."""
    return form(value) if pd.isna(spread) else f"{form(value)} ± {form(spread)}"


def metric_meaning(metric: str) -> Metric:
    """Return the metric named `metric`, with title and unit; an unknown metric has no unit."""
    return all_metrics().get(metric) or Metric(metric, "", None, None, 0)


def column_title(key: str) -> str:
    """Return how tables write the name of the parameter `key`, such as J for clients."""
    return NAMES.get(key, key.replace("_", " "))


def widths_text(value: str) -> str:
    """Write layer widths such as 50@50 as "2 × 50", or 50@20 as "50 + 20"."""
    each = value.split("@")
    return f"{len(each)} × {each[0]}" if len(each) > len(set(each)) == 1 else " + ".join(each)


def cell_text(value: Any) -> str:
    """Write a value for a cell of a table: 5 for 5.0, and "" for a missing value."""
    if isinstance(value, str):
        return value
    return "" if value is None or pd.isna(value) else f"{value:g}"
